// Rows of entries brought to mean 0 and spread 1, then scaled and shifted feature by feature; and the way back.
//
// x is seen as (batch, outer, kept, inner): row (b, k) is made of all its outer and inner entries.
//
//   BatchNorm   (1, n, c, places)      a row is a channel of all samples
//   MVN         (1, 1, n c, places)    a row is a channel of one sample
//   LayerNorm   (1, 1, m, k)
//   Normalize   (n, c, places, 1)      a row is the channels of a place
//
// A block takes `wide` neighbouring rows with 256 / wide lanes each. Neighbouring threads read what lies side
// by side: rows where inner = 1, else entries of a row.
//
//   wide = 2, inner > 1    thread 0 1 2 .. 127 128 ..     inner = 1    thread 0 1 2 3 ..
//                          row    0 0 0 ..   0   1 ..                  row    0 1 0 1 ..
//
// Blocks (.., p) take the p-th part of each row's entries and leave two numbers of it in `parts`
// (part, 2, row), which a second kernel joins, always in the same order.

const int BLOCK = 256;  // threads

// How a row's spread becomes the rate that its entries are multiplied by.
const int VARIANCE = 0;   // 1 / sqrt(variance + eps)
const int DEVIATION = 1;  // 1 / (sqrt(variance) + eps)
const int MEAN = 2;       // 1
const int LENGTH = 3;     // 1 / sqrt(sum of squares + eps); the mean stays

struct Rows {
  int outer, kept, inner;

  __device__ size_t place(int row, int entry) const {
    const size_t o = (size_t)(row / kept) * outer + entry / inner;
    return (o * kept + row % kept) * inner + entry % inner;
  }
  __device__ int of(int index) const {
    return index / (outer * kept * inner) * kept + index / inner % kept;
  }
};

struct Share {
  int wide, lanes, lane, own, row, first, last;

  __device__ Share(const Rows& rows, int count, int wide) : wide(wide), lanes(BLOCK / wide) {
    const int t = threadIdx.x, part = blockIdx.y, parts = gridDim.y;
    const long long entries = rows.outer * rows.inner;
    lane = rows.inner == 1 ? t / wide : t % lanes;
    own = rows.inner == 1 ? t % wide : t / lanes;
    row = blockIdx.x * wide + own;
    first = int(entries * part / parts);
    last = row < count ? int(entries * (part + 1) / parts) : first;
  }
};

// The sum of what the lanes of a row have; for all of them.
template <typename S>
__device__ S joined(S value, const Share& share, S* shared) {
  S* mine = shared + share.lane * share.wide + share.own;
  *mine = value;
  __syncthreads();
  for (int half = share.lanes / 2; half > 0; half /= 2) {
    if (share.lane < half) *mine += mine[half * share.wide];
    __syncthreads();
  }
  const S sum = shared[share.own];
  __syncthreads();  // all have read it before any writes anew
  return sum;
}

template <typename S>
__device__ S rate_of(S spread, int kind, S eps) {
  if (kind == MEAN) return 1;
  return kind == DEVIATION ? 1 / (sqrt(spread) + eps) : 1 / sqrt(spread + eps);
}

// The mean of each part of a row, and the sum of the squares of what is left without it.
template <typename T>
__global__ void moments(int count, const T* __restrict__ x, int outer, int kept, int inner,
                        int wide, int kind, typename Sum<T>::type* parts) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const Rows rows = {outer, kept, inner};
  const Share share(rows, count, wide);
  S mean = 0, squares = 0;
  if (kind != LENGTH) {
    for (int e = share.first + share.lane; e < share.last; e += share.lanes) {
      mean += S(x[rows.place(share.row, e)]);
    }
    mean = joined(mean, share, shared) / max(1, share.last - share.first);
  }
  for (int e = share.first + share.lane; e < share.last; e += share.lanes) {
    const S apart = S(x[rows.place(share.row, e)]) - mean;
    squares += apart * apart;
  }
  squares = joined(squares, share, shared);
  if (share.lane > 0 || share.row >= count) return;
  parts[(size_t)blockIdx.y * 2 * count + share.row] = mean;
  parts[((size_t)blockIdx.y * 2 + 1) * count + share.row] = squares;
}

// A thread a row: its parts joined (T. Chan et al., 1979), and its rate.
template <typename T>
__global__ void statistics(int count, const typename Sum<T>::type* __restrict__ parts, int many,
                           int entries, int kind, typename Sum<T>::type eps,
                           typename Sum<T>::type* mean, typename Sum<T>::type* spread,
                           typename Sum<T>::type* rate) {
  typedef typename Sum<T>::type S;
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < count;
       row += blockDim.x * gridDim.x) {
    S before = 0, center = 0, squares = 0;
    for (int p = 0; p < many; ++p) {
      const S here = S(int((long long)entries * (p + 1) / many) - int((long long)entries * p / many));
      const S apart = parts[(size_t)p * 2 * count + row] - center, all = before + here;
      center += apart * (here / all);
      squares += parts[((size_t)p * 2 + 1) * count + row] + apart * apart * (before * here / all);
      before = all;
    }
    if (kind != LENGTH) squares /= S(entries);
    mean[row] = center;
    spread[row] = squares;
    rate[row] = rate_of(squares, kind, eps);
  }
}

// sum = fraction sum + what a batch has, of means, of variances times `correction`, and of batches.
template <typename T>
__global__ void remember(int count, const typename Sum<T>::type* mean,
                         const typename Sum<T>::type* variance, typename Sum<T>::type fraction,
                         typename Sum<T>::type correction, typename Sum<T>::type* mean_sum,
                         typename Sum<T>::type* variance_sum, typename Sum<T>::type* batches) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    mean_sum[i] = fraction * mean_sum[i] + mean[i];
    variance_sum[i] = fraction * variance_sum[i] + correction * variance[i];
    if (i == 0) *batches = fraction * *batches + 1;
  }
}

