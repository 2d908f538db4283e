"""The inner product: a batch of vectors times a matrix, plus a bias."""

import functools
from typing import Any

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import by_backend, in_slices, op, threads
from minicaffe.core.ops import conv
from minicaffe.core.ops.arrays import add, plus
from minicaffe.core.ops.conv import Plan
from minicaffe.core.ops.gemm import LARGE, PART, few, gemm
from minicaffe.core.ops.geometry import ConvGeometry, Window

FEW = 8  # samples that it pays to give to a thread that is there, however little work they are


def plan(
    m: int,
    k: int,
    f: int,
    dtype: Any,
    device: Device,
    deterministic: bool = False,
    before: Plan | None = None,
) -> Plan | None:
    """What multiplies m vectors on CUDA: ours (`implicit`) or cuBLAS (`batched`); `before`: the last plan."""
    if not device.is_cuda:
        return None
    # To the planner they are a convolution of m images of one place
    one_place = ConvGeometry(m, k, (1,), f, Window((1,)))
    return conv.plan(one_place, dtype, device, deterministic=deterministic, before=before)


def workspace(m: int, k: int, f: int, gradients: bool = True) -> int:
    """Elements of work for `linear`, and its gradients, of m vectors of k numbers to f numbers."""
    slices = f * (m + threads())  # a thread may have a vector more than another
    return max(m + f * max(m, k), slices) if gradients else slices


@op(traced=False)
def linear(
    x: Any, weight: Any, bias: Any | None, out: Any, work: Any, plan: Plan | None = None
) -> Any:
    """y = x weight + bias: x (m, k), weight (k, f), bias (f,), into `out` (m, f).

    On CUDA a `plan` says by what, else the size. A weight that lies as (f, k), Caffe's way, is multiplied from
    the left on the CPU, y' = weight' x', which BLAS does faster by half unless vectors are many.

    >>> x, weight = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]).T
    >>> linear(x, weight, np.array([5.0]), np.empty((1, 1)), np.empty(3))
    array([[16.]])
    """
    if weight.flags.c_contiguous:
        gemm(x, weight, out)
        if bias is not None:
            add(bias, out)
        return
    (m, k), f = x.shape, weight.shape[1]

    def part(first: int, last: int, work: Any) -> None:
        some, here, count = x[first:last], out[first:last], last - first
        if few(count, f, k):
            gemm(some, weight, here)
            if bias is not None:
                add(bias, here)
            return
        y = work[: f * count].reshape(f, count).T
        gemm(weight.T, some.T, y.T)
        plus(y, 0 if bias is None else bias, here)

    each = max(1, k * f)
    in_slices(part, m, work, min(FEW, 1 + PART // each), 1 + LARGE // each)


@op("work", traced=False)
def gradients(
    x: Any, dy: Any, dweight: Any, dbias: Any, work: Any, plan: Plan | None = None
) -> Any:
    """dweight = dy' x, dbias = 1' dy; x (m, k), dy (m, f), to (f, k), perhaps transposed, and (f,).

    Each is given with whether it is still empty: else the gradient is added; or is None: not wanted.
    """
    if dweight is not None:
        dw, empty = dweight
        if dw.flags.c_contiguous:
            weight_gradient(dy.T, x, dw, empty, work, plan)
        else:
            weight_gradient(x.T, dy, dw.T, empty, work, plan)
    if dbias is not None:
        db, fresh = dbias
        bias_gradient(dy, db, fresh, work)


@op(traced=False)
def weight_gradient(
    a: Any, b: Any, out: Any, empty: bool, work: Any, plan: Plan | None = None
) -> Any:
    """dweight = a b (dy' x, or x' dy), added to `out`, or into it where it is still empty."""
    gemm(a, b, out, accumulate=not empty, scratch=work)


@op(traced=False)
def input_gradient(dy: Any, weight: Any, out: Any, work: Any, plan: Plan | None = None) -> Any:
    """dx = dy weight': dy (m, f), weight' (f, k), into `out` (m, k)."""
    if by_backend(gemm, dy, weight, out):  # by all threads
        return
    each = max(1, weight.size)

    def part(first: int, last: int, _: Any) -> None:
        gemm(dy[first:last], weight, out[first:last])

    in_slices(part, len(out), None, min(FEW, 1 + PART // each), 1 + LARGE // each)


@op(traced=False)
def bias_gradient(dy: Any, out: Any, empty: bool, work: Any) -> Any:
    """dbias = 1' dy, added to `out` (f,), or into it where it is still empty."""
    gemm(_ones(len(dy), dy.dtype), dy, out.reshape(1, -1), accumulate=not empty, scratch=work)


@functools.lru_cache(64)
def _ones(m: int, dtype: Any) -> Any:
    return np.ones((1, m), dtype)
