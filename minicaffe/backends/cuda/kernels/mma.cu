// Products on tensor cores, where the 32 lanes of a warp multiply together: 16 rows of a by 8 columns of b, of
// words of 32 bits. A word is a float, rounded to TF32, or two neighbours along k of 16 bits each.
//
//   d[row][column] += sum over 8 words of a[row][word] b[word][column], in float32
//
// Lane l, with g = l / 4 and t = l % 4, has these of them:
//
//   a: (g, t)  (g + 8, t)  (g, t + 4)  (g + 8, t + 4)     rows and words
//   b: (t, g)  (t + 4, g)                                 words and columns
//   d: (g, 2 t)  (g, 2 t + 1)  (g + 8, 2 t)  (g + 8, 2 t + 1)
//
// Of architectures from sm_80 on. Source: NVIDIA, PTX ISA, Matrix Fragments for mma.m16n8k8 (.tf32) and
// mma.m16n8k16 (.f16, .bf16).

// Fragments are read from shared memory by ldmatrix: N rows of 4 words each at addresses that lane l gives, eight rows
// a matrix; lane l has of each matrix the word t of row g, as a and b have them.

#ifndef STANDIN  // which computes the same from the tables above
#define MMA(name, shape, type)                                                                       \
  __device__ inline void name(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {       \
    asm("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 "                              \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
  }
MMA(mma_tf32, "m16n8k8", "tf32")
MMA(mma_f16, "m16n8k16", "f16")
MMA(mma_bf16, "m16n8k16", "bf16")

__device__ inline void fragments(unsigned (&to)[2], const unsigned* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1]) : "r"((unsigned)__cvta_generic_to_shared(row)));
}
__device__ inline void fragments(unsigned (&to)[4], const unsigned* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
}

#endif

// A float as TF32 has it, 10 bits behind the first, halves away from zero; but for the bits that are cut off: half of
// the last of those 10 bits is added, 2^-11 times the power of two that a float begins with.
__device__ inline unsigned tf32(float value) {
  const float power = __uint_as_float(__float_as_uint(value) & 0xff800000u);
  return __float_as_uint(fmaf(power, 0x1p-11f, value));
}

// What words are of: so many entries along k are in one, and how they are multiplied.
struct Tf32 {
  static const int MANY = 1;
  static const bool STAGED = false;
  __device__ static unsigned word(const float* value) { return tf32(*value); }
  __device__ static float get(unsigned word, int) { return __uint_as_float(word & ~0x1fffu); }
  __device__ static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_tf32(d, a, b); }
};

// Float32 as two numbers that TF32 has: hi, which is x cut to 11 bits, and lo = x - hi, which the unit cuts; but for
// lo lo, of 2^-20 at the most, a product is that of float32. The unit cuts its sums as well, so each slab is summed apart:
// more exact than a chain of multiply-adds. Source: H. Ootomo, R. Yokota, Recovering single precision accuracy from
// Tensor Cores while surpassing the FP32 theoretical peak performance, IJHPCA 36, 2022.
struct Tf32x3 {
  static const int MANY = 1;
  static const bool STAGED = true;
  __device__ static unsigned word(const float* value) {  // a NaN whose upper bits are infinity's would become that
    return *value == *value ? __float_as_uint(*value) : 0x7fffffffu;
  }
  __device__ static float get(unsigned word, int) { return __uint_as_float(word); }
  __device__ static unsigned low(unsigned x) {
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & 0xffffe000u));
  }
  // d += a b but for hi hi
  __device__ static void rest(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    const unsigned low_a[4] = {low(a[0]), low(a[1]), low(a[2]), low(a[3])}, low_b[2] = {low(b[0]), low(b[1])};
    mma_tf32(d, low_a, b);
    mma_tf32(d, a, low_b);
  }
  __device__ static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_tf32(d, a, b); }
};

template <typename T>
struct Two {
  static const int MANY = 2;
  static const bool STAGED = false;
  __device__ static unsigned word(const T* values) {
    unsigned both;
    reinterpret_cast<T*>(&both)[0] = values[0];
    reinterpret_cast<T*>(&both)[1] = values[1];
    return both;
  }
  __device__ static float get(const unsigned& word, int which) { return reinterpret_cast<const T*>(&word)[which]; }
};
#ifdef __CUDA_FP16_H__
struct F16 : Two<__half> {
  __device__ static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_f16(d, a, b); }
};
#endif
#ifdef __CUDA_BF16_H__
struct Bf16 : Two<__nv_bfloat16> {
  __device__ static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_bf16(d, a, b); }
};
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
const int STEPS = 1;  // of a loop, where more find no registers beside many sums
#else
const int STEPS = 2;
#endif

// A side of a slab in shared memory: SIZE rows (or columns) of 16 words each, along k. A row is 20 words: so no two of
// eight rows that follow each other have the same bank, by four words that are read or written at once.
template <typename T, int SIZE, typename Way>
struct Fragments {
  static const int MANY = Way::MANY, OWNS = SIZE, PITCH = 20;
  alignas(16) unsigned of[SIZE][PITCH];

