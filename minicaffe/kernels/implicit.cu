// Implicit GEMM: a convolution as a product whose column matrix is never written. Its tiles are
// gathered from the images into shared memory, multiplied and forgotten.
//
//   out[row, column] = sum over k of left[row, k] entry(k, column)           for each group
//
//                     row        column            k                 left      entry from
//   y = weight x      filter     sample, place     channel, element  weight    x
//   dx = weight' dy   channel    sample, pixel     filter, element   weight    dy
//   dweight = dy x'   filter     channel, element  sample, place     dy        x
//
// Each of `column` and `k` counts something outer and, within it, positions along three axes: see
// Axes. An entry lies where both say: their outer offsets add up, and so do their positions. In y,
// place o says o stride - pad, and element e says e dilation: together the pixel. In dx, a pixel
// says i + pad, and an element -e dilation: together stride times the place, if that divides it.
//
// A block multiplies a tile of 16 TM x 16 TN entries, slab by slab of k:
//
//                      16 TN                thread (ty, tx) of 16 x 16 keeps TM x TN sums: of packs
//                   [ right  ] 16           of V neighbours, row packs ty, ty + 16, ... and column
//            16     [        ]              packs tx, tx + 16, ...; so that a warp reads shared
//   16 TM  [left]   [ 16 TM x 16 TN ]       memory a pack at a time, one pack behind the other
//
// A slab is loaded into registers while the one before is multiplied, where a thread's sums leave room.
//
// With `splits`, k is shared among as many blocks. Each leaves its sums in `partials`; of FAN neighbours the
// last one there adds up all of theirs, in their order, and of FAN such sums again the last:
//
//   split   0 1 2 ... 15   16 17 ... 31   32 33          sums always in this order, whoever is the last
//           [---- 0 ----]  [---- 1 ----]  [ 2 ]
//           [------------------ out ----------]
//
// `left_sums`, if wanted, are the sums of each row of left over k: where left is dy, the bias's gradient.

#include "block.cu"

const int SLAB = 16;
const int FAN = 16;

struct Spot {
  int left, offset, z, y, x;
};

struct Axes {
  int d, h, w;                 // how many along each axis
  int step_z, step_y, step_x;  // how far one is from the next,
  int z, y, x;                 // and where the first is
  int offset, left;            // from one outer index to the next, among the entries and in `left`

  __device__ Spot spot(int index) const {
    const int outer = index / (d * h * w), at = index % (d * h * w);
    return {outer * left + at, outer * offset, z + at / w / h * step_z, y + at / w % h * step_y,
            x + at % w * step_x};
  }
};
#define AXES(a)                                                                                   \
  int a##d, int a##h, int a##w, int a##step_z, int a##step_y, int a##step_x, int a##z, int a##y,  \
      int a##x, int a##offset, int a##left
