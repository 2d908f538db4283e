"""The stand-in for CuPy that the other tests run the CUDA path on: what it computes and refuses."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent / "standin"
EXTERN = 'extern "C" __global__ '


def load_stand_in():
    """The stand-in under a name of its own: this process may have the real CuPy imported."""
    spec = importlib.util.spec_from_file_location("stand_in", HERE / "cupy" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["stand_in"] = module
    spec.loader.exec_module(module)
    return module


cupy = load_stand_in()
cublas = importlib.import_module("stand_in.cublas")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(cupy, "thread_order", "forward")
    monkeypatch.setattr(cupy, "allocations", 0)
    monkeypatch.setattr(cupy, "synchronizations", 0)


def kernel(code, name="f", expressions=None):
    try:
        return cupy.RawModule(code=code, name_expressions=expressions).get_function(name)
    except cupy.CompilerMissingError as error:
        pytest.skip(str(error))


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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("__shared__ float s[4];", "the stand-in has no __shared__ memory"),
        ("__syncthreads();", "the stand-in has no barrier: __syncthreads"),
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


HOST = np.ones((2, 3), np.float32)
MIXES = {
    "device + host": lambda x: x + HOST,
    "host + device": lambda x: HOST + x,
    "device += host": lambda x: x.__iadd__(HOST),
    "host += device": lambda x: HOST.__iadd__(x),
    "ufunc": lambda x: cupy.add(x, HOST),
    "NumPy's ufunc": lambda x: np.add(HOST, x),
    "out=": lambda x: cupy.add(x, x, out=HOST),
    "matmul": lambda x: cupy.matmul(x, HOST.T),
    "sum": lambda x: cupy.sum(HOST),
    "where": lambda x: cupy.where(x > 0, x, HOST),
    "concatenate": lambda x: cupy.concatenate([x, HOST]),
    "NumPy's function": lambda x: np.concatenate([x, HOST]),
    "copyto": lambda x: cupy.copyto(x, HOST),
    "copyto host": lambda x: np.copyto(HOST, x),
    "device[...] =": lambda x: x.__setitem__(..., HOST),
    "host[...] =": lambda x: HOST.__setitem__(..., x),
    "asarray": lambda x: np.asarray(x),
    "array": lambda x: np.array([x, x]),
    "a NumPy scalar array": lambda x: x + np.array(1.0),
    "gemm": lambda x: cublas.gemm("N", "T", x, HOST),
    "set a list": lambda x: x.set([[1, 2, 3], [4, 5, 6]]),
    "where=": lambda x: cupy.add(x, x, where=x > 0),
    "mode=": lambda x: cupy.take(x, 0, mode="clip"),
}


@pytest.mark.parametrize("mix", MIXES)
def test_host_and_device_do_not_mix(mix):
    x = cupy.ones((2, 3), np.float32)
    with pytest.raises(TypeError):
        MIXES[mix](x)
    np.testing.assert_array_equal(HOST, 1)


def test_arithmetic_is_numpys():
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = cupy.asarray(host)
    for device, expected in [
        (2 * x - np.float32(1), 2 * host - np.float32(1)),
        (-(x**2) / 3, -(host**2) / 3),
        (x[1:, ::2].T @ x[1:], host[1:, ::2].T @ host[1:]),
        (cupy.maximum(x, 5).sum(axis=1, keepdims=True), np.maximum(host, 5).sum(1, keepdims=True)),
        (cupy.where(x > 3, x, 0), np.where(host > 3, host, 0)),
        (cupy.take(x, np.array([2, 0]), axis=1), host[:, [2, 0]]),
        (cupy.log(x), np.array([-np.inf, *np.log(host.flat[1:])], np.float32).reshape(3, 4)),
        (x[x > 3], host[host > 3]),
        (np.exp(x).argmax(axis=1), host.argmax(axis=1)),
        (x.reshape(2, 6)[1, 2], host[2, 0]),
    ]:
        assert isinstance(device, cupy.ndarray) and device.dtype == expected.dtype
        np.testing.assert_array_equal(device.get(), expected)


def test_views_share_memory():
    x = cupy.zeros((3, 4))
    x[1][2:] = 5
    x.T.reshape(2, 2, 3)[0, 0, 0] = 7  # a copy: the transpose is not contiguous
    x.ravel()[0] = 1
    np.testing.assert_array_equal(x.get(), [[1, 0, 0, 0], [0, 0, 5, 5], [0, 0, 0, 0]])


def test_set_and_get_check_as_cupy_does():
    x = cupy.zeros((2, 3), np.float32)
    x.set(np.asfortranarray(HOST))
    out = np.empty((2, 3), np.float32)
    assert x.get(out=out) is out and (out == 1).all()
    for bad, kind in [(HOST.astype(float), TypeError), (HOST[:1], ValueError)]:
        with pytest.raises(kind):
            x.set(bad)
    with pytest.raises(RuntimeError, match="non-contiguous"):
        x[:, 1:].set(HOST[:, 1:])


def test_waiting_for_the_device_is_counted():
    x, event = cupy.ones(()), cupy.cuda.Event()
    event.record()
    x += 1
    assert cupy.synchronizations == 0
    waits = [x.get, x.item, x.tolist, event.synchronize, cupy.cuda.Device().synchronize]
    waits += [lambda: bool(x), lambda: float(x), lambda: int(x), lambda: cupy.asnumpy(x)]
    waits += [cupy.cuda.get_current_stream().synchronize, lambda: x[x > 0], lambda: str(x)]
    for number, wait in enumerate(waits, 1):
        wait()
        assert cupy.synchronizations == number


def test_a_step_that_allocates_nothing():
    x, y, z, total = cupy.ones((4, 4)), cupy.ones((4, 4)), cupy.ones((4, 4)), cupy.empty(4)
    index, batch = cupy.zeros(4, np.int64), cupy.ones((2, 4, 4))
    before = cupy.allocations
    x += 1
    cupy.multiply(x, 2, out=y)
    cupy.sum(x, axis=0, out=total)
    cupy.argmax(x, axis=1, out=index)
    cupy.take(x, index, axis=0, out=y)
    cupy.matmul(x.T, y, out=z)
    cupy.matmul(batch[0], batch[1], out=z)
    cupy.matmul(batch[:1], batch[1:], out=z[None])
    cublas.gemm("T", "N", x, y.T, out=z, beta=1)
    y[:2].T.fill(3)
    y[1:] = x[1:]
    assert cupy.allocations == before


ALLOCATING = {
    "no out=": lambda x, y: x + 1,
    "a reduction": lambda x, y: x.sum(),
    "an upload": lambda x, y: cupy.asarray(np.ones(3)),
    "a reshape that copies": lambda x, y: x.T.ravel(),
    "a cast": lambda x, y: x.astype(np.float32),
    "out= another view of the input": lambda x, y: cupy.add(x, 1, out=x[...]),
    "matmul of a strided matrix": lambda x, y: cupy.matmul(x[:, ::2], x[:2], out=y),
    "matmul into a transpose": lambda x, y: cupy.matmul(x, x, out=y.T),
    "matmul over its operand": lambda x, y: cupy.matmul(x, x, out=x),
    "an inner product": lambda x, y: cupy.dot(x[0], x[1], out=y[0, 0]),
    "a batch transposed": lambda x, y: cupy.matmul(x[None].swapaxes(1, 2), x[None], out=y[None]),
    "a batch broadcast": lambda x, y: cupy.matmul(x, x[None], out=y[None]),
}


@pytest.mark.parametrize("case", ALLOCATING)
def test_allocations_are_counted(case):
    x, y = cupy.ones((4, 4)), cupy.ones((4, 4))
    before = cupy.allocations
    ALLOCATING[case](x, y)
    assert cupy.allocations == before + 1


def test_memory_is_given_back():
    before = cupy.get_default_memory_pool().used_bytes()
    x = cupy.empty(1000, np.float32)
    view = x[10:]
    del x
    assert cupy.get_default_memory_pool().used_bytes() == before + 4000
    del view
    assert cupy.get_default_memory_pool().used_bytes() == before


def layouts(rows, columns, rng):
    host = rng.standard_normal((rows, columns)).astype(np.float32)
    spread = cupy.zeros((2 * rows, 3 * columns), np.float32)
    spread[::2, ::3] = cupy.asarray(host)
    return cupy.asarray(host), cupy.asarray(np.asfortranarray(host)), spread[::2, ::3]


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("transb", "NT")
@pytest.mark.parametrize("transa", "NT")
def test_gemm_on_every_layout(transa, transb, beta):
    rng = np.random.default_rng(0)
    for a in layouts(*((2, 5) if transa == "N" else (5, 2)), rng):
        for b in layouts(*((5, 3) if transb == "N" else (3, 5)), rng):
            left = a.get() if transa == "N" else a.get().T
            right = b.get() if transb == "N" else b.get().T
            for out in layouts(2, 3, rng):
                expected = 2 * (left @ right) + (beta * out.get() if beta else 0)
                strided = sum(
                    not (x.flags.c_contiguous or x.flags.f_contiguous) for x in (a, b, out)
                )
                before = cupy.allocations
                if not beta:
                    out.fill(np.nan)  # not to be read
                result = cublas.gemm(transa, transb, a, b, out=out, alpha=2.0, beta=beta)
                assert result is out and cupy.allocations - before == strided
                np.testing.assert_allclose(out.get(), expected, rtol=1e-5)


def test_gemm_refuses_what_cupys_refuses():
    a, b = cupy.ones((2, 3)), cupy.ones((3, 4))
    assert cublas.gemm("N", "N", a, b).flags.f_contiguous
    for args in [("N", "T", a, b), ("N", "N", a, b.astype(np.float32)), ("N", "N", a[0], b)]:
        with pytest.raises(AssertionError):
            cublas.gemm(*args)
    with pytest.raises(TypeError, match="invalid trans"):
        cublas.gemm("X", "N", a, b)
    with pytest.raises(AssertionError):
        cublas.gemm("N", "N", a, b, out=cupy.ones((4, 2)))


def test_the_device():
    cuda = cupy.cuda
    assert cuda.runtime.getDeviceCount() == 1 and cuda.is_available()
    assert cuda.runtime.getDeviceProperties(0)["name"].startswith(b"stand-in")
    with cuda.Device(0) as device:
        assert device.id == cupy.ones(1).device.id == 0
        assert 0 < device.mem_info[0] <= device.mem_info[1]
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="invalid device ordinal"):
        cuda.Device(1).use()
    first, last = cuda.Event(), cuda.Event()
    first.record()
    last.record()
    assert cuda.get_elapsed_time(first, last) >= 0


def python(code, **environment):
    """What a Python of its own prints, as JSON."""
    environment = {**os.environ, **environment}
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_it_is_found_as_cupy_on_the_path():
    code = "import cupy; from cupy import cublas; from cupy.cuda import runtime, Device; "
    code += "print('[%d, \"%s\"]' % (cupy.is_stand_in, cupy.thread_order))"
    assert python(code, PYTHONPATH=str(HERE), STANDIN_ORDER="reversed") == [1, "reversed"]


OWN_NAMES = {"is_stand_in", "synchronizations", "allocations", "thread_order", "ALL"}
OWN_NAMES |= {"CompilerMissingError"}

COMPARE = """
import inspect, json, os, warnings
warnings.simplefilter("ignore")
import cupy
wrong = []
names, parameters, ufuncs = json.loads(os.environ["OWN"])
for where, own in names.items():
    place = getattr(cupy, where) if where else cupy
    wrong += [f"{where}.{name}" for name in own if not hasattr(place, name)]
