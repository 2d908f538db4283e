"""Matrix products into buffers that exist: BLAS on the CPU, in compiled loops or NumPy's, cuBLAS on CUDA."""

import contextlib
import ctypes
import functools
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import in_slices, op

LARGE = 2**24  # multiply-adds from which it pays to wake threads for NumPy's product,
PART = 2**22  # and that a slice of it has at least
SMALL = 10**6  # multiply-adds of a thread up to which OpenBLAS copies nothing
# Rows of the smallest side of a product that is sooner in parts that BLAS does not copy, and of one whose
# parts lie in short pieces.
WHOLE, STREWN = 32, 8
# OpenBLAS's names of processors with such loops
UNCOPIED = "SkylakeX", "Cooperlake", "SapphireRapids"


@op(traced=False)
def gemm(a: Any, b: Any, out: Any, accumulate: bool = False, scratch: Any = None) -> Any:
    """out = a b, or out += a b with `accumulate`; a (m, k), b (k, n), out (m, n).

    Stacks of matrices are multiplied matrix by matrix, axes broadcast as in np.matmul. a and b may be
    transposed views, and their rows may stand apart. On the CPU accumulating goes through `scratch`, flat, of
    at least out.size elements (taken when not given). On CUDA a and b may be of 16 bits and out as they are or
    float32: sums are taken in float32. Raises ShapeError for views that cuBLAS cannot read as they lie.

    >>> gemm(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)), accumulate=True)
    array([[2., 3.],
           [4., 5.]])
    """
    product = out
    if accumulate:
        product = np.empty_like(out) if scratch is None else scratch[: out.size].reshape(out.shape)
    if out.ndim > 2:
        multiply(a, b, out, product, accumulate)
        return
    tall = len(out) >= out.shape[1]  # threads share the longer side
    across = max(1, min(out.shape) * a.shape[1])

    def part(first: int, last: int, _: Any) -> None:
        rows, columns = (slice(first, last), slice(None))[:: 1 if tall else -1]
        multiply(a[rows], b[:, columns], out[rows, columns], product[rows, columns], accumulate)

    in_slices(part, max(out.shape), None, 1 + PART // across, 1 + LARGE // across)


@op("out product", by_calls=True)
def multiply(a: Any, b: Any, out: Any, product: Any, accumulate: bool) -> Any:
    """product = a b, which `out` is too, unless it is added to that."""
    by: Any = np.multiply if a.shape[-1] == 1 else np.matmul  # BLAS is slow at outer products
    *matrices, to = (a, b, product) if out.ndim > 2 else _in_parts(a, b, product)
    with np.errstate(all="ignore"):  # BLAS of other processors divides what it throws away
        by(*matrices, out=to)
    if accumulate:
        np.add(out, product, out=out)


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


@functools.cache
def blas_copies() -> bool:
    """Whether NumPy's BLAS copies even small matrices before it multiplies: OpenBLAS with AVX-512 does not."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        from numpy.linalg import _umath_linalg

        core = ctypes.CDLL(_umath_linalg.__file__).scipy_openblas_get_corename64_
        core.restype = ctypes.c_char_p
        return core().decode() not in UNCOPIED
    return True
