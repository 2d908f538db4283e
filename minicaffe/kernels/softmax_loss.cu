// The gradient of the loss -log prob[label] by the scores. prob is (n, c, s), labels are (n, s):
//
//   index of prob[a, k, b] = (a * c + k) * s + b          index of labels[a, b] = a * s + b

template <typename T>
__global__ void softmax_loss_gradient(int total, const T* prob, const T* labels, int c, int s,
                                      int has_ignore, int ignore, const T* dloss,
                                      const T* normalizer, T* dx) {
  typedef typename Sum<T>::type S;
  const S scale = S(*dloss) / S(*normalizer);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int a = index / s / c, k = index / s % c, b = index % s;
    const T label = labels[a * s + b];
    const bool ignored = has_ignore && label == T(ignore);
    const bool own = label > T(-1) && (int)label == k;
    const S difference = S(prob[index]) - S(own);
    dx[index] = ignored ? T(0) : T(scale * difference);
  }
}
