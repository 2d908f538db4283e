"""The stand-in's kernels: launches, memory, barriers, 16 bits, and what does not compile."""

import numpy as np
import pytest
from loaded_stand_in import EXTERN, cupy, fresh, kernel  # noqa: F401

ORDERS = "forward", "reversed", "random"

AXPY = """
template <typename T>
__global__ void axpy(int total, T scale, const T* x, T* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x)
    y[i] += scale * x[i];
}
"""


@pytest.mark.parametrize(("ctype", "dtype"), [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_template_kernel_computes(ctype, dtype, blocks):
    axpy = kernel(AXPY, f"axpy<{ctype}>", [f"axpy<{ctype}>"])
    x, y = cupy.arange(1000, dtype=dtype), cupy.ones(1000, dtype)
    axpy((blocks,), (64,), (np.int32(1000), dtype(2), x, y))
    np.testing.assert_array_equal(y.get(), 1 + 2 * np.arange(1000))


def test_threads_and_blocks_have_three_dimensions():
    f = kernel(
        EXTERN
        + """void f(int* out) {
          int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
          int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
          out[block * 24 + thread] += block * 24 + thread;
        }"""
    )
    out = cupy.zeros(24 * 6, np.int32)
    f((1, 2, 3), (2, 3, 4), (out,))
    np.testing.assert_array_equal(out.get(), np.arange(24 * 6))


@pytest.mark.parametrize("offset", [-1, 10, 1000])
def test_a_write_out_of_bounds_is_caught(offset):
    f = kernel(EXTERN + "void f(int i, float* x) { x[i] = 0; }")
    f((1,), (1,), (np.int32(9), cupy.empty(10, np.float32)))
    with pytest.raises(MemoryError, match="f wrote outside its argument 1"):
        f((1,), (1,), (np.int32(offset), cupy.empty(10, np.float32)))


def test_memory_nobody_wrote_shows():
    f = kernel(EXTERN + "void f(int i, const float* x, float* y) { *y = x[i]; }")
    for i in (0, -1, 10):
        y = cupy.zeros(1, np.float32)
        f((1,), (1,), (np.int32(i), cupy.empty(10, np.float32), y))
        assert np.isnan(y.get()[0])
    assert (cupy.empty(3, np.int32).get() == -1).all()


@pytest.mark.parametrize(
    ("index", "bad", "message"),
    [
        (0, 1, "argument 0: expected i4, got i8"),
        (0, np.uint32(1), "expected i4, got u4"),
        (1, 2.0, "argument 1: expected f4, got f8"),
        (1, np.int32(2), "expected f4, got i4"),
        (2, np.zeros(3, np.float32), "argument 2: Unsupported type"),
        (2, np.float32(2), "expected pf4, got f4"),
        (3, cupy.zeros(3, np.float64), "expected pf4, got pf8"),
        (3, cupy.zeros(3, np.int32), "expected pf4, got pi4"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused(index, bad, message):
    axpy = kernel(AXPY, "axpy<float>", ["axpy<float>"])
    args = [np.int32(3), np.float32(2), cupy.ones(3, np.float32), cupy.ones(3, np.float32)]
    axpy((1,), (4,), args)
    args[index] = bad
    with pytest.raises(TypeError, match=f"axpy<float>.*{message}"):
        axpy((1,), (4,), args)
    with pytest.raises(TypeError, match="takes 4 arguments, not 3"):
        axpy((1,), (4,), args[:3])


def test_null_and_untyped_pointers_may_be_passed():
    f = kernel(EXTERN + "void f(const float* x, void* y) { if (!x) *(int*)y = 7; }")
    y = cupy.zeros(1, np.int32)
    f((1,), (1,), (None, y))
    assert y.item() == 7


@pytest.mark.parametrize(
    ("grid", "block"), [((0,), (1,)), ((1,), (1025,)), ((1,), (32, 33)), ((1, 65536), (1,))]
)
def test_a_launch_cuda_would_refuse(grid, block):
    f = kernel(EXTERN + "void f() {}")
    with pytest.raises(ValueError, match="f: "):
        f(grid, block, ())
    with pytest.raises(TypeError, match="not a tuple"):
        f(1, (1,), ())


def test_a_race_shows_in_the_reversed_order(monkeypatch):
    f = kernel(EXTERN + "void f(int* x) { *x = blockIdx.x * blockDim.x + threadIdx.x; }")
    results = []
    for order in ("forward", "reversed"):
        monkeypatch.setattr(cupy, "thread_order", order)
        x = cupy.zeros(1, np.int32)
        f((2,), (3,), (x,))
        results.append(x.item())
    assert results == [5, 0]


def test_built_in_functions():
    f = kernel(
        EXTERN
        + """void f(double* d, unsigned long long* u, float* s, int* n) {
          atomicAdd(d, 0.5); atomicAdd(s, 0.5f); atomicAdd(n, 2);
          u[0] = __umul64hi(~0ull, 3); u[1] = __umulhi(~0u, 3u);
          s[1] = fmaxf(min(1.0f, 2.0f), exp(0.0f)) + isnan(s[0]);
          s[2] = __int_as_float(0x7f800000);
        }"""
    )
    d, s = cupy.zeros(1), cupy.zeros(3, np.float32)
    u, n = cupy.zeros(2, np.uint64), cupy.zeros(1, np.int32)
    f((2,), (2,), (d, u, s, n))
    assert (d.item(), u.tolist(), n.item()) == (2.0, [2, 2], 8)
    assert s.tolist() == [2.0, 1.0, np.inf]


REVERSE = """
template <int N, bool WAIT>
__global__ void reverse(const float* x, float* y) {
  __shared__ float s[N];
  for (int row = blockIdx.x; row < 4; row += gridDim.x) {
    s[threadIdx.x] = x[row * N + threadIdx.x];
    if (WAIT) __syncthreads();
    y[row * N + threadIdx.x] = s[N - 1 - threadIdx.x];
    __syncthreads();
  }
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 3, 4])
def test_threads_meet_at_a_barrier(monkeypatch, order, blocks):
    monkeypatch.setattr(cupy, "thread_order", order)
    f = kernel(REVERSE, "reverse<257, true>", ["reverse<257, true>"])
    host = np.random.default_rng(0).random((4, 257), np.float32)
    y = cupy.zeros((4, 257), np.float32)
    f((blocks,), (257,), (cupy.asarray(host), y))
    np.testing.assert_array_equal(y.get(), host[:, ::-1])


@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_a_missing_barrier_shows(monkeypatch, order):
    """What another thread has yet to write is NaN, in every block anew."""
    monkeypatch.setattr(cupy, "thread_order", order)
    f = kernel(REVERSE, "reverse<4, false>", ["reverse<4, false>"])
    y = cupy.zeros((4, 4), np.float32)
    f((4,), (4,), (cupy.ones((4, 4), np.float32), y))
    expected = [1, 1, np.nan, np.nan] if order == "reversed" else [np.nan, np.nan, 1, 1]
    np.testing.assert_array_equal(y.get(), [expected] * 4)


ACROSS = """void f(const unsigned* x, unsigned* y) {
  __shared__ unsigned s[64][4];
  for (int k = 0; k < 4; ++k) s[threadIdx.x][k] = x[4 * threadIdx.x + k];
  WAIT
  unsigned to[2];
  fragments(to, s[(threadIdx.x + 32) % 64]);
  y[threadIdx.x] = to[0];
  __syncthreads();
}"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_warp_that_multiplies_waits_for_no_other(monkeypatch, order):
    """A barrier of the block that is missing before it shows."""
    monkeypatch.setattr(cupy, "thread_order", order)
    x, y = cupy.arange(256, dtype=np.uint32), cupy.zeros(64, np.uint32)
    kernel(EXTERN + ACROSS.replace("WAIT", "__syncthreads();"))((1,), (64,), (x, y))
    np.testing.assert_array_equal(y.get(), x.get().reshape(2, -1)[::-1, :32].ravel())
    kernel(EXTERN + ACROSS.replace("WAIT", ""))((1,), (64,), (x, y))
    assert (y.get() == 2**32 - 1).sum() == 32


@pytest.mark.parametrize("rest", ["", "__syncthreads();"])
def test_a_misaligned_address_is_an_error(rest):
    """Of 8 bytes, which this processor does not mind, and of 16, which end the process where it minds."""
    code = (
        "struct alignas(8) Two { float a, b; };\nstruct alignas(16) Four { Two a, b; };\n" + EXTERN
    )
    y = "((float*)y)[2] = ((const Two*)x)->b; ((Four*)y)[1] = *(const Four*)x;"
    f = kernel(f"{code}void f(const float* x, void* y) {{ {y} {rest} }}")
    x, y = cupy.arange(9, dtype=np.float32), cupy.zeros(8, np.float32)
    f((1,), (1,), (x[4:], y))
    assert y.tolist() == [0, 0, 5, 0, 4, 5, 6, 7]
    for at in (1, 2):
        message = f"f: a misaligned address, {4 * at} beyond .* in line 3"
        with pytest.raises(RuntimeError, match=message):
            f((1,), (2,), (x[at:], y))


LANES = """void f(const float* x, float* y, unsigned* votes) {
  const unsigned t = threadIdx.x;
  y[t] = __shfl_down_sync(~0u, x[t], 3) + 1000 * __shfl_xor_sync(~0u, x[t], 5);
  votes[t] = __ballot_sync(~0u, x[t] > 20);
  __syncwarp(MASK);
}"""


@pytest.mark.parametrize("order", ORDERS)
def test_the_lanes_of_a_warp_read_each_other(monkeypatch, order):
    """What lies beyond the last is a lane's own; a meeting of fewer is an error."""
    monkeypatch.setattr(cupy, "thread_order", order)
    host, lane = np.arange(64, dtype=np.float32).reshape(2, 32), np.arange(32)
    y, votes = cupy.zeros(64, np.float32), cupy.zeros(64, np.uint32)
    args = (1,), (64,), (cupy.asarray(host.ravel()), y, votes)
    kernel(EXTERN + LANES.replace("MASK", ""))(*args)
    down = np.where(lane + 3 < 32, lane + 3, lane)
    np.testing.assert_array_equal(y.get(), (host[:, down] + 1000 * host[:, lane ^ 5]).ravel())
    wanted = [sum(1 << i for i in lane if row[i] > 20) for row in host]
    np.testing.assert_array_equal(votes.get(), np.repeat(wanted, 32))
    with pytest.raises(RuntimeError, match="fewer lanes than a warp has: mask ff"):
        kernel(EXTERN + LANES.replace("MASK", "255"))(*args)


TURNED = """template <int K>
__global__ __cluster_dims__(1, K, 1) void turned(const int* x, int* y) {
  extern __shared__ int own[];
  __shared__ int sums[K];
  own[threadIdx.x] = x[blockIdx.y * 40 + threadIdx.x];
  BEGUN
  if (threadIdx.x < K) put_far(sums + blockIdx.y, threadIdx.x, own[threadIdx.x]);
  MET
  if (threadIdx.x < K) y[(blockIdx.x * K + blockIdx.y) * K + threadIdx.x] = sums[threadIdx.x];
  ENDED
}"""


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster_write_into_each_other(monkeypatch, order):
    """Each has shared memory of its own, NaN at first; no more of it than the launch says."""
    monkeypatch.setattr(cupy, "thread_order", order)

    def run(blocks=4, size=160, **words):
        code = TURNED
        for word in ("BEGUN", "MET", "ENDED"):
            code = code.replace(
                word, words.get(word, "cluster_meets<K>();" if word != "ENDED" else "")
            )
        y = cupy.zeros(2 * 4 * 4, np.int32)
        args = cupy.arange(8 * 40, dtype=np.int32), y
        kernel(code, "turned<4>", ["turned<4>"])((2, blocks), (40,), args, shared_mem=size)
        return y.get().reshape(2, 4, 4)

    np.testing.assert_array_equal(run()[1], np.arange(4)[:, None] + 40 * np.arange(4))
    assert (run(MET="", ENDED="cluster_meets<K>();") < 0).any()  # another had not written yet
    for message, wrong in {
        "a cluster of 4 blocks of 2": {"blocks": 2},
        "a cluster of 12 blocks, of 8 at the most": {"blocks": 12},
        "more shared memory than the launch says": {"size": 156},
        "which may not have begun": {"BEGUN": ""},
        "a block may have ended before another wrote": {"MET": ""},
        "a meeting that not all blocks of a cluster": {
            "ENDED": "if (blockIdx.y) cluster_meets<K>();"
        },
        "thread 0 has ended, thread 1 waits for its cl": {
            "ENDED": "if (threadIdx.x) cluster_meets<K>();"
        },
    }.items():
        with pytest.raises(RuntimeError, match=message):
            run(**wrong)
    with pytest.raises(ValueError, match="CUDA_ERROR_INVALID_VALUE: 50000 bytes shared"):
        run(size=50000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "unsigned to[2], row[4] = {}; if (threadIdx.x) fragments(to, row);__syncthreads();",
            "0's",
        ),
        ("if (threadIdx.x < 3) return;\n__syncthreads();", "0 has ended, thread 3 waits in line 2"),
        ("if (threadIdx.x)\n__syncthreads();", "0 has ended, thread 1 waits in line 2"),
        (
            "if (threadIdx.x < 2)\n__syncthreads();\nelse\n__syncthreads();",
            "0 waits in line 2, thread 2 waits in line 4",
        ),
    ],
)
def test_a_barrier_that_not_all_threads_reach_is_an_error(body, message):
    f = kernel(EXTERN + "void f() { " + body + " }")
    for threads in (8, 5):
        with pytest.raises(RuntimeError, match=f"f: a barrier .*: thread {message}"):
            f((2,), (threads,), ())


@pytest.mark.parametrize("values", ["all", "halfway"])
def test_16_bits_round_as_numpy_does(values):
    code = """#include <cuda_fp16.h>
    extern "C" __global__ void f(int total, const float* x, __half* y, float* back) {
      for (int i = threadIdx.x; i < total; i += blockDim.x) {
        y[i] = __half(x[i]);
        back[i] = float(y[i]) + float(y[i] * y[i] - y[i]);
      }
    }"""
    x = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    if values == "halfway":  # between each finite number and the next, and a little to either side
        x = x[np.isfinite(x)]
        middle = np.float32((x[:-1].astype(float) + x[1:]) / 2)
        x = np.concatenate([np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)])
        x = np.concatenate([x, middle, np.float32([65519.996, 65520, 1e9, -1e9, 1e-9])])
    y, back = cupy.empty(x.size, np.float16), cupy.empty(x.size, np.float32)
    kernel(code)((1,), (64,), (np.int32(x.size), cupy.asarray(x), y, back))
    with np.errstate(all="ignore"):
        half = x.astype(np.float16)
        expected = half.astype(np.float32) + (half * half - half).astype(np.float32)
    np.testing.assert_array_equal(y.get(), half)
    np.testing.assert_array_equal(back.get(), expected)


def test_bfloat16_rounds_to_the_nearest_even():
    code = """#include <cuda_bf16.h>
    extern "C" __global__ void f(const float* x, unsigned short* y, float* back) {
      const __nv_bfloat16 value = x[threadIdx.x];
      y[threadIdx.x] = value.bits;
      back[threadIdx.x] = value;
    }"""
    finite = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F817FFF, 0xBF808000, 0x7F7FFFFF]
    bits = np.uint32([*finite, 0x7F800000, 0x7FA00000])
    expected = np.uint16([0x3F80, 0x3F82, 0x3F81, 0x3F81, 0xBF80, 0x7F80, 0x7F80, 0x7FFF])
    y, back = cupy.empty(8, np.uint16), cupy.empty(8, np.float32)
    kernel(code)((1,), (8,), (cupy.asarray(bits.view(np.float32)), y, back))
    np.testing.assert_array_equal(y.get(), expected)
    np.testing.assert_array_equal(back.get().view(np.uint32), expected.astype(np.uint32) << 16)


@pytest.mark.parametrize("header", ["cuda_fp16.h", "cuda_bf16.h"])
def test_16_bits_as_strict_as_cuda(header):
    """Which of two ways a mixed expression goes nobody knows; atomics and comparisons are there."""
    name = {"cuda_fp16.h": "__half", "cuda_bf16.h": "__nv_bfloat16"}[header]
    head = f"#include <{header}>\ntypedef {name} T;\n{EXTERN}"
    with pytest.raises(cupy.cuda.compiler.CompileException, match="ambiguous"):
        kernel(head + "void f(T* x) { x[0] = x[1] + 1.0f; }")
    f = kernel(
        head + "void f(int* out, float* sum) { T x = 1; atomicAdd(&x, T(0.5)); x += x;"
        "*out = x > T(2) && !(x == T(2)) && -x < x; *sum = x; }"
    )
    out, total = cupy.zeros(1, np.int32), cupy.zeros(1, np.float32)
    f((1,), (1,), (out, total))
    assert (out.item(), total.item()) == (1, 3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("__shared__ float s[4]; s[0] = 1;", "__shared__ memory, and no barrier in the source"),
        ("__half x = 1; (void)x;", "__half.* was not declared"),
        ("std::min(1, 2);", "NVRTC has no host headers: std::min"),
        ("uint32_t x = 1; (void)x;", "NVRTC has no host headers: uint32_t"),
        ("float x = INFINITY; (void)x;", "INFINITY.* was not declared"),
        ("int unused = 1;", "unused"),
    ],
)
def test_what_does_not_compile(body, message):
    with pytest.raises(cupy.cuda.compiler.CompileException, match=message):
        kernel(EXTERN + "void f() { " + body + " }")


def test_a_kernel_is_found_by_what_cuda_would_know_it_by():
    with pytest.raises(RuntimeError, match="NOT_FOUND"):
        kernel("__global__ void f() {}")
    kernel("__global__ void f() {}", expressions=["f"])
    module = cupy.RawModule(code=EXTERN + "void f(int* x) { *x = SIZE; }", options=("-DSIZE=3",))
    x = cupy.zeros(1, np.int32)
    module.get_function("f")((1,), (1,), (x,))
    assert x.item() == 3


def test_no_compiler_is_said(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    module = cupy.RawModule(code=EXTERN + "void f(float* not_compiled_before) {}")
    with pytest.raises(cupy.CompilerMissingError, match="no-such-compiler"):
        module.get_function("f")
