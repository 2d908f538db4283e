// im2col and col2im of n samples with c channels. Kernels know three spatial axes (d h w); an image
// of fewer has leading axes of size 1.
//
//   image, c = 1, 3 x 3          columns, kernel 2 x 2: one column a window
//      0 1 2                     (i,j)     windows  a b c d
//      3 4 5        ->           (0,0)              0 1 3 4
//      6 7 8                     (0,1)              1 2 4 5
//                                (1,0)              3 4 6 7
//   windows  a b                 (1,1)              4 5 7 8
//            c d
//
// An entry of the columns belongs to a sample, a channel, a kernel element (a, i, j) and a place
// (oz, oy, ox). The layout says how they lie:
//
//   0 caffe    [sample][channel][element][place]     1 columns  [channel][element][sample][place]
//   2 rows     [sample][place][channel][element]     3 patches  [channel][sample][place][element]

#define SIZES                                                                                     \
  int n, int c, int d, int h, int w, int kd, int kh, int kw, int pd, int ph, int pw, int sd,      \
      int sh, int sw, int dd, int dh, int dw, int od, int oh, int ow, int layout

// Distances in the columns from a sample, a channel, an element and a place to the next.
struct Steps {
  size_t sample, channel, element, place;
};

__device__ inline Steps steps(int layout, size_t n, size_t c, size_t kernel, size_t places) {
  if (layout == 0) return {c * kernel * places, kernel * places, places, 1};
  if (layout == 1) return {places, kernel * n * places, n * places, 1};
  if (layout == 2) return {places * c * kernel, kernel, 1, c * kernel};
  return {places * kernel, n * places * kernel, 1, kernel};
}

// What the entry number k in memory belongs to.
struct Entry {
  int sample, channel, element, place;
};

__device__ inline Entry entry(int layout, int k, int n, int c, int kernel, int places) {
  if (layout < 2) {
    const int p = k / places, row = layout == 0 ? p % (c * kernel) : p / n;
    return {layout == 0 ? p / (c * kernel) : p % n, row / kernel, row % kernel, k % places};
  }
  const int p = k / kernel, element = k % kernel;
  if (layout == 2) return {p / c / places, p % c, element, p / c % places};
  return {p / places % n, p / places / n, element, p % places};
}

__device__ inline bool within(int position, int size) {
  return (unsigned)position < (unsigned)size;  // one comparison: what is negative becomes large
}

// A thread per sample, channel and window: loops over the kernel write that channel's part of the
// window's column.
template <typename T>
__global__ void im2col(int total, const T* __restrict__ images, SIZES, T* __restrict__ columns) {
  const int places = od * oh * ow;
  const Steps step = steps(layout, n, c, kd * kh * kw, places);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int place = index % places, plane = index / places;  // plane = sample * c + channel
    const int x0 = place % ow * sw - pw;  // the pixel under the kernel's first element
    const int y0 = place / ow % oh * sh - ph;
    const int z0 = place / ow / oh * sd - pd;
    const T* from = images + (size_t)plane * d * h * w;
    T* to = columns + plane / c * step.sample + plane % c * step.channel + place * step.place;
    for (int z = z0; z < z0 + kd * dd; z += dd) {
      for (int y = y0; y < y0 + kh * dh; y += dh) {
        const bool line = within(z, d) && within(y, h);
        for (int x = x0; x < x0 + kw * dw; x += dw) {
          *to = line && within(x, w) ? from[(z * h + y) * w + x] : T(0);
          to += step.element;
        }
      }
    }
  }
}

// A thread per entry of one sample's columns, in memory order so that writes coalesce, and no loop
// over the kernel. For a 2-D kernel F x F, stride 1, no padding and H1 x W1 windows:
//
//   entry k  ->  p = k / (H1 W1)              the matrix row:     channel p / F / F
//                q = k mod (H1 W1)            the matrix column:  window (q / W1, q mod W1)
//
//   pixel  (i, j) = (q / W1 + p / F mod F,  q mod W1 + p mod F)
//
//   H1 W1 = 2 x 2, F = 2, k = 7:   p = 1 = element (0,1),  q = 3 = window (1,1)   ->   pixel (1,2)
//
// Strides and dilations multiply the two terms, the padding is taken off, and a range test finds
// what lies in it. Quotients cost more than the copy, and are the same for every sample: a thread
// takes its entry of samples s, s + total / entries, ...
template <typename T>
__global__ void im2col_loopfree(int total, const T* __restrict__ images, SIZES,
                                T* __restrict__ columns) {
  const int places = od * oh * ow, kernel = kd * kh * kw, entries = c * kernel * places;
  const size_t volume = (size_t)d * h * w;
  const Steps step = steps(layout, n, c, kernel, places);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const Entry k = entry(layout, index % entries, 1, c, kernel, places);
    const int x = k.place % ow * sw - pw + k.element % kw * dw;
    const int y = k.place / ow % oh * sh - ph + k.element / kw % kh * dh;
    const int z = k.place / ow / oh * sd - pd + k.element / kw / kh * dd;
    const bool inside = within(x, w) && within(y, h) && within(z, d);
    const T* from = images + (inside ? k.channel * volume + (z * h + y) * w + x : 0);
    T* to = columns + k.channel * step.channel + k.element * step.element + k.place * step.place;
#pragma unroll 4
    for (int s = index / entries; s < n; s += total / entries) {
      to[s * step.sample] = inside ? from[s * (c * volume)] : T(0);
    }
  }
}

