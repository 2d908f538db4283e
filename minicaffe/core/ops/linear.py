"""The inner product: a batch of vectors times a matrix, plus a bias."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops, no_bias, threads, with_blas
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cpu.threads import FEW
from minicaffe.backends.device import Device, on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops import conv, skinny
from minicaffe.core.ops.arrays import add, fill
from minicaffe.core.ops.conv import Plan
from minicaffe.core.ops.conv.implicit_gemm import product
from minicaffe.core.ops.conv.problem import OWN
from minicaffe.core.ops.gemm import GRAIN, LARGE, PART, few, gemm, whole
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.ops.sums import add_places

TALL = 256  # vectors, from which on BLAS is not faster from the left


def plan(
    m: int,
    k: int,
    f: int,
    dtype: Any,
    device: Device,
    deterministic: bool = False,
    before: Plan | None = None,
) -> Plan | None:
    """What computes the inner products of m vectors on CUDA: our kernel (`implicit`) or cuBLAS (`batched`).

    To the planner they are a convolution of m images of one place; `before` is the plan of the last m. On the
    CPU there is nothing to choose.
    """
    if not device.is_cuda:
        return None
    one_place = ConvGeometry(m, k, (1,), f, Window((1,)))
    return conv.plan(one_place, dtype, device, deterministic=deterministic, before=before)


def workspace(m: int, k: int, f: int, gradients: bool = True) -> int:
    """Elements of work for `linear`, and its gradients, of m vectors of k numbers to f numbers."""
    slices = f * (m + threads.count())  # a thread may have a vector more than another
    return max(m + f * max(m, k), slices) if gradients else slices


def linear(
    x: Any, weight: Any, bias: Any | None, out: Any, work: Any, plan: Plan | None = None
) -> Any:
    """y = x weight + bias: x (m, k), weight (k, f), bias (f,), into `out` (m, f).

    On CUDA a `plan` says by what, else the size. A weight that lies in memory as (f, k), Caffe's way, is
    multiplied from the left on the CPU, y' = weight' x', which BLAS does faster by half unless vectors are
    many; the bias is added on the way back.

    >>> x, weight = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]).T
    >>> linear(x, weight, np.array([5.0]), np.empty((1, 1)), np.empty(3))
    array([[16.]])
    """
    if _own(x, weight, plan, "forward"):
        product(weight.T, x.T, out.T, work, bias)
        return out
    if _compiled(x, weight, bias, out, work):
        return out
    if not on_cuda(x) and not weight.flags.c_contiguous:
        return _by_samples(x, weight, bias, out, work)
    gemm(x, weight, out)
    return out if bias is None else add(bias, out)


def _by_samples(x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> Any:
    """The same by NumPy, of a weight that lies as (f, k)."""
    (m, k), f = x.shape, weight.shape[1]

    def part(first: int, last: int, work: Any) -> None:
        some, here, count = x[first:last], out[first:last], last - first
        y = here if few(count, f, k) else work[: f * count].reshape(f, count).T
        if y is here:
            gemm(some, weight, y)
        else:
            gemm(weight.T, some.T, y.T)
        if bias is not None or y is not here:
            do(np.add, y, 0 if bias is None else bias, out=here)

    each = max(1, k * f)
    grain = min(FEW, 1 + PART // each)
    in_slices(part, m, work, grain=grain, worth=1 + LARGE // each, noted=True)
    return out


def _compiled(x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> bool:
    """The same in slices of the numbers, or of the vectors, whichever are more; if it can be."""
    fast, blas = with_blas("product", out)
    if fast is None or not x.flags.c_contiguous:
        return False
    (w, turned), (flat, _) = whole(weight), whole(x)
    if w is None or flat is None:
        return False
    bias = no_bias(out.dtype) if bias is None else bias
    (m, k), f, y = x.shape, weight.shape[1], out.reshape(-1)
    if turned and skinny.dots(flat, w, bias, y, False, (m, f, k)):
        return True
    if m == 1 and (turned or f == 1 or k == 1):
        run(fast.linear_of_one, f, k, flat, w, bias, y, grain=1 + GRAIN // k)
    elif (turned and m < TALL) or f == 1 or k == 1:
        sizes, n, features = (m, f, k), max(m, f), f >= m
        given = blas, sizes, flat, w, bias, features, work[: out.size], y
        run(fast.linear, n, *given, grain=1 + GRAIN // (m * f * k // n))
    else:
        gemm(x, weight, out)
        if bias.size:
            run(fast.add_bias, m, bias, y, grain=1 + GRAIN // f)
    return True


def gradients(
    x: Any, dy: Any, dweight: Any, dbias: Any, work: Any, plan: Plan | None = None
) -> None:
    """dweight = dy' x, dbias = 1' dy; x (m, k), dy (m, f), to (f, k), perhaps transposed, and (f,).

    Each is given with whether it is still empty: else the gradient is added; or is None: not wanted.
    """
    if dweight is not None and _own(dy.T, x, plan, "weight_gradient"):
        (dw, empty), (db, fresh) = dweight, dbias or (None, True)
        product(dy.T, x, dw, work, add=not empty, sums=db, add_sums=not fresh)
        return
    if dweight is not None:
        dw, empty = dweight
        if dw.flags.c_contiguous:
            weight_gradient(dy.T, x, dw, empty, work, plan)
        else:
            weight_gradient(x.T, dy, dw.T, empty, work, plan)
    if dbias is not None:
        db, fresh = dbias
        bias_gradient(dy, db, fresh, work)


def weight_gradient(
    a: Any, b: Any, out: Any, empty: bool, work: Any, plan: Plan | None = None
) -> Any:
    """dweight = a b (dy' x, or x' dy), added to `out`, or into it where it is still empty."""
    if _own(a, b, plan, "weight_gradient"):
        return product(a, b, out, work, add=not empty)
    return gemm(a, b, out, accumulate=not empty, scratch=work)


def input_gradient(dy: Any, weight: Any, out: Any, work: Any, plan: Plan | None = None) -> Any:
    """dx = dy weight': dy (m, f), weight' (f, k), into `out` (m, k)."""
    if _own(dy, weight, plan, "input_gradient"):
        return product(dy, weight, out, work)
    if on_cuda(dy) or with_blas("product", out)[0] is not None:
        return gemm(dy, weight, out)
    each = max(1, weight.size)
    in_slices(
        lambda first, last, _: gemm(dy[first:last], weight, out[first:last]),
        *(len(out), None, min(FEW, 1 + PART // each), 1 + LARGE // each, True),
    )
    return out


def _own(a: Any, b: Any, plan: Plan | None, way: str) -> bool:
    """Whether our own kernel multiplies two matrices on CUDA; if no plan says so, where that is small."""
    size = a.shape[0] * a.shape[1] * b.shape[1]
    if not on_cuda(a) or not size:
        return False
    if not all(m.flags.c_contiguous or m.flags.f_contiguous for m in (a, b)):
        return False
    return size <= OWN if plan is None else plan.names[way] == "implicit"


def bias_gradient(dy: Any, out: Any, empty: bool, work: Any) -> Any:
    """dbias = 1' dy, added to `out` (f,), or into it where it is still empty."""
    fast = loops("product", dy.dtype) if isinstance(dy, np.ndarray) else None
    if fast is not None and dy.flags.c_contiguous:
        m, f = dy.shape
        given = dy.reshape(-1), m, f, not empty, out
        run(fast.add_columns, f, *given, grain=1 + GRAIN // max(m, 1))
        return out
    if on_cuda(dy):
        if empty:
            fill(out, 0)
        return add_places(dy.reshape(*dy.shape, 1), out, work)
    gemm(_ones(len(dy), dy.dtype), dy, out.reshape(1, -1), accumulate=not empty, scratch=work)
    return out


@functools.lru_cache(64)
def _ones(m: int, dtype: Any) -> Any:
    """A row of so many."""
    return np.ones((1, m), dtype)
