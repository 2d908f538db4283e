"""Products of matrices on CUDA, by cuBLAS: where they lie, and in a capture as well.

CuPy loads the library and makes its handles; its functions are called by ctypes, for CuPy's own refuse while
a stream is captured. Each call is told the current stream, and memory of that stream's own to work in: else
cuBLAS would take some, and might choose another algorithm, of other bits, in a graph than outside one.
Source: NVIDIA, cuBLAS, cublasSetStream, cublasSetWorkspace and CUDA Graphs Support.
"""

import ctypes
import functools
import itertools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from minicaffe.backends.cuda.capture import Make, kept
from minicaffe.backends.cuda.device import precision
from minicaffe.backends.cuda.launch import fill
from minicaffe.backends.device import TOO_MANY
from minicaffe.backends.launch_listener import ask, tell
from minicaffe.errors import ShapeError

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides, these in elements
_SCALARS = {size: np.array([0, 1], f"f{size}") for size in (4, 8)}
ZERO_ONE = {size: pair.ctypes.data for size, pair in _SCALARS.items()}  # where cuBLAS reads them
KINDS = {
    "float16": "CUDA_R_16F",
    "bfloat16": "CUDA_R_16BF",
    "float32": "CUDA_R_32F",
    "float64": "CUDA_R_64F",
}
WORK = 2**22, 2**25  # bytes to work in, of GPUs before Hopper and since: NVIDIA's advice
INT, LONG, AT = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
HEAD = AT, INT, INT, INT, INT, INT, AT  # handle, how a and b lie, m, n, k, alpha
MATRIX = AT, INT, INT  # where it lies, its type, from one column to the next
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasSetStream_v2": (AT, AT),
    "cublasSetWorkspace_v2": (AT, AT, ctypes.c_size_t),
    "cublasGemmEx": (*HEAD, *MATRIX, *MATRIX, AT, *MATRIX, INT, INT),
    "cublasGemmStridedBatchedEx": (
        *(*HEAD, *MATRIX, LONG, *MATRIX, LONG),
        *(AT, *MATRIX, LONG, INT, INT, INT),
    ),
}


def multiply(a: Any, b: Any, out: Any, accumulate: bool) -> None:
    """out = a b, or out += a b, of stacks: gemm on CUDA."""
    if a.shape[-1] == 0 and not accumulate:
        fill(out, 0)
    if out.size == 0 or a.shape[-1] == 0:
        return
    if library() is None:
        tell("a product by cuBLAS, which CuPy refuses to capture")
    short = precision() == "tf32" and a.dtype == np.float32
    args = a, b, out, accumulate
    ask("gemm", "TF32" * short, (), args, lambda asked: _calls(*asked.args, short=short))


