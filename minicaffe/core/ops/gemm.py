"""Matrix products into buffers that exist: BLAS on the CPU, in compiled loops or NumPy's, cuBLAS on CUDA."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.backends.cpu import with_blas
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cpu.threads import blas_copies
from minicaffe.backends.cuda.cublas import multiply
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops import skinny
from minicaffe.core.ops.skinny import SMALL

LARGE = 2**24  # multiply-adds from which it pays to wake threads for NumPy's product,
PART = 2**22  # and that a slice of it has at least
GRAIN = 2**15  # multiply-adds that a compiled slice is worth
# Rows of the smallest side of a product that is sooner in parts that BLAS does not copy, and of one whose
# parts lie in short pieces.
WHOLE, STREWN = 32, 8


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
        multiply(a, b, out, accumulate)
        return out
    if _compiled(a, b, out, accumulate):
        return out
    product = out
    if accumulate:
        product = np.empty_like(out) if scratch is None else scratch[: out.size].reshape(out.shape)
    by = np.multiply if a.shape[-1] == 1 else np.matmul  # BLAS is slow at outer products
    if out.ndim > 2:
        do(by, a, b, out=product)
        return do(np.add, out, product, out=out) if accumulate else out
    tall = len(out) >= out.shape[1]  # threads share the longer side
    across = max(1, min(out.shape) * a.shape[1])

    def part(first: int, last: int, _: Any) -> None:
        rows, columns = (slice(first, last), slice(None))[:: 1 if tall else -1]
        *given, here = _in_parts(a[rows], b[:, columns], product[rows, columns])
        do(by, *given, out=here)
        if accumulate:
            here = out[rows, columns]
            do(np.add, here, product[rows, columns], out=here)

    sizes = {"grain": 1 + PART // across, "worth": 1 + LARGE // across}
    in_slices(part, max(out.shape), noted=True, **sizes)
    return out


def few(m: int, n: int, k: int) -> bool:
    """Whether NumPy's BLAS takes a product of so many rows sooner in parts, none of which it copies."""
    return m * n * k > SMALL and 1 < min(m, n, k) <= WHOLE and not blas_copies()


@functools.lru_cache(maxsize=4096)
def _parts(side: int, least: int) -> int:
    """Into how many equal parts a side is cut, at the least; by the side itself if there are no others."""
    return next((i for i in range(least, side) if side % i == 0), side)


def _in_parts(a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """The matrices of a product, as stacks of parts of the longer side of `out` if that is sooner."""
    (m, n), k = out.shape, a.shape[1]
    tall, side = m >= n, max(m, n)
    strewn = not tall and abs(b.strides[0]) > abs(b.strides[1])  # what a part reads of b
    if not few(m, n, k) or (strewn and min(m, n, k) > STREWN):
        return a, b, out
    count = _parts(side, max(2, -(-m * n * k // SMALL)))
    if count == side:
        return a, b, out
    if tall:
        return a.reshape(count, -1, k), b, out.reshape(count, -1, n)
    parts = [matrix.reshape(len(matrix), count, -1).swapaxes(0, 1) for matrix in (b, out)]
    return a, parts[0], parts[1]


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
    if skinny.multiply(x, x_turned, y, y_turned, c, accumulate, (m, n, k)):
        return True
    rows = m >= n or 1 < m >= n / 2
    given = (m, n, k), x, x_turned, y, y_turned, rows, accumulate, c
    many, others = (m, n) if rows else (n, m)
    grain = 1 + GRAIN // (others * k)
    if k == 1 or others == 1:
        run(fast.narrow, many, *given, grain=grain)
    else:
        run(fast.product, many, blas, *given, grain=grain)
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
