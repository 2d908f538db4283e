// The gradient of -log prob[label] by score k, times `scale`; 0 where the label does not count.
template <typename T>
__device__ T nll_gradient(T prob, T label, int k, int has_ignore, int ignore, typename Sum<T>::type scale) {
  typedef typename Sum<T>::type S;
  const bool ignored = has_ignore && label == T(ignore);
  const bool own = label > T(-1) && (int)label == k;
  const S difference = S(prob) - S(own);
  return ignored ? T(0) : T(scale * difference);
}
