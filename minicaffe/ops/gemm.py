"""Matrix products into buffers that exist: BLAS on the CPU, in compiled loops or NumPy's, cuBLAS on CUDA."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.errors import ShapeError
from minicaffe.ops import record
from minicaffe.ops.loops import with_blas
from minicaffe.ops.threads import in_slices, run

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides, these in elements
_SCALARS = {size: np.array([0, 1], f"f{size}") for size in (4, 8)}
ZERO_ONE = {size: pair.ctypes.data for size, pair in _SCALARS.items()}  # where cuBLAS reads them
LARGE = 2**24  # multiply-adds from which threads pay NumPy
GRAIN = 2**15  # multiply-adds that a compiled slice is worth
KINDS = {
    "float16": "CUDA_R_16F",
    "bfloat16": "CUDA_R_16BF",
    "float32": "CUDA_R_32F",
    "float64": "CUDA_R_64F",
}


def gemm(a: Any, b: Any, out: Any, accumulate: bool = False, scratch: Any = None) -> Any:
    """out = a b, or out += a b with `accumulate`; a (m, k), b (k, n), out (m, n).

    Stacks of matrices are multiplied matrix by matrix, leading axes broadcast as in np.matmul. a and b
    may be transposed views, and their rows may stand apart. NumPy's product cannot add to what is
    there, so on the CPU accumulating goes through `scratch`, flat, of at least out.size elements
    (taken when not given). On CUDA a and b may be of 16 bits and out as they are or float32: sums are
    taken in float32. Raises ShapeError for views that cuBLAS cannot read as they lie.

    >>> gemm(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)), accumulate=True)
    array([[2., 3.],
           [4., 5.]])
    """
    if on_cuda(a):
        record.host("a product by cuBLAS, which CuPy refuses to capture")
        _cublas(a, b, out, accumulate)
        return out
    if _compiled(a, b, out, accumulate):
        return out
    record.host("gemm")
    product = out
    if accumulate:
        product = np.empty_like(out) if scratch is None else scratch[: out.size].reshape(out.shape)
    multiply = np.multiply if a.shape[-1] == 1 else np.matmul  # BLAS is slow at outer products
    if out.ndim > 2 or out.size * a.shape[1] < LARGE:
        multiply(a, b, out=product)
        if accumulate:
            out += product
        return out
    tall = len(out) >= out.shape[1]  # threads share the longer side

    def part(first: int, last: int, _: Any) -> None:
        rows, columns = (slice(first, last), slice(None))[:: 1 if tall else -1]
        multiply(a[rows], b[:, columns], out=product[rows, columns])
        if accumulate:
            out[rows, columns] += product[rows, columns]

    in_slices(part, max(out.shape))
    return out


def _compiled(a: Any, b: Any, out: Any, accumulate: bool) -> bool:
    """The product in slices of its rows, or of its columns where these are more than twice as many.

    It must be one of two matrices that lie whole. Rows of the result lie whole too: threads write in no line
    of another, which is worth the larger matrix that each of them reads.
    """
    fast, blas = with_blas("product", out)
    if fast is None:
        return False
    (x, x_turned), (y, y_turned), (c, c_turned) = map(whole, (a, b, out))
    if x is None or y is None or c is None or not a.dtype == b.dtype == out.dtype:
        return False
    if c_turned:
        return _compiled(b.T, a.T, out.T, accumulate)
    (m, n), k = out.shape, a.shape[1]
    rows = m >= n or 1 < m >= n / 2
    given = blas, (m, n, k), x, x_turned, y, y_turned, rows, accumulate, c
    run(fast.product, m if rows else n, *given, grain=1 + GRAIN // ((n if rows else m) * k))
    return True


def whole(matrix: Any) -> tuple[Any, bool]:
    """A matrix as it lies in memory, flat, and whether by columns; none if its rows stand apart.

    >>> whole(np.array([[1, 2], [3, 4]]).T)
    (array([1, 2, 3, 4]), True)
    """
    if matrix.ndim == 2 and matrix.size:
        for array, turned in ((matrix, False), (matrix.T, True)):
            if array.flags.c_contiguous:
                return array.reshape(-1), turned
    return None, False


def _cublas(a: Any, b: Any, out: Any, accumulate: bool) -> None:
    """The product where the matrices lie, by one call of cuBLAS, or one for each outer index of a stack.

    cuBLAS counts down the columns: to it, memory holds the transposes, and the product is out' = b' a'.
    """
    from cupy import cuda

    blas, runtime = cuda.cublas, cuda.runtime
    if a.shape[-1] == 0 and not accumulate:
        out.fill(0)
    if out.size == 0 or a.shape[-1] == 0:
        return
    starts, count, (b_op, b_ld, b_apart), (a_op, a_ld, a_apart), (out_op, out_ld, out_apart) = (
        _plan(*map(_layout, (b, a, out)))
    )
    if out_op:
        b, a, out = (matrix.swapaxes(-1, -2) for matrix in (a, b, out))
        _cublas(a, b, out, accumulate)
        return
    kind, out_kind = (getattr(runtime, KINDS[array.dtype.name]) for array in (a, out))
    size = 8 if out.dtype == np.float64 else 4
    alpha, beta = ZERO_ONE[size] + size, ZERO_ONE[size] + size * accumulate
    compute = blas.CUBLAS_COMPUTE_64F if size == 8 else blas.CUBLAS_COMPUTE_32F
    ends = compute, blas.CUBLAS_GEMM_DEFAULT
    (m, n), k = out.shape[-2:], a.shape[-1]
    for b_at, a_at, out_at in starts:
        head = cuda.get_cublas_handle(), b_op, a_op, n, m, k, alpha
        left = b.data.ptr + b_at * b.itemsize, kind, b_ld
        right = a.data.ptr + a_at * a.itemsize, kind, a_ld
        to = out.data.ptr + out_at * out.itemsize, out_kind, out_ld
        if count == 1:
            blas.gemmEx(*head, *left, *right, beta, *to, *ends)
        else:
            blas.gemmStridedBatchedEx(
                *head, *left, b_apart, *right, a_apart, beta, *to, out_apart, count, *ends
            )


def _layout(array: Any) -> Layout:
    return array.shape, tuple(step // array.itemsize for step in array.strides)


@functools.lru_cache(maxsize=4096)
def _plan(*layouts: Layout) -> tuple[Any, ...]:
    """How to ask for a product of two stacks into a third: where the three matrices of each call start,
    how many matrices a call takes, and for each stack `_stored` and how far a matrix is from the next.
    """
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
