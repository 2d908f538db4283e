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

#ifndef STANDIN  // which computes the same from the table above
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

// A float as TF32 has it: 10 bits behind the first, halves away from zero.
__device__ inline unsigned tf32(float value) {
  unsigned word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
  return word;
}
#endif

// What words are of: so many entries along k are in one, and how they are multiplied.
struct Tf32 {
  static const int MANY = 1;
  __device__ static void put(unsigned& word, int, float value) { word = tf32(value); }
  __device__ static float get(unsigned word, int) { return __uint_as_float(word & ~0x1fffu); }
  __device__ static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_tf32(d, a, b); }
};
template <typename T>
struct Two {
  static const int MANY = 2;
  __device__ static void put(unsigned& word, int which, T value) { reinterpret_cast<T*>(&word)[which] = value; }
  __device__ static float get(const unsigned& word, int which) {
    return reinterpret_cast<const T*>(&word)[which];
  }
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

// A slab of SLAB x 16 TM and SLAB x 16 TN entries in shared memory, for a block of 256 threads: 2 x 4 warps, each
// of which keeps the sums of 8 TM rows and 4 TN columns. VN columns side by side are one lane's, so that it writes
// them at once: of products of BESIDE, 1 or 2, which have every BESIDE-th column each.
//
//   columns of a warp       0 1 2 3 4 5 6 7 8 ...        VN = 4, BESIDE = 2
//   lane t of its sums      0 0 0 0 1 1 1 1 2 ...
//   product, its column n   a b a b a b a b a ...        n = 0 0 1 1 2 2 ...: lane g reads both n = g at once
//
// Words stand by k, each row of them 8 banks further, so that no two lanes read the same bank.
template <typename T, int TM, int TN, int SLAB, typename Way>
struct Cores {
  static const int VN = TN < 4 ? TN : 4, BESIDE = VN / 2, WORDS = SLAB / Way::MANY;
  alignas(8) unsigned left[WORDS][TM * 16 + 8], right[WORDS][TN * 16 + 8];  // two are read at once

  __device__ static int group() { return threadIdx.x % 32 / 4; }
  __device__ static int row(int i) { return threadIdx.x / 128 * 8 * TM + i / 2 * 16 + i % 2 * 8 + group(); }
  __device__ static int first_column() { return threadIdx.x / 32 % 4 * 4 * TN; }
  __device__ static int column(int j) { return first_column() + j / VN * 4 * VN + threadIdx.x % 4 * VN + j % VN; }
  __device__ void put_left(int k, int row, T value) { Way::put(left[k / Way::MANY][row], k % Way::MANY, value); }
  __device__ void put_right(int k, int column, T value) {
    Way::put(right[k / Way::MANY][column], k % Way::MANY, value);
  }
  __device__ float left_at(int k, int row) const { return Way::get(left[k / Way::MANY][row], k % Way::MANY); }
  __device__ void multiply(float (&sums)[TM][TN]) const {
    typedef Pack<unsigned, BESIDE> Words;
    static_assert(alignof(Cores) % alignof(Words) == 0 && (TN * 16 + 8) % BESIDE == 0, "a read across words");
#pragma unroll
    for (int k = 0; k < WORDS; k += 8) {
      const int word = k + threadIdx.x % 4;
      Words b[TN / VN][2];
#pragma unroll
      for (int j = 0; j < TN / VN; ++j) {
        const int at = first_column() + j * 4 * VN + group() * BESIDE;
        for (int half = 0; half < 2; ++half) b[j][half] = *(const Words*)&right[word + 4 * half][at];
      }
#pragma unroll
      for (int i = 0; i < TM; i += 2) {
        unsigned a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = left[word + r / 2 * 4][row(i + r % 2)];
#pragma unroll
        for (int n = 0; n < TN / 2; ++n) {
          const int j = n / BESIDE * VN + n % BESIDE;
          const unsigned both[2] = {b[j / VN][0].of[n % BESIDE], b[j / VN][1].of[n % BESIDE]};
          float d[4] = {sums[i][j], sums[i][j + BESIDE], sums[i + 1][j], sums[i + 1][j + BESIDE]};
          Way::mma(d, a, both);
          sums[i][j] = d[0], sums[i][j + BESIDE] = d[1], sums[i + 1][j] = d[2], sums[i + 1][j + BESIDE] = d[3];
        }
      }
    }
  }
};