  __device__ void put(int word, int own, const T* values) { of[own][word] = Way::word(values); }
  __device__ float get(int k, int own) const { return Way::get(of[own][k / MANY], k % MANY); }
};

// A slab for a block of 256 threads: 2 x 4 warps, each of which keeps the sums of 8 TM rows and 4 TN columns. VN
// columns side by side are one lane's, so that it writes them at once: of products of BESIDE, 1 or 2, which have every
// BESIDE-th column each.
//
//   columns of a warp       0 1 2 3 4 5 6 7 8 ...        VN = 4, BESIDE = 2
//   lane t of its sums      0 0 0 0 1 1 1 1 2 ...
//   product, its column n   a b a b a b a b a ...        n = 0 0 1 1 2 2 ...
template <typename T, int TM, int TN, typename Way>
struct Cores {
  static const int VN = TN < 4 ? TN : 4, BESIDE = VN / 2;
  Fragments<T, TM * 16, Way> left;
  Fragments<T, TN * 16, Way> right;

  __device__ static int first_row() { return threadIdx.x / 128 * 8 * TM; }
  __device__ static int row(int i) { return first_row() + i / 2 * 16 + i % 2 * 8 + threadIdx.x % 32 / 4; }
  __device__ static int first_column() { return threadIdx.x / 32 % 4 * 4 * TN; }
  __device__ static int column(int j) { return first_column() + j / VN * 4 * VN + threadIdx.x % 4 * VN + j % VN; }
  __device__ static int matrix() { return threadIdx.x % 32 / 8; }  // of which this lane gives a row's address
  __device__ static int line() { return threadIdx.x % 8; }
  __device__ const unsigned* left_row() const {
    return left.of[first_row() + matrix() % 2 * 8 + line()] + matrix() / 2 * 4;
  }
  __device__ const unsigned* right_row() const {
    return right.of[first_column() + line() * BESIDE + matrix() / 2 % BESIDE] + matrix() % 2 * 4;
  }
  __device__ void multiply(float (&sums)[TM][TN]) const {
    if constexpr (Way::STAGED) {
      multiply_apart(sums);
      return;
    }
    const unsigned *const a_from = left_row(), *const b_from = right_row();
#pragma unroll(Way::MANY > 1 && TM * TN > 32 ? STEPS : 2)
    for (int word = 0; word < 16; word += 8) {
      unsigned b[TN / VN][2 * BESIDE];
#pragma unroll
      for (int j = 0; j < TN / VN; ++j) fragments(b[j], b_from + j * 4 * VN * right.PITCH + word);
#pragma unroll
      for (int i = 0; i < TM; i += 2) {
        unsigned a[4];
        fragments(a, a_from + i * 8 * left.PITCH + word);
#pragma unroll
        for (int n = 0; n < TN / 2; ++n) {
          const int j = n / BESIDE * VN + n % BESIDE;
          const unsigned* const words = b[j / VN] + n % BESIDE * 2;
          const unsigned both[2] = {words[0], words[1]};
          float d[4] = {sums[i][j], sums[i][j + BESIDE], sums[i + 1][j], sums[i + 1][j + BESIDE]};
          Way::mma(d, a, both);
          sums[i][j] = d[0], sums[i][j + BESIDE] = d[1], sums[i + 1][j] = d[2], sums[i + 1][j + BESIDE] = d[3];
        }
      }
    }
  }

  // The slab's own sums, smallest first, then added. Where a factor is infinite, lo is no number: hi hi says all.
  __device__ void multiply_apart(float (&sums)[TM][TN]) const {
    const unsigned *const a_from = left_row(), *const b_from = right_row();
#pragma unroll
    for (int group = 0; group < TN / VN; ++group) {
      unsigned b[2][2 * BESIDE];
#pragma unroll
      for (int half = 0; half < 2; ++half) fragments(b[half], b_from + group * 4 * VN * right.PITCH + half * 8);
#pragma unroll
      for (int i = 0; i < TM; i += 2) {
        unsigned a[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) fragments(a[half], a_from + i * 8 * left.PITCH + half * 8);
#pragma unroll
        for (int n = 0; n < BESIDE; ++n) {
          const int j = group * VN + n;
          const unsigned both[2][2] = {{b[0][2 * n], b[0][2 * n + 1]}, {b[1][2 * n], b[1][2 * n + 1]}};
          float d[4] = {0, 0, 0, 0};
          Way::rest(d, a[0], both[0]);
          Way::rest(d, a[1], both[1]);
#pragma unroll
          for (int k = 0; k < 4; ++k) d[k] = d[k] == d[k] ? d[k] : 0;
          Way::mma(d, a[0], both[0]);
          Way::mma(d, a[1], both[1]);
          sums[i][j] += d[0], sums[i][j + BESIDE] += d[1], sums[i + 1][j] += d[2], sums[i + 1][j + BESIDE] += d[3];
        }
      }
    }
  }
};
