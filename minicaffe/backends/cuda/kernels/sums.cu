// Sums over the outer and the inner axis of x (outer, kept, inner), always taken in the same order:
//
//   out[k] = scale * sum over a, b of x[a, k, b]     (of squares or magnitudes; added to what is there)
//
//   kept = 1           the sum of all          inner = 1   of each column of a matrix (outer, kept)
//   x = dy (n, f, p)   a bias's gradient         outer = 1   of each row of a matrix (kept, inner)
//
// A block takes `wide` neighbours along the kept axis. Its thread (slice, column) adds every
// (256 / wide)-th of a column's entries; then halves are added to halves:
//
//   wide = 4       column   0 1 2 3
//   slice 0                [* * * *]   +  slice 2      +  slice 1     =  out[4 block ... 4 block + 3]
//   slice 1                [* * * *]   +  slice 3
//   ...
//
// With more than one part, blocks (.., i) add the i-th part of each column only, into a row of their own
// of out (parts, kept): those rows are summed by another launch.

const int BLOCK = 256;  // threads
enum Of { VALUES, SQUARES, MAGNITUDES };

template <typename T, typename O>
__global__ void sums(const T* __restrict__ x, int entries, int kept, int inner, int wide,
                     int of, typename Sum<T>::type scale, int add, O* out) {
  typedef typename Sum<T>::type S;
  __shared__ S shared[BLOCK];
  const int t = threadIdx.x, slices = BLOCK / wide, slice = t / wide;
  const int k = blockIdx.x * wide + t % wide;
  const int part = blockIdx.y, parts = gridDim.y;
  const unsigned first = (unsigned long long)entries * part / parts;
  const unsigned last = (unsigned long long)entries * (part + 1) / parts;
  S sum = 0;
  unsigned a = (first + slice) / inner, b = (first + slice) % inner;
  const unsigned over = slices / inner, along = slices % inner;  // stepped to without a division
#pragma unroll 4
  for (unsigned i = first + slice; i < last && k < kept; i += slices) {
    const S value = x[((size_t)a * kept + k) * inner + b];
    sum += of == SQUARES ? value * value : of == MAGNITUDES && value < 0 ? -value : value;
    a += over;
    b += along;
    if (b >= (unsigned)inner) ++a, b -= inner;
  }
  shared[t] = sum;
  __syncthreads();
  for (int half = slices / 2; half > 0; half /= 2) {
    if (slice < half) shared[t] += shared[t + half * wide];
    __syncthreads();
  }
  if (slice > 0 || k >= kept) return;
  O* to = out + (size_t)part * kept + k;
  *to = O(add ? S(*to) + scale * shared[t] : scale * shared[t]);
}