def _calls(a: Any, b: Any, out: Any, accumulate: bool, *, short: bool) -> None:
    """One call for each outer index of the stacks; to cuBLAS memory holds transposes: out' = b' a'."""
    from cupy import cuda

    blas, runtime = cuda.cublas, cuda.runtime
    lie = ((one.shape, tuple(step // one.itemsize for step in one.strides)) for one in (b, a, out))
    starts, count, (b_op, b_ld, b_apart), (a_op, a_ld, a_apart), (out_op, out_ld, out_apart) = (
        _plan(*lie)
    )
    if out_op:
        b, a, out = (matrix.swapaxes(-1, -2) for matrix in (a, b, out))
        _calls(a, b, out, accumulate, short=short)
        return
    kind, out_kind = (getattr(runtime, KINDS[array.dtype.name]) for array in (a, out))
    size = 8 if out.dtype == np.float64 else 4
    alpha, beta = ZERO_ONE[size] + size, ZERO_ONE[size] + size * accumulate
    computed = "64F" if size == 8 else "32F_FAST_TF32" if short else "32F"
    ends = getattr(blas, f"CUBLAS_COMPUTE_{computed}"), blas.CUBLAS_GEMM_DEFAULT
    (m, n), k = out.shape[-2:], a.shape[-1]
    if (most := max(m, n, k, count, b_ld, a_ld, out_ld)) >= 2**31:
        raise ShapeError(f"cuBLAS: {most} {TOO_MANY}")
    handle, one, many = _functions()
    for b_at, a_at, out_at in starts:
        head = handle, b_op, a_op, n, m, k, alpha
        left = b.data.ptr + b_at * b.itemsize, kind, b_ld
        right = a.data.ptr + a_at * a.itemsize, kind, a_ld
        to = out.data.ptr + out_at * out.itemsize, out_kind, out_ld
        if count == 1:
            one(*head, *left, *right, beta, *to, *ends)
        else:
            many(*head, *left, b_apart, *right, a_apart, beta, *to, out_apart, count, *ends)


def _functions() -> tuple[int, Any, Any]:
    """This thread's handle, and what multiplies two matrices and stacks of them: cuBLAS's own, else CuPy's."""
    from cupy import cuda

    handle, own = cuda.get_cublas_handle(), library()
    if own is None:
        return handle, cuda.cublas.gemmEx, cuda.cublas.gemmStridedBatchedEx
    memory = kept(work)
    own["cublasSetStream_v2"](handle, cuda.get_current_stream().ptr)
    own["cublasSetWorkspace_v2"](handle, memory.data.ptr, memory.nbytes)
    return handle, own["cublasGemmEx"], own["cublasGemmStridedBatchedEx"]


def work() -> Any:
    """Memory that cuBLAS works in; with it this thread has a handle, which no capture could make."""
    import cupy

    cupy.cuda.get_cublas_handle()
    return cupy.empty(WORK[int(cupy.cuda.Device().compute_capability) >= 90], np.uint8)


def needs(launches: Iterable[Any]) -> list[Make]:
    """What memory work on CUDA, as a recording has it, is to find kept."""
    return [work] if any(name == "gemm" for name, *_ in launches) else []


@functools.cache
def library() -> dict[str, Any] | None:
    """The functions of the cuBLAS that CuPy has loaded; None where the system does not know it by its name."""
    from cupy import cuda

    major = cuda.cublas.getVersion(cuda.get_cublas_handle()) // 10000
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    try:
        cublas = ctypes.CDLL(name)
    except OSError:
        return None
    return {name: _function(cublas, name) for name in SIGNATURES}


def _function(cublas: ctypes.CDLL, name: str) -> Any:
    """One of SIGNATURES, which raises CuPy's CUBLASError for what cuBLAS does not do."""
    function = cublas[name]
    function.argtypes, function.restype = SIGNATURES[name], INT

    def call(*args: Any) -> None:
        if status := function(*args):
            from cupy import cuda

            raise cuda.cublas.CUBLASError(status)

    return call


@functools.lru_cache(maxsize=4096)
def _plan(*layouts: Layout) -> tuple[Any, ...]:
    """How to ask for a product: starts of each call's matrices, how many, and each stack's form and step."""
    stack = layouts[-1][0][:-2]
    steps = [_stack_steps(*layout, len(stack)) for layout in layouts]
    axes: list[list[int]] = []  # size and steps in the three stacks; neighbours folded into one
    for size, *step in zip(stack, *steps, strict=True):
        if axes and axes[-1][1:] == [size * inner for inner in step]:
            size *= axes.pop()[0]
        if size > 1:
            axes.append([size, *step])
    batch = max(axes, default=[1, 0, 0, 0])
    outer = [axis for axis in axes if axis is not batch]
    starts = tuple(
        tuple(
            sum(i * axis[part] for i, axis in zip(index, outer, strict=True)) for part in (1, 2, 3)
        )
        for index in itertools.product(*(range(axis[0]) for axis in outer))
    )
    stored = ((*_stored(*layout), apart) for layout, apart in zip(layouts, batch[1:], strict=True))
    return starts, batch[0], *stored


def _stack_steps(shape: tuple[int, ...], strides: tuple[int, ...], axes: int) -> list[int]:
    """Distances along the axes of a stack; 0 along those that are broadcast."""
    steps = [step if size > 1 else 0 for size, step in zip(shape[:-2], strides[:-2], strict=True)]
    return [0] * (axes - len(steps)) + steps


def _stored(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Whether the rows of a matrix lie whole in memory (0) or its columns do (1), and how far apart."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return 0, down if rows > 1 else columns
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return 1, along if columns > 1 else rows
    raise ShapeError(
        f"cuBLAS cannot read a matrix {rows} x {columns} of strides {down} and {along}"
    )
