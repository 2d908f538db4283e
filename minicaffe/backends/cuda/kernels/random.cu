// Philox4x64-10 (Salmon et al. 2011), with NumPy's counter and NumPy's way to a float, so that
// numpy.random.Generator(Philox(key=key)).random(dtype=float32) gives the very same bits.
//
// A block of the stream: counter b + 1 -> four 64-bit words -> eight floats, low halves first.
//   word 0 = [high 32 | low 32] -> float 0 from the low half, float 1 from the high half, ...

struct Block {
  float of[8];

  __device__ Block(unsigned long long block, unsigned long long k0, unsigned long long k1) {
    typedef unsigned long long word;
    word c[4] = {block + 1, 0, 0, 0};
    for (int round = 0; round < 10; ++round) {
      const word high0 = __umul64hi(0xD2E7470EE14C6C93ull, c[0]);
      const word low0 = 0xD2E7470EE14C6C93ull * c[0];
      const word high1 = __umul64hi(0xCA5A826395121157ull, c[2]);
      const word low1 = 0xCA5A826395121157ull * c[2];
      c[0] = high1 ^ c[1] ^ k0;
      c[1] = low1;
      c[2] = high0 ^ c[3] ^ k1;
      c[3] = low0;
      k0 += 0x9E3779B97F4A7C15ull;  // the Weyl sequence that bumps the key between rounds
      k1 += 0xBB67AE8584CAA73Bull;
    }
    for (int i = 0; i < 8; ++i) {
      const unsigned half = (unsigned)(c[i / 2] >> (i % 2 * 32));
      of[i] = float(half >> 8) * float(1.0 / 16777216.0);
    }
  }
};

template <typename T>
__global__ void uniform(int total, unsigned long long key_low, unsigned long long key_high,
                        unsigned long long first, int count, T* out) {
  for (int block = blockIdx.x * blockDim.x + threadIdx.x; block < total;
       block += blockDim.x * gridDim.x) {
    const Block drawn(first / 8 + block, key_low, key_high);
    for (int i = 0; i < 8; ++i) {
      const int at = block * 8 + i - int(first % 8);
      if (0 <= at && at < count) out[at] = T(typename Sum<T>::type(drawn.of[i]));
    }
  }
}

// y = x scale where the number of an entry is `ratio` or more, else 0; `kept` says where. A thread a block
// of the stream, whose key lies in memory, and of which the numbers from `first` on are this array's.
template <typename T>
__global__ void dropout(int total, const unsigned long long* __restrict__ key,
                        unsigned long long first, int count, float ratio,
                        typename Sum<T>::type scale, const T* x, bool* kept, T* y) {
  typedef typename Sum<T>::type S;
  for (int block = blockIdx.x * blockDim.x + threadIdx.x; block < total;
       block += blockDim.x * gridDim.x) {
    const Block drawn(first / 8 + block, key[0], key[1]);
    for (int i = 0; i < 8; ++i) {
      const int at = block * 8 + i - int(first % 8);
      if (at < 0 || at >= count) continue;
      kept[at] = drawn.of[i] >= ratio;
      y[at] = T(S(x[at]) * S(kept[at]) * scale);
    }
  }
}

template <typename T>
__global__ void dropout_gradient(int total, const T* dy, const bool* __restrict__ kept,
                                 typename Sum<T>::type scale, const T* mask, T* dx) {
  typedef typename Sum<T>::type S;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
    dx[i] = masked(T(S(dy[i]) * S(kept[i]) * scale), mask, i);
  }
}
