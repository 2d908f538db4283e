// Stands in front of every other file here.

// The type that sums of T are taken in: float for T of 16 bits.
template <typename T>
struct Sum {
  typedef float type;
};
template <>
struct Sum<double> {
  typedef double type;
};

// a b, rounded: it is not joined with what is added to it, so that it is the same wherever it is computed.
__device__ inline float rounded(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded(double a, double b) { return __dmul_rn(a, b); }

// The gradient of a ReLU in place, whose top is `mask`: a value where that is above 0, else 0 times it. Where
// there is no mask, the value.
template <typename T>
__device__ inline T masked(T value, const T* mask, size_t at) {
  typedef typename Sum<T>::type S;
  return mask ? T(S(value) * S(S(mask[at]) > 0 ? 1 : 0)) : value;
}

// Neighbours, which are read and written at once.
template <typename S, int V>
struct alignas(sizeof(S) * V) Pack {
  S of[V];
};
