// Local response normalisation across channels of x (n, c, places), over those REACH up and down, as lrn.cu has it:
//
//   s = base + alpha * sum of x^2 over the window        y = x s^-beta
//   dx = dy s^-beta - 2 alpha beta x * sum of the ratios over the window, where a ratio is dy y / s
//
// A thread walks along CHANNELS channels of one place, with the window in registers, so that each number is read once;
// neighbouring threads have neighbouring places. Channels that there are not count as 0.

#include "lrn_power.cu"

const int CHANNELS = 16;

// A place's numbers, one of each channel.
template <typename T>
struct Column {
  const T* of;
  int c, places;

  __device__ typename Sum<T>::type at(int channel) const {
    const bool lies = (unsigned)channel < (unsigned)c;
    return typename Sum<T>::type(lies ? of[(size_t)channel * places] : T(0));
  }
};

// The last SIZE numbers, the newest last.
template <typename S, int SIZE>
struct Last {
  S of[SIZE] = {};

  __device__ void push(S value) {
#pragma unroll
    for (int i = 0; i < SIZE - 1; ++i) of[i] = of[i + 1];
    of[SIZE - 1] = value;
  }
};

template <typename T, int REACH>
__global__ void lrn_across(int total, const T* __restrict__ x, int c, int places, int chunks,
                           typename Sum<T>::type base, typename Sum<T>::type alpha, typename Sum<T>::type beta,
                           typename Sum<T>::type* __restrict__ s, T* __restrict__ y) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int first = i / places % chunks * CHANNELS;
    const size_t column = (size_t)(i / places / chunks) * c * places + i % places;
    const Column<T> from = {x + column, c, places};
    Last<S, 2 * REACH + 1> window;
#pragma unroll
    for (int k = -REACH; k < REACH; ++k) window.push(from.at(first + k));
#pragma unroll
    for (int k = first; k < first + CHANNELS; ++k) {
      if (k >= c) break;
      window.push(from.at(k + REACH));
      S sum = 0;
#pragma unroll
      for (int j = 0; j <= 2 * REACH; ++j) sum += window.of[j] * window.of[j];
      const size_t at = column + (size_t)k * places;
      s[at] = base + alpha * sum;
      y[at] = T(window.of[REACH] * to_minus(base + alpha * sum, beta));
    }
  }
}

template <typename T, int REACH>
__global__ void lrn_across_gradient(int total, const T* __restrict__ x, const T* __restrict__ dy,
                                    const typename Sum<T>::type* __restrict__ s, int c, int places, int chunks,
                                    typename Sum<T>::type alpha, typename Sum<T>::type beta, T* __restrict__ dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int first = i / places % chunks * CHANNELS;
    const size_t column = (size_t)(i / places / chunks) * c * places + i % places;
    const Column<T> xs = {x + column, c, places}, dys = {dy + column, c, places};
    Last<S, 2 * REACH + 1> ratios;
    Last<S, REACH + 1> values, direct;
    const auto push = [&](int k) {
      const S value = xs.at(k), gradient = dys.at(k);
      const S scale = k >= 0 && k < c ? s[column + (size_t)k * places] : S(1);
      values.push(value);
      direct.push(gradient * to_minus(scale, beta));
      ratios.push(gradient * value * to_minus(scale, beta) / scale);
    };
#pragma unroll
    for (int k = -REACH; k < REACH; ++k) push(first + k);
#pragma unroll
    for (int k = first; k < first + CHANNELS; ++k) {
      if (k >= c) break;
      push(k + REACH);
      S sum = 0;
#pragma unroll
      for (int j = 0; j <= 2 * REACH; ++j) sum += ratios.of[j];
      dx[column + (size_t)k * places] = T(direct.of[0] - 2 * alpha * beta * values.of[0] * sum);
    }
  }
}