for name, (positional, named) in parameters.items():
    real = list(inspect.signature(getattr(cupy, name)).parameters)
    if real[: len(positional)] != positional or not set(named) <= set(real):
        wrong.append(f"{name}{real}")
wrong += [name for name in ufuncs if not isinstance(getattr(cupy, name), cupy.ufunc)]
print(json.dumps(wrong))
"""


def test_it_has_nothing_that_cupy_lacks():
    if "cupy" not in importlib.metadata.packages_distributions():
        pytest.skip("the real CuPy is not installed")
    functions = sys.modules["stand_in._functions"]
    parameters = {
        name: (inspect.getfullargspec(value).args, inspect.getfullargspec(value).kwonlyargs)
        for name, value in vars(cupy).items()
        if inspect.isfunction(value) and name not in {*functions.FUNCTIONS, "matmul"}
    }
    for name, (positional, named) in functions.FUNCTIONS.items():
        parameters[name] = (positional.split(), named.split())
    cuda = ["Device", "Event", "Stream", "get_elapsed_time", "get_current_stream", "runtime"]
    public = [name for name in vars(cupy) if name[0] != "_" and name not in OWN_NAMES]
    names = {
        "": [name for name in public if not inspect.ismodule(getattr(cupy, name))],
        "ndarray": [name for name in vars(cupy.ndarray) if not name.startswith("_")],
        "cuda": cuda,
    }
    own = json.dumps([names, parameters, functions.UFUNCS.split()])
    path = os.pathsep.join(place for place in sys.path if place and Path(place) != HERE)
    assert python(COMPARE, OWN=own, PYTHONPATH=path) == []
