// One step in time of an LSTM: a thread takes one cell of one stream, of which it finds the four numbers
// i, f, o, g at the same place in each quarter of a row.
//
//   row n of x, r, acts, dx (n, 4 d)      [ i . . . | f . . . | o . . . | g . . . ]
//   row n of c_prev, c, h (n, d)          [ c . . . ]
//
// The cells are of type C, which may be wider than T: they add up over many steps.

template <typename S>
__device__ S sigmoid(S x) {
  return 1 / (1 + exp(-x));
}

// i, f, o = sigmoid and g = tanh of x + cont r;  c = cont f c_prev + i g,  h = o tanh(c)
template <typename T, typename C>
__global__ void lstm_unit(int total, const T* x, const T* __restrict__ r,
                          const T* __restrict__ cont, const C* __restrict__ c_prev, int d, T* acts,
                          C* __restrict__ c, T* __restrict__ h) {
  typedef typename Sum<T>::type S;
  const long long step = (long long)blockDim.x * gridDim.x;
  for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {
    const long long n = at / d, first = at + 3 * n * d;
    const S goes_on = cont[n];
    S act[4];
    for (int k = 0; k < 4; k++) {
      const long long place = first + (long long)k * d;
      const S given = S(x[place]) + (r ? goes_on * S(r[place]) : S(0));
      act[k] = k < 3 ? sigmoid(given) : tanh(given);
      acts[place] = T(act[k]);
    }
    const S cell = goes_on * act[1] * S(c_prev[at]) + act[0] * act[3];
    c[at] = C(cell);
    h[at] = T(act[2] * tanh(cell));
  }
}

// dx of acts; dc of c in, of c_prev out. The gradient of h is dh + after r.
template <typename T, typename C>
__global__ void lstm_unit_gradient(int total, const T* __restrict__ acts,
                                   const C* __restrict__ c_prev, const C* __restrict__ c,
                                   const T* __restrict__ cont, const T* __restrict__ dh,
                                   const T* __restrict__ r, const T* __restrict__ after, int d,
                                   C* dc, T* __restrict__ dx) {
  typedef typename Sum<T>::type S;
  const long long step = (long long)blockDim.x * gridDim.x;
  for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {
    const long long n = at / d, first = at + 3 * n * d;
    S act[4];
    for (int k = 0; k < 4; k++) act[k] = acts[first + (long long)k * d];
    const S i = act[0], f = act[1], o = act[2], g = act[3];
    const S out = tanh(S(c[at])), dout = S(dh[at]) + S(after[n]) * S(r[at]);
    const S cell = S(dc[at]) + dout * o * (1 - out * out), before = cell * S(cont[n]);
    dx[first] = T(cell * g * i * (1 - i));
    dx[first + d] = T(before * S(c_prev[at]) * f * (1 - f));
    dx[first + 2 * (long long)d] = T(dout * out * o * (1 - o));
    dx[first + 3 * (long long)d] = T(cell * i * (1 - g * g));
    dc[at] = C(before * f);
  }
}
