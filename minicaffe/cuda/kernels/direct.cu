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
        for (int i = 0; i < kh; ++i) {
          for (int j = 0; j < kw; ++j, ++element) {
            const int zz = z0 + a * dd, yy = y0 + i * dh, xx = x0 + j * dw;
            if (zz < 0 || zz >= d || yy < 0 || yy >= h || xx < 0 || xx >= w) continue;
            sum += S(*element) * S(image[((size_t)zz * h + yy) * w + xx]);
          }
        }
      }
    }
    y[index] = T(sum);
  }
}

// A thread per pixel: every output that saw it, through the kernel element it saw it through.
template <typename T>
__global__ void conv_input_gradient(int total, const T* dy, const T* weight, int n, int c, int f,
                                    int group, int d, int h, int w, int kd, int kh, int kw,
                                    int pd, int ph, int pw, int sd, int sh, int sw, int dd,
                                    int dh, int dw, int od, int oh, int ow, T* dx) {
  typedef typename Sum<T>::type S;
  const int channels = c / group, filters = f / group;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int xx = index % w + pw;  // in the padded image
    const int yy = index / w % h + ph;
    const int zz = index / w / h % d + pd;
    const int channel = index / w / h / d % c;
    const int s = index / w / h / d / c;
    S sum = 0;
    for (int k = 0; k < filters; ++k) {
      const int filter = channel / channels * filters + k;
      const T* element =
          weight + ((size_t)filter * channels + channel % channels) * kd * kh * kw;
      const T* gradient = dy + (size_t)(s * f + filter) * od * oh * ow;
      for (int a = 0; a < kd; ++a) {
        for (int i = 0; i < kh; ++i) {
          for (int j = 0; j < kw; ++j, ++element) {
            const int front = zz - a * dd, top = yy - i * dh, left = xx - j * dw;
            if (front < 0 || front % sd || front / sd >= od || top < 0 || top % sh ||
                top / sh >= oh || left < 0 || left % sw || left / sw >= ow) {
              continue;
            }
            const int place = (front / sd * oh + top / sh) * ow + left / sw;
            sum += S(*element) * S(gradient[place]);
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