// The kernel element through which a window at `start` sees position `at` of the padded image; -1
// if there is none.
__device__ inline int element(int at, int start, int dilation, int kernel) {
  const int offset = at - start;
  const int k = dilation == 1 ? offset : offset / dilation;
  return k * dilation == offset && k < kernel ? k : -1;
}

// The first and the last window along an axis that may hold position `at` of the padded image.
__device__ inline int first_window(int at, int kernel, int stride, int dilation) {
  const int before = at - dilation * (kernel - 1);  // where that window starts, or after it
  return before <= 0 ? 0 : stride == 1 ? before : (before + stride - 1) / stride;
}

__device__ inline int last_window(int at, int windows, int stride) {
  return at < 0 ? -1 : min(stride == 1 ? at : at / stride, windows - 1);
}

// A thread per image entry gathers the column entries that were read from it: no atomics, so the
// sum is always taken in the same order, that of the kernel elements.
//
//   kernel 3, stride 2, position 4 of the padded line:    . . . . 4 .
//                                                  window 2:      [0 . .]  element 0
//                                                  window 1:  [. . 2]      element 2
template <typename T>
__global__ void col2im(int total, const T* __restrict__ columns, SIZES, int add, T* images) {
  const Steps step = steps(layout, n, c, kd * kh * kw, (size_t)od * oh * ow);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const unsigned line = (unsigned)index / w, depth = line / h, plane = depth / d;
    const int x = index - line * w + pw;  // in the padded image
    const int y = line - depth * h + ph;
    const int z = depth - plane * d + pd;
    const T* from = columns + plane / c * step.sample + plane % c * step.channel;
    const int first_z = first_window(z, kd, sd, dd);
    const int first_y = first_window(y, kh, sh, dh), last_y = last_window(y, oh, sh);
    const int first_x = first_window(x, kw, sw, dw), last_x = last_window(x, ow, sw);
    typename Sum<T>::type sum = 0;
    for (int oz = last_window(z, od, sd); oz >= first_z; --oz) {
      const int a = element(z, oz * sd, dd, kd);
      if (a < 0) continue;
      for (int oy = last_y; oy >= first_y; --oy) {
        const int i = element(y, oy * sh, dh, kh);
        if (i < 0) continue;
        const T* at = from + (a * kh + i) * kw * step.element + (oz * oh + oy) * ow * step.place;
#pragma unroll 4
        for (int ox = last_x; ox >= first_x; --ox) {
          const int j = element(x, ox * sw, dw, kw);
          if (j >= 0) sum += typename Sum<T>::type(at[j * step.element + ox * step.place]);
        }
      }
    }
    images[index] = T(add ? typename Sum<T>::type(images[index]) + sum : sum);
  }
}

// The same sums, scattered: a thread per column entry, in memory order, adds it to the image.
// The order of the additions is left to chance.
template <typename T>
__global__ void col2im_scatter(int total, const T* __restrict__ columns, SIZES, T* images) {
  const int places = od * oh * ow;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const Entry k = entry(layout, index, n, c, kd * kh * kw, places);
    const int x = k.place % ow * sw - pw + k.element % kw * dw;
    const int y = k.place / ow % oh * sh - ph + k.element / kw % kh * dh;
    const int z = k.place / ow / oh * sd - pd + k.element / kw / kh * dd;
    if (!within(x, w) || !within(y, h) || !within(z, d)) continue;
    const size_t plane = (size_t)k.sample * c + k.channel;
    atomicAdd(images + (plane * d + z) * h * w + y * w + x, columns[index]);
  }
}
