"""The inner product: a batch of vectors times a matrix, plus a bias."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.ops import record
from minicaffe.ops.arrays import add, fill
from minicaffe.ops.conv.implicit_gemm import product
from minicaffe.ops.gemm import GRAIN, gemm, whole
from minicaffe.ops.loops import loops, with_blas
from minicaffe.ops.sums import add_places
from minicaffe.ops.threads import run

OWN = 2**26  # multiply-adds on CUDA, up to which the own kernel serves


def workspace(m: int, k: int, f: int, gradients: bool = True) -> int:
    """Elements of work for `linear`, and its gradients, of m vectors of k numbers to f numbers."""
    return m + f * max(m, k) if gradients else m * f


def linear(x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> Any:
    """y = x weight + bias: x (m, k), weight (k, f), bias (f,), into `out` (m, f).

    A weight that lies in memory as (f, k), Caffe's way, is multiplied from the left on the CPU,
    y' = weight' x', which BLAS does faster by half; the bias is added on the way back.

    >>> x, weight = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]).T
    >>> linear(x, weight, np.array([5.0]), np.empty((1, 1)), np.empty(3))
    array([[16.]])
    """
    if _own(x, weight):
        product(weight.T, x.T, out.T, work, bias)
        return out
    if _compiled(x, weight, bias, out, work):
        return out
    if not on_cuda(x):
        record.host("linear")
    if not on_cuda(x) and not weight.flags.c_contiguous:
        y = work[: out.size].reshape(out.shape[::-1])
        gemm(weight.T, x.T, y)
        return np.add(y.T, 0 if bias is None else bias, out=out)
    gemm(x, weight, out)
    return out if bias is None else add(bias, out)


def _compiled(x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> bool:
    """The same in slices of the numbers, or of the vectors, whichever are more; if it can be."""
    fast, blas = with_blas("product", out)
    if fast is None or not x.flags.c_contiguous:
        return False
    (w, turned), (flat, _) = whole(weight), whole(x)
    if w is None or flat is None:
        return False
    bias = _no_bias(out.dtype) if bias is None else bias
    (m, k), f, y = x.shape, weight.shape[1], out.reshape(-1)
    if turned or f == 1 or k == 1:
        sizes, n, features = (m, f, k), max(m, f), f >= m
        given = blas, sizes, flat, w, bias, features, work[: out.size], y
        run(fast.linear, n, *given, grain=1 + GRAIN // (m * f * k // n))
        return True
    gemm(x, weight, out)
    if bias.size:
        run(fast.add_bias, m, bias, y, grain=1 + GRAIN // f)
    return True


@functools.lru_cache(2)
def _no_bias(dtype: Any) -> Any:
    return np.empty(0, dtype)


def gradients(x: Any, dy: Any, dweight: Any, dbias: Any, work: Any) -> None:
    """dweight = dy' x, dbias = 1' dy; x (m, k), dy (m, f), to (f, k), perhaps transposed, and (f,).

    Each is given with whether it is still empty: else the gradient is added; or is None: not wanted.
    """
    if dweight is not None and _own(dy.T, x):
        (dw, empty), (db, fresh) = dweight, dbias or (None, True)
        product(dy.T, x, dw, work, add=not empty, sums=db, add_sums=not fresh)
        return
    if dweight is not None:
        dw, empty = dweight
        if dw.flags.c_contiguous:
            weight_gradient(dy.T, x, dw, empty, work)
        else:
            weight_gradient(x.T, dy, dw.T, empty, work)
    if dbias is not None:
        db, fresh = dbias
        bias_gradient(dy, db, fresh, work)


def weight_gradient(a: Any, b: Any, out: Any, empty: bool, work: Any) -> Any:
    """dweight = a b (dy' x, or x' dy), added to `out`, or into it where it is still empty."""
    if _own(a, b):
        return product(a, b, out, work, add=not empty)
    _, scratch = ones_and_scratch(0, work)
    return gemm(a, b, out, accumulate=not empty, scratch=scratch)


def input_gradient(dy: Any, weight: Any, out: Any, work: Any) -> Any:
    """dx = dy weight': dy (m, f), weight' (f, k), into `out` (m, k)."""
    return product(dy, weight, out, work) if _own(dy, weight) else gemm(dy, weight, out)


def _own(a: Any, b: Any) -> bool:
    """Whether our own kernel multiplies two matrices: on CUDA, where a product is small.

    It can be a part of a graph, and adds the bias; of larger ones cuBLAS is worth a launch that is not.
    """
    if not on_cuda(a) or not 0 < a.shape[0] * a.shape[1] * b.shape[1] <= OWN:
        return False
    return all(m.flags.c_contiguous or m.flags.f_contiguous for m in (a, b))


def bias_gradient(dy: Any, out: Any, empty: bool, work: Any) -> Any:
    """dbias = 1' dy, added to `out` (f,), or into it where it is still empty."""
    fast = loops("product", dy.dtype) if isinstance(dy, np.ndarray) else None
    if fast is not None and dy.flags.c_contiguous:
        m, f = dy.shape
        given = dy.reshape(-1), m, f, not empty, out
        run(fast.add_columns, f, *given, grain=1 + GRAIN // max(m, 1))
        return out
    if empty:
        fill(out, 0)
    if on_cuda(dy):
        return add_places(dy.reshape(*dy.shape, 1), out, work)
    record.host("bias_gradient")
    ones, scratch = ones_and_scratch(len(dy), work)
    gemm(ones.T, dy, out.reshape(1, -1), accumulate=True, scratch=scratch)
    return out


def ones_and_scratch(m: int, work: Any) -> tuple[Any, Any]:
    """The work as a column of m ones, and the rest."""
    work[:m].fill(1)
    return work[:m].reshape(m, 1), work[m:]
