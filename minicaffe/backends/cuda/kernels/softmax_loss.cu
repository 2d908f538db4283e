// The gradient of the loss -log prob[label] by the scores. prob is (n, c, s), labels are (n, s):
//
//   index of prob[a, k, b] = (a * c + k) * s + b          index of labels[a, b] = a * s + b

#include "nll.cu"

template <typename T>
__global__ void softmax_loss_gradient(int total, const T* prob, const T* labels, int c, int s,
                                      int has_ignore, int ignore, const T* dloss,
                                      const T* normalizer, T* dx) {
  typedef typename Sum<T>::type S;
  const S scale = S(*dloss) / S(*normalizer);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int a = index / s / c, k = index / s % c, b = index % s;
    dx[index] = nll_gradient(prob[index], labels[a * s + b], k, has_ignore, ignore, scale);
  }
}
