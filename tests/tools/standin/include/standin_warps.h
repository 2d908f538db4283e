// What the 32 lanes of a warp tell each other: each puts a value down, and takes another's when all have. Source: NVIDIA,
// CUDA C++ Programming Guide, Warp Shuffle Functions and Warp Vote Functions. All lanes are to come: a mask of fewer is
// an error.
#pragma once

namespace standin {

// The value of another lane, `of` a lane's own number; its own where there is no such lane.
template <class V, class Of>
V of_lane(unsigned mask, V value, Of of) {
  static_assert(sizeof(V) <= 8, "a lane's value has 8 bytes at the most");
  static V down[2][1024];  // by turns: a lane may be one meeting ahead of another
  if (mask != ~0u) snprintf(error, sizeof error, "a meeting of fewer lanes than a warp has: mask %x", mask);
  const unsigned t = threadIdx.x, lane = t % 32, from = of(lane);
  V* const all = down[turns[t]++ % 2];
  all[t] = value;
  barrier(LANES);
  return all[t - lane + (from < 32 ? from : lane)];
}

}  // namespace standin

template <class V>
V __shfl_sync(unsigned mask, V value, unsigned from) {
  return standin::of_lane(mask, value, [=](unsigned) { return from % 32; });
}
template <class V>
V __shfl_down_sync(unsigned mask, V value, unsigned step) {
  return standin::of_lane(mask, value, [=](unsigned lane) { return lane + step; });
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, unsigned bits) {
  return standin::of_lane(mask, value, [=](unsigned lane) { return lane ^ bits; });
}
inline unsigned __ballot_sync(unsigned mask, int yes) {
  unsigned votes = (yes != 0) << threadIdx.x % 32;
  for (unsigned half = 16; half > 0; half /= 2) votes |= __shfl_xor_sync(mask, votes, half);
  return votes;
}
inline void __syncwarp(unsigned mask = ~0u) { standin::of_lane(mask, 0, [](unsigned lane) { return lane; }); }
