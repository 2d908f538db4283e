// A thread per column of a matrix of `count` rows adds its entries to out, from the first row on.
template <typename T>
__global__ void add_rows(int total, const typename Sum<T>::type* rows, int count, T* out) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    typename Sum<T>::type sum = 0;
    for (int i = 0; i < count; ++i) sum += rows[(size_t)i * total + index];
    out[index] = T(typename Sum<T>::type(out[index]) + sum);
  }
}
