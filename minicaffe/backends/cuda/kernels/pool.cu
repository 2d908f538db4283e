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
    const unsigned line = (unsigned)index / ow, outer = line / oh;
    const int y0 = (line - outer * oh) * sh - ph;
    const int x0 = (index - line * ow) * sw - pw;
    const T* plane = image + (size_t)outer * h * w;
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
    const unsigned line = (unsigned)index / w, outer = line / h;
    const int x = index - line * w + pw;  // in the padded image
    const int y = line - outer * h + ph;
    const int last_y = (unsigned)y / sh, last_x = (unsigned)x / sw;  // that may hold it
    const size_t plane = (size_t)outer * oh * ow;
    typename Sum<T>::type sum = 0;
    for (int oy = last_y, i = y - oy * sh; i < kh && oy >= 0; --oy, i += sh) {  // kernel row i falls on y
      if (oy >= oh) continue;
      for (int ox = last_x, j = x - ox * sw; j < kw && ox >= 0; --ox, j += sw) {
        if (ox >= ow) continue;
        const size_t window = plane + (size_t)oy * ow + ox;
        if (which[window] == i * kw + j) sum += typename Sum<T>::type(dy[window]);
      }
    }
    dx[index] = masked(T(sum), mask, index);
  }
}

// The same of windows 2 x 2 in steps of 2, without padding, none of which holds what another does. A thread per window
// reads it once and writes its entries, two of a row at once where they lie so; those of a last row or column that are
// in no window are a window's of which there is no gradient.
//
//   image 5 wide, two windows:      0 0 | 1 1 | -
template <typename T>
__global__ void max_pool_gradient_2x2(int total, const T* dy, const int* which, int h, int w, int oh,
                                      int ow, const T* mask, T* dx) {
  typedef typename Sum<T>::type S;
  typedef Pack<T, 2> Pair;
  const unsigned across = ((unsigned)w + 1) / 2, down = ((unsigned)h + 1) / 2;
  const bool paired = w % 2 == 0 && ((size_t)dx | (size_t)mask) % sizeof(Pair) == 0;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const unsigned line = (unsigned)index / across, outer = line / down;
    const int ox = index - line * across, oy = line - outer * down;
    const bool pooled = oy < oh && ox < ow;
    const size_t window = ((size_t)outer * oh + oy) * ow + ox;
    const int winner = pooled ? which[window] : -1;
    const S sum = pooled ? 0 + S(dy[window]) : S(0);  // as of several: 0, where dy is -0
    size_t at = ((size_t)outer * h + 2 * oy) * w + 2 * ox;
    for (int i = 0; i < 2 && 2 * oy + i < h; ++i, at += w) {
      const T left = T(winner == 2 * i ? sum : S(0)), right = T(winner == 2 * i + 1 ? sum : S(0));
      if (paired) {
        Pair both = {left, right};
        if (mask) {
          const Pair tops = *reinterpret_cast<const Pair*>(mask + at);
          both = {masked(left, tops.of, 0), masked(right, tops.of, 1)};
        }
        *reinterpret_cast<Pair*>(dx + at) = both;
      } else {
        dx[at] = masked(left, mask, at);
        if (2 * ox + 1 < w) dx[at + 1] = masked(right, mask, at + 1);
      }
    }
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
    const unsigned line = (unsigned)index / ow, outer = line / oh;
    const int y0 = (line - outer * oh) * sh - ph;
    const int x0 = (index - line * ow) * sw - pw;
    const T* plane = image + (size_t)outer * h * w;
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
    const unsigned line = (unsigned)index / w, outer = line / h;
    const int x = index - line * w + pw;
    const int y = line - outer * h + ph;
    const int last_y = (unsigned)y / sh, last_x = (unsigned)x / sw;
    const T* plane = dy + (size_t)outer * oh * ow;
    typename Sum<T>::type sum = 0;
    for (int oy = last_y, i = y - oy * sh; i < kh && oy >= 0; --oy, i += sh) {
      if (oy >= oh) continue;
      const int rows = clipped(oy * sh - ph, kh, h, ph);
      for (int ox = last_x, j = x - ox * sw; j < kw && ox >= 0; --ox, j += sw) {
        if (ox >= ow) continue;
        const int area = rows * clipped(ox * sw - pw, kw, w, pw);
        sum += typename Sum<T>::type(plane[(size_t)oy * ow + ox]) / area;
      }
    }
    dx[index] = masked(T(sum), mask, index);
  }
}
