// The solver's step, and what comes before it where gradients are of 16 bits. A thread an entry.

// One step of gradient descent with momentum:
//
//   step = momentum history + rate (scale diff + penalty)      penalty = decay weight
//   history = step,  diff = step,  weight -= step              L1: penalty = decay sign(weight)
template <typename T>
__global__ void sgd(int total, T* weight, T* diff, T* history, typename Sum<T>::type rate,
                    typename Sum<T>::type momentum, typename Sum<T>::type decay, int l1,
                    typename Sum<T>::type scale) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S w = weight[i];
    const S penalty = l1 ? (w > 0 ? decay : w < 0 ? -decay : w * 0) : decay * w;
    const S step = momentum * S(history[i]) + rate * (scale * S(diff[i]) + penalty);
    history[i] = T(step);
    diff[i] = T(step);
    weight[i] = T(w - step);
  }
}

// A gradient of 16 bits, taken of `scale` times the loss, set into or added to its float32 master.
//
//   diff, 16 bits    gradient, float32            total + diff / scale       bad = true where diff is
//   [a b c]     ->   [A + a/s  B + b/s  C + c/s]                             infinite or no number
template <typename T>
__global__ void unscale(int total, T* diff, typename Sum<T>::type scale, int add,
                        typename Sum<T>::type* gradient, bool* bad) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const typename Sum<T>::type value = diff[i];
    if (value - value != 0) *bad = true;  // every thread that writes writes the same
    gradient[i] = value / scale + (add ? gradient[i] : 0);
    diff[i] = T(0.0f);
  }
}
