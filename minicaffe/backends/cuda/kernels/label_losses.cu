// Losses of scores x (n, d) with a label a row, labels (n,). A label that is no class makes the loss NaN:
// the solver sees that and names it.

template <typename L>
__device__ inline int class_of(L label, int d) {  // -1 for a label that is no class
  return label > L(-1) && label < L(d) ? (int)label : -1;
}

// margins = max(0, 1 - x) of the label's own score, max(0, 1 + x) of the others
template <typename X, typename L, typename O>
__global__ void hinge(int total, const X* __restrict__ x, const L* __restrict__ labels, int d,
                      O* margins) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const int own = class_of(labels[i / d], d);
    const S value = x[i], margin = S(1) + (own == i % d ? -value : value);
    margins[i] = O(own < 0 ? S(nanf("")) : margin < 0 ? S(0) : margin);
  }
}

template <typename X, typename L, typename O>
__global__ void hinge_gradient(int total, const X* __restrict__ margins,
                               const L* __restrict__ labels, int d, int squared,
                               const typename Sum<O>::type* __restrict__ scale, O* dx) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S margin = margins[i], slope = squared ? S(2) * margin : S(margin > 0);
    dx[i] = O(*scale * (class_of(labels[i / d], d) == i % d ? -slope : slope));
  }
}

// losses = -log(prob[label]), of probabilities below the floor that of the floor
template <typename X, typename L, typename O>
__global__ void multinomial(int n, const X* __restrict__ prob, const L* __restrict__ labels, int d,
                            typename Sum<O>::type least, O* losses) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    const int own = class_of(labels[i], d);
    const S p = own < 0 ? S(nanf("")) : S(prob[(size_t)i * d + (own < 0 ? 0 : own)]);
    losses[i] = O(-log(p < least ? least : p));
  }
}

template <typename X, typename L, typename O>
__global__ void multinomial_gradient(int total, const X* __restrict__ prob,
                                     const L* __restrict__ labels, int d,
                                     typename Sum<O>::type least,
                                     const typename Sum<O>::type* __restrict__ scale, O* dx) {
  typedef typename Sum<O>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    const S p = prob[i];
    dx[i] = O(class_of(labels[i / d], d) == i % d ? -*scale / (p < least ? least : p) : S(0));
  }
}
