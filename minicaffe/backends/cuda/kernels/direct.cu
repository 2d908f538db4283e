// Direct convolution of three spatial axes, as its definition says: the reference on the device.
//
//   y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

// A thread per output. `bias` may be null.
template <typename T>
__global__ void conv(int total, const T* x, const T* weight, const T* bias, int n, int c, int f,
                     int group, int d, int h, int w, int kd, int kh, int kw, int pd, int ph,
                     int pw, int sd, int sh, int sw, int dd, int dh, int dw, int od, int oh,
                     int ow, T* y) {
  typedef typename Sum<T>::type S;
  const int channels = c / group;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int x0 = index % ow * sw - pw;
    const int y0 = index / ow % oh * sh - ph;
    const int z0 = index / ow / oh % od * sd - pd;
    const int filter = index / ow / oh / od % f;
    const int s = index / ow / oh / od / f;
    const T* image = x + (size_t)(s * c + filter / (f / group) * channels) * d * h * w;
    const T* element = weight + (size_t)filter * channels * kd * kh * kw;
    S sum = bias ? S(bias[filter]) : S(0);
    for (int b = 0; b < channels; ++b, image += (size_t)d * h * w) {
      for (int a = 0; a < kd; ++a) {
        for (int i = 0; i < kh; ++i, element += kw) {
          const int zz = z0 + a * dd, yy = y0 + i * dh;
          if ((unsigned)zz >= (unsigned)d || (unsigned)yy >= (unsigned)h) continue;
          const T* row = image + ((size_t)zz * h + yy) * w;
          for (int j = 0; j < kw; ++j) {
            const int xx = x0 + j * dw;
            if ((unsigned)xx < (unsigned)w) sum += S(element[j]) * S(row[xx]);
          }
        }
      }
    }
    y[index] = T(sum);
  }
}

// Which place saw a pixel, through one element of the kernel after the other, along an axis: position / stride, without
// a division for each element.
struct Place {
  int at, rest;

  __device__ Place(int position, int stride) : at(position / stride), rest(position % stride) {}
  __device__ void back(const Place& step, int stride) {
    at -= step.at;
    rest -= step.rest;
    if (rest < 0) rest += stride, --at;
  }
  __device__ bool lies(int count) const { return rest == 0 && (unsigned)at < (unsigned)count; }
};

// A thread per pixel: every output that saw it, through the kernel element it saw it through.
template <typename T>
__global__ void conv_input_gradient(int total, const T* dy, const T* weight, int n, int c, int f,
                                    int group, int d, int h, int w, int kd, int kh, int kw,
                                    int pd, int ph, int pw, int sd, int sh, int sw, int dd,
                                    int dh, int dw, int od, int oh, int ow, T* dx) {
  typedef typename Sum<T>::type S;
  const int channels = c / group, filters = f / group;
  const Place step_z(dd, sd), step_y(dh, sh), step_x(dw, sw);
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const Place last_x(index % w + pw, sw);  // in the padded image
    const Place last_y(index / w % h + ph, sh);
    const Place last_z(index / w / h % d + pd, sd);
    const int channel = index / w / h / d % c;
    const int s = index / w / h / d / c;
    S sum = 0;
    for (int k = 0; k < filters; ++k) {
      const int filter = channel / channels * filters + k;
      const T* element =
          weight + ((size_t)filter * channels + channel % channels) * kd * kh * kw;
      const T* gradient = dy + (size_t)(s * f + filter) * od * oh * ow;
      Place z = last_z;
      for (int a = 0; a < kd; ++a, z.back(step_z, sd)) {
        Place y = last_y;
        for (int i = 0; i < kh; ++i, element += kw, y.back(step_y, sh)) {
          if (!z.lies(od) || !y.lies(oh)) continue;
          const T* row = gradient + (z.at * oh + y.at) * ow;
          Place x = last_x;
          for (int j = 0; j < kw; ++j, x.back(step_x, sw)) {
            if (x.lies(ow)) sum += S(element[j]) * S(row[x.at]);
          }
        }
      }
    }
    dx[index] = T(sum);
  }
}

// A thread per weight walks all outputs of its filter, in one order. Added to what is there.
template <typename T>
__global__ void conv_weight_gradient(int total, const T* x, const T* dy, int n, int c, int f,
                                     int group, int d, int h, int w, int kd, int kh, int kw,
                                     int pd, int ph, int pw, int sd, int sh, int sw, int dd,
                                     int dh, int dw, int od, int oh, int ow, T* dweight) {
  typedef typename Sum<T>::type S;
  const int channels = c / group;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int j = index % kw;
    const int i = index / kw % kh;
    const int a = index / kw / kh % kd;
    const int b = index / kw / kh / kd % channels;
    const int filter = index / kw / kh / kd / channels;
    S sum = 0;
    for (int s = 0; s < n; ++s) {
      const T* image = x + (size_t)(s * c + filter / (f / group) * channels + b) * d * h * w;
      const T* gradient = dy + (size_t)(s * f + filter) * od * oh * ow;
      for (int o = 0; o < od * oh * ow; ++o) {
        const int xx = o % ow * sw - pw + j * dw;
        const int yy = o / ow % oh * sh - ph + i * dh;
        const int zz = o / ow / oh * sd - pd + a * dd;
        if (zz < 0 || zz >= d || yy < 0 || yy >= h || xx < 0 || xx >= w) continue;
        sum += S(gradient[o]) * S(image[((size_t)zz * h + yy) * w + xx]);
      }
    }
    dweight[index] = T(S(dweight[index]) + sum);
  }
}