// The averages of what is remembered; 0 where nothing is.
template <typename T>
__global__ void recall(int count, const typename Sum<T>::type* mean_sum,
                       const typename Sum<T>::type* variance_sum,
                       const typename Sum<T>::type* batches, typename Sum<T>::type eps,
                       typename Sum<T>::type* mean, typename Sum<T>::type* variance,
                       typename Sum<T>::type* rate) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    const S share = *batches == 0 ? S(0) : 1 / *batches;
    mean[i] = mean_sum[i] * share;
    variance[i] = variance_sum[i] * share;
    rate[i] = rate_of(variance[i], VARIANCE, eps);
  }
}

// y = (x - mean) rate scale + bias; `scale` and `bias` may be null, y may be x.
template <typename T>
__global__ void normalise(int total, const T* x, const typename Sum<T>::type* __restrict__ mean,
                          const typename Sum<T>::type* __restrict__ rate, int outer, int kept,
                          int inner, const T* scale, const T* bias, int features, int places,
                          T* y) {
  typedef typename Sum<T>::type S;
  const Rows rows = {outer, kept, inner};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int row = rows.of(i), feature = i / places % features;
    S value = (S(x[i]) - mean[row]) * rate[row];
    if (scale) value *= S(scale[feature]);
    if (bias) value += S(bias[feature]);
    y[i] = T(value);
  }
}

// Of each part of what is summed: the sums of g and of g times the normalised x, g = dy scale.
// The statistics are of `rows`, the sums over `sums`, which need not be the same.
template <typename T>
__global__ void gradient_sums(int count, const T* __restrict__ x, const T* __restrict__ dy,
                              const T* scale, int features, int places,
                              const typename Sum<T>::type* __restrict__ mean,
                              const typename Sum<T>::type* __restrict__ rate, int outer, int kept,
                              int inner, int s_outer, int s_kept, int s_inner, int wide,
                              typename Sum<T>::type* parts) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const Rows rows = {outer, kept, inner}, sums = {s_outer, s_kept, s_inner};
  const Share share(sums, count, wide);
  S sum = 0, products = 0;
  for (int e = share.first + share.lane; e < share.last; e += share.lanes) {
    const int i = int(sums.place(share.row, e)), row = rows.of(i);
    const S g = scale ? S(dy[i]) * S(scale[i / places % features]) : S(dy[i]);
    sum += g;
    products += g * (S(x[i]) - mean[row]) * rate[row];
  }
  sum = joined(sum, share, shared);
  products = joined(products, share, shared);
  if (share.lane > 0 || share.row >= count) return;
  parts[(size_t)blockIdx.y * 2 * count + share.row] = sum;
  parts[((size_t)blockIdx.y * 2 + 1) * count + share.row] = products;
}

// A thread a feature: its sums are added to the gradients of scale and bias, either of which may be null.
template <typename T>
__global__ void scale_gradient(int count, const typename Sum<T>::type* __restrict__ parts, int many,
                               T* dscale, T* dbias) {
  typedef typename Sum<T>::type S;
  for (int f = blockIdx.x * blockDim.x + threadIdx.x; f < count; f += blockDim.x * gridDim.x) {
    S sum = 0, products = 0;
    for (int p = 0; p < many; ++p) {
      sum += parts[(size_t)p * 2 * count + f];
      products += parts[((size_t)p * 2 + 1) * count + f];
    }
    if (dscale) dscale[f] = T(S(dscale[f]) + products);
    if (dbias) dbias[f] = T(S(dbias[f]) + sum);
  }
}

// A thread a row: how much of 1 and how much of the normalised x its gradient loses.
template <typename T>
__global__ void gradient_means(int count, const typename Sum<T>::type* __restrict__ parts, int many,
                               int entries, int kind, typename Sum<T>::type eps,
                               const typename Sum<T>::type* __restrict__ rate,
                               typename Sum<T>::type* means) {
  typedef typename Sum<T>::type S;
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < count;
       row += blockDim.x * gridDim.x) {
    S sum = 0, products = 0;
    for (int p = 0; p < many; ++p) {
      sum += parts[(size_t)p * 2 * count + row];
      products += parts[((size_t)p * 2 + 1) * count + row];
    }
    if (kind != LENGTH) products /= S(entries);
    if (kind == DEVIATION) {  // the deviation's share of deviation + eps
      products /= max(1 - eps * rate[row], S(1e-7));
    }
    means[row] = kind == LENGTH ? S(0) : sum / S(entries);
    means[count + row] = kind == MEAN ? S(0) : products;
  }
}

// dx = rate (g - means[0] - means[1] normalised x), g = dy scale; with fixed statistics `means` is null.
template <typename T>
__global__ void normalise_gradient(int total, const T* x, const T* dy, const T* scale,
                                   int features, int places,
                                   const typename Sum<T>::type* __restrict__ mean,
                                   const typename Sum<T>::type* __restrict__ rate, int outer,
                                   int kept, int inner, int count,
                                   const typename Sum<T>::type* means, T* dx) {
  typedef typename Sum<T>::type S;
  const Rows rows = {outer, kept, inner};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int row = rows.of(i);
    S g = scale ? S(dy[i]) * S(scale[i / places % features]) : S(dy[i]);
    if (means) g -= means[row] + means[count + row] * (S(x[i]) - mean[row]) * rate[row];
    dx[i] = T(rate[row] * g);
  }
}
