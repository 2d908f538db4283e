// A running mean: mean += share[0] (x - mean), unless `skip` is not 0. A thread an entry.
template <typename T>
__global__ void average(int total, T* mean, const T* x, const double* __restrict__ share,
                        const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S m = mean[i], followed = x[i];
    mean[i] = T(m + S(*share) * (followed - m));
  }
}
