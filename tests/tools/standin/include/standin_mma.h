// What mma.sync and ldmatrix do, of kernels/mma.cu: the lanes of a warp put down what they have, and each takes from all of
// them what its own sums are of. Source: NVIDIA, PTX ISA, Matrix Fragments for mma.m16n8k8 and mma.m16n8k16.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace standin {

struct Fragments {
  unsigned a[4], b[2];
};
static Fragments put_down[2][1024];  // by turns: a lane may be one product ahead of another

// A sum as the unit leaves it: cut to a float, not rounded, so that long ones drift towards zero. Source: M. Fasi et
// al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7, 2021.
inline float cut(double sum) {
  const float near = static_cast<float>(sum);
  return fabs(near) > fabs(sum) && !isinf(near) ? nextafterf(near, 0) : near;
}

// A lane's four sums, of words that hold `many` numbers each.
template <class Number>
void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int many, Number number) {
  const unsigned t = threadIdx.x, lane = t % 32;
  Fragments* const all = put_down[turns[t]++ % 2];
  for (int i = 0; i < 4; ++i) all[t].a[i] = a[i];
  for (int i = 0; i < 2; ++i) all[t].b[i] = b[i];
  barrier(LANES);
  const Fragments* const warp = all + (t - lane);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (int word = 0; word < 8; ++word) {
      const unsigned left = warp[row % 8 * 4 + word % 4].a[row / 8 + word / 4 * 2];
      const unsigned right = warp[column * 4 + word % 4].b[word / 4];
      for (int which = 0; which < many; ++which) sum += double(number(left, which)) * number(right, which);
    }
    d[i] = cut(sum);
  }
}

// What ldmatrix does: row l of 4 words is where lane l says, eight of them are a matrix, and lane l has of each matrix
// word l % 4 of row l / 4.
template <int N>
void load_matrices(unsigned (&to)[N], const unsigned* row) {
  static const unsigned* rows[2][1024];
  const unsigned t = threadIdx.x, lane = t % 32;
  const unsigned** const all = rows[turns[t]++ % 2];
  all[t] = row;
  barrier(LANES);
  for (int matrix = 0; matrix < N; ++matrix) to[matrix] = all[t - lane + 8 * matrix + lane / 4][lane % 4];
}

}  // namespace standin

inline void fragments(unsigned (&to)[2], const unsigned* row) { standin::load_matrices(to, row); }
inline void fragments(unsigned (&to)[4], const unsigned* row) { standin::load_matrices(to, row); }

// The lower 13 bits of a float are ignored.
inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  standin::mma(d, a, b, 1, [](unsigned word, int) {
    return __uint_as_float(word & ~0x1fffu);
  });
}
inline void mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  standin::mma(d, a, b, 2, [](unsigned word, int which) { return standin_float_of_half(word >> 16 * which); });
}
inline void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  standin::mma(d, a, b, 2, [](unsigned word, int which) {
    return standin_float_of_bfloat16(word >> 16 * which);
  });
}
