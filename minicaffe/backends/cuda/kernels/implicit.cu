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
// says i + pad, and an element -e dilation: together the place; with a stride see Rest.
//
// A block multiplies a tile of 16 TM x 16 TN entries, slab by slab of k:
//
//                      16 TN                thread (ty, tx) of 16 x 16 keeps TM x TN sums: of packs
//                   [ right  ] SLAB         of V neighbours, row packs ty, ty + 16, ... and column
//           SLAB    [        ]              packs tx, tx + 16, ...; so that a warp reads shared
//   16 TM  [left]   [ 16 TM x 16 TN ]       memory a pack at a time, one pack behind the other
//
// Where the tile's rows and columns lie, and TABLE indices k at a time, is tabulated in shared memory. A slab is
// loaded into registers while the one before is multiplied, and put into the other half of the shared memory.
//
// How a thread reads a slab of left, and of the entries, depends on how they lie:
//
//   Each    of one row (or column), and k's that follow each other: a warp's rows are neighbours
//   Deep    of one k (or one word of k's), and several rows: a warp's k's are neighbours
//   Packs   as Deep, of as many k's as 16 bytes hold (32 of float64), which are read at once
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

const int WORDS = 16;  // of a slab, along k: a number each, or two of 16 bits for tensor cores
const int UNIT = 16;   // k is shared among blocks by so many
const int FAN = 16;

// Where an index lies: its offset among the entries, and its position along each axis. Those of a column and of
// a k are added up: so they are of an entry, or of none.
struct alignas(16) Spot {
  int at, z, y, x;
};
const int NOWHERE = -(1 << 30);

// The same in two words, if the kernel is small: of an element of it, `bits` has one bit set along each axis; of a
// place, those where it finds no entry. So the two are of an entry if they share no bit. The last bit is set of a
// place, and is all that an element beyond the last one has: no place is of it.
struct alignas(8) Bits {
  int at;
  unsigned bits;
};
const unsigned BEYOND = 1u << 31;

struct Axes {
  int d, h, w;                 // how many along each axis
  int step_z, step_y, step_x;  // how far one is from the next,
  int z, y, x;                 // and where the first is
  int offset, left;            // from one outer index to the next, among the entries and in `left`
};

// How many entries there are along each axis.
struct Entries {
  int d, h, w;

  __device__ static bool lies(int position, int size) { return (unsigned)position < (unsigned)size; }
  __device__ bool have(const Spot& a, const Spot& b) const {
    return lies(a.z + b.z, d) && lies(a.y + b.y, h) && lies(a.x + b.x, w);
  }
  __device__ bool have(const Bits& a, const Bits& b) const { return !(a.bits & b.bits); }

  // Where an index of `axes` lies; what it meets are positions of `others`. With `element` it is one of the kernel.
  __device__ void find(Spot& to, const Axes& axes, const Axes&, int index, int count, bool) const {
    to = {0, NOWHERE, 0, 0};
    if (index >= count) return;
    const int outer = index / (axes.d * axes.h * axes.w), inner = index % (axes.d * axes.h * axes.w);
    const int at_z = axes.z + inner / axes.w / axes.h * axes.step_z;
    const int at_y = axes.y + inner / axes.w % axes.h * axes.step_y;
    const int at_x = axes.x + inner % axes.w * axes.step_x;
    to = {outer * axes.offset + (at_z * h + at_y) * w + at_x, at_z, at_y, at_x};
  }
  __device__ void find(Bits& to, const Axes& axes, const Axes& others, int index, int count, bool element) const {
    Spot spot;
    find(spot, axes, others, index, count, element);
    to = {spot.at, BEYOND};
    if (index >= count) {
      if (!element) to.bits = ~0u;
    } else if (element) {
      const int inner = index % (axes.d * axes.h * axes.w);
      const int at_y = axes.d + inner / axes.w % axes.h, at_x = axes.d + axes.h + inner % axes.w;
      to.bits = 1u << inner / axes.w / axes.h | 1u << at_y | 1u << at_x;
    } else {
      int bit = 0;
      const auto axis = [&](int many, int first, int step, int position, int size) {
        for (int i = 0; i < many; ++i, ++bit) {
          if (!lies(position + first + i * step, size)) to.bits |= 1u << bit;
        }
      };
      axis(others.d, others.z, others.step_z, spot.z, d);
      axis(others.h, others.y, others.step_y, spot.y, h);
      axis(others.w, others.x, others.step_x, spot.x, w);
    }
  }
};

// The integers of a product, which are those of a geometry: from one group, row or outer column to the next; how
// many entries lie along each axis; the strides of dx; and whether the kernel's elements are counted by k.
struct Product {
  int rows, columns, depth;
  int left_group, entries_group, out_group, left_row, out_row, out_outer;
  Axes column, k;
  int d, h, w, sd, sh, sw, elements_in_k;
};

