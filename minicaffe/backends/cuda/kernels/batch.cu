// A thread per entry of the batch fetches its pixel from the data set on the device; the first of an
// image its label too. `places` (4, n) says for each image which entry it is, where its crop begins and
// whether it is mirrored.
//
//   image h x w        crop at (top, left)           mirrored: column x reads column ow - 1 - x
//   . . . .            . [a b c]                     [c b a]
//   . a b c     ->     . [d e f]          ->         [f e d]
//   . d e f

template <typename T>
__global__ void gather(int total, const unsigned char* images,
                       const typename Sum<T>::type* labels, const long long* places,
                       const typename Sum<T>::type* mean, typename Sum<T>::type scale, int n,
                       int c, int h, int w, int oh, int ow, T* out,
                       typename Sum<T>::type* out_labels) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int x = i % ow, k = i / ow / oh % c, b = i / ow / oh / c;
    const size_t entry = places[b];
    const int top = places[n + b], left = places[2 * n + b], mirror = places[3 * n + b];
    const size_t at = ((size_t)k * h + top + i / ow % oh) * w + left + (mirror ? ow - 1 - x : x);
    const S pixel = images[entry * c * h * w + at];
    out[i] = T((pixel - mean[at]) * scale);
    if (labels && i % (c * oh * ow) == 0) out_labels[b] = labels[entry];
  }
}
