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
//                   [ right  ] SLAB         of V neighbours, row packs ty, ty + 16, ... and column
//           SLAB    [        ]              packs tx, tx + 16, ...; so that a warp reads shared
//   16 TM  [left]   [ 16 TM x 16 TN ]       memory a pack at a time, one pack behind the other
//
// Where BLOCK indices k lie is tabulated before the first of their slabs. A slab is loaded into registers while the
// one before is multiplied. Where a thread's sums leave room, it is as deep again: what is waited for between two
// slabs takes as long however deep they are.
//
// A slab is multiplied by a thread's own multiply-adds (Fma), or on tensor cores: see mma.cu.
//
// With `splits`, k is shared among as many blocks. Each leaves its sums in `partials`; of FAN neighbours the
// last one there adds up all of theirs, in their order, and of FAN such sums again the last:
//
//   split   0 1 2 ... 15   16 17 ... 31   32 33          sums always in this order, whoever is the last
//           [---- 0 ----]  [---- 1 ----]  [ 2 ]
//           [------------------ out ----------]
//
// With `pooled`, each plane of out is pooled too: the largest of each 2 x 2 pixels, and `which` (0 to 3) it was,
// the first of equal ones, -1 if none is above minus infinity. Four columns are the pixels of a window then, in one
// thread's pack:
//
//   the columns at two rows   0 1 | 4 5 | 8 ...        tiles of VN = 4 only; h and w are even, d is 1
//                             2 3 | 6 7 | 10 ...
//
// `left_sums`, if wanted, are the sums of each row of left over k: where left is dy, the bias's gradient.

#include "block.cu"
#include "mma.cu"

const int UNIT = 16;  // a slab is one of them, or two; k is shared among blocks by them
const int FAN = 16;

// Where an index lies: its offset among the entries, and its position along each axis. Those of a column and of
// a k are added up: so they are of an entry, or of none.
struct alignas(16) Spot {
  int at, z, y, x;
};
const int NOWHERE = -(1 << 30);

// A position is `by` times the place of an entry, if it can be divided by that: it is kept as the quotient in
// front of the rest, which has so many `bits` that the rests of two do not add up to 1 of the quotient.
struct Stride {
  int by, bits;

  __device__ Stride(int by) : by(by), bits(0) {
    while (1 << bits < by) ++bits;
  }
  __device__ int position(int at) const { return at / by * (1 << bits) + at % by; }
  __device__ bool lies(int position, int size) const {  // a rest that is left becomes the upper bits
    return __funnelshift_r(position, position, bits) < (unsigned)size;
  }
};

struct Axes {
  int d, h, w;                 // how many along each axis
  int step_z, step_y, step_x;  // how far one is from the next,
  int z, y, x;                 // and where the first is
  int offset, left;            // from one outer index to the next, among the entries and in `left`
};

// How entries lie, with a stride along each axis.
struct Entries {
  int d, h, w;
  Stride z, y, x;

  __device__ Spot spot(const Axes& axes, int index, int count) const {
    if (index >= count) return {0, NOWHERE, 0, 0};
    const int outer = index / (axes.d * axes.h * axes.w), inner = index % (axes.d * axes.h * axes.w);
    const int at_z = axes.z + inner / axes.w / axes.h * axes.step_z;
    const int at_y = axes.y + inner / axes.w % axes.h * axes.step_y;
    const int at_x = axes.x + inner % axes.w * axes.step_x;
    const int at = outer * axes.offset + (at_z / z.by * h + at_y / y.by) * w + at_x / x.by;
    return {at, z.position(at_z), y.position(at_y), x.position(at_x)};
  }
  __device__ bool have(const Spot& a, const Spot& b) const {
    return z.lies(a.z + b.z, d) && y.lies(a.y + b.y, h) && x.lies(a.x + b.x, w);
  }
};
// The integers of a product, which are those of a geometry: from one group, row or outer column to the next, and how
// the entries lie: so many along each axis, with such strides.
struct Product {
  int rows, columns, depth;
  int left_group, entries_group, out_group, left_row, out_row, out_outer;
  Axes column, k;
  int d, h, w, sd, sh, sw;
};

// A slab in shared memory, and how it is multiplied: one product at a time. Each thread keeps sums of packs of
// VM x VN neighbours; i and j count its rows and columns.
struct Fma {};
template <typename T, int TM, int TN, int SLAB, typename Way>
struct Slab : Cores<T, TM, TN, SLAB, Way> {};
template <typename T, int TM, int TN, int SLAB>
struct Slab<T, TM, TN, SLAB, Fma> {
  typedef typename Sum<T>::type S;
  static const int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
  Pack<S, VM> left[SLAB][TM * 16 / VM + 1];  // a column more: fewer bank conflicts
  Pack<S, VN> right[SLAB][TN * 16 / VN];

