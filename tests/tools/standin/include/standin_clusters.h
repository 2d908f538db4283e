// What the blocks of a cluster, those of one x, do with each other, and memory whose size a launch says. Source: NVIDIA,
// CUDA C++ Programming Guide, Thread Block Clusters, Distributed Shared Memory and Dynamic Shared Memory.
#pragma once

namespace standin {

#ifdef STANDIN_DYNAMIC
alignas(16) static thread_local char dynamic_memory[227 << 10];
#endif

// Whether a launch said so many bytes, and the kernel left alone those behind them.
inline bool within(size_t bytes) {
#ifdef STANDIN_DYNAMIC
  for (size_t i = bytes; i < sizeof dynamic_memory; ++i)
    if (dynamic_memory[i] != char(0xff)) return false;
#else
  if (bytes) return false;
#endif
  return true;
}

}  // namespace standin

// All threads of all blocks meet; what they wrote before is seen by all after it.
template <int K>
void cluster_meets() {
  if (K != gridDim.y) snprintf(standin::error, sizeof standin::error, "a cluster of %d blocks of %u", K, gridDim.y);
  standin::barrier(standin::BLOCKS);
}

// *to = value in the shared memory of another block, where *to has its place in this one's.
template <class V>
void put_far(V* to, unsigned block, V value) {
  using namespace standin;
  const size_t at = reinterpret_cast<char*>(to) - memory;
  if (*error) return;
  if (at >= many || block >= gridDim.y) snprintf(error, sizeof error, "what is put far lies in no shared memory");
  else if (!meetings) snprintf(error, sizeof error, "a block writes into another's memory, which may not have begun");
  else if (block == blockIdx.y) *to = value;
  else memcpy(images[block] + at, &value, sizeof value);
  written = true;
}
