// Max and average pooling. A window is clipped to the image; `which` names the kernel element that
// won a window by its number i * kw + j, or -1 if the window lies wholly past the image.
//
//   kernel 2 x 2, stride 2, image 3 wide: the last window is cut        0 1 | 2 .
//                                                                       3 4 | 5 .

template <typename T>
__global__ void max_pool(int total, const T* image, int h, int w, int kh, int kw, int ph, int pw,
                         int sh, int sw, int oh, int ow, T* pooled, int* which) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int y0 = index / ow % oh * sh - ph;
    const int x0 = index % ow * sw - pw;
    const T* plane = image + (size_t)(index / ow / oh) * h * w;
    const bool past = y0 >= h || x0 >= w;
    T best = T(past ? 0.0f : __int_as_float(0xff800000));  // minus infinity
    int winner = -1;
    for (int i = y0 < 0 ? -y0 : 0; i < kh && y0 + i < h; ++i) {
      for (int j = x0 < 0 ? -x0 : 0; j < kw && x0 + j < w; ++j) {
        const T value = plane[(size_t)(y0 + i) * w + x0 + j];
        if (value > best) {
          best = value;
          winner = i * kw + j;
        }
      }
    }
    pooled[index] = best;
    which[index] = winner;
  }
}

// A thread per image entry asks each window that holds it whether it won there: no atomics.
template <typename T>
__global__ void max_pool_gradient(int total, const T* dy, const int* which, int h, int w, int kh,
                                  int kw, int ph, int pw, int sh, int sw, int oh, int ow,
                                  const T* mask, T* dx) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int x = index % w + pw;  // in the padded image
    const int y = index / w % h + ph;
    const size_t plane = (size_t)(index / w / h) * oh * ow;
    typename Sum<T>::type sum = 0;
    for (int i = y % sh; i < kh && i <= y; i += sh) {  // kernel rows that fall on y
      const int oy = (y - i) / sh;
      if (oy >= oh) continue;
      for (int j = x % sw; j < kw && j <= x; j += sw) {
        const int ox = (x - j) / sw;
        if (ox >= ow) continue;
        const size_t window = plane + (size_t)oy * ow + ox;
        if (which[window] == i * kw + j) sum += typename Sum<T>::type(dy[window]);
      }
    }
    dx[index] = masked(T(sum), mask, index);
  }
}

// The length that an average divides by: the window clipped to the padded image.
__device__ inline int clipped(int start, int kernel, int size, int pad) {
  const int end = start + kernel < size + pad ? start + kernel : size + pad;
  return end - start > 1 ? end - start : 1;
}

template <typename T>
__global__ void ave_pool(int total, const T* image, int h, int w, int kh, int kw, int ph, int pw,
                         int sh, int sw, int oh, int ow, T* pooled) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int y0 = index / ow % oh * sh - ph;
    const int x0 = index % ow * sw - pw;
    const T* plane = image + (size_t)(index / ow / oh) * h * w;
    typename Sum<T>::type sum = 0;
    for (int y = y0 < 0 ? 0 : y0; y < y0 + kh && y < h; ++y) {
      for (int x = x0 < 0 ? 0 : x0; x < x0 + kw && x < w; ++x) {
        sum += typename Sum<T>::type(plane[(size_t)y * w + x]);
      }
    }
    pooled[index] = T(sum / (clipped(y0, kh, h, ph) * clipped(x0, kw, w, pw)));
  }
}

template <typename T>
__global__ void ave_pool_gradient(int total, const T* dy, int h, int w, int kh, int kw, int ph,
                                  int pw, int sh, int sw, int oh, int ow, const T* mask, T* dx) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int x = index % w + pw;
    const int y = index / w % h + ph;
    const T* plane = dy + (size_t)(index / w / h) * oh * ow;
    typename Sum<T>::type sum = 0;
    for (int i = y % sh; i < kh && i <= y; i += sh) {
      const int oy = (y - i) / sh;
      if (oy >= oh) continue;
      const int rows = clipped(oy * sh - ph, kh, h, ph);
      for (int j = x % sw; j < kw && j <= x; j += sw) {
        const int ox = (x - j) / sw;
        if (ox >= ow) continue;
        const int area = rows * clipped(ox * sw - pw, kw, w, pw);
        sum += typename Sum<T>::type(plane[(size_t)oy * ow + ox]) / area;
      }
    }
    dx[index] = masked(T(sum), mask, index);
  }
}
