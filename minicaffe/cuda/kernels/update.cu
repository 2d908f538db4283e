// The solver's steps, and what comes before them where gradients are of 16 bits. A thread an entry.
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

// SGD:       h = momentum h + rate g          step = h
template <typename T>
__global__ void sgd(int total, T* weight, T* diff, T* history,
                    const double* __restrict__ numbers, int columns,
                    const int* __restrict__ parts, int count, int l1,
                    typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S rate = S(row[0]), momentum = S(row[1]), decay = S(row[columns - 1]);
    const S w = weight[i];
    const S step = momentum * S(history[i]) + rate * regularized<S>(w, diff[i], decay, l1, scale);
    history[i] = T(step);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}

// Nesterov:  h = momentum h + rate g          step = (1 + momentum) h - momentum h_before
template <typename T>
__global__ void nesterov(int total, T* weight, T* diff, T* history,
                         const double* __restrict__ numbers, int columns,
                         const int* __restrict__ parts, int count, int l1,
                         typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S rate = S(row[0]), momentum = S(row[1]), decay = S(row[columns - 1]);
    const S w = weight[i], before = history[i];
    const S h = momentum * before + rate * regularized<S>(w, diff[i], decay, l1, scale);
    const S step = (1 + momentum) * h - momentum * before;
    history[i] = T(h);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}

// AdaGrad and RMSProp:  h = keep h + take g^2     step = rate g / (sqrt(h) + delta)
template <typename T>
__global__ void scaled(int total, T* weight, T* diff, T* history,
                       const double* __restrict__ numbers, int columns,
                       const int* __restrict__ parts, int count, int l1,
                       typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S rate = S(row[0]), keep = S(row[1]), take = S(row[2]), delta = S(row[3]),
            decay = S(row[columns - 1]);
    const S w = weight[i], g = regularized<S>(w, diff[i], decay, l1, scale);
    const S h = keep * S(history[i]) + take * (g * g);
    const S step = rate * (g / (sqrt(h) + delta));
    history[i] = T(h);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}

// AdaDelta:  a = momentum a + (1 - momentum) g^2      u = g sqrt((b + delta) / (a + delta))
//            b = momentum b + (1 - momentum) u^2      step = rate u
template <typename T>
__global__ void adadelta(int total, T* weight, T* diff, T* gradients, T* updates,
                         const double* __restrict__ numbers, int columns,
                         const int* __restrict__ parts, int count, int l1,
                         typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S rate = S(row[0]), momentum = S(row[1]), delta = S(row[2]),
            decay = S(row[columns - 1]);
    const S w = weight[i], g = regularized<S>(w, diff[i], decay, l1, scale), b = updates[i];
    const S a = momentum * S(gradients[i]) + (1 - momentum) * (g * g);
    const S u = g * sqrt((b + delta) / (a + delta));
    gradients[i] = T(a);
    updates[i] = T(momentum * b + (1 - momentum) * (u * u));
    diff[i] = T(rate * u);
    weight[i] = T(w - rate * u);
  }
}

// Adam:      m = momentum m + (1 - momentum) g        v = momentum2 v + (1 - momentum2) g^2
//            step = rate m / (sqrt(v) + delta) + shrink weight
template <typename T>
__global__ void adam(int total, T* weight, T* diff, T* mean, T* square,
                     const double* __restrict__ numbers, int columns,
                     const int* __restrict__ parts, int count, int l1,
                     typename Sum<T>::type scale, const int* __restrict__ skip) {
  if (*skip) return;
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const double* row = row_of(i, numbers, columns, parts, count);
    const S rate = S(row[0]), momentum = S(row[1]), momentum2 = S(row[2]), delta = S(row[3]),
            shrink = S(row[4]), decay = S(row[columns - 1]);
    const S w = weight[i], g = regularized<S>(w, diff[i], decay, l1, scale);
    const S m = momentum * S(mean[i]) + (1 - momentum) * g;
    const S v = momentum2 * S(square[i]) + (1 - momentum2) * (g * g);
    const S step = rate * m / (sqrt(v) + delta) + shrink * w;
    mean[i] = T(m);
    square[i] = T(v);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}

// A gradient of 16 bits, taken of `scale` times the loss, set into or added to its float32 master.
//
//   diff, 16 bits    gradient, float32            total + diff / scale       bad = 1 where diff is
//   [a b c]     ->   [A + a/s  B + b/s  C + c/s]                             infinite or no number
template <typename T>
__global__ void unscale(int total, T* diff, typename Sum<T>::type scale, int add,
                        typename Sum<T>::type* gradient, int* bad) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const typename Sum<T>::type value = diff[i];
    if (value - value != 0) *bad = 1;  // every thread that writes writes the same
    gradient[i] = value / scale + (add ? gradient[i] : 0);
    diff[i] = T(0.0f);
  }
}
