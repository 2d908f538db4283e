// A thread per entry of the batch fetches its pixel from the data set on the device.
//
//   image h x w        crop at (top, left)           mirrored: column x reads column ow - 1 - x
//   . . . .            . [a b c]                     [c b a]
//   . a b c     ->     . [d e f]          ->         [f e d]
//   . d e f

template <typename T>
__global__ void gather(int total, const unsigned char* images, const long long* index,
                       const int* crop, const int* mirror, const typename Sum<T>::type* mean,
                       typename Sum<T>::type scale, int c, int h, int w, int oh, int ow, T* out) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int x = i % ow;
    const int y = i / ow % oh + crop[2 * (i / ow / oh / c)];
    const int k = i / ow / oh % c;
    const int b = i / ow / oh / c;
    const int left = crop[2 * b + 1];
    const int from = (mirror[b] ? ow - 1 - x : x) + left;
    const S pixel = images[(((size_t)index[b] * c + k) * h + y) * w + from];
    out[i] = T((pixel - mean[((size_t)k * h + y) * w + from]) * scale);
  }
}
