// The solver's steps. A thread an entry.
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
__device__ inline const double* row_of(int entry, const double* numbers, int columns,
                                       const int* parts, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (entry < parts[2 * middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return numbers + parts[2 * low + 1] * columns;
}

template <typename S>
__device__ S regularized(S w, S diff, S decay, int l1, S scale) {
  const S penalty = l1 ? (w > 0 ? decay : w < 0 ? -decay : w * 0) : decay * w;
  return scale * diff + penalty;
}

// A struct for each rule, which is emitted from its formula by backends/cuda/emit.py.
#include "rules of formulas.py"

// `second` is there for a rule that remembers two arrays.
template <typename T, typename Rule>
__global__ void update(int total, T* weight, T* diff, T* first, T* second,
                       const double* __restrict__ numbers, int columns,
                       const int* __restrict__ parts, int count, int l1,
                       typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S w = weight[i], g = regularized<S>(w, diff[i], S(row[columns - 1]), l1, scale);
    S history[2] = {S(first[i]), Rule::memory > 1 ? S(second[i]) : S(0)};
    const S step = Rule::step(w, g, history, row);
    first[i] = T(history[0]);
    if (Rule::memory > 1) second[i] = T(history[1]);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}
