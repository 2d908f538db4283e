// __half: as many of its functions as kernels here may use.
#pragma once
#define __CUDA_FP16_H__

inline unsigned short standin_half(float value) {
  const unsigned sign = __float_as_uint(value) >> 16 & 0x8000;
  const unsigned u = __float_as_uint(value) & 0x7fffffff;
  if (u > 0x7f800000) return 0x7fff;                // NaN
  if (u >= 0x477ff000) return sign | 0x7c00;        // 65520 and more: infinity
  if (u < 0x38800000) return sign | (unsigned)rintf(__uint_as_float(u) * 16777216.0f);
  return sign | (u + 0xfff + (u >> 13 & 1) - 0x38000000) >> 13;  // halfway goes to the even one
}

inline float standin_float_of_half(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, u = bits & 0x7fff;
  if (u < 0x400) return __uint_as_float(sign | __float_as_uint(u / 16777216.0f));
  return __uint_as_float(sign | ((u << 13) + (u < 0x7c00 ? 0x38000000 : 0x70000000)));
}

STANDIN_16_BITS(__half, "f2", standin_half, standin_float_of_half)
