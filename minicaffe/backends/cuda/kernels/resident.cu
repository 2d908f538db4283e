// BatchNorm of rows that a cluster of K blocks holds in shared memory: x is read once, and x and dy once on the way
// back. For sm_90 and 100, float32 and 16 bits; other rows and devices go by normalize.cu.
//
//   a row (a channel of all samples)    [ part of block 0 | of block 1 | ... of block K - 1 ]
//   a part, in shared memory            [ pack 0 of thread 0 | of thread 1 | ... | pack 1 of thread 0 | ... ]
//
// A pack has 16 bytes. A thread comes back to those packs only that it brought, so threads wait for each other where
// their sums are joined, and nowhere else.

#include "ends.cu"
#include "cluster.cu"

const int THREADS = 512, WARPS = THREADS / 32;

struct alignas(16) Room {
  char of[16];
};

// all[n] = its sum over the threads of a cluster, always in the same order, and the same in each of them.
template <int K, int N>
__device__ void join(float (&all)[N], float (&warps)[N][WARPS], float (&blocks)[N][K]) {
  const int t = threadIdx.x;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    for (int half = 16; half > 0; half /= 2) all[n] += __shfl_xor_sync(~0u, all[n], half);
    if (t % 32 == 0) warps[n][t / 32] = all[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    all[n] = 0;
    for (int w = 0; w < WARPS; ++w) all[n] += warps[n][w];
    if (K > 1 && t < K) put_far(&blocks[n][blockIdx.y], t, all[n]);
  }
  if (K == 1) return;
  cluster_meets<K>();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    all[n] = 0;
    for (int k = 0; k < K; ++k) all[n] += blocks[n][k];
  }
}

// As `moments`, of rows whose spread is their variance.
template <typename T, int K>
__cluster_dims__(1, K, 1) __launch_bounds__(THREADS, 2)
__global__ void resident_moments(int count, const T* x, int outer, int kept, int inner, float eps,
                                 float* mean, float* spread, float* rate, float fraction,
                                 float correction, float* mean_sum, float* variance_sum,
                                 float* batches, const T* scale, const T* bias, int features,
                                 int places, T* y, T* z, const T* other, T* sum, int relu) {
  const int V = 16 / sizeof(T);
  typedef Pack<T, V> Many;
  struct Both {
    Many x, other;
  };
  extern __shared__ Room held[];
  __shared__ float warps[2][1][WARPS], blocks[2][1][K];
  Many* const own = reinterpret_cast<Many*>(held) + threadIdx.x;
  const Share share({outer, kept, inner / V}, count, 1);
  const int row = share.row;
  float center[1] = {0}, squares[1] = {0};
  int packs = 0;
  if (K > 1) cluster_meets<K>();
  share.each([&](unsigned i) { return reinterpret_cast<const Many*>(x)[i]; },
             [&](unsigned, const Many& pack) {
               own[packs++ * THREADS] = pack;
#pragma unroll
               for (int v = 0; v < V; ++v) center[0] += float(pack.of[v]);
             });
  join(center, warps[0], blocks[0]);
  center[0] /= float(outer * inner);
  for (int p = 0; p < packs; ++p) {
    const Many pack = own[p * THREADS];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float apart = float(pack.of[v]) - center[0];
      squares[0] = fma(apart, apart, squares[0]);
    }
  }
  join(squares, warps[1], blocks[1]);
  squares[0] /= float(outer * inner);
  const float factor = rate_of(squares[0], VARIANCE, eps);
  const Statistics<float> statistics = {mean, spread, rate, fraction, correction, mean_sum, variance_sum, batches};
  if (blockIdx.y == 0 && threadIdx.x == 0) statistics.put(row, center[0], squares[0], factor);
  const Ends<T> ends = {scale, bias, features, places, y, z, other, sum, relu};
  const bool by_row = features == kept && places == inner;
  int p = 0;
  share.each(
      [&](unsigned i) {
        Both pair = {own[p++ * THREADS], {}};
        if (sum) pair.other = reinterpret_cast<const Many*>(other)[i];
        return pair;
      },
      [&](unsigned i, const Both& pair) {
        Many to_y, to_z, to_sum;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float value = rounded(float(pair.x.of[v]) - center[0], factor);
          const auto to = ends.of(value, float(pair.other.of[v]), by_row ? row % kept : ends.feature(i * V + v));
          to_y.of[v] = to.y;
          to_z.of[v] = to.z;
          to_sum.of[v] = to.sum;
        }
        if (y) reinterpret_cast<Many*>(y)[i] = to_y;
        if (z) reinterpret_cast<Many*>(z)[i] = to_z;
        if (sum) reinterpret_cast<Many*>(sum)[i] = to_sum;
      });
}

