// A running mean: mean += share (x - mean), unless `skip` is not 0. A thread an entry.
template <typename T>
__global__ void average(int total, T* mean, const T* x, typename Sum<T>::type share,
                        const int* __restrict__ skip) {
  if (*skip) return;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const typename Sum<T>::type m = mean[i], followed = x[i];
    mean[i] = T(m + share * (followed - m));
  }
}
