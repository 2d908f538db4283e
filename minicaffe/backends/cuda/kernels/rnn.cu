// One step in time of a plain recurrent net: a thread takes one number of one stream, a row of d.

// h = tanh(x + cont r), where there is an r
template <typename T>
__global__ void tanh_unit(int total, const T* __restrict__ x, const T* __restrict__ r,
                          const T* __restrict__ cont, int d, T* __restrict__ h) {
  typedef typename Sum<T>::type S;
  const long long step = (long long)blockDim.x * gridDim.x;
  for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {
    h[at] = T(tanh(S(x[at]) + (r ? S(cont[at / d]) * S(r[at]) : S(0))));
  }
}

// dx = (dh + after r) (1 - h^2), where there is an r
template <typename T>
__global__ void tanh_unit_gradient(int total, const T* __restrict__ h, const T* __restrict__ dh,
                                   const T* __restrict__ r, const T* __restrict__ after, int d,
                                   T* __restrict__ dx) {
  typedef typename Sum<T>::type S;
  const long long step = (long long)blockDim.x * gridDim.x;
  for (long long at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {
    const S y = h[at], dy = S(dh[at]) + (r ? S(after[at / d]) * S(r[at]) : S(0));
    dx[at] = T(dy * (1 - y * y));
  }
}
