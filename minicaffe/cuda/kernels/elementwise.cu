// y = y(x) and dx = dy slope(x, y), entry by entry: a ROW for each of those in formulas.py, with up
// to three numbers a, b, c. The kernels are compiled for one row at a time, and compute in S: what a row
// does not read is not loaded.

#define ROW(Name, formula, derivative)                                       \
  struct Name {                                                              \
    template <typename S>                                                    \
    static __device__ S y_of(S x, S a, S b, S c) {                           \
      return formula;                                                        \
    }                                                                        \
    template <typename S>                                                    \
    static __device__ S slope(S x, S y, S a, S b, S c) {                     \
      return derivative;                                                     \
    }                                                                        \
  };

// A NaN is neither above nor below a bound, and stays.
#define CLIPPED(x, low, high) (x < low ? low : x > high ? high : x)
#define LOGISTIC(x) (1 / (1 + exp(-(x))))
#define GATED_SLOPE(y, u, du) (LOGISTIC(u) + y * (1 - LOGISTIC(u)) * du)  // of y = x LOGISTIC(u)
#define GELU_U(x) (S(1.5957691216057308) * x * (1 + S(0.044715) * x * x))
#define GELU_DU(x) (S(1.5957691216057308) * (1 + S(0.134145) * x * x))

ROW(AbsVal, x < 0 ? -x : x, x > 0 ? 1 : x < 0 ? -1 : 0)
ROW(BNLL, (x <= 0 ? 0 : x) + log1p(exp(x > 0 ? -x : x)), LOGISTIC(x))
ROW(Clip, CLIPPED(x, a, b), x >= a && x <= b ? 1 : 0)
ROW(Constant, a, 0)
ROW(ELU, x > 0 ? x : a * expm1(x), x > 0 ? 1 : a + y)
ROW(Exp, b * exp(a * x), a * y)
ROW(GELU, S(0.5) * x * erfc(S(-0.7071067811865476) * x),
    S(0.5) * erfc(S(-0.7071067811865476) * x) + S(0.3989422804014327) * x * exp(S(-0.5) * x * x))
ROW(GELUTanh, x * LOGISTIC(GELU_U(x)), GATED_SLOPE(y, GELU_U(x), GELU_DU(x)))
ROW(HardSwish, x * CLIPPED(x + 3, S(0), S(6)) / 6, x > -3 ? (x < 3 ? x / 3 + S(0.5) : 1) : 0)
ROW(LeakyReLU, x > 0 ? x : a * x, x > 0 ? 1 : a)
ROW(Linear, b + a * x, a)
ROW(Log, c * log(b + a * x), c * a / (b + a * x))
ROW(Power, pow(b + a * x, c), c * a * pow(b + a * x, c - 1))
ROW(ReLU, x <= 0 ? 0 : x, x > 0 ? 1 : 0)
ROW(ReLU6, CLIPPED(x, S(0), S(6)), x > 0 && x < 6 ? 1 : 0)
ROW(Sigmoid, LOGISTIC(x), y * (1 - y))
ROW(Square, (b + a * x) * (b + a * x), 2 * a * (b + a * x))
ROW(Swish, x * LOGISTIC(a * x), GATED_SLOPE(y, a * x, a))
ROW(TanH, tanh(x), 1 - y * y)
ROW(Threshold, x > a ? 1 : 0, 0)

template <typename T, typename Row>
__global__ void elementwise(int total, const T* x, typename Sum<T>::type a,
                            typename Sum<T>::type b, typename Sum<T>::type c, T* y) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    y[i] = T(Row::template y_of<S>(S(x[i]), a, b, c));
  }
}

template <typename T, typename Row>
__global__ void elementwise_gradient(int total, const T* dy, const T* x, const T* y,
                                     typename Sum<T>::type a, typename Sum<T>::type b,
                                     typename Sum<T>::type c, T* dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    dx[i] = T(S(dy[i]) * Row::template slope<S>(S(x[i]), S(y[i]), a, b, c));
  }
}
