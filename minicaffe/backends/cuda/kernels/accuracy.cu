// How often the label is among the top_k scores. scores are (n, c, s), labels (n, s).

template <typename T>
__global__ void accuracy(int total, const T* scores, const T* labels, int c, int s, int top_k,
                         int has_ignore, int ignore, T* hits, T* valid) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const T label = labels[index];
    const bool counts = !(has_ignore && label == T(ignore));
    valid[index] = counts ? T(1) : T(0);
    hits[index] = T(0);
    if (!counts || !(label > T(-1) && label < T(c))) continue;
    const T* column = scores + (size_t)(index / s) * c * s + index % s;
    const T own = column[(size_t)(int)label * s];
    int as_high = -1;  // the label's own score is as high as itself
    for (int k = 0; k < c; ++k) as_high += !(column[(size_t)k * s] < own);
    hits[index] = as_high < top_k ? T(1) : T(0);
  }
}

// A thread per class walks all labels, so that the sum is always taken in the same order.
template <typename T>
__global__ void class_accuracy(int total, const T* hits, const T* valid, const T* labels,
                               int places, T* out) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < total; k += blockDim.x * gridDim.x) {
    int right = 0, all = 0;
    for (int i = 0; i < places; ++i) {
      if ((int)labels[i] != k || valid[i] == T(0)) continue;
      right += hits[i] != T(0);
      ++all;
    }
    typedef typename Sum<T>::type S;
    out[k] = T(all ? S(right) / S(all) : S(0));
  }
}
