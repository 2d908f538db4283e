// The loss of probabilities (n, c, s), labels (n, s) and a matrix (c, c), by softmax scores:
//
//   losses[a, b] = - sum over k of matrix[label, k] log prob[a, k, b]        label = labels[a, b]
//   dx[a, k, b]  = scale (prob[a, k, b] rows[label] - matrix[label, k])      rows[l] = sum of row l
//
// H is the matrix's type; probabilities, labels, sums and losses are of type O, that of sums.

template <typename H, typename O>
__global__ void row_sums(int c, const H* __restrict__ matrix, O* rows) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < c; i += blockDim.x * gridDim.x) {
    O sum = 0;
    for (int k = 0; k < c; ++k) sum += O(matrix[(size_t)i * c + k]);
    rows[i] = sum;
  }
}

template <typename H, typename O>
__global__ void infogain(int total, const H* __restrict__ matrix, const O* __restrict__ prob,
                         const O* __restrict__ labels, int c, int s, int has_ignore, int ignore,
                         O least, O* losses, O* valid) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const O label = labels[i];
    const bool counts = !(has_ignore && label == O(ignore));
    valid[i] = O(counts);
    if (counts && !(label > O(-1) && label < O(c))) {
      losses[i] = O(nanf(""));
      continue;
    }
    O sum = 0;
    for (int k = 0; counts && k < c; ++k) {
      const O p = prob[((size_t)(i / s) * c + k) * s + i % s];
      sum -= O(matrix[(size_t)(int)label * c + k]) * log(p < least ? least : p);
    }
    losses[i] = sum;
  }
}

template <typename H, typename O>
__global__ void infogain_gradient(int total, const H* __restrict__ matrix,
                                  const O* __restrict__ prob, const O* __restrict__ labels,
                                  const O* __restrict__ rows, int c, int s, int has_ignore,
                                  int ignore, const O* __restrict__ scale, O* dx) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int a = i / s / c, k = i / s % c;
    const O label = labels[(size_t)a * s + i % s];
    const bool counts = !(has_ignore && label == O(ignore)) && label > O(-1) && label < O(c);
    const int own = counts ? (int)label : 0;
    const O slope = prob[i] * rows[own] - O(matrix[(size_t)own * c + k]);
    dx[i] = counts ? *scale * slope : O(0);
  }
}