  __device__ static int row(int i) { return (threadIdx.x / 16 + i / VM * 16) * VM + i % VM; }
  __device__ static int column(int j) { return (threadIdx.x % 16 + j / VN * 16) * VN + j % VN; }
  __device__ void put_left(int k, int row, T value) { left[k][row / VM].of[row % VM] = S(value); }
  __device__ void put_right(int k, int column, T value) { right[k][column / VN].of[column % VN] = S(value); }
  __device__ S left_at(int k, int row) const { return left[k][row / VM].of[row % VM]; }
  __device__ void multiply(S (&sums)[TM][TN]) const {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll(TM * TN > 32 ? 2 : SLAB)  // more find no registers beside 8 x 8 sums
    for (int k = 0; k < SLAB; ++k) {
      S a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += VM) {
        const Pack<S, VM> pack = left[k][ty + i / VM * 16];
#pragma unroll
        for (int v = 0; v < VM; ++v) a[i + v] = pack.of[v];
      }
#pragma unroll
      for (int j = 0; j < TN; j += VN) {
        const Pack<S, VN> pack = right[k][tx + j / VN * 16];
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
};

template <typename T, typename O, int TM, int TN, typename Way = Fma>
__launch_bounds__(BLOCK, 2)
__global__ void implicit(const T* __restrict__ left, const T* __restrict__ entries,
                         const T* __restrict__ bias, const O* mask, O* out, O* pooled, int* which,
                         O* left_sums, typename Sum<T>::type* partials, int* arrived, int splits, int part,
                         int add, int add_sums, int relu, Product p) {
  typedef typename Sum<T>::type S;
  const int DEEP = TM * TN <= (sizeof(T) == 2 ? 16 : 32) ? 2 : 1, SLAB = DEEP * UNIT;  // as registers are found
  typedef Slab<T, TM, TN, SLAB, Way> Tile;
  const int VN = Tile::VN;  // neighbours in a row, of which a thread keeps the sums
  __shared__ Tile slab;
  __shared__ Spot spots[BLOCK];  // of BLOCK indices k, for as many slabs,
  __shared__ int lefts[BLOCK];   // and where they lie in left
  const int t = threadIdx.x, tx = t % 16, ty = t / 16;
  const int first_row = blockIdx.y * TM * 16, first_column = blockIdx.x * TN * 16;
  const int group = blockIdx.z / splits, split = blockIdx.z % splits;
  left += (size_t)group * p.left_group;
  entries += (size_t)group * p.entries_group;

  const Entries given = {p.d, p.h, p.w, Stride(p.sd), Stride(p.sh), Stride(p.sw)};
  const int wide = p.column.w;
  const auto place = [&](int column) {  // which pixel it is, in the order of `out`
    if (VN != 4 || !pooled) return column;
    const int window = column / 4, across = wide / 2;
    return (window / across * 2 + column / 2 % 2) * wide + window % across * 2 + column % 2;
  };
  const int own = t % (TN * 16);  // the column of the tile that this thread gathers
  const Spot there = given.spot(p.column, place(first_column + own), p.columns);
  S sums[TM][TN];
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) sums[i][j] = 0;
  }
  // Thread t has the sum of row t of left, in the first column of blocks.
  const bool has_row = left_sums && blockIdx.x == 0 && t < TM * 16 && first_row + t < p.rows;
  S row_sum = 0;
  const int units = (p.depth + UNIT - 1) / UNIT;  // split i takes the i-th part of them
  const int last = min((int)((long long)units * (split + 1) / splits) * UNIT, p.depth);
  const int begin = (int)((long long)units * split / splits) * UNIT;

  const auto tabulate = [&](int k) {
    const int outer = (k + t) / (p.k.d * p.k.h * p.k.w);
    spots[t] = given.spot(p.k, k + t, last);
    lefts[t] = outer * p.k.left + (k + t) % (p.k.d * p.k.h * p.k.w);
  };
  // What thread t gathers of slab k0: entries of left, of columns tx and tx + 16, of TM rows each; and entries of its
  // own column.
  const T* left_rows = left + (size_t)(first_row + ty) * p.left_row;
  const auto left_at = [&](int n, int k0) {
    const int i = n % TM, k = n / TM * 16 + tx;
    const int at = lefts[(k0 - begin) % BLOCK + k] + i * 16 * p.left_row;
    return first_row + ty + 16 * i < p.rows && k0 + k < last ? left_rows[at] : T(0);
  };
  const auto entry_at = [&](int i, int k0) {
    const Spot here = spots[(k0 - begin) % BLOCK + t / (TN * 16) + i * (BLOCK / (TN * 16))];
    return given.have(here, there) ? entries[here.at + there.at] : T(0);
  };
  const auto put_left = [&](int n, T value) { slab.put_left(n / TM * 16 + tx, ty + n % TM * 16, value); };
  const auto put_entry = [&](int i, T value) {
    slab.put_right(t / (TN * 16) + i * (BLOCK / (TN * 16)), own, value);
  };