// dx with strides: pixels with one rest by the stride meet only elements with one rest, and for them it is a product
// with stride 1. Along an axis those are pixels i = rest + stride q and elements e = first + step j, for which
//
//   i + pad - e dilation = stride (place + q - by j)         3 elements, stride 2, pad 1:   rest 0   e = 1
//                                                                                           rest 1   e = 0, 2
struct Rest {
  int columns, depth;
  Axes column, k;
  int rest[3], first[3], step[3];

  __device__ void find(const Product& p, int which) {
    column = p.column, k = p.k;
    axis(2, p.sw, which % p.sw, column.w, column.x, k.w, k.step_x);
    axis(1, p.sh, which / p.sw % p.sh, column.h, column.y, k.h, k.step_y);
    axis(0, p.sd, which / p.sw / p.sh, column.d, column.z, k.d, k.step_z);
    columns = p.columns / (p.column.d * p.column.h * p.column.w) * (column.d * column.h * column.w);
    depth = p.depth / (p.k.d * p.k.h * p.k.w) * (k.d * k.h * k.w);
  }
  __device__ void axis(int i, int stride, int pixel, int& pixels, int& place, int& elements, int& each) {
    int begin = 0, next = 1;
    while (begin < elements && (pixel + place + begin * each) % stride) ++begin;
    while (next * each % stride) ++next;
    pixels = (pixels - pixel + stride - 1) / stride;
    place = (pixel + place + begin * each) / stride;
    elements = (elements - begin + next - 1) / next;  // none, if none has this rest
    each = next * each / stride;
    rest[i] = pixel, first[i] = begin, step[i] = next;
  }
  // Which of all elements one of these is; and where a column is in a row of the result.
  __device__ int element(int inner, const Product& p) const {
    const int z = first[0] + inner / k.w / k.h * step[0], y = first[1] + inner / k.w % k.h * step[1];
    return (z * p.k.h + y) * p.k.w + first[2] + inner % k.w * step[2];
  }
  __device__ int pixel(int index, const Product& p) const {
    const int volume = column.d * column.h * column.w, inner = index % volume;
    const int z = rest[0] + inner / column.w / column.h * p.sd, y = rest[1] + inner / column.w % column.h * p.sh;
    const int pixel = (z * p.column.h + y) * p.column.w + rest[2] + inner % column.w * p.sw;
    return index / volume * p.out_outer + pixel;
  }
};

// A slab's left or right side in shared memory, of SIZE rows or columns, as numbers of the type of a sum; V
// neighbours are read at once.
template <typename T, int SIZE, int V>
struct Plain {
  typedef typename Sum<T>::type S;
  static const int MANY = 1, OWNS = SIZE;
  Pack<S, V> of[WORDS][SIZE / V + 1];  // a column more: fewer bank conflicts

  __device__ void put(int word, int own, const T* value) { of[word][own / V].of[own % V] = S(*value); }
  __device__ S get(int k, int own) const { return of[k][own / V].of[own % V]; }
};

// A slab, and how it is multiplied: one product at a time. Each thread keeps sums of packs of VM x VN neighbours;
// i and j count its rows and columns.
struct Fma {};
template <typename T, int TM, int TN, typename Way>
struct Slab : Cores<T, TM, TN, Way> {};
template <typename T, int TM, int TN>
struct Slab<T, TM, TN, Fma> {
  typedef typename Sum<T>::type S;
  static const int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
  // products that follow each other in the code: more find no registers
  static const int UNROLL = TM * TN > 32 ? 2 : WORDS;
  Plain<T, TM * 16, VM> left;
  Plain<T, TN * 16, VN> right;

