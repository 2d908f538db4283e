"""Matrix products into buffers that exist: NumPy's BLAS on the CPU, cuBLAS on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backend import on_cuda


def gemm(a: Any, b: Any, out: Any, accumulate: bool = False, scratch: Any = None) -> Any:
    """out = a b, or out += a b with `accumulate`; a (m, k), b (k, n), out (m, n).

    a and b may be transposed views; out is C-contiguous. NumPy's product cannot add to what is
    there, so on the CPU accumulating goes through `scratch`, flat, of at least m n elements (taken
    when not given).

    >>> gemm(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)), accumulate=True)
    array([[2., 3.],
           [4., 5.]])
    """
    if on_cuda(a):
        from cupy import cublas

        left, left_op = _as_stored(a)
        right, right_op = _as_stored(b)
        return cublas.gemm(left_op, right_op, left, right, out=out, beta=float(accumulate))
    if not accumulate:
        return np.matmul(a, b, out=out)
    product = None if scratch is None else scratch[: out.size].reshape(out.shape)
    out += np.matmul(a, b, out=product)
    return out


def _as_stored(matrix: Any) -> tuple[Any, str]:
    """A matrix as it lies in memory, row by row, and the operation that gives it back."""
    return (matrix, "N") if matrix.flags.c_contiguous else (matrix.T, "T")
