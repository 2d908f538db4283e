"""The stand-in for CuPy that the other tests run the CUDA path on: what it computes and refuses."""

import importlib
import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from loaded_stand_in import HERE, cupy, fresh  # noqa: F401

cublas = importlib.import_module("stand_in.cublas")

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
    "a reduction": lambda x, y: x.sum(axis=0),
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


COUNT = cupy.empty((), np.int64)
TWICE = {
    "of all": lambda x, out: cupy.sum(x, out=out[0, 0]),
    "its maximum": lambda x, out: x.max(out=out[0, 0]),
    "of rows": lambda x, out: cupy.sum(x, axis=1, out=out[0]),
    "of columns in Fortran's order": lambda x, out: cupy.sum(x.T, axis=0, out=out[0]),
    "of one number": lambda x, out: cupy.sum(x[0, 0], out=out[0, 0]),
}
NOT_AT_ALL = {
    "of columns": lambda x, out: cupy.sum(x, axis=0, out=out[0]),
    "of another type": lambda x, out: cupy.sum(x > 0, out=COUNT),
    "into another type": lambda x, out: cupy.sum(x, dtype=np.float64, out=out.astype(float)[0, 0]),
    "with an axis behind": lambda x, out: x[:, :, None].max(
        axis=1, keepdims=True, out=out[:, :1, None]
    ),
}


@pytest.mark.parametrize("case", [*TWICE, *NOT_AT_ALL])
def test_cub_takes_memory_for_what_it_reduces(case):
    """CuPy hands these to CUB, which makes the result apart, in work of its own; it is copied to `out`."""
    x, out = cupy.ones((4, 4), np.float32), cupy.ones((4, 4), np.float32)
    before = cupy.allocations
    (TWICE | NOT_AT_ALL)[case](x, out)
    extra = {"of another type": 1, "into another type": 1}  # x > 0, and astype
    assert cupy.allocations - before == (2 if case in TWICE else extra.get(case, 0))


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
                np.testing.assert_allclose(out.get(), expected, rtol=1e-5, atol=1e-6)


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


def strided(a, b, c, **given):
    """Arguments of gemmStridedBatchedEx for c[i] = a[i] b[i], all counted down the columns."""
    runtime, blas = cupy.cuda.runtime, cupy.cuda.cublas
    (count, k, m), n = a.shape, b.shape[1]
    scalars = np.array([1, 0], np.float32)
    args = {
        "handle": cupy.cuda.get_cublas_handle(), "transa": 0, "transb": 0, "m": m, "n": n, "k": k,
        "alpha": scalars.ctypes.data, "A": a.data.ptr, "Atype": runtime.CUDA_R_32F, "lda": m,
        "strideA": m * k, "B": b.data.ptr, "Btype": runtime.CUDA_R_32F, "ldb": k, "strideB": k * n,
        "beta": scalars.ctypes.data + 4, "C": c.data.ptr, "Ctype": runtime.CUDA_R_32F, "ldc": m,
        "strideC": m * n, "batchCount": count, "computeType": blas.CUBLAS_COMPUTE_32F,
        "algo": blas.CUBLAS_GEMM_DEFAULT,
    }  # fmt: skip
    assert given.keys() <= args.keys()
    blas.gemmStridedBatchedEx(**(args | given))
    return scalars


