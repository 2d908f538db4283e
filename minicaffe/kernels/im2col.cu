// im2col and col2im of one image (Caffe's kernels, with the roles of the indices spelt out).
//
//   image, c = 1, 3 x 3          columns, kernel 2 x 2: one column a window
//      0 1 2                     (ky,kx)   windows  a b c d
//      3 4 5        ->            (0,0)             0 1 3 4
//      6 7 8                      (0,1)             1 2 4 5
//                                 (1,0)             3 4 6 7
//   windows  a b                  (1,1)             4 5 7 8
//            c d

// A thread per window and channel: two inner loops write that channel's part of the window's column.
template <typename T>
__global__ void im2col(int total, const T* image, int h, int w, int kh, int kw, int ph, int pw,
                       int sh, int sw, int dh, int dw, int oh, int ow, T* columns) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int ox = index % ow;
    const int oy = index / ow % oh;
    const int c = index / ow / oh;
    const int y0 = oy * sh - ph;  // the image row and column under kernel element (0, 0)
    const int x0 = ox * sw - pw;
    const T* from = image + (size_t)c * h * w;
    T* to = columns + ((size_t)c * kh * kw * oh + oy) * ow + ox;
    for (int i = 0; i < kh; ++i) {
      for (int j = 0; j < kw; ++j) {
        const int y = y0 + i * dh;
        const int x = x0 + j * dw;
        *to = y >= 0 && y < h && x >= 0 && x < w ? from[(size_t)y * w + x] : T(0);
        to += (size_t)oh * ow;  // the next row of the matrix
      }
    }
  }
}

// A thread per image entry gathers the column entries that were read from it: no atomics, so the
// order of the sum, and with it the result, is always the same.
template <typename T>
__global__ void col2im(int total, const T* columns, int h, int w, int kh, int kw, int ph, int pw,
                       int sh, int sw, int dh, int dw, int oh, int ow, T* image) {
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int x = index % w + pw;  // in the padded image
    const int y = index / w % h + ph;
    const int c = index / w / h;
    T sum = 0;
    for (int i = 0; i < kh; ++i) {
      const int top = y - i * dh;  // the window's first row, if kernel row i covers y
      if (top < 0 || top % sh != 0 || top / sh >= oh) continue;
      for (int j = 0; j < kw; ++j) {
        const int left = x - j * dw;
        if (left < 0 || left % sw != 0 || left / sw >= ow) continue;
        const size_t row = ((size_t)c * kh + i) * kw + j;
        sum += columns[(row * oh + top / sh) * ow + left / sw];
      }
    }
    image[index] = sum;
  }
}