  T next_left[TM * DEEP], next_entries[TN * DEEP];  // of the next slab: loaded while this one is multiplied
  const auto load = [&](int k0) {
#pragma unroll
    for (int i = 0; i < TM * DEEP; ++i) next_left[i] = left_at(i, k0);
#pragma unroll
    for (int i = 0; i < TN * DEEP; ++i) next_entries[i] = entry_at(i, k0);
  };
  tabulate(begin);
  __syncthreads();  // the first spots are there
  load(begin);
  for (int k0 = begin; k0 < last; k0 += SLAB) {
#pragma unroll
    for (int i = 0; i < TM * DEEP; ++i) put_left(i, next_left[i]);
#pragma unroll
    for (int i = 0; i < TN * DEEP; ++i) put_entry(i, next_entries[i]);
    __syncthreads();  // the slab is there
    if ((k0 + SLAB - begin) % BLOCK == 0 && k0 + SLAB < last) {
      tabulate(k0 + SLAB);
      __syncthreads();  // the next spots are there
    }
    if (k0 + SLAB < last) load(k0 + SLAB);
    for (int k = 0; k < SLAB && has_row; ++k) row_sum += slab.left_at(k, t);
    slab.multiply(sums);
    __syncthreads();  // the slab is used up
  }

  // Each thread goes through its entries of the tile, with where they lie in `out`.
  const int volume = p.column.d * p.column.h * p.column.w;
  const auto each = [&](auto entry) {
    int row0 = first_row, column0 = first_column;
    asm volatile("" : "+r"(row0), "+r"(column0));  // else all places are kept, and find no registers
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + Tile::column(j);
      const int at = group * p.out_group + column / volume * p.out_outer + column % volume;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = row0 + Tile::row(i);
        if (row < p.rows && column < p.columns) entry(sums[i][j], row * p.out_row + at, row);
      }
    }
  };

  const int tiles = gridDim.x * gridDim.y * (gridDim.z / splits);
  const int tile = (group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int row_at = group * p.rows + first_row;  // the sum of the tile's first row, among them all
  const int behind = part - gridDim.z / splits * p.rows + row_at;  // and in a part
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

  const auto finished = [&](S value, int at, int row) {
    if (bias) value += S(bias[group * p.rows + row]);
    if (add) value = S(out[at]) + value;
    if (relu && value <= 0) value = 0;
    return masked(O(value), mask, at);
  };
  const auto divided = [](size_t number) { return number % VN == 0; };
  const bool packed = divided(volume) && divided(p.out_group) && divided(p.out_row) &&
                      divided(p.out_outer) && (size_t)out % sizeof(Pack<O, VN>) == 0;
  if (VN == 4 && pooled) {
#pragma unroll
    for (int j = 0; j < TN; j += VN) {
      const int column = first_column + Tile::column(j), corner = place(column);
      const int outer = group * p.out_group + column / volume * p.out_outer;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = first_row + Tile::row(i), plane = outer + row * p.out_row;
        if (row >= p.rows || column >= p.columns) continue;
        O best = O(__int_as_float(0xff800000));  // minus infinity
        int winner = -1;
#pragma unroll
        for (int v = 0; v < VN; v += 2) {
          const int at = plane + corner % volume + v / 2 * wide;
          Pack<O, 2> pair;
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            pair.of[k] = finished(sums[i][j + v + k], at + k, row);
            if (pair.of[k] > best) best = pair.of[k], winner = v + k;
          }
          *(Pack<O, 2>*)(out + at) = pair;
        }
        pooled[(plane + column % volume) / 4] = best;
        which[(plane + column % volume) / 4] = winner;
      }
    }
  } else if (VN > 1 && packed) {  // neighbouring columns lie side by side, and are written at once
#pragma unroll
    for (int j = 0; j < TN; j += VN) {
      const int column = first_column + Tile::column(j);
      const int beside = group * p.out_group + column / volume * p.out_outer + column % volume;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = first_row + Tile::row(i), at = row * p.out_row + beside;
        if (row >= p.rows || column >= p.columns) continue;
        Pack<O, VN> pack;
#pragma unroll
        for (int v = 0; v < VN; ++v) pack.of[v] = finished(sums[i][j + v], at + v, row);
        *(Pack<O, VN>*)(out + at) = pack;
      }
    }
  } else {
    each([&](S value, int at, int row) { out[at] = finished(value, at, row); });
  }
  if (!has_row) return;
  O* to = left_sums + row_at + t;
  *to = O(add_sums ? S(*to) + row_sum : row_sum);
}
