// The loss -log prob[label] and its gradient. prob is (n, c, s), labels are (n, s):
//
//   index of prob[a, k, b] = (a * c + k) * s + b          index of labels[a, b] = a * s + b

template <typename T>
__global__ void nll(int total, const T* prob, const T* labels, int c, int s, int has_ignore,
                    int ignore, T* losses, T* valid) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const T label = labels[index];
    if (has_ignore && label == T(ignore)) {
      losses[index] = T(0);
      valid[index] = T(0);
      continue;
    }
    valid[index] = T(1);
    if (!(label > T(-1) && label < T(c))) {  // no class: the solver sees the NaN and names it
      losses[index] = T(nanf(""));
      continue;
    }
    const S tiny = sizeof(S) == 4 ? S(1.17549435e-38) : S(2.2250738585072014e-308);
    const S p = prob[((size_t)(index / s) * c + (int)label) * s + index % s];
    losses[index] = T(-log(p < tiny ? tiny : p));  // a probability that is no number stays so
  }
}

template <typename T>
__global__ void nll_gradient(int total, const T* prob, const T* labels, int c, int s,
                             int has_ignore, int ignore, const T* scale, T* dx) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int a = index / s / c, k = index / s % c, b = index % s;
    const T label = labels[a * s + b];
    const bool ignored = has_ignore && label == T(ignore);
    const bool own = label > T(-1) && (int)label == k;
    const S difference = S(prob[index]) - S(own);
    dx[index] = ignored ? T(0) : T(S(*scale) * difference);
  }
}
