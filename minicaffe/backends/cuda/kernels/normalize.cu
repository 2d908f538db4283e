// Rows of entries brought to mean 0 and spread 1, then scaled and shifted feature by feature; and the way back.
// How an array is cut into rows, and they are shared among threads: share.cu.
//
// Where blocks (.., p) have a part of each row, they leave numbers of it in `parts` (part, number, row); the
// last of them there joins all, always in the same order, and entries are another kernel's. Where a block has
// whole rows, it goes on to their entries itself.

#include "ends.cu"

template <typename S>
struct Two {
  S of, beside;
};

template <typename S>
struct Three {
  Two<S> two;
  S y;
};

// The mean of each row, the sum of the squares of what is left without it, and so the row's statistics. Then the
// entries, if y or z is given, which only blocks with whole rows are.
template <typename T>
__launch_bounds__(MOST, 1)
__global__ void moments(int count, const T* x, int outer, int kept, int inner, int wide, int kind,
                        typename Sum<T>::type eps, typename Sum<T>::type* parts, int* arrived,
                        typename Sum<T>::type* mean, typename Sum<T>::type* spread,
                        typename Sum<T>::type* rate, typename Sum<T>::type fraction,
                        typename Sum<T>::type correction, typename Sum<T>::type* mean_sum,
                        typename Sum<T>::type* variance_sum, typename Sum<T>::type* batches,
                        const T* scale, const T* bias, int features, int places, T* y, T* z,
                        const T* other, T* sum, int relu) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[MOST];
  const Rows rows = {outer, kept, inner};
  const Share share(rows, count, wide);
  const int row = share.row, entries = outer * inner, many = gridDim.y;
  const auto load = [&](unsigned i) { return S(x[i]); };
  S center = 0, squares = 0;
  if (kind != LENGTH) {
    share.each(load, [&](unsigned, S value) { center += value; });
    center = share.joined(center, shared) / max(1, share.last - share.first);
  }
  share.each(load, [&](unsigned, S value) {
    const S apart = value - center;
    squares = fma(apart, apart, squares);
  });
  squares = share.joined(squares, shared);
  if (many > 1) {
    if (share.lane == 0 && row < count) {
      parts[(size_t)blockIdx.y * 2 * count + row] = center;
      parts[((size_t)blockIdx.y * 2 + 1) * count + row] = squares;
    }
    if (!last_of(many, arrived + blockIdx.x)) return;
    const auto size = [&](int p) {
      return S(int((long long)entries * (p + 1) / many) - int((long long)entries * p / many));
    };
    const auto center_of = [&](int p) { return __ldcg(parts + (size_t)p * 2 * count + row); };
    center = share.of_parts(count, [&](int p) { return size(p) * center_of(p); }, shared);
    center /= S(entries);
    squares = share.of_parts(count, [&](int p) {
      const S apart = center_of(p) - center;
      return fma(apart * apart, size(p), __ldcg(parts + ((size_t)p * 2 + 1) * count + row));
    }, shared);
  }
  if (kind != LENGTH) squares /= S(entries);
  const S factor = rate_of(squares, kind, eps);
  const Statistics<S> statistics = {mean, spread, rate, fraction, correction, mean_sum, variance_sum, batches};
  if (share.lane == 0 && row < count) statistics.put(row, center, squares, factor);
  if (!y && !z) return;
  const Ends<T> ends = {scale, bias, features, places, y, z, other, sum, relu};
  const bool by_row = features == kept && places == inner;
  const int own = row % kept;
  share.each([&](unsigned i) { return Two<S>{S(x[i]), ends.far(i)}; }, [&](unsigned i, Two<S> value) {
    const int feature = by_row ? own : ends.feature(i);
    ends.put(i, rounded(value.of - center, factor), value.beside, feature);
  });
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

// (x - mean) rate and what becomes of it; y and z may be x.
template <typename T>
__global__ void normalise(int count, const T* x, const typename Sum<T>::type* __restrict__ mean,
                          const typename Sum<T>::type* __restrict__ rate, int outer, int kept,
                          int inner, int wide, const T* scale, const T* bias, int features, int places,
                          T* y, T* z, const T* other, T* sum, int relu) {
  typedef typename Sum<T>::type S;
  const Share share({outer, kept, inner}, count, wide);
  if (share.row >= count) return;
  const Ends<T> ends = {scale, bias, features, places, y, z, other, sum, relu};
  const bool by_row = features == kept && places == inner;
  const int own = share.row % kept;
  const S center = mean[share.row], factor = rate[share.row];
  share.each([&](unsigned i) { return Two<S>{S(x[i]), ends.far(i)}; }, [&](unsigned i, Two<S> value) {
    const int feature = by_row ? own : ends.feature(i);
    ends.put(i, rounded(value.of - center, factor), value.beside, feature);
  });
}

