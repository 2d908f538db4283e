// The solver's steps. A thread takes neighbours, as many as 16 bytes hold.
//
// Each rule is  g = scale diff + penalty,  step = rule(g, history),  diff = step,  weight -= step
// with          penalty = decay weight,  or with L1  decay sign(weight).  Where `skip` is not 0 nothing is done.
// What changes from step to step, such as the rate, lies in `numbers`, a row of `columns` for all entries
// that go by the same multipliers; the decay comes last. `parts` tell up to which entry goes which row:
//
//   parts  (800, 0) (810, 1) (900, 0)        entry   0 ... 799   800 ... 809   810 ... 899
//                                            row         0            1             0
//
// The part of an entry is the first whose end lies behind it.
__device__ inline int part_of(int entry, const int* parts, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (entry < parts[2 * middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <typename S>
__device__ S regularized(S w, S diff, S decay, int l1, S scale) {
  const S penalty = l1 ? (w > 0 ? decay : w < 0 ? -decay : w * 0) : decay * w;
  return scale * diff + penalty;
}

// A struct for each rule, which is emitted from its formula by backends/cuda/emit.py.
#include "rules of formulas.py"

// `second` is there for a rule that remembers two arrays. Neighbours that go by one row are read and written at once;
// those that an end of a part, or of all, lies between one by one. Where not all arrays begin at 16 bytes, a thread
// takes single entries.
template <typename T, typename Rule>
__global__ void update(int total, T* weight, T* diff, T* first, T* second,
                       const double* __restrict__ numbers, int columns,
                       const int* __restrict__ parts, int count, int l1,
                       typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  typedef Pack<T, 16 / sizeof(T)> Wide;
  const bool aligned = ((size_t)weight | (size_t)diff | (size_t)first | (size_t)second) % sizeof(Wide) == 0;
  const unsigned many = aligned ? sizeof(Wide) / sizeof(T) : 1;
  const auto steps = [&](auto pack, unsigned i, int part) {  // of as many entries as the pack has
    typedef decltype(pack) Some;
    const double* row = numbers + parts[2 * part + 1] * columns;
    const auto at = [i](T* array) { return reinterpret_cast<Some*>(array + i); };
    Some w = *at(weight), d = *at(diff), h0 = *at(first), h1 = Rule::memory > 1 ? *at(second) : Some();
#pragma unroll
    for (int v = 0; v < int(sizeof(Some) / sizeof(T)); ++v) {
      const S value = w.of[v], g = regularized<S>(value, d.of[v], S(row[columns - 1]), l1, scale);
      S history[2] = {S(h0.of[v]), S(h1.of[v])};
      const S step = Rule::step(value, g, history, row);
      w.of[v] = T(value - step), d.of[v] = T(step), h0.of[v] = T(history[0]), h1.of[v] = T(history[1]);
    }
    *at(weight) = w, *at(diff) = d, *at(first) = h0;
    if (Rule::memory > 1) *at(second) = h1;
  };
  const unsigned threads = blockDim.x * gridDim.x;
  for (unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) * many; i < (unsigned)total; i += threads * many) {
    int part = part_of(i, parts, count);
    if (aligned && i + many <= (unsigned)parts[2 * part]) {
      steps(Wide(), i, part);
      continue;
    }
    for (unsigned entry = i; entry < min(i + many, (unsigned)total); ++entry) {
      while (entry >= (unsigned)parts[2 * part]) ++part;
      steps(Pack<T, 1>(), entry, part);
    }
  }
}