#define AXES_OF(a)                                                                                \
  {a##d, a##h, a##w, a##step_z, a##step_y, a##step_x, a##z, a##y, a##x, a##offset, a##left}

// Whether a position is a multiple of the stride, and the quotient one of `size`; `at` becomes it.
__device__ inline bool lies(int& at, int stride, int size) {
  if (stride != 1) {
    if (at % stride != 0) return false;
    at /= stride;
  }
  return (unsigned)at < (unsigned)size;
}

template <typename S, int V>
struct alignas(sizeof(S) * V) Pack {
  S of[V];
};

template <typename T, typename O, int TM, int TN>
__launch_bounds__(BLOCK, 2)
__global__ void implicit(const T* __restrict__ left, const T* __restrict__ entries,
                         const T* __restrict__ bias, const O* mask, O* out, O* left_sums,
                         typename Sum<T>::type* partials, int* arrived, int rows, int columns,
                         int depth, int splits, int part, int left_group, int entries_group,
                         int out_group, int left_row, int out_row, int out_outer, int add,
                         int add_sums, int relu, AXES(column_), AXES(k_), int d, int h, int w,
                         int sd, int sh, int sw) {
  typedef typename Sum<T>::type S;
  const int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;  // in a pack
  const bool AHEAD = TM * TN <= 16;  // whether there are registers to load a slab ahead
  __shared__ Pack<S, VM> left_tile[SLAB][TM * 16 / VM + 1];  // a column more: fewer bank conflicts
  __shared__ Pack<S, VN> right_tile[SLAB][TN * 16 / VN];
  __shared__ Spot spots[2][SLAB];
  const Axes column_axes = AXES_OF(column_), k_axes = AXES_OF(k_);
  const int t = threadIdx.x, tx = t % 16, ty = t / 16;
  const int first_row = blockIdx.y * TM * 16, first_column = blockIdx.x * TN * 16;
  const int group = blockIdx.z / splits, split = blockIdx.z % splits;
  left += (size_t)group * left_group;
  entries += (size_t)group * entries_group;

  const int own = t % (TN * 16);  // the column of the tile that this thread gathers
  const bool is_column = first_column + own < columns;
  const Spot there = column_axes.spot(first_column + own);
  S sums[TM][TN];
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) sums[i][j] = 0;
  }
  // Thread t has the sum of row t of left, in the first column of blocks.
  const bool has_row = left_sums && blockIdx.x == 0 && t < TM * 16 && first_row + t < rows;
  S row_sum = 0;
  const int slabs = (depth + SLAB - 1) / SLAB;  // split i takes the i-th part of them
  const int last = (int)((long long)slabs * (split + 1) / splits) * SLAB;
  const int begin = (int)((long long)slabs * split / splits) * SLAB;

  // What thread t gathers of slab k0: TM entries of left, of column tx, and TN entries of its own column.
  const auto left_at = [&](int i, int k0, const Spot* at) {
    const int row = first_row + ty + 16 * i;
    return row < rows && k0 + tx < depth ? S(left[row * left_row + at[tx].left]) : S(0);
  };
  const auto entry_at = [&](int i, int k0, const Spot* at) {
    const int k = t / (TN * 16) + i * (BLOCK / (TN * 16));
    const Spot here = at[k];
    int z = here.z + there.z, y = here.y + there.y, x = here.x + there.x;
    const bool is =
        is_column && k0 + k < depth && lies(z, sd, d) && lies(y, sh, h) && lies(x, sw, w);
    return is ? S(entries[here.offset + there.offset + (z * h + y) * w + x]) : S(0);
  };
  const auto put_left = [&](int i, S value) {
    left_tile[tx][(ty + 16 * i) / VM].of[(ty + 16 * i) % VM] = value;
  };
  const auto put_entry = [&](int i, S value) {
    const int k = t / (TN * 16) + i * (BLOCK / (TN * 16));
    right_tile[k][own / VN].of[own % VN] = value;
  };

  S next_left[TM], next_entries[TN];  // of the next slab: loaded while this one is multiplied
  const auto load = [&](int k0, const Spot* at) {
#pragma unroll
    for (int i = 0; i < TM; ++i) next_left[i] = left_at(i, k0, at);
#pragma unroll
    for (int i = 0; i < TN; ++i) next_entries[i] = entry_at(i, k0, at);
  };
  int now = 0;  // which of the spots are this slab's
  if (t < SLAB) spots[now][t] = k_axes.spot(begin + t);
  __syncthreads();  // the first spots are there
  if (AHEAD) load(begin, spots[now]);
  for (int k0 = begin; k0 < last; k0 += SLAB, now ^= 1) {
    if (t < SLAB) spots[now ^ 1][t] = k_axes.spot(k0 + SLAB + t);
    if (AHEAD) {
#pragma unroll
      for (int i = 0; i < TM; ++i) put_left(i, next_left[i]);
#pragma unroll
      for (int i = 0; i < TN; ++i) put_entry(i, next_entries[i]);
    } else {
#pragma unroll 4  // more loads at a time than that find no registers beside 8 x 8 sums
      for (int i = 0; i < TM; ++i) put_left(i, left_at(i, k0, spots[now]));
#pragma unroll 4
      for (int i = 0; i < TN; ++i) put_entry(i, entry_at(i, k0, spots[now]));
    }
    __syncthreads();  // the slab is there, and the next spots
    if (AHEAD && k0 + SLAB < last) load(k0 + SLAB, spots[now ^ 1]);
    for (int k = 0; k < SLAB && has_row; ++k) row_sum += left_tile[k][t / VM].of[t % VM];
#pragma unroll
    for (int k = 0; k < SLAB; ++k) {
      S a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += VM) {
        const Pack<S, VM> pack = left_tile[k][ty + i / VM * 16];
#pragma unroll
        for (int v = 0; v < VM; ++v) a[i + v] = pack.of[v];
      }
#pragma unroll
      for (int j = 0; j < TN; j += VN) {
        const Pack<S, VN> pack = right_tile[k][tx + j / VN * 16];
#pragma unroll
        for (int v = 0; v < VN; ++v) b[j + v] = pack.of[v];
      }
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sums[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();  // the slab is used up
  }

  // Each thread goes through its entries of the tile, with where they lie in `out`.
  const int volume = column_axes.d * column_axes.h * column_axes.w;
  const auto each = [&](auto entry) {
    int row0 = first_row, column0 = first_column;
    asm volatile("" : "+r"(row0), "+r"(column0));  // else all places are kept, and find no registers
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + (tx + j / VN * 16) * VN + j % VN;
      const int at = group * out_group + column / volume * out_outer + column % volume;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = row0 + (ty + i / VM * 16) * VM + i % VM;
        if (row < rows && column < columns) entry(sums[i][j], row * out_row + at, row);
      }
    }
  };

  const int tiles = gridDim.x * gridDim.y * (gridDim.z / splits);
  const int tile = (group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int row_at = group * rows + first_row;  // the sum of the tile's first row, among them all
  const int behind = part - gridDim.z / splits * rows + row_at;  // and in a part
  for (int count = splits, mine = split, step = 1; count > 1; step *= FAN) {
    S* to = partials + (size_t)mine * step * part;
    each([&](S& sum, int at, int) { to[at] = sum; });
    if (has_row) to[behind + t] = row_sum;
    mine /= FAN;
    const int size = count - mine * FAN < FAN ? count - mine * FAN : FAN;
    if (!last_of(size, arrived + mine * tiles + tile)) return;
    count = (count + FAN - 1) / FAN;
    arrived += count * tiles;
    each([&](S& sum, int, int) { sum = 0; });
    row_sum = 0;
    const S* from = partials + (size_t)mine * FAN * step * part;
#pragma unroll 1
    for (int i = 0; i < size; ++i, from += (size_t)step * part) {
      each([&](S& sum, int at, int) { sum += __ldcg(from + at); });
      if (has_row) row_sum += __ldcg(from + behind + t);
    }
  }

  each([&](S value, int at, int row) {
    if (bias) value += S(bias[group * rows + row]);
    if (add) value = S(out[at]) + value;
    if (relu && value <= 0) value = 0;
    out[at] = masked(O(value), mask, at);
  });
  if (!has_row) return;
  O* to = left_sums + row_at + t;
  *to = O(add_sums ? S(*to) + row_sum : row_sum);
}
