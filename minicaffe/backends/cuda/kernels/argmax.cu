// The k largest numbers of each column x[n, :, s] of x (n, c, s), the largest first; of equal numbers the
// last comes first. A thread a column walks it k times: what comes behind (number, place) found before.
//
//   column 3 7 7 1, k = 3     (7, place 2)   (7, place 1)   (3, place 0)

template <typename T>
__global__ void largest(int total, const T* x, int c, int s, int k, int* place, T* number) {
  typedef typename Sum<T>::type S;
  const S infinite = S(__int_as_float(0x7f800000));
  for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < total;
       index += blockDim.x * gridDim.x) {
    const T* column = x + (size_t)(index / s) * c * s + index % s;
    const size_t out = (size_t)(index / s) * k * s + index % s;
    S bound = infinite;
    int before = c;
    for (int i = 0; i < k; ++i) {
      S best = -infinite;
      int where = -1;
      for (int j = 0; j < c; ++j) {
        const S value = column[(size_t)j * s];
        const bool left = i == 0 || value < bound || (value == bound && j < before);
        if (left && value >= best) {
          best = value;
          where = j;
        }
      }
      if (where < 0) best = S(__int_as_float(0x7fc00000));  // NaN
      place[out + (size_t)i * s] = where;
      number[out + (size_t)i * s] = T(best);
      before = where;
      bound = best;
    }
  }
}
