// Rows of an array, shared among the threads of blocks.
//
// x is seen as (batch, outer, kept, inner): row (b, k) is made of all its outer and inner entries.
//
//   BatchNorm   (1, n, c, places)      a row is a channel of all samples
//   MVN         (1, 1, n c, places)    a row is a channel of one sample
//   LayerNorm   (1, 1, m, k)
//   Normalize   (n, c, places, 1)      a row is the channels of a place
//
// A block takes `wide` neighbouring rows with blockDim.x / wide lanes each. Neighbouring threads read what
// lies side by side: rows where inner = 1, else entries of a row.
//
//   wide = 2, inner > 1    thread 0 1 2 .. 127 128 ..     inner = 1    thread 0 1 2 3 ..
//                          row    0 0 0 ..   0   1 ..                  row    0 1 0 1 ..
//
// Blocks (.., p) take the p-th part of each row's entries.

#include "block.cu"

const int MOST = 1024;  // threads of a block
const int AHEAD = 48;   // bytes at the most that a thread loads before it uses the first of them

struct Rows {
  int outer, kept, inner;

  __device__ unsigned place(int row, int entry) const {
    const unsigned o = row / kept * outer + entry / inner;
    return (o * kept + row % kept) * inner + entry % inner;
  }
  __device__ int of(unsigned index) const {
    const unsigned line = index / inner;
    return line / (outer * kept) * kept + line % kept;
  }
  __device__ bool same(const Rows& other) const {
    return outer == other.outer && kept == other.kept && inner == other.inner;
  }
};

struct Share {
  const Rows rows;
  int wide, lanes, lane, own, row, first, last;

  __device__ Share(const Rows& rows, int count, int wide)
      : rows(rows), wide(wide), lanes(blockDim.x / wide) {
    const int t = threadIdx.x, part = blockIdx.y, parts = gridDim.y;
    const long long entries = rows.outer * rows.inner;
    lane = rows.inner == 1 ? t / wide : t % lanes;
    own = rows.inner == 1 ? t % wide : t / lanes;
    row = blockIdx.x * wide + own;
    first = int(entries * part / parts);
    last = row < count ? int(entries * (part + 1) / parts) : first;
  }

  // use(i, load(i)) for the place i of each entry of this lane. They are `lanes` entries apart, so that each is
  // found from the one before, without a division.
  template <typename Load, typename Use>
  __device__ void each(Load load, Use use) const {
    typedef decltype(load(0u)) One;
    const int many = sizeof(One) > AHEAD / 4 ? AHEAD / sizeof(One) : 4;
    const unsigned inner = rows.inner, across = rows.kept * inner;  // from one outer index to the next
    const unsigned along = lanes % inner, step = lanes / inner * across + along;
    unsigned place = rows.place(row, first + lane), within = (first + lane) % inner;
    for (int e = first + lane; e < last; e += many * lanes) {
      One loaded[many];
      unsigned at[many];
#pragma unroll
      for (int u = 0; u < many; ++u) {
        at[u] = place;
        if (e + u * lanes < last) loaded[u] = load(place);
        place += step;
        within += along;
        if (within >= inner) {
          within -= inner;
          place += across - inner;
        }
      }
#pragma unroll
      for (int u = 0; u < many; ++u) {
        if (e + u * lanes < last) use(at[u], loaded[u]);
      }
    }
  }

  // The sum of what the lanes of a row have; for all of them.
  template <typename S>
  __device__ S joined(S value, S* shared) const {
    S* mine = shared + lane * wide + own;
    *mine = value;
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {
      if (lane < half) *mine += mine[half * wide];
      __syncthreads();
    }
    const S sum = shared[own];
    __syncthreads();  // all have read it before any writes anew
    return sum;
  }

  // The sum over all parts p of value(p), as all lanes of a row have it.
  template <typename S, typename Value>
  __device__ S of_parts(int count, Value value, S* shared) const {
    S sum = 0;
    for (int p = lane; p < (int)gridDim.y && row < count; p += lanes) sum += value(p);
    return joined(sum, shared);
  }
};
