// What becomes of the statistics of rows, and of normalised entries.

#include "share.cu"

// How a row's spread becomes the rate that its entries are multiplied by.
const int VARIANCE = 0;   // 1 / sqrt(variance + eps)
const int DEVIATION = 1;  // 1 / (sqrt(variance) + eps)
const int MEAN = 2;       // 1
const int LENGTH = 3;     // 1 / sqrt(sum of squares + eps); the mean stays

template <typename S>
__device__ S rate_of(S spread, int kind, S eps) {
  if (kind == MEAN) return 1;
  return kind == DEVIATION ? 1 / (sqrt(spread) + eps) : 1 / sqrt(spread + eps);
}

// What becomes of a normalised entry: y itself, z = scale y + bias, sum = z + other, those of them that are
// wanted, each made from the one before as that is stored; the last ends in a ReLU with `relu`.
template <typename T>
struct Ends {
  const T *scale, *bias;
  int features, places;
  T *y, *z;
  const T* other;
  T* sum;
  int relu;

  typedef typename Sum<T>::type S;

  __device__ S far(unsigned i) const { return sum ? S(other[i]) : S(0); }
  __device__ int feature(unsigned i) const { return i / places % features; }

  __device__ void put(unsigned i, S value, S beside, int feature) const {
    const Made to = of(value, beside, feature);
    if (y) y[i] = to.y;
    if (z) z[i] = to.z;
    if (sum) sum[i] = to.sum;
  }

  struct Made {
    T y, z, sum;
  };
  __device__ Made of(S value, S beside, int feature) const {
    Made to = {};
    if (y) {
      value = S(T(value));
      to.y = T(end(value, !z));
    }
    if (!z) return to;
    const S shift = bias ? S(bias[feature]) : S(-0.0);  // which changes nothing
    value = scale ? fma(value, S(scale[feature]), shift) : value + shift;
    to.z = T(end(value, !sum));
    if (sum) to.sum = T(end(S(T(value)) + beside, true));
    return to;
  }
  __device__ S end(S value, bool last) const { return relu && last && value <= 0 ? S(0) : value; }
};

// The statistics of rows, and what is remembered of them, if anything is: that becomes fraction of it + the mean, the
// variance times `correction`, and 1.
template <typename S>
struct Statistics {
  S *mean, *spread, *rate, fraction, correction, *mean_sum, *variance_sum, *batches;

  __device__ void put(int row, S center, S of, S factor) const {
    mean[row] = center;
    spread[row] = of;
    rate[row] = factor;
    if (!mean_sum) return;
    mean_sum[row] = fma(fraction, mean_sum[row], center);
    variance_sum[row] = fma(fraction, variance_sum[row], rounded(correction, of));
    if (row == 0) *batches = fma(fraction, *batches, S(1));
  }
};

template <typename T>
__device__ typename Sum<T>::type scaled(typename Sum<T>::type dy, const T* scale, int feature) {
  typedef typename Sum<T>::type S;
  return scale ? rounded(dy, S(scale[feature])) : dy;
}

// dx of an entry: rate (g - one - other y), of g = dy scale, y being what is normalised.
template <typename S>
__device__ S back(S g, S y, S rate, S one, S other) {
  return rounded(rate, fma(-other, y, g - one));
}
