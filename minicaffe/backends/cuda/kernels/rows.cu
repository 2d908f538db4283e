// Rows of a matrix by their numbers: a thread an entry of what is written, so that no two add to one.
//
//   place = 1 1 0      take: row 0 of y is row 1 of x, row 1 is row 1, row 2 is row 0
//                      put_back: row 1 of dx is the sum of rows 0 and 1 of dy

template <typename T>
__global__ void places(int total, const T* index, int n, int* place) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const typename Sum<T>::type value = index[i];
    place[i] = value > -1 && value < n ? (int)value : -1;
  }
}

template <typename T>
__global__ void take(int total, const T* x, const int* place, int width, T* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int row = place[i / width];
    y[i] = row < 0 ? T(__int_as_float(0x7fc00000)) : x[(size_t)row * width + i % width];  // NaN
  }
}

template <typename T>
__global__ void put_back(int total, const T* dy, const int* place, int width, int rows, T* dx) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    typename Sum<T>::type sum = 0;
    for (int row = 0; row < rows; ++row) {
      if (place[row] != i / width) continue;
      sum += typename Sum<T>::type(dy[(size_t)row * width + i % width]);
    }
    dx[i] = T(sum);
  }
}

// x (outer, tiles, inner) summed over its tiles.
template <typename T>
__global__ void fold(int total, const T* x, int tiles, int inner, T* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const size_t start = (size_t)(i / inner) * tiles * inner + i % inner;
    typename Sum<T>::type sum = 0;
    for (int t = 0; t < tiles; ++t) sum += typename Sum<T>::type(x[start + (size_t)t * inner]);
    y[i] = T(sum);
  }
}
