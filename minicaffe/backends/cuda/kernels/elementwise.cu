// y = y(x) and dx = dy slope(x, y), entry by entry, of the functions of formulas.py: a struct for each is
// emitted from there (backends/cuda/emit.py), with up to three numbers a, b, c. The kernels are compiled for one row
// at a time, and compute in S: what a row does not read is not loaded.

#include "functions of formulas.py"

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
