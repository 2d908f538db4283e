// Local response normalisation over windows of x (m, h, w), rh entries up and down and rw to either side:
// along the channels of (n, c, places) with rw = 0, within the channels of (n c, h, w).
//
//   s = base + alpha * sum of x^2 over the window        alpha is Caffe's, over the window's size
//   y = x s^-beta
//
// A window is cut off where the image ends.

#include "lrn_power.cu"

struct Around {
  int top, bottom, left, right;  // the window of an entry, in the image it is in
  size_t image;

  __device__ Around(int index, int h, int w, int rh, int rw) {
    const int x = index % w, y = index / w % h;
    image = (size_t)(index / w / h) * h * w;
    top = max(0, y - rh);
    bottom = min(h - 1, y + rh);
    left = max(0, x - rw);
    right = min(w - 1, x + rw);
  }
};

template <typename T>
__global__ void lrn(int total, const T* __restrict__ x, int h, int w, int rh, int rw,
                    typename Sum<T>::type base, typename Sum<T>::type alpha,
                    typename Sum<T>::type beta, typename Sum<T>::type* s, T* y) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const Around around(i, h, w, rh, rw);
    S sum = 0;
    for (int row = around.top; row <= around.bottom; ++row) {
      for (int column = around.left; column <= around.right; ++column) {
        const S value = x[around.image + (size_t)row * w + column];
        sum += value * value;
      }
    }
    s[i] = base + alpha * sum;
    y[i] = T(S(x[i]) * to_minus(s[i], beta));
  }
}

// What each entry gives to the gradients of those whose window it is in: dy y / s.
template <typename T>
__global__ void lrn_ratio(int total, const T* __restrict__ x, const T* __restrict__ dy,
                          const typename Sum<T>::type* __restrict__ s,
                          typename Sum<T>::type beta, typename Sum<T>::type* ratio) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    ratio[i] = S(dy[i]) * S(x[i]) * to_minus(s[i], beta) / s[i];
  }
}

// dx = dy s^-beta - 2 alpha beta x * sum of the ratios over the window
template <typename T>
__global__ void lrn_gradient(int total, const T* __restrict__ x, const T* __restrict__ dy,
                             const typename Sum<T>::type* __restrict__ s,
                             const typename Sum<T>::type* __restrict__ ratio, int h, int w, int rh,
                             int rw, typename Sum<T>::type alpha, typename Sum<T>::type beta,
                             T* dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const Around around(i, h, w, rh, rw);
    S sum = 0;
    for (int row = around.top; row <= around.bottom; ++row) {
      for (int column = around.left; column <= around.right; ++column) {
        sum += ratio[around.image + (size_t)row * w + column];
      }
    }
    dx[i] = T(S(dy[i]) * to_minus(s[i], beta) - 2 * alpha * beta * S(x[i]) * sum);
  }
}
