// s^-beta of lrn.cu and lrn_across.cu.
template <typename S>
__device__ S to_minus(S s, S beta) {
  if (beta == S(0.75)) return 1 / (sqrt(s) * sqrt(sqrt(s)));
  return pow(s, -beta);
}
