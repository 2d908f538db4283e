const int BLOCK = 256;  // threads

// The sum over all threads of a block, halves added to halves.
template <typename S>
__device__ S sum_of_block(S value, S* shared) {
  const int t = threadIdx.x;
  shared[t] = value;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (t < half) shared[t] += shared[t + half];
    __syncthreads();
  }
  const S sum = shared[0];
  __syncthreads();
  return sum;
}

// Whether this block is the last of all `blocks` that come here; it sees what the others wrote before. They
// are counted in `arrived`, which is 0 before and after.
__device__ inline bool last_of(int blocks, int* arrived) {
  __shared__ bool last;
  __threadfence();  // what this thread wrote is seen before it is counted
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1) == blocks - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}
