// A gradient of 16 bits, taken of `scale` times the loss, set into or added to its float32 master.
//
//   diff, 16 bits    gradient, float32            total + diff / scale       bad = 1 where diff is
//   [a b c]     ->   [A + a/s  B + b/s  C + c/s]                             infinite or no number
template <typename T>
__global__ void unscale(int total, T* diff, typename Sum<T>::type scale, int add,
                        typename Sum<T>::type* gradient, int* bad) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const typename Sum<T>::type value = diff[i];
    if (value - value != 0) *bad = 1;  // every thread that writes writes the same
    gradient[i] = value / scale + (add ? gradient[i] : 0);
    diff[i] = T(0.0f);
  }
}
