// Depthwise convolutions: a kernel of K x K elements for each channel, moved by STRIDE pixels at a time.
//
//   y[s, c, o] = bias[c] + sum over e of weight[c, e] x[s, c, o STRIDE - pad + e]
//
// A thread has a column of ROWS outputs, one below the other. Of the rows that it reads it keeps the numbers around
// its column in registers, so that each is read once for all outputs below:
//
//   K = 3, STRIDE = 1      x  x  x        output 0: the rows above
//                          x  x  x
//                          x  x  x
//                          a  a  a        output 1: without the first of them, and with a
//
// Neighbouring threads have neighbouring columns, and then the next strip of ROWS rows; `strips` make a plane.

#include "block.cu"

const int ROWS = 4;

// A plane of numbers, 0 outside.
template <typename T>
struct Plane {
  const T* of;
  int h, w;

  template <int K>
  __device__ void row(typename Sum<T>::type (&to)[K], int y, int x) const {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const bool lies = (unsigned)y < (unsigned)h && (unsigned)(x + j) < (unsigned)w;
      to[j] = typename Sum<T>::type(lies ? of[y * w + x + j] : T(0));
    }
  }
};

template <typename T, int K, int STRIDE>
__global__ void depthwise(int total, const T* x, const T* weight, const T* bias, int c, int h, int w, int ph, int pw,
                          int oh, int ow, int strips, T* y) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total; index += blockDim.x * gridDim.x) {
    const int column = index % ow, first = index / ow % strips * ROWS, plane = index / ow / strips;
    const Plane<T> image = {x + (size_t)plane * h * w, h, w};
    S elements[K][K], window[K][K];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j < K; ++j) elements[i][j] = S(weight[(plane % c * K + i) * K + j]);
      if (i < K - STRIDE) image.row(window[i], first * STRIDE - ph + i, column * STRIDE - pw);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r >= oh) break;
#pragma unroll
      for (int i = K - STRIDE; i < K; ++i) image.row(window[i], (first + r) * STRIDE - ph + i, column * STRIDE - pw);
      S sum = bias ? S(bias[plane % c]) : S(0);
#pragma unroll
      for (int i = 0; i < K; ++i) {
#pragma unroll
        for (int j = 0; j < K; ++j) sum += elements[i][j] * window[i][j];
      }
      y[((size_t)plane * oh + first + r) * ow + column] = T(sum);
#pragma unroll
      for (int i = 0; i < K - STRIDE; ++i) {
#pragma unroll
        for (int j = 0; j < K; ++j) window[i][j] = window[i + STRIDE][j];
      }
    }
  }
}

// Pixel p STRIDE - pad + e has a gradient from place p - m by element e + m STRIDE, of each m where there is one. A
// thread has of a column p all e, and of ROWS such p one below the other; the first are `top` and `left`.
template <typename T, int K, int STRIDE>
__global__ void depthwise_input_gradient(int total, const T* dy, const T* weight, int c, int h, int w, int ph, int pw,
                                         int oh, int ow, int top, int left, int across, int strips, T* dx) {
  typedef typename Sum<T>::type S;
  const int M = (K - 1) / STRIDE + 1;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total; index += blockDim.x * gridDim.x) {
    const int column = left + index % across, first = top + index / across % strips * ROWS;
    const int plane = index / across / strips;
    const Plane<T> places = {dy + (size_t)plane * oh * ow, oh, ow};
    S elements[K][K], window[M][M];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j < K; ++j) elements[i][j] = S(weight[(plane % c * K + i) * K + j]);
    }
#pragma unroll
    for (int i = 0; i < M - 1; ++i) places.row(window[i], first - M + 1 + i, column - M + 1);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      places.row(window[M - 1], first + r, column - M + 1);
#pragma unroll
      for (int i = 0; i < STRIDE; ++i) {
        const int at_y = (first + r) * STRIDE - ph + i;
#pragma unroll
        for (int j = 0; j < STRIDE; ++j) {
          const int at_x = column * STRIDE - pw + j;
          S sum = 0;
#pragma unroll
          for (int a = 0; i + a * STRIDE < K; ++a) {
#pragma unroll
            for (int b = 0; j + b * STRIDE < K; ++b) {
              sum += elements[i + a * STRIDE][j + b * STRIDE] * window[M - 1 - a][M - 1 - b];
            }
          }
          const bool lies = (unsigned)at_y < (unsigned)h && (unsigned)at_x < (unsigned)w;
          if (lies) dx[((size_t)plane * h + at_y) * w + at_x] = T(sum);
        }
      }
#pragma unroll
      for (int i = 0; i < M - 1; ++i) {
#pragma unroll
        for (int j = 0; j < M; ++j) window[i][j] = window[i + 1][j];
      }
    }
  }
}

// Block (channel, part) sums over a part of all samples' columns; the last of a channel adds up the parts, in their
// order, to what is there.
template <typename T, int K, int STRIDE>
__global__ void depthwise_weight_gradient(const T* x, const T* dy, int n, int c, int h, int w, int ph, int pw, int oh,
                                          int ow, int strips, typename Sum<T>::type* partials, int* arrived,
                                          T* dweight) {
  typedef typename Sum<T>::type S;
  const int t = threadIdx.x, channel = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
  const long long columns = (long long)n * strips * ow;
  S sums[K][K] = {}, window[K][K];
  for (long long index = columns * part / parts + t; index < columns * (part + 1) / parts; index += BLOCK) {
    const int column = index % ow, first = index / ow % strips * ROWS;
    const size_t plane = index / ow / strips * c + channel;
    const Plane<T> image = {x + plane * h * w, h, w};
#pragma unroll
    for (int i = 0; i < K - STRIDE; ++i) image.row(window[i], first * STRIDE - ph + i, column * STRIDE - pw);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r >= oh) break;
#pragma unroll
      for (int i = K - STRIDE; i < K; ++i) image.row(window[i], (first + r) * STRIDE - ph + i, column * STRIDE - pw);
      const S gradient = S(dy[(plane * oh + first + r) * ow + column]);
#pragma unroll
      for (int i = 0; i < K; ++i) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
          sums[i][j] += gradient * window[i][j];
          if (i < K - STRIDE) window[i][j] = window[i + STRIDE][j];
        }
      }
    }
  }

  __shared__ S of_warps[BLOCK / 32][K * K];
#pragma unroll
  for (int e = 0; e < K * K; ++e) {
    S sum = sums[e / K][e % K];
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
    if (t % 32 == 0) of_warps[t / 32][e] = sum;
  }
  __syncthreads();  // the sums of all warps are there
  S sum = 0;
  for (int warp = 0; warp < BLOCK / 32 && t < K * K; ++warp) sum += of_warps[warp][t];
  if (parts > 1) {
    if (t < K * K) partials[((size_t)part * c + channel) * K * K + t] = sum;
    if (!last_of(parts, arrived + channel)) return;
    sum = 0;
    for (int p = 0; p < parts && t < K * K; ++p) sum += __ldcg(partials + ((size_t)p * c + channel) * K * K + t);
  }
  if (t < K * K) dweight[channel * K * K + t] = T(S(dweight[channel * K * K + t]) + sum);
}
