// A mask of where maxima are, and the opposite of max pooling: pixels go to the places, within their plane, that
// a mask names.
//
//   x 5 7 9, place 2 0 2      claim: the highest of the pixels that want a place has it, 2 and 0 -> . . .
//                             winner 1 -1 2                    y 7 0 9

// Windows that begin at `corners` of an image so wide: the place of each one's winner, -1 if it has none.
template <typename T>
__global__ void winners(int total, const int* which, const int* corners, int windows, int kernel, int width,
                        T* out) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int at = which[i], place = corners[i % windows] + at / kernel * width + at % kernel;
    out[i] = T(at < 0 ? -1 : place);
  }
}

template <typename T>
__global__ void mask_places(int total, const T* mask, int size, long long* place) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const T at = mask[i];
    place[i] = at == T(-1) ? -1 : at > T(-1) && at < T(size) ? (long long)(int)at : -2;
  }
}

// winner[place] = number of the last pixel that goes there: the largest, in whatever order they come.
template <typename T>
__global__ void claim(int total, const long long* place, int pixels, int size, int* winner) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    int* plane = winner + (size_t)(i / pixels) * size;
    if (place[i] >= 0) atomicMax(plane + place[i], i % pixels);
    if (place[i] == -2) atomicMax(plane, pixels);  // a place outside: the plane's first pixel tells
  }
}

template <typename T>
__global__ void unpool(int total, const T* x, int pixels, int size, const int* winner, T* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int from = winner[i];
    y[i] = from < 0         ? T(0.0f)
           : from == pixels ? T(__int_as_float(0x7fc00000))  // NaN
                            : x[(size_t)(i / size) * pixels + from];
  }
}

template <typename T>
__global__ void unpool_gradient(int total, const T* dy, const long long* place, int pixels, int size,
                                T* dx) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    dx[i] = place[i] < 0 ? T(0.0f) : dy[(size_t)(i / pixels) * size + place[i]];
  }
}
