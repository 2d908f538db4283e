// What is looked at after each backward pass: the size of the gradient, and whether all of it is finite.

#include "block.cu"

// partial[block] = sum of x^2 over every gridDim.x-th piece of 256 packs; bad = 1 where x is no finite number. A pack
// has 16 bytes, and a thread loads AHEAD of them before it uses the first. Entries before the first whole pack, and
// behind the last, are added one by one.
//
//   x            [packs 0 .. 255 | 256 .. 511 | 512 .. 767 | 768 ..]
//   of block            0              1            0          1          (two blocks)
//
// In double, where no square of a float is too large. Another launch adds the blocks' sums.
const int AHEAD = 4;
template <typename T>
__global__ void squares(int total, const T* __restrict__ x, double* partial, int* bad) {
  __shared__ double shared[BLOCK];
  const int V = 16 / sizeof(T), apart = -(int)((size_t)x % 16) & 15, before = min(total, apart / (int)sizeof(T));
  const unsigned thread = blockIdx.x * BLOCK + threadIdx.x, threads = BLOCK * gridDim.x;
  const unsigned packs = (total - before) / V, behind = before + packs * V;
  const Pack<T, V>* const from = reinterpret_cast<const Pack<T, V>*>(x + before);
  double sum = 0;
  const auto add = [&](typename Sum<T>::type value) {
    if (value - value != 0) *bad = 1;  // every thread that writes writes the same
    sum += double(value) * double(value);
  };
  for (unsigned i = thread; i < packs; i += AHEAD * threads) {
    Pack<T, V> loaded[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      if (i + u * threads < packs) loaded[u] = from[i + u * threads];
    }
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (i + u * threads < packs) add(loaded[u].of[v]);
      }
    }
  }
  if (thread < (unsigned)before) add(x[thread]);
  for (unsigned i = behind + thread; i < (unsigned)total; i += threads) add(x[i]);
  sum = sum_of_block(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Whether this iteration's update is taken, by one block. square = the sum of all `count` partial sums. The flags are
//
//   0 bad       this gradient holds what is no finite number; cleared here
//   1 skip      the update is not taken
//   2 stop      and none after it: 1 for good
//   3 done      iterations that did not stop
//   4 passed    of those the ones whose gradient was passed over
//
// A loss that is no number stops, and so does a bad gradient unless such are passed over. `going` is
// whether it has not stopped; factor = limit / |g|, at most 1, or 1 with a limit below 0.
template <typename T>
__global__ void judge(const typename Sum<T>::type* loss, const double* __restrict__ partial,
                      int count, double* square, double limit, int pass_over, int* flags,
                      bool* going, typename Sum<T>::type* factor) {
  __shared__ double shared[BLOCK];
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += BLOCK) sum += partial[i];
  sum = sum_of_block(sum, shared);
  if (threadIdx.x > 0) return;
  *square = sum;
  const bool lost = loss[0] - loss[0] != 0, bad = flags[0];
  if (lost || (bad && !pass_over)) flags[2] = 1;
  flags[1] = flags[2] || bad;
  if (!flags[2]) {
    flags[3] += 1;
    flags[4] += bad;
  }
  flags[0] = 0;
  *going = !flags[2];
  const double norm = sqrt(sum);
  *factor = typename Sum<T>::type(limit < 0 || !(norm > limit) ? 1 : limit / norm);
}
