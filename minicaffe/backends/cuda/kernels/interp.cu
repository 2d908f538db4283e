// Bilinear interpolation with the corners aligned. Along each axis output o lies `share` behind pixel low:
//
//   3 pixels, 5 outputs     pixel  0   .   1   .   2
//                           low    0   0   1   1   2      first (of pixel 0, 1, 2, 3)   0 2 4 5
//                           share  0   .5  0   .5  0
//
// Pixel i is seen by the outputs from first[i - 1] (whose low is i - 1) up to first[i + 1], without it.

template <typename T>
__global__ void interp(int total, const T* x, const int* row, const typename Sum<T>::type* row_share,
                       const int* column, const typename Sum<T>::type* column_share, int h, int w,
                       int oh, int ow, T* y) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int r = index / ow % oh, q = index % ow;
    const S down = row_share[r], right = column_share[q];
    const T* corner = x + ((size_t)(index / ow / oh) * h + row[r]) * w + column[q];
    const int below = down > 0 ? w : 0, beside = right > 0 ? 1 : 0;  // never past the image
    const S upper = (1 - right) * S(corner[0]) + right * S(corner[beside]);
    const S lower = (1 - right) * S(corner[below]) + right * S(corner[below + beside]);
    y[index] = T((1 - down) * upper + down * lower);
  }
}

template <typename T>
__global__ void interp_gradient(int total, const T* dy, const int* row,
                                const typename Sum<T>::type* row_share, const int* row_first,
                                const int* column, const typename Sum<T>::type* column_share,
                                const int* column_first, int h, int w, int oh, int ow, T* dx) {
  typedef typename Sum<T>::type S;
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const int i = index / w % h, j = index % w;
    const T* plane = dy + (size_t)(index / w / h) * oh * ow;
    S sum = 0;
    for (int r = row_first[i > 0 ? i - 1 : 0]; r < row_first[i + 1]; ++r) {
      S line = 0;
      for (int q = column_first[j > 0 ? j - 1 : 0]; q < column_first[j + 1]; ++q) {
        line += (column[q] == j ? 1 - column_share[q] : column_share[q]) * S(plane[r * ow + q]);
      }
      sum += (row[r] == i ? 1 - row_share[r] : row_share[r]) * line;
    }
    dx[index] = T(sum);
  }
}