def test_a_batch_of_products_at_addresses():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5, 2), (3, 4, 5)))
    there, c = (cupy.asarray(a), cupy.asarray(b)), cupy.empty((3, 4, 2), np.float32)
    before = cupy.allocations
    strided(*there, c)  # c is NaN, and not to be read
    np.testing.assert_allclose(c.get(), b @ a, rtol=1e-5)
    strided(*there, c, batchCount=1, ldb=5, transa=1, lda=5, m=2)
    np.testing.assert_allclose(c.get()[0], b[0] @ a[0].reshape(2, 5).T, rtol=1e-5)
    assert cupy.allocations == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"handle": 1}, "a handle that is none"),
        ({"transa": 2}, "operations 2 and 0"),
        ({"k": 0}, "an empty product"),
        ({"batchCount": 0}, "an empty product"),
        ({"lda": 1}, "a leading dimension of 1 for 2 rows"),
        ({"transb": 1, "ldb": 3}, "a leading dimension of 3 for 4 rows"),
        ({"ldc": 1}, "a leading dimension of 1 for 2 rows"),
        ({"strideC": 1}, "matrices of C that overlap"),
        ({"Btype": 1}, "types 0 and 1"),
        ({"Ctype": 1}, "types 0 and 1"),
        ({"Atype": 1, "Btype": 1, "Ctype": 1}, "types 1 and 1"),
        ({"algo": 7}, "algorithm 7"),
    ],
)
def test_what_cublas_refuses(given, message):
    a, b, c = (cupy.ones(shape, np.float32) for shape in ((3, 5, 2), (3, 4, 5), (3, 4, 2)))
    with pytest.raises(cupy.cuda.cublas.CUBLASError, match=message):
        strided(a, b, c, **given)
    with pytest.raises(TypeError, match="m must be an int"):
        strided(a, b, c, m=2.0)
    with pytest.raises(cupy.cuda.cublas.CUBLASError, match="C among A or B"):
        strided(a, b, a, m=1, lda=2, ldc=2, strideC=10)


@pytest.mark.parametrize(
    "given", [{"strideB": 21}, {"lda": 3}, {"A": 4096}, {"n": 5, "strideC": 10}]
)
def test_cublas_outside_an_array_is_caught(given):
    a, b, c = (cupy.ones(shape, np.float32) for shape in ((3, 5, 2), (3, 4, 5), (3, 4, 2)))
    with pytest.raises(MemoryError, match="do not lie in one allocation"):
        strided(a, b, c, **given)


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


OWN_NAMES = {"is_stand_in", "synchronizations", "allocations", "uploads", "operations", "graphs"}
OWN_NAMES |= {"ALL", "thread_order", "late_copies", "device_count", "CompilerMissingError"}

COMPARE = """
import inspect, json, operator, os, warnings
warnings.simplefilter("ignore")
import cupy
wrong = []
names, parameters, ufuncs, kinds = json.loads(os.environ["OWN"])
for where, own in names.items():
    place = operator.attrgetter(where)(cupy) if where else cupy
    wrong += [f"{where}.{name}" for name in own if not hasattr(place, name)]
for name, (positional, named) in parameters.items():
    real = list(inspect.signature(getattr(cupy, name)).parameters)
    if real[: len(positional)] != positional or not set(named) <= set(real):
        wrong.append(f"{name}{real}")
wrong += [name for name in ufuncs if not isinstance(getattr(cupy, name), cupy.ufunc)]
wrong += [name for name in kinds if getattr(cupy.cuda.runtime, name) != kinds[name]]
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
    cuda += ["get_cublas_handle", "alloc_pinned_memory"]
    runtime = vars(cupy.cuda.runtime)
    public = [name for name in vars(cupy) if name[0] != "_" and name not in OWN_NAMES]
    names = {
        "": [name for name in public if not inspect.ismodule(getattr(cupy, name))],
        "ndarray": [name for name in vars(cupy.ndarray) if not name.startswith("_")],
        "cuda": cuda,
        "cuda.runtime": [name for name in runtime if name[0] != "_"],
        "lib.stride_tricks": ["as_strided"],
    }
    kinds = {name: runtime[name] for name in runtime if name.startswith("CUDA_R_")}
    own = json.dumps([names, parameters, functions.UFUNCS.split(), kinds])
    path = os.pathsep.join(place for place in sys.path if place and Path(place) != HERE)
    assert python(COMPARE, OWN=own, PYTHONPATH=path) == []
