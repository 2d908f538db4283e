// Max pooling of regions of interest: of each region (image, x0, y0, x1, y1), in pixels times 1 / scale,
// the largest entry in each of oh x ow bins. `which` is the place y * w + x that won a bin, or -1.
//
//   start = round(x0 scale), length = max(round(x1 scale) - start + 1, 1)        bin = length / ow
//   bin q is floor(q bin) .. ceil((q + 1) bin) from start on, cut to the image: neighbours may share a row
//
//   length 5, ow 2    |0 1 2|             bin 0, to ceil(2.5)
//                         |2 3 4|         bin 1, from floor(2.5)

const int FAR = 1 << 28;  // pixels: further off is as far

template <typename S>
__device__ inline int pixel(S value) {  // no number is far to the left
  return value > S(-FAR) && value < S(FAR) ? (int)round(value) : value > 0 ? FAR : -FAR;
}

template <typename S>
struct Region {
  int image, x0, y0;
  S bin_h, bin_w;

  __device__ Region(const S* roi, S scale, int oh, int ow) {
    image = roi[0] > S(-1) && roi[0] < S(FAR) ? (int)roi[0] : -1;
    x0 = pixel(roi[1] * scale);
    y0 = pixel(roi[2] * scale);
    const int width = pixel(roi[3] * scale) - x0 + 1;
    const int height = pixel(roi[4] * scale) - y0 + 1;
    bin_h = S(height < 1 ? 1 : height) / S(oh);
    bin_w = S(width < 1 ? 1 : width) / S(ow);
  }
};

__device__ inline int within(int value, int limit) {
  return value < 0 ? 0 : value < limit ? value : limit;
}

template <typename T>
__global__ void roi_pool(int total, const T* __restrict__ x,
                         const typename Sum<T>::type* __restrict__ rois, int n, int c, int h, int w,
                         int oh, int ow, typename Sum<T>::type scale, T* y, int* which) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int q = i % ow, p = i / ow % oh, k = i / ow / oh % c, r = i / ow / oh / c;
    const Region<S> region(rois + (size_t)r * 5, scale, oh, ow);
    if (region.image < 0 || region.image >= n) {  // no image: whoever sees the NaN names it
      y[i] = T(nanf(""));
      which[i] = -1;
      continue;
    }
    const int top = within((int)floor(S(p) * region.bin_h) + region.y0, h);
    const int left = within((int)floor(S(q) * region.bin_w) + region.x0, w);
    const int bottom = within((int)ceil(S(p + 1) * region.bin_h) + region.y0, h);
    const int right = within((int)ceil(S(q + 1) * region.bin_w) + region.x0, w);
    const bool empty = bottom <= top || right <= left;
    const T* plane = x + ((size_t)region.image * c + k) * h * w;
    T best = T(empty ? 0.0f : __int_as_float(0xff800000));  // minus infinity
    int winner = -1;
    for (int a = top; a < bottom; ++a) {
      for (int b = left; b < right; ++b) {
        const T value = plane[(size_t)a * w + b];
        if (value > best) {
          best = value;
          winner = a * w + b;
        }
      }
    }
    y[i] = best;
    which[i] = winner;
  }
}

// A thread per image entry asks the bins of each region around it whether it won them: no atomics.
template <typename T>
__global__ void roi_pool_gradient(int total, const T* __restrict__ dy,
                                  const int* __restrict__ which,
                                  const typename Sum<T>::type* __restrict__ rois, int count, int c,
                                  int h, int w, int oh, int ow, typename Sum<T>::type scale,
                                  T* dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int b = i % w, a = i / w % h, k = i / w / h % c, image = i / w / h / c, place = a * w + b;
    S sum = 0;
    for (int r = 0; r < count; ++r) {
      const Region<S> region(rois + (size_t)r * 5, scale, oh, ow);
      if (region.image != image || a < region.y0 || b < region.x0) continue;
      const int p = (int)floor(S(a - region.y0) / region.bin_h);  // its bin, but for rounding
      const int q = (int)floor(S(b - region.x0) / region.bin_w);
      const int reach_h = (int)ceil(S(1) / region.bin_h) + 1;  // small bins share a row
      const int reach_w = (int)ceil(S(1) / region.bin_w) + 1;
      const size_t bins = ((size_t)r * c + k) * oh * ow;
      for (int m = within(p - 1, oh); m < within(p + reach_h + 1, oh); ++m) {
        for (int l = within(q - 1, ow); l < within(q + reach_w + 1, ow); ++l) {
          const size_t bin = bins + (size_t)m * ow + l;
          if (which[bin] == place) sum += S(dy[bin]);
        }
      }
    }
    dx[i] = T(sum);
  }
}
