// Losses of two bottoms of one shape, entry by entry, and their gradients. What comes in may be of 16
// bits; it is computed with, and summed elsewhere, in S. Weights, `scale` and losses are of that type.

template <typename A, typename B, typename O>
__global__ void difference(int total, const A* __restrict__ a, const B* __restrict__ b, O* out) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    out[i] = O(S(a[i]) - S(b[i]));
  }
}

// Of a pair of rows at distance d: its loss, and `pull`, which times their difference is the gradient.
template <typename A, typename B, typename O>
__global__ void contrastive(int pairs, const A* __restrict__ diff, const B* __restrict__ similar,
                            int c, typename Sum<O>::type margin, int legacy, O* losses, O* pull) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += blockDim.x * gridDim.x) {
    S square = 0;
    for (int k = 0; k < c; ++k) {
      const S d = diff[(size_t)i * c + k];
      square += d * d;
    }
    const S distance = legacy ? square : S(sqrt(square));
    const S gap = margin - distance;
    const bool alike = (int)S(similar[i]) != 0;
    const S far = gap > 0 ? gap : (gap == gap ? S(0) : gap);  // a distance that is no number stays so
    losses[i] = O(alike ? square : legacy ? far : far * far);
    const S push = legacy ? S(1) : gap / (distance + S(1e-4));
    pull[i] = O(alike ? S(1) : gap > 0 ? -push : S(0));
  }
}

template <typename A, typename B, typename O>
__global__ void smooth_l1(int total, const A* __restrict__ a, const B* __restrict__ b,
                          const typename Sum<O>::type* __restrict__ inside,
                          const typename Sum<O>::type* __restrict__ outside,
                          typename Sum<O>::type sigma2, O* losses) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    S d = S(a[i]) - S(b[i]);
    if (inside) d *= inside[i];
    d = d < 0 ? -d : d;
    const S loss = d * sigma2 < S(1) ? S(0.5) * d * d * sigma2 : d - S(0.5) / sigma2;
    losses[i] = O(outside ? loss * outside[i] : loss);
  }
}

template <typename A, typename B, typename O>
__global__ void smooth_l1_gradient(int total, const A* __restrict__ a, const B* __restrict__ b,
                                   const typename Sum<O>::type* __restrict__ inside,
                                   const typename Sum<O>::type* __restrict__ outside,
                                   typename Sum<O>::type sigma2,
                                   const typename Sum<O>::type* __restrict__ scale, int sign,
                                   O* dx) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    S d = (S(a[i]) - S(b[i])) * sigma2;
    if (inside) d *= inside[i];
    S slope = d > S(1) ? S(1) : d < S(-1) ? S(-1) : d;
    if (inside) slope *= inside[i];
    if (outside) slope *= outside[i];
    dx[i] = O(S(sign) * *scale * slope);
  }
}

template <typename A, typename B, typename O>
__global__ void sigmoid_cross_entropy(int total, const A* __restrict__ x,
                                      const B* __restrict__ target, int has_ignore, int ignore,
                                      O* losses, O* valid) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S value = x[i], t = target[i];
    const bool counts = !(has_ignore && (int)t == ignore);
    const S size = value < 0 ? -value : value;
    const S loss = (value > 0 ? value : S(0)) - value * t + log1p(exp(-size));
    losses[i] = O(counts ? loss : S(0));
    valid[i] = O(counts ? S(1) : S(0));
  }
}

template <typename A, typename B, typename O>
__global__ void sigmoid_cross_entropy_gradient(int total, const A* __restrict__ x,
                                               const B* __restrict__ target, int has_ignore,
                                               int ignore,
                                               const typename Sum<O>::type* __restrict__ scale,
                                               O* dx) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S t = target[i], half = S(0.5);
    const bool counts = !(has_ignore && (int)t == ignore);
    dx[i] = O(counts ? *scale * (half * tanh(half * S(x[i])) + half - t) : S(0));
  }
}
