// What a CUDA kernel needs to run on the host: the words of the language, its built-in functions,
// and a launcher. A launch runs its threads one after the other, each to its end. Where there is a
// barrier (STANDIN_BARRIERS), each runs to the next barrier, on a stack of its own.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <type_traits>
#include <utility>

#define STANDIN  // where a kernel's source has PTX: standin_mma.h has what it does

// NVRTC defines none of these; with its host headers g++ would.
#undef INFINITY
#undef NAN
#undef HUGE_VAL
#undef HUGE_VALF
#undef M_PI
#undef INT_MAX
#undef FLT_MAX
#undef DBL_MAX

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)  // of as many blocks as a grid has along y: see standin_clusters.h
#define __threadfence() ((void)0)  // blocks run one after the other
#ifdef STANDIN_BARRIERS
#define __shared__ static thread_local  // all of them lie in one piece of memory: see poison_shared
#define __syncthreads() standin::barrier(__LINE__)
#else
#define __shared__ _Pragma("GCC error \"__shared__ memory, and no barrier in the source\"")
#endif

struct dim3 {
  unsigned x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;
[[maybe_unused]] static const int warpSize = 32;

#define STANDIN_MIN_MAX(T)                              \
  inline T min(T a, T b) { return b < a ? b : a; }      \
  inline T max(T a, T b) { return a < b ? b : a; }
STANDIN_MIN_MAX(int)
STANDIN_MIN_MAX(unsigned)
STANDIN_MIN_MAX(long)
STANDIN_MIN_MAX(unsigned long)
STANDIN_MIN_MAX(long long)
STANDIN_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }  // as on the device: not the NaN
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#define STANDIN_ATOMIC_ADD(T)                  \
  inline T atomicAdd(T* to, T value) {         \
    const T old = *to;                         \
    *to += value;                              \
    return old;                                \
  }
STANDIN_ATOMIC_ADD(int)
STANDIN_ATOMIC_ADD(unsigned)
STANDIN_ATOMIC_ADD(unsigned long long)
STANDIN_ATOMIC_ADD(float)
STANDIN_ATOMIC_ADD(double)

inline int atomicMax(int* to, int value) {
  const int old = *to;
  *to = value > old ? value : old;
  return old;
}

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / ::sqrt(x); }
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
inline size_t __cvta_generic_to_global(const void* pointer) { return (size_t)pointer; }
inline void* __cvta_global_to_generic(size_t address) { return (void*)address; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (((unsigned long long)high << 32) | low) >> (by & 31);
}
inline int __mulhi(int a, int b) { return (long long)a * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
template <class To, class From>
To standin_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return standin_bits<float>(x); }
inline int __float_as_int(float x) { return standin_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return standin_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return standin_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return standin_bits<double>(x); }
inline long long __double_as_longlong(double x) { return standin_bits<long long>(x); }

// A type of 16 bits: what is computed with it is computed in float and rounded.
#define STANDIN_16_BITS(Name, text, round, widen)                                               \
  struct Name {                                                                                 \
    unsigned short bits;                                                                        \
    Name() = default;                                                                           \
    template <class N, class = std::enable_if_t<std::is_arithmetic_v<N>>>                       \
    Name(N value) : bits(round(float(value))) {}                                                \
    operator float() const { return widen(bits); }                                              \
    operator int() const { return int(widen(bits)); }                                           \
  };                                                                                            \
  template <>                                                                                   \
  struct standin::Text<Name> {                                                                  \
    static constexpr const char* value = text;                                                  \
  };                                                                                            \
  STANDIN_OPERATION(Name, +)                                                                    \
  STANDIN_OPERATION(Name, -)                                                                    \
  STANDIN_OPERATION(Name, *)                                                                    \
  STANDIN_OPERATION(Name, /)                                                                    \
  STANDIN_COMPARISON(Name, <)                                                                   \
  STANDIN_COMPARISON(Name, >)                                                                   \
  STANDIN_COMPARISON(Name, <=)                                                                  \
  STANDIN_COMPARISON(Name, >=)                                                                  \
  STANDIN_COMPARISON(Name, ==)                                                                  \
  STANDIN_COMPARISON(Name, !=)                                                                  \
  inline Name operator-(Name a) { return -float(a); }                                           \
  STANDIN_ATOMIC_ADD(Name)
#define STANDIN_OPERATION(Name, op)                                                             \
  inline Name operator op(Name a, Name b) { return float(a) op float(b); }                      \
  inline Name& operator op##=(Name& a, Name b) { return a = a op b; }
#define STANDIN_COMPARISON(Name, op) \
  inline bool operator op(Name a, Name b) { return float(a) op float(b); }

