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