// As `gradients`, where the sums are over the rows that are normalised, by their variance. With `mask`, dy is what comes
// to a ReLU whose top that is: what passes it goes to `passed`, and on from there.
template <typename T, int K>
__cluster_dims__(1, K, 1) __launch_bounds__(THREADS, 2)
__global__ void resident_gradients(int count, const T* x, const T* y, const T* dy, const T* scale,
                                   int features, int places, const float* mean, const float* rate,
                                   int outer, int kept, int inner, T* dscale, T* dbias, T* g, T* dx,
                                   const T* mask, T* passed) {
  const int V = 16 / sizeof(T);
  typedef Pack<T, V> Many;
  struct Both {
    Many x, dy;
  };
  struct Three {
    Both of;
    Many y;
  };
  extern __shared__ Room held[];
  __shared__ float warps[4][WARPS], blocks[4][K];
  const Share share({outer, kept, inner / V}, count, 1);
  Many* const own = reinterpret_cast<Many*>(held) + threadIdx.x;  // of x; then of dy
  const int row = share.row, beside = share.last - share.first;
  const bool by_row = features == kept && places == inner;
  const float center = mean ? mean[row] : 0, by = mean ? rate[row] : 1;
  const auto plain = [&](T x) { return rounded(float(x) - center, by); };
  const auto g_of = [&](unsigned i, T dy) {
    const float value = scaled<T>(float(dy), scale, by_row ? row % kept : int(i / places % features));
    return g ? float(T(value)) : value;
  };
  float all[4] = {0, 0, 0, 0};  // the sums of dy and dy y, as y is stored; of g and g y
  int packs = 0;
  if (K > 1) cluster_meets<K>();
  share.each(
      [&](unsigned i) {
        const auto from = [=](const T* of) { return reinterpret_cast<const Many*>(of)[i]; };
        Three at = {{from(x), from(dy)}, {}};
        if (y) at.y = from(y);
        if (!mask) return at;
        const Many top = from(mask);
#pragma unroll
        for (int v = 0; v < V; ++v) at.of.dy.of[v] = masked(at.of.dy.of[v], top.of, v);
        return at;
      },
      [&](unsigned i, const Three& at) {
        Many to;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float of_x = plain(at.of.x.of[v]), of_dy = at.of.dy.of[v], here = g_of(i * V + v, at.of.dy.of[v]);
          all[0] += of_dy;
          all[1] = fma(of_dy, y ? float(at.y.of[v]) : of_x, all[1]);
          all[2] += here;
          all[3] = fma(here, of_x, all[3]);
          to.of[v] = T(here);
        }
        if (dx) {
          own[packs * THREADS] = at.of.x;
          own[packs++ * THREADS + beside] = at.of.dy;
        }
        if (mask) reinterpret_cast<Many*>(passed)[i] = at.of.dy;
        if (g) reinterpret_cast<Many*>(g)[i] = to;
      });
  join(all, warps, blocks);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    if (dscale) dscale[row] = T(float(dscale[row]) + all[1]);
    if (dbias) dbias[row] = T(float(dbias[row]) + all[0]);
  }
  if (!dx) return;
  const float one = all[2] / float(outer * inner), rest = all[3] / float(outer * inner);
  int p = 0;
  share.each(
      [&](unsigned) {
        const Many* const at = own + p++ * THREADS;
        return Both{at[0], at[beside]};
      },
      [&](unsigned i, const Both& at) {
        Many to;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          to.of[v] = T(back(g_of(i * V + v, at.dy.of[v]), plain(at.x.of[v]), by, one, rest));
        }
        reinterpret_cast<Many*>(dx)[i] = to;
      });
}
