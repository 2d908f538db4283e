// Softmax over the classes of x (n, c, s), its gradient and its loss: column by column, a column being the
// c entries at one (n, s).
//
// A column is shared by `lanes` threads of a block of 256, which takes 256 / lanes columns at a time.
// Neighbouring threads read what lies side by side: the classes of a column where s = 1, else columns.
//
//   lanes = 4, s = 1     thread  0 1 2 3 4 5 ...      s > 1, 64 columns     thread  0 1 ... 63 64 65
//                        column  0 0 0 0 1 1                                column  0 1 ... 63  0  1
//                        lane    0 1 2 3 0 1                                lane    0 0 ...  0  1  1

#include "block.cu"
#include "nll.cu"

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

// y = the softmax of the column that begins at `start`, or of none where `end` is 0.
template <typename T, typename O>
__device__ void softmax_of(const T* x, size_t start, int end, int s, int lanes, O* y,
                           const Share& share, typename Sum<T>::type* shared) {
  typedef typename Sum<T>::type S;
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

template <typename T, typename O>
__global__ void softmax(int columns, const T* __restrict__ x, int c, int s, int lanes, O* y) {
  __shared__ typename Sum<T>::type shared[BLOCK];
  const Share share(lanes, s);
  for (int first = blockIdx.x * share.per; first < columns; first += gridDim.x * share.per) {
    const int column = first + share.own, end = column < columns ? c : 0;
    const size_t start = (size_t)(column / s) * c * s + column % s;
    softmax_of<T, O>(x, start, end, s, lanes, y, share, shared);
  }
}

// prob = softmax of x, and loss = sum over columns of -log prob[label] / normalizer, where a label counts.
// With `counts` the normalizer is how many do, at least 1; with 2 it is just that, and the loss the sum, for
// others to be added. Each block leaves its sums in losses and valid; the last one there adds them.
// With `dx`, and a normalizer that does not count, dx is the gradient of dloss times the loss.
template <typename T, typename O>
__global__ void softmax_loss(int columns, const T* __restrict__ x, int c, int s, int lanes,
                             const O* __restrict__ labels, int has_ignore, int ignore, O* losses,
                             O* valid, int* arrived, int counts, O* normalizer, O* loss,
                             const O* dloss, O* dx, O* prob) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const Share share(lanes, s);
  const S tiny = sizeof(S) == 4 ? S(1.17549435e-38) : S(2.2250738585072014e-308);
  const S scale = dx ? S(*dloss) / S(*normalizer) : S(0);
  S sum = 0, count = 0;
  for (int first = blockIdx.x * share.per; first < columns; first += gridDim.x * share.per) {
    const int column = first + share.own, end = column < columns ? c : 0;
    const size_t start = (size_t)(column / s) * c * s + column % s;
    softmax_of<T, O>(x, start, end, s, lanes, prob, share, shared);
    __syncthreads();  // its probabilities are there
    for (int k = share.lane; dx && k < end; k += lanes) {
      const size_t i = start + (size_t)k * s;
      dx[i] = nll_gradient(prob[i], labels[column], k, has_ignore, ignore, scale);
    }
    if (share.lane != 0 || end == 0) continue;
    const O label = labels[column];
    if (has_ignore && label == O(ignore)) continue;
    count += 1;
    if (label > O(-1) && label < O(c)) {
      const S p = prob[start + (size_t)(int)label * s];
      sum -= log(p < tiny ? tiny : p);  // a probability that is no number stays so
    } else {
      sum = S(nanf(""));  // no class: the solver sees the NaN and names it
    }
  }
  sum = sum_of_block(sum, shared);
  count = sum_of_block(count, shared);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = sum;
    valid[blockIdx.x] = count;
  }
  if (!last_of(gridDim.x, arrived)) return;
  sum = count = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += BLOCK) {
    sum += S(__ldcg(losses + i));
    count += S(__ldcg(valid + i));
  }
  sum = sum_of_block(sum, shared);
  count = sum_of_block(count, shared);
  if (threadIdx.x > 0) return;
  if (counts) *normalizer = O(count < 1 && counts == 1 ? 1 : count);
  *loss = O(counts == 2 ? sum : sum / S(*normalizer));
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
