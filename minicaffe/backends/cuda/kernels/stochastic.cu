// Stochastic pooling. In TRAIN a thread per window draws a pixel by its share of the window's sum:
//
//   window 1 0 2 1     sum 4, noise 0.5: wanted 2        so far 1 1 3 4: the third pixel reaches it
//
// In TEST it gives what that is on average: sum of x^2 / sum of x. There is no padding.

const float TINY = 1.17549435e-38f;  // the smallest normal float: keeps a window of zeros from 0 / 0

template <typename T>
__global__ void draw_pool(int total, const T* image, const float* noise, int h, int w, int kh, int kw,
                          int sh, int sw, int oh, int ow, T* pooled, int* which) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int y0 = index / ow % oh * sh, x0 = index % ow * sw;
    const T* plane = image + (size_t)(index / ow / oh) * h * w;
    S wanted = 0, so_far = 0;
    for (int i = 0; i < kh && y0 + i < h; ++i) {
      for (int j = 0; j < kw && x0 + j < w; ++j) wanted += S(plane[(size_t)(y0 + i) * w + x0 + j]);
    }
    wanted *= S(noise[index]);
    T value = T(0.0f);
    int found = -1;
    bool reached = false;
    for (int i = 0; i < kh && y0 + i < h && !reached; ++i) {
      for (int j = 0; j < kw && x0 + j < w && !reached; ++j) {
        value = plane[(size_t)(y0 + i) * w + x0 + j];
        found = i * kw + j;
        so_far += S(value);
        reached = so_far >= wanted;
      }
    }
    pooled[index] = value;
    which[index] = found;
  }
}

template <typename T>
__global__ void expected_pool(int total, const T* image, int h, int w, int kh, int kw, int sh, int sw,
                              int oh, int ow, T* pooled, typename Sum<T>::type* sums) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int y0 = index / ow % oh * sh, x0 = index % ow * sw;
    const T* plane = image + (size_t)(index / ow / oh) * h * w;
    S sum = S(TINY), squares = 0;
    for (int i = 0; i < kh && y0 + i < h; ++i) {
      for (int j = 0; j < kw && x0 + j < w; ++j) {
        const S value = plane[(size_t)(y0 + i) * w + x0 + j];
        sum += value;
        squares += value * value;
      }
    }
    pooled[index] = T(squares / sum);
    sums[index] = sum;
  }
}

// dx = sum of dy (2 x - y) / sum over the windows that hold x and are not all 0.
template <typename T>
__global__ void expected_pool_gradient(int total, const T* dy, const T* image, const T* pooled,
                                       const typename Sum<T>::type* sums, int h, int w, int kh,
                                       int kw, int sh, int sw, int oh, int ow, T* dx) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int x = index % w, y = index / w % h;
    const size_t plane = (size_t)(index / w / h) * oh * ow;
    const S value = image[index];
    S sum = 0;
    for (int i = y % sh; i < kh && i <= y; i += sh) {  // kernel rows that fall on y
      const int oy = (y - i) / sh;
      if (oy >= oh) continue;
      for (int j = x % sw; j < kw && j <= x; j += sw) {
        const int ox = (x - j) / sw;
        if (ox >= ow) continue;
        const size_t at = plane + (size_t)oy * ow + ox;
        if (sums[at] > S(TINY)) sum += S(dy[at]) * (2 * value - S(pooled[at])) / sums[at];
      }
    }
    dx[index] = T(sum);
  }
}