  __device__ static int row(int i) { return (threadIdx.x / 16 + i / VM * 16) * VM + i % VM; }
  __device__ static int column(int j) { return (threadIdx.x % 16 + j / VN * 16) * VN + j % VN; }
  __device__ void multiply(S (&sums)[TM][TN]) const {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll(UNROLL)
    for (int k = 0; k < WORDS; ++k) {
      S a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += VM) {
        const Pack<S, VM> pack = left.of[k][ty + i / VM * 16];
#pragma unroll
        for (int v = 0; v < VM; ++v) a[i + v] = pack.of[v];
      }
#pragma unroll
      for (int j = 0; j < TN; j += VN) {
        const Pack<S, VN> pack = right.of[k][tx + j / VN * 16];
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

// A pointer that stays in registers as it is; else it would be computed anew for each number that is read.
template <typename T>
__device__ const T* kept(const T* pointer) {
  size_t address = __cvta_generic_to_global(pointer);
  asm volatile("" : "+l"(address));
  return (const T*)__cvta_global_to_generic(address);
}

// How a thread reads its part of a side: from the array, by where rows (or columns) and k's lie, into registers;
// and puts it into shared memory.
struct Each {
  template <typename T, typename Side, typename Where>
  struct Of {
    static const int COUNT = Side::OWNS * WORDS * Side::MANY / BLOCK, PAIR = COUNT > 1 && sizeof(Where) == 8 ? 2 : 1;
    T next[COUNT];
    Where own;
    const T* from;

    __device__ static int first() { return threadIdx.x / Side::OWNS * COUNT; }
    __device__ void begin(const T* array, const Where* owns) {
      own = owns[threadIdx.x % Side::OWNS];
      from = kept(array + own.at);
    }
    __device__ void load(const Entries& entries, const Where*, const Where* ks) {
#pragma unroll
      for (int i = 0; i < COUNT; i += PAIR) {
        const Pack<Where, PAIR> pair = *(const Pack<Where, PAIR>*)(ks + first() + i);
#pragma unroll
        for (int v = 0; v < PAIR; ++v) next[i + v] = entries.have(pair.of[v], own) ? from[pair.of[v].at] : T(0);
      }
    }
    __device__ void put(Side& side) const {
#pragma unroll
      for (int i = 0; i < COUNT; i += Side::MANY) {
        side.put((first() + i) / Side::MANY, threadIdx.x % Side::OWNS, next + i);
      }
    }
  };
};
template <bool AT_ONCE>
struct Along {
  template <typename T, typename Side, typename Where>
  struct Of {
    static const int V = Side::MANY * (AT_ONCE ? 4 : 1), CHUNKS = WORDS * Side::MANY / V, STEP = BLOCK / CHUNKS;
    static const int ITEMS = Side::OWNS / STEP;
    Pack<T, V> next[ITEMS];
    const T* from;

    __device__ static int own(int i) { return threadIdx.x / CHUNKS + i * STEP; }
    __device__ static int first() { return threadIdx.x % CHUNKS * V; }
    __device__ void begin(const T* array, const Where*) { from = kept(array); }
    __device__ void load(const Entries& entries, const Where* owns, const Where* ks) {
#pragma unroll
      for (int v = 0; v < (AT_ONCE ? 1 : V); ++v) {
        const Where k = ks[first() + v];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
          const Where mine = owns[own(i)];
          const bool lies = entries.have(k, mine);
          const T* at = from + (k.at + mine.at);
          if (AT_ONCE) {
            next[i] = lies ? *(const Pack<T, V>*)at : Pack<T, V>();
          } else {
            next[i].of[v] = lies ? *at : T(0);
          }
        }
      }
    }
    __device__ void put(Side& side) const {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
        for (int v = 0; v < V; v += Side::MANY) side.put((first() + v) / Side::MANY, own(i), next[i].of + v);
      }
    }
  };
};
typedef Along<false> Deep;
typedef Along<true> Packs;

template <typename T, typename O, int TM, int TN, typename Left = Deep, typename Right = Each,
          typename Where = Bits, bool STRIDED = false, typename Way = Fma>
__launch_bounds__(BLOCK, 2)
__global__ void implicit(const T* __restrict__ left, const T* __restrict__ entries,
                         const T* __restrict__ bias, const O* mask, O* out, O* pooled, int* which,
                         O* left_sums, typename Sum<T>::type* partials, int* arrived, int splits, int part,
                         int add, int add_sums, int relu, Product p) {
  typedef typename Sum<T>::type S;
  typedef Slab<T, TM, TN, Way> Tile;
  const int VN = Tile::VN;  // neighbours in a row, of which a thread keeps the sums
  const int SLAB = WORDS * decltype(Tile::left)::MANY, TABLE = 2048 / sizeof(Where);
  __shared__ Tile slabs[2];
  alignas(16) __shared__ Bits left_rows[TM * 16], left_ks[TABLE];
  alignas(16) __shared__ Where columns[TN * 16], ks[TABLE];
  __shared__ int pixels[TN * 16];  // of a column, in a row of `out`
  const int t = threadIdx.x;
  const int first_row = blockIdx.y * TM * 16, first_column = blockIdx.x * TN * 16;
  const int rests = STRIDED ? p.sd * p.sh * p.sw : 1;
  const int group = blockIdx.z / splits / rests, split = blockIdx.z % splits;
  __shared__ Rest rest;
  if (STRIDED) {
    if (t == 0) rest.find(p, blockIdx.z / splits % rests);
    __syncthreads();  // which pixels and elements these are, is there
    if (first_column >= rest.columns) return;
  }
  const Axes &axes = STRIDED ? rest.column : p.column, &axes_of_k = STRIDED ? rest.k : p.k;
  const int &many = STRIDED ? rest.columns : p.columns, &depth = STRIDED ? rest.depth : p.depth;

  const Entries given = {p.d, p.h, p.w};
  const int wide = axes.w;
  const auto place = [&](int column) {  // which pixel it is, in the order of `out`
    if (VN != 4 || !pooled) return column;
    const int window = column / 4, across = wide / 2;
    return (window / across * 2 + column / 2 % 2) * wide + window % across * 2 + column % 2;
  };
  S sums[TM][TN];
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) sums[i][j] = 0;
  }
  // Thread t has the sum of row t of left, in the first column of blocks.
  const bool has_row = !STRIDED && left_sums && blockIdx.x == 0 && t < TM * 16 && first_row + t < p.rows;
  S row_sum = 0;
  const int units = (depth + UNIT - 1) / UNIT;  // split i takes the i-th part of them
  const int last = min((int)((long long)units * (split + 1) / splits) * UNIT, depth);
  const int begin = (int)((long long)units * split / splits) * UNIT;

  const auto tabulate = [&](int k) {
    if (t >= TABLE) return;
    const int volume = STRIDED ? max(1, axes_of_k.d * axes_of_k.h * axes_of_k.w) : p.k.d * p.k.h * p.k.w;
    const int outer = (k + t) / volume, inner = (k + t) % volume;
    const int element = STRIDED ? rest.element(inner, p) : inner;
    left_ks[t] = k + t < last ? Bits{outer * axes_of_k.left + element, 1} : Bits{0, BEYOND};
    given.find(ks[t], axes_of_k, axes, k + t, last, p.elements_in_k);
  };
  if (t < TM * 16) {
    const int row = first_row + t;
    left_rows[t] = row < p.rows ? Bits{row * p.left_row, BEYOND} : Bits{0, ~0u};
  }
  if (t < TN * 16) {
    const int column = first_column + t, volume = p.column.d * p.column.h * p.column.w;
    pixels[t] = STRIDED ? rest.pixel(column, p) : column / volume * p.out_outer + column % volume;
    given.find(columns[t], axes, axes_of_k, place(first_column + t), many, !p.elements_in_k);
  }
  __syncthreads();  // the tile's tables are there

  typename Left::template Of<T, decltype(Tile::left), Bits> of_left;  // of the next slab
  typename Right::template Of<T, decltype(Tile::right), Where> of_right;
  of_left.begin(left + (size_t)group * p.left_group, left_rows);
  of_right.begin(entries + (size_t)group * p.entries_group, columns);
  for (int k0 = begin - SLAB, which_slab = 1; k0 < last; k0 += SLAB, which_slab ^= 1) {
    const int next = k0 + SLAB, row_of_table = (next - begin) & (TABLE - 1);
    if (next < last) {
      if (row_of_table == 0) {
        tabulate(next);
        __syncthreads();  // the table of the next k's is there
      }
      of_left.load(given, left_rows, left_ks + row_of_table);
      of_right.load(given, columns, ks + row_of_table);
    }
    if (k0 >= begin) {
      const Tile& slab = slabs[which_slab];
      if (!STRIDED && left_sums) {
        for (int k = 0; k < SLAB && has_row; ++k) row_sum += slab.left.get(k, t);
      }
      slab.multiply(sums);
    }
    if (next < last) {
      Tile& slab = slabs[which_slab ^ 1];
      of_left.put(slab.left);
      of_right.put(slab.right);
    }
    __syncthreads();  // the next slab is there, and this one is used up
  }

  // Each thread goes through its entries of the tile, with where they lie in `out`.
  const int volume = axes.d * axes.h * axes.w;
  const auto each = [&](auto entry) {
    int row0 = first_row, column0 = first_column;
    asm volatile("" : "+r"(row0), "+r"(column0));  // else all places are kept, and find no registers
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int column = column0 + Tile::column(j);
      const int at = group * p.out_group + pixels[Tile::column(j)];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = row0 + Tile::row(i);
        if (row < p.rows && column < many) entry(sums[i][j], row * p.out_row + at, row);
      }
    }
  };

  const int tiles = gridDim.x * gridDim.y * (gridDim.z / splits);
  const int tile = (blockIdx.z / splits * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
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
  const bool packed = !STRIDED && divided(volume) && divided(p.out_group) && divided(p.out_row) &&
                      divided(p.out_outer) && (size_t)out % sizeof(Pack<O, VN>) == 0;
  if (VN == 4 && !STRIDED && pooled) {
#pragma unroll
    for (int j = 0; j < TN; j += VN) {
      const int column = first_column + Tile::column(j), corner = place(column);
      const int outer = group * p.out_group + column / volume * p.out_outer;
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = first_row + Tile::row(i), plane = outer + row * p.out_row;
        if (row >= p.rows || column >= many) continue;
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
      const int beside = group * p.out_group + pixels[Tile::column(j)];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = first_row + Tile::row(i), at = row * p.out_row + beside;
        if (row >= p.rows || column >= many) continue;
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
