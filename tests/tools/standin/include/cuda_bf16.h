// __nv_bfloat16: the upper half of a float.
#pragma once
#define __CUDA_BF16_H__

inline unsigned short standin_bfloat16(float value) {
  const unsigned u = __float_as_uint(value);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;         // halfway goes to the even one
}

inline float standin_float_of_bfloat16(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}

STANDIN_16_BITS(__nv_bfloat16, "V2", standin_bfloat16, standin_float_of_bfloat16)