namespace standin {

template <class T>
struct Text {
  static constexpr const char* value = nullptr;
};

// Writes a type as NumPy writes it: f4, i4, u8, b1; pf4 for a pointer to f4, pv for void*.
template <class T>
void describe(char*& to) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_pointer_v<Plain>) {
    *to++ = 'p';
    describe<std::remove_pointer_t<Plain>>(to);
  } else if constexpr (std::is_void_v<Plain>) {
    *to++ = 'v';
  } else if constexpr (Text<Plain>::value) {
    for (const char* from = Text<Plain>::value; *from; ++from) *to++ = *from;
  } else {
    *to++ = std::is_same_v<Plain, bool>       ? 'b'
            : std::is_floating_point_v<Plain> ? 'f'
            : !std::is_integral_v<Plain>      ? '?'
            : std::is_signed_v<Plain>         ? 'i'
                                              : 'u';
    to += sprintf(to, "%zu", sizeof(T));
  }
}

template <class... A>
const char* describe_all(void (*)(A...)) {
  static char text[8 * sizeof...(A) + 1];
  char* to = text;
  ((describe<A>(to), *to++ = ' '), ...);
  *to = 0;
  return text;
}

using Kernel = void (*)();
using Call = void (*)(Kernel, void**);

template <class... A, size_t... I>
Call call_of(void (*)(A...), std::index_sequence<I...>) {
  return [](Kernel untyped, [[maybe_unused]] void** args) {
    const auto typed = reinterpret_cast<void (*)(A...)>(untyped);
    typed(*static_cast<std::remove_reference_t<A>*>(args[I])...);
  };
}

static Call call;
static Kernel kernel;
static void** arguments;
static char error[160];  // what went wrong, if anything did

static void give_up();  // this thread, and so its launch

// Where something is read or written that does not lie at a multiple of its size, such as a Pack of 16 bytes: on the
// device an error. x86 does not mind, so the compiler looks (-fsanitize=alignment), and tells it here.
struct Mismatch {
  const char* file;
  unsigned line, column;
};
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(Mismatch* where, size_t at) {
  snprintf(error, sizeof error, "a misaligned address, %zu beyond a multiple of 16, in line %u", at % 16, where->line);
  give_up();  // 16 bytes at once x86 minds as well
}
inline void body() { call(kernel, arguments); }  // one thread's run of the kernel

inline void set_thread(unsigned t) {
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
}

// The numbers below count in an order: forward, reversed (1), or drawn anew each time (2).
inline void arrange(unsigned* to, unsigned count, int order) {
  static unsigned drawn = 1;
  for (unsigned i = 0; i < count; ++i) to[i] = order == 1 ? count - 1 - i : i;
  for (unsigned i = order == 2 ? count : 0; i > 1; --i) {  // Marsaglia's xorshift
    drawn ^= drawn << 13, drawn ^= drawn >> 17, drawn ^= drawn << 5;
    const unsigned other = drawn % i, last = to[i - 1];
    to[i - 1] = to[other], to[other] = last;
  }
}

#ifdef STANDIN_BARRIERS
}  // namespace standin
#include <standin_barriers.h>
#include <standin_clusters.h>
#include <standin_warps.h>
#include <standin_mma.h>
namespace standin {
#else
static jmp_buf launcher;
static void give_up() { _longjmp(launcher, 1); }
inline bool within(size_t bytes) { return !bytes; }
inline void run_cluster(unsigned, unsigned threads, int order) {
  static unsigned turns[1024];
  arrange(turns, threads, order);
  if (_setjmp(launcher)) return;
  for (unsigned step = 0; step < threads; ++step) {
    set_thread(turns[step]);
    body();
  }
}
#endif

// Every block in turn and every thread of it, counted as CUDA does (x fastest); or in another order. Gives
// what went wrong.
inline const char* launch(dim3 grid, dim3 block, size_t shared, int order) {
#ifdef STANDIN_CLUSTERS
  const unsigned together = grid.y;
#else
  const unsigned together = 1;
#endif
  const unsigned rows = grid.y / together;
  const unsigned long long blocks = (unsigned long long)grid.x * rows * grid.z;
  gridDim = grid;
  blockDim = block;
  *error = 0;
  for (unsigned long long step = 0; step < blocks && !*error; ++step) {
    const unsigned long long b = order ? blocks - 1 - step : step;
    blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % rows), unsigned(b / grid.x / rows)};
    run_cluster(together, block.x * block.y * block.z, order);
    if (!within(shared) && !*error) snprintf(error, sizeof error, "more shared memory than the launch says");
  }
  return *error ? error : nullptr;
}

template <class... A>
const char* launch(void (*typed)(A...), const unsigned* size, void** args, int order) {
  call = call_of(typed, std::index_sequence_for<A...>());
  kernel = Kernel(typed);
  arguments = args;
  return launch({size[0], size[1], size[2]}, {size[3], size[4], size[5]}, size[6], order);
}

}  // namespace standin

#define STANDIN_EXPORT(number, ...)                                                              \
  extern "C" const char* standin_types_##number() { return standin::describe_all(__VA_ARGS__); } \
  extern "C" const char* standin_launch_##number(const unsigned* size, void** args, int order) { \
    return standin::launch(__VA_ARGS__, size, args, order);                                      \
  }
