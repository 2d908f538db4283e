// The loss -log prob[label] and its gradient. prob is (n, c, s), labels are (n, s):
//
//   index of prob[a, k, b] = (a * c + k) * s + b          index of labels[a, b] = a * s + b

template <typename T>
__global__ void nll(int total, const T* prob, const T* labels, int c, int s, int has_ignore,
                    int ignore, T* losses, T* valid) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const T label = labels[index];
    if (has_ignore && label == T(ignore)) {
      losses[index] = 0;
      valid[index] = 0;
      continue;
    }
    valid[index] = 1;
    if (!(label > T(-1) && label < T(c))) {  // no class: the solver sees the NaN and names it
      losses[index] = T(nanf(""));
      continue;
    }
    const T tiny = sizeof(T) == 4 ? T(1.17549435e-38) : T(2.2250738585072014e-308);
    const T p = prob[((size_t)(index / s) * c + (int)label) * s + index % s];
    losses[index] = -log(p < tiny ? tiny : p);  // a probability that is no number stays so
  }
}

template <typename T>
__global__ void nll_gradient(int total, const T* prob, const T* labels, int c, int s,
                             int has_ignore, int ignore, const T* scale, T* dx) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int a = index / s / c, k = index / s % c, b = index % s;
    const T label = labels[a * s + b];
    const bool ignored = has_ignore && label == T(ignore);
    const bool own = label > T(-1) && (int)label == k;
    dx[index] = ignored ? T(0) : *scale * (prob[index] - (own ? T(1) : T(0)));
  }
}
