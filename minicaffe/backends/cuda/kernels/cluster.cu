// The blocks (x, 0 ... K - 1) of a grid (.., K) as a cluster: they run at one time, and write into each other's shared
// memory. For sm_90 and 100. Source: NVIDIA, PTX ISA, barrier.cluster, mapa and st.shared::cluster.

#ifndef STANDIN  // which has its own
// All threads of all blocks meet; what they wrote before is seen by all after it. None may write into a block before
// all have met once, nor end before it met those that write into it.
template <int K>
__device__ void cluster_meets() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// *to = value in the shared memory of another block, where *to has its place in this one's.
__device__ inline void put_far(float* to, unsigned block, float value) {
  const unsigned own = __cvta_generic_to_shared(to);
  unsigned far;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(own), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(far), "f"(value) : "memory");
}
#endif
