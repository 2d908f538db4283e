// Softmax over the classes of x (n, c, s), and its gradient: column by column, a column being the c
// entries at one (n, s).
//
// A column is shared by `lanes` threads of a block of 256, which takes 256 / lanes columns at a time.
// Neighbouring threads read what lies side by side: the classes of a column where s = 1, else columns.
//
//   lanes = 4, s = 1     thread  0 1 2 3 4 5 ...      s > 1, 64 columns     thread  0 1 ... 63 64 65
//                        column  0 0 0 0 1 1                                column  0 1 ... 63  0  1
//                        lane    0 1 2 3 0 1                                lane    0 0 ...  0  1  1

const int BLOCK = 256;  // threads

struct Share {
  int lane, own, per;  // which lane, which of the block's columns, how many those are

  __device__ Share(int lanes, int s) {
    const int t = threadIdx.x;
    per = BLOCK / lanes;
    lane = s == 1 ? t % lanes : t / per;
    own = s == 1 ? t / lanes : t % per;
  }
};

// The largest, or the sum, of what the lanes of a column have; for all of them.
template <typename S>
__device__ S joined(S value, bool largest, const Share& share, int lanes, S* shared) {
  S* mine = shared + share.lane * share.per + share.own;
  *mine = value;
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (share.lane < half) {
      const S other = mine[half * share.per];
      *mine = largest ? (other > *mine ? other : *mine) : *mine + other;
    }
    __syncthreads();
  }
  const S result = shared[share.own];
  __syncthreads();  // all have read it before any writes anew
  return result;
}

template <typename T, typename O>
__global__ void softmax(int columns, const T* __restrict__ x, int c, int s, int lanes, O* y) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const Share share(lanes, s);
  for (int first = blockIdx.x * share.per; first < columns; first += gridDim.x * share.per) {
    const int column = first + share.own, end = column < columns ? c : 0;
    const size_t start = (size_t)(column / s) * c * s + column % s;
    S most = S(__int_as_float(0xff800000)), sum = 0;  // minus infinity
    for (int k = share.lane; k < end; k += lanes) {
      const S value = x[start + (size_t)k * s];
      most = value > most ? value : most;
    }
    most = joined(most, true, share, lanes, shared);
    for (int k = share.lane; k < end; k += lanes) sum += exp(S(x[start + (size_t)k * s]) - most);
    sum = joined(sum, false, share, lanes, shared);
    for (int k = share.lane; k < end; k += lanes) {
      y[start + (size_t)k * s] = O(exp(S(x[start + (size_t)k * s]) - most) / sum);
    }
  }
}

template <typename T, typename O>
__global__ void softmax_gradient(int columns, const T* __restrict__ dy, const O* __restrict__ y,
                                 int c, int s, int lanes, O* dx) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const Share share(lanes, s);
  for (int first = blockIdx.x * share.per; first < columns; first += gridDim.x * share.per) {
    const int column = first + share.own, end = column < columns ? c : 0;
    const size_t start = (size_t)(column / s) * c * s + column % s;
    S sum = 0;
    for (int k = share.lane; k < end; k += lanes) {
      const size_t i = start + (size_t)k * s;
      sum += S(dy[i]) * S(y[i]);
    }
    sum = joined(sum, false, share, lanes, shared);
    for (int k = share.lane; k < end; k += lanes) {
      const size_t i = start + (size_t)k * s;
      dx[i] = O((S(dy[i]) - sum) * S(y[i]));
    }
  }
}
