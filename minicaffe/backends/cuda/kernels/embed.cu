// Rows of a table weight (count, f) by indices (m,), and the table's gradient.
//
//   indices  2 0 2     y    [w2 w2 w2]     dweight   [d1 d1 d1]
//                           [w0 w0 w0]               [0  0  0 ]
//                           [w2 w2 w2]               [d0 + d2 ...]

// A thread an entry of y; an index that is no row gives NaN.
template <typename T>
__global__ void embed(int total, const typename Sum<T>::type* indices, const T* weight, int count,
                      int f, T* y) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S index = indices[i / f];
    const bool is_row = index > S(-1) && index < S(count);
    y[i] = is_row ? weight[(size_t)(int)index * f + i % f] : T(nanf(""));
  }
}

// A thread an entry of dy; that of an index's first occurrence adds up all of them, in their order.
template <typename T>
__global__ void embed_gradient(int total, const T* dy, const typename Sum<T>::type* indices, int m,
                               int count, int f, T* dweight) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S index = indices[i / f];
    int place = 0;
    while ((int)indices[place] != (int)index) ++place;
    if (place < i / f || !(index > S(-1) && index < S(count))) continue;
    S sum = 0;
    for (; place < m; ++place) {
      if ((int)indices[place] == (int)index) sum += S(dy[(size_t)place * f + i % f]);
    }
    T* to = dweight + (size_t)(int)index * f + i % f;
    *to = T(S(*to) + sum);
  }
}
