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
// With `splits`, k is shared among as many blocks. Each leaves its sums in `partials`; of FAN neighbours the
// last one there adds up all of theirs, in their order, and of FAN such sums again the last:
//
//   split   0 1 2 ... 15   16 17 ... 31   32 33          sums always in this order, whoever is the last
//           [---- 0 ----]  [---- 1 ----]  [ 2 ]
//           [------------------ out ----------]
//
// `left_sums`, if wanted, are the sums of each row of left over k: where left is dy, the bias's gradient.

#include "last.cu"

const int SLAB = 16;
const int BLOCK = 256;  // threads
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
  __shared__ Pack<S, VM> left_tile[SLAB][TM * 16 / VM + 1];  // a column more: fewer bank conflicts
  __shared__ Pack<S, VN> right_tile[SLAB][TN * 16 / VN];
  __shared__ Spot spots[SLAB];
  const Axes column_axes = AXES_OF(column_), k_axes = AXES_OF(k_);
  const int t = threadIdx.x, tx = t % 16, ty = t / 16;
  const int first_row = blockIdx.y * TM * 16, first_column = blockIdx.x * TN * 16;
  const int group = blockIdx.z / splits, split = blockIdx.z % splits;
  left += (size_t)group * left_group;
  entries += (size_t)group * entries_group;

  const int own = t % (TN * 16);  // the column of the tile that this thread gathers
  const bool is_column = first_column + own < columns;
  const Spot there = column_axes.spot(first_column + own);
  S sums[TM][TN], of_left[TM];
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) sums[i][j] = 0;
    of_left[i] = 0;
  }
  const int slabs = (depth + SLAB - 1) / SLAB;  // split i takes the i-th part of them
  const int last = (int)((long long)slabs * (split + 1) / splits) * SLAB;
  for (int k0 = (int)((long long)slabs * split / splits) * SLAB; k0 < last; k0 += SLAB) {
    if (t < SLAB) spots[t] = k_axes.spot(k0 + t);
    __syncthreads();  // the spots are there, and the last slab is used up
#pragma unroll 4  // more loads at a time than that find no registers beside 8 x 8 sums
    for (int i = 0; i < TM; ++i) {
      const int row = ty + 16 * i;
      const bool is = first_row + row < rows && k0 + tx < depth;
      const S value = is ? S(left[(first_row + row) * left_row + spots[tx].left]) : S(0);
      left_tile[tx][row / VM].of[row % VM] = value;
      if (left_sums) of_left[i] += value;
    }
#pragma unroll 4
    for (int i = 0; i < TN; ++i) {
      const int k = t / (TN * 16) + i * (BLOCK / (TN * 16));
      const Spot here = spots[k];
      int z = here.z + there.z, y = here.y + there.y, x = here.x + there.x;
      const bool is =
          is_column && k0 + k < depth && lies(z, sd, d) && lies(y, sh, h) && lies(x, sw, w);
      right_tile[k][own / VN].of[own % VN] =
          is ? S(entries[here.offset + there.offset + (z * h + y) * w + x]) : S(0);
    }
    __syncthreads();  // the slab is there
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
  }

  // Each thread goes through its entries of the tile, with where they lie in `out`.
  const int volume = column_axes.d * column_axes.h * column_axes.w;
  const auto each = [&](auto entry) {
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = first_column + (tx + j / VN * 16) * VN + j % VN;
      const int at = column / volume * out_outer + column % volume;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = first_row + (ty + i / VM * 16) * VM + i % VM;
        if (row >= rows || column >= columns) continue;
        entry(sums[i][j], (size_t)group * out_group + (size_t)row * out_row + at, row);
      }
    }
  };

  // Thread t has the sum of row t of left; in the first column of blocks.
  const bool sums_left = left_sums && blockIdx.x == 0;
  const bool has_row = sums_left && t < TM * 16 && first_row + t < rows;
  const size_t row_at = (size_t)group * rows + first_row + t;
  S row_sum = 0;
  if (sums_left) {
    S* const shared = &left_tile[0][0].of[0];
    __syncthreads();  // the last slab is used up
    for (int i = 0; i < TM; ++i) shared[(ty + 16 * i) * SLAB + tx] = of_left[i];
    __syncthreads();
    for (int k = 0; k < SLAB && has_row; ++k) row_sum += shared[t * SLAB + k];
  }

  const int tiles = gridDim.x * gridDim.y * (gridDim.z / splits);
  const int tile = (group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int behind = part - (gridDim.z / splits) * rows;  // where in a part the sums of left begin
  for (int count = splits, mine = split, step = 1; count > 1; step *= FAN) {
    S* to = partials + (size_t)mine * step * part;
    each([&](S& sum, size_t at, int) { to[at] = sum; });
    if (has_row) to[behind + row_at] = row_sum;
    mine /= FAN;
    const int size = count - mine * FAN < FAN ? count - mine * FAN : FAN;
    if (!last_of(size, arrived + mine * tiles + tile)) return;
    count = (count + FAN - 1) / FAN;
    arrived += count * tiles;
    each([&](S& sum, size_t, int) { sum = 0; });
    row_sum = 0;
    const S* from = partials + (size_t)mine * FAN * step * part;
    for (int i = 0; i < size; ++i, from += (size_t)step * part) {
      each([&](S& sum, size_t at, int) { sum += __ldcg(from + at); });
      if (has_row) row_sum += __ldcg(from + behind + row_at);
    }
  }

  each([&](S value, size_t at, int row) {
    if (bias) value += S(bias[group * rows + row]);
    if (relu && value <= 0) value = 0;
    out[at] = masked(O(add ? S(out[at]) + value : value), mask, at);
  });
  if (has_row) left_sums[row_at] = O(add_sums ? S(left_sums[row_at]) + row_sum : row_sum);
}