// Sums over the rows (s_outer, s_kept, s_inner), and gradients of them. What is normalised is (x - mean) rate
// by the statistics of the rows (outer, kept, inner); without `mean` it is x. Each of these may be left out:
//
//   dscale += the sum of dy y, dbias += that of dy       where features are rows; y is what was normalised,
//                                                        or, if it is given, what became of that
//   g = dy scale                                         as it is stored, if it is
//   means: how much of 1, and how much of what is normalised, the gradient of each row loses
//   dx, by those, which only blocks with whole rows are asked for
template <typename T>
__launch_bounds__(MOST, 1)
__global__ void gradients(int count, const T* x, const T* y, const T* dy, const T* scale,
                          int features, int places, const typename Sum<T>::type* mean,
                          const typename Sum<T>::type* rate, int outer, int kept, int inner,
                          int s_outer, int s_kept, int s_inner, int wide, int kind,
                          typename Sum<T>::type eps, typename Sum<T>::type* parts, int* arrived,
                          T* dscale, T* dbias, T* g, typename Sum<T>::type* means, T* dx) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[MOST];
  const Rows rows = {outer, kept, inner}, sums = {s_outer, s_kept, s_inner};
  const Share share(sums, count, wide);
  const bool learns = dscale || dbias, own = rows.same(sums);
  const bool by_row = features == s_kept && places == s_inner;
  const int row = share.row, entries = s_outer * s_inner, many = gridDim.y, feature = row % s_kept;
  const auto load = [&](unsigned i) { return Two<S>{S(x[i]), S(dy[i])}; };
  const auto with_y = [&](unsigned i) { return Three<S>{load(i), y ? S(y[i]) : S(0)}; };
  const auto g_of = [&](unsigned i, S value) {
    value = scaled<T>(value, scale, by_row ? feature : int(i / places % features));
    return g ? S(T(value)) : value;
  };
  const auto normalised = [&](unsigned i, S x) {
    if (!mean) return x;
    const int of = own ? row : rows.of(i);
    return rounded(x - mean[of], rate[of]);
  };
  S all[4] = {0, 0, 0, 0};  // the sums of dy and dy y, as y is stored; of g and g y
  share.each(with_y, [&](unsigned i, Three<S> at) {
    const S plain = normalised(i, at.two.of), dy = at.two.beside, here = g_of(i, dy);
    all[0] += dy;
    all[1] = fma(dy, y ? at.y : plain, all[1]);
    all[2] += here;
    all[3] = fma(here, plain, all[3]);
    if (g) g[i] = T(here);
  });
  const int begin = learns ? 0 : 2, end = means ? 4 : 2;
  for (int n = begin; n < end; ++n) all[n] = share.joined(all[n], shared);
  if (many > 1) {
    for (int n = begin; n < end && share.lane == 0 && row < count; ++n) {
      parts[((size_t)blockIdx.y * 4 + n) * count + row] = all[n];
    }
    if (!last_of(many, arrived + blockIdx.x)) return;
    for (int n = begin; n < end; ++n) {
      const S* from = parts + (size_t)n * count + row;
      all[n] = share.of_parts(count, [&](int p) { return __ldcg(from + (size_t)p * 4 * count); }, shared);
    }
  }
  if (share.lane == 0 && row < count) {
    if (dscale) dscale[row] = T(S(dscale[row]) + all[1]);
    if (dbias) dbias[row] = T(S(dbias[row]) + all[0]);
  }
  if (!means || row >= count) return;
  S one = kind == LENGTH ? S(0) : all[2] / S(entries);
  S other = kind == MEAN ? S(0) : kind == LENGTH ? all[3] : all[3] / S(entries);
  if (kind == DEVIATION) other /= max(1 - eps * rate[row], S(1e-7));  // its share of deviation + eps
  if (share.lane == 0) {
    means[row] = one;
    means[count + row] = other;
  }
  if (!dx) return;
  share.each(load, [&](unsigned i, Two<S> at) {
    dx[i] = T(back(g_of(i, at.beside), normalised(i, at.of), rate[row], one, other));
  });
}

// dx by the statistics and `means` of each row; with fixed statistics `means` is null.
template <typename T>
__global__ void normalise_gradient(int count, const T* x, const T* dy, const T* scale,
                                   int features, int places,
                                   const typename Sum<T>::type* __restrict__ mean,
                                   const typename Sum<T>::type* __restrict__ rate, int outer,
                                   int kept, int inner, int wide,
                                   const typename Sum<T>::type* means, T* dx) {
  typedef typename Sum<T>::type S;
  const Share share({outer, kept, inner}, count, wide);
  const int row = share.row;
  if (row >= count) return;
  const bool by_row = features == kept && places == inner;
  const S center = mean[row], by = rate[row], slope = scale && by_row ? S(scale[row % kept]) : S(1);
  const S one = means ? means[row] : S(0), other = means ? means[count + row] : S(0);
  const auto load = [&](unsigned i) { return Two<S>{means ? S(x[i]) : S(0), S(dy[i])}; };
  share.each(load, [&](unsigned i, Two<S> at) {
    S g = at.beside;
    if (scale) g = rounded(g, by_row ? slope : S(scale[i / places % features]));
    dx[i] = T(means ? back(g, rounded(at.of - center, by), by, one, other) : rounded(by, g));
  });
}
