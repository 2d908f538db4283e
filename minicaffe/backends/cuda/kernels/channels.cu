// Functions with a number for each channel k, of x (n, f, p): a thread an entry.
//
//   i = (n * f + k) * p + place,  so  k = i / p % f

// y = a[k] x + b[k], with `relu` max(0, y); a or b may be missing, and b be as large as x (`whole`).
template <typename T>
__global__ void scale(int total, const T* x, const T* a, const T* b, int whole, int f, int p,
                      int relu, T* y) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int k = i / p % f;
    const S shift = b ? S(b[whole ? i : k]) : S(-0.0);  // which changes nothing
    const S value = a ? fma(S(x[i]), S(a[k]), shift) : S(x[i]) + shift;
    y[i] = T(relu && value <= 0 ? 0 : value);
  }
}

// dx = dy where x > 0, a[k] dy elsewhere; of x in dy's place it is y.
template <typename T>
__global__ void prelu(int total, const T* dy, const T* x, const T* a, int f, int p, T* dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S value = dy[i];
    dx[i] = T(S(x[i]) > 0 ? value : value * S(a[i / p % f]));
  }
}

// What is summed for the gradient of a PReLU's a: dy min(x, 0).
template <typename T>
__global__ void products(int total, const T* dy, const T* x, typename Sum<T>::type* out) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S value = x[i];
    out[i] = S(dy[i]) * (value > 0 ? S(0) : value);
  }
}
