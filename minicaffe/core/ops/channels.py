"""Functions with a number for each channel k: of x (n, f, p), n samples of f channels of p places."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops import arrays, moments, rows
from minicaffe.core.ops.arrays import GRAIN
from minicaffe.core.ops.sums import WORK, add_places, in_sum_type

FILE = "channels.cu"


def workspace(xp: Any, nfp: tuple[int, int, int], below: bool = False) -> int:
    """Elements of work for the functions below, of n samples; `below` is add_products'."""
    size, f = math.prod(nfp), nfp[1]
    if xp is np:
        return size + max(f, WORK)
    products = 2 * (size + max(f, WORK)) if below else 0  # of 16 bits, they are of float32
    return max(products, rows.workspace(xp, size, rows.Rows(1, *nfp)))


def scale(x: Any, a: Any | None, b: Any | None, out: Any) -> Any:
    """out = a[k] x + b[k]; without a, x + b[k]. b may be as large as x; `out` may be x itself.

    >>> x = np.arange(4.0).reshape(1, 2, 2)
    >>> scale(x, np.array([1.0, 10.0]), np.array([0.5, 0.0]), np.empty_like(x))
    array([[[ 0.5,  1.5],
            [20. , 30. ]]])
    """
    n, f, p = x.shape
    whole = b is not None and b.shape == x.shape
    if on_cuda(x):
        launch(FILE, "scale", x.size, x, x, a, b, int(whole), f, p, 0, out)
        return out
    fast = loops("channels", x.dtype)
    if fast is not None and p > 1:
        none = _none(x.dtype)
        given = none if a is None else a, none if b is None else b.reshape(-1), whole
        flat = x.reshape(-1), *given, out.reshape(-1)
        run(fast.scale, n * f, *flat, f, p, grain=max(1, GRAIN // p))
        return out
    if a is not None:
        x = arrays.multiply(x, a.reshape(f, 1), out)
    return x if b is None else arrays.plus(x, b if whole else b.reshape(f, 1), out)


def prelu(x: Any, a: Any, out: Any, work: Any) -> Any:
    """out = x where x > 0, a[k] x elsewhere.

    >>> x = np.array([[[-2.0, 3.0]]])
    >>> prelu(x, np.array([0.5]), np.empty_like(x), np.empty(2))
    array([[[-1.,  3.]]])
    """
    return prelu_gradient(x, x, a, out, work)  # x times the same slope


def prelu_gradient(dy: Any, x: Any, a: Any, out: Any, work: Any) -> Any:
    """dx = dy where x > 0, a[k] dy elsewhere.

    >>> dy, x = np.ones((1, 1, 2)), np.array([[[-2.0, 3.0]]])
    >>> prelu_gradient(dy, x, np.array([0.5]), np.empty_like(x), np.empty(2))
    array([[[0.5, 1. ]]])
    """
    n, f, p = x.shape
    if on_cuda(x):
        launch(FILE, "prelu", x.size, x, dy, x, a, f, p, out)
        return out
    fast = loops("channels", x.dtype)
    if fast is not None:
        flat = dy.reshape(-1), x.reshape(-1), a.reshape(-1), out.reshape(-1)
        run(fast.prelu, n * f, *flat, f, p, grain=max(1, GRAIN // max(1, p)))
        return out
    trace.host("PReLU by NumPy")
    passes = np.greater(x, 0, out=work.view(np.bool_)[: x.size].reshape(x.shape))
    below = np.logical_not(passes, out=passes)  # and NaNs
    if out.ctypes.data != dy.ctypes.data:
        np.copyto(out, dy)
    return np.multiply(out, a.reshape(f, 1), out=out, where=below)


def gradients(dy: Any, x: Any, a: Any, da: Any, db: Any, out: Any, work: Any) -> Any:
    """da[k] += the sum of dy x over samples and places, db[k] += that of dy, out = a[k] dy; all may be None.

    >>> dy, x = np.ones((1, 1, 3)), np.array([[[-2.0, 3.0, -1.0]]])
    >>> da, db = np.zeros(1), np.ones(1)
    >>> gradients(dy, x, np.array([2.0]), da, db, np.empty_like(x), np.empty(4)), da, db
    (array([[[2., 2., 2.]]]), array([0.]), array([4.]))
    """
    n, f, p = x.shape
    if x.size == 0:
        return out
    if on_cuda(x) and not (da is None and db is None):
        over = rows.Rows(1, n, f, p)
        affine = None if out is None else rows.Affine(over, a, None)
        moments.gradients(x, dy, over, work, None, affine, (da, db), g=out)
        return out
    if db is not None:
        add_sums(dy, db, work)
    if da is not None:
        add_products(dy, x, da, work)
    return None if out is None else scale(dy, a, None, out)


def add_products(dy: Any, x: Any, out: Any, work: Any, *, below: bool = False) -> Any:
    """out[k] += the sum of dy x over samples and places; with `below`, where x < 0 only.

    >>> dy, x = np.ones((1, 1, 3)), np.array([[[-2.0, 3.0, -1.0]]])
    >>> add_products(dy, x, np.zeros(1), np.empty(4), below=True)
    array([-3.])
    """
    if on_cuda(x) and not below:  # by a kernel that finds both sums
        gradients(dy, x, None, out, None, None, work)
        return out
    if on_cuda(x):
        work = in_sum_type(work, x)
        products, rest = work[: x.size].reshape(x.shape), work[x.size :]
        launch(FILE, "products", x.size, x, dy, x, products)
        return add_places(products, out, rest)
    if _summed(dy, x, 2 if below else 1, out):
        return out
    products = work[: x.size].reshape(x.shape)
    np.multiply(dy, np.minimum(x, 0, out=products) if below else x, out=products)
    return _add_sums(products, out, work[x.size :])


def add_sums(dy: Any, out: Any, work: Any) -> Any:
    """out[k] += the sum of dy over samples and places.

    >>> add_sums(np.ones((2, 1, 3)), np.ones(1), np.empty(1))
    array([7.])
    """
    if on_cuda(dy):
        return add_places(dy, out, work)
    return out if _summed(dy, dy, 0, out) else _add_sums(dy, out, work)


def _summed(dy: Any, x: Any, way: int, out: Any) -> bool:
    """Whether a compiled loop has added the sums."""
    fast = loops("channels", x.dtype)
    if fast is None:
        trace.host("sums by NumPy")
        return False
    n, f, p = dy.shape
    flat = dy.reshape(-1), x.reshape(-1), way, f, p, n, out.reshape(-1)
    run(fast.add_sums, f, *flat, grain=max(1, GRAIN // max(1, n * p)))
    return True


def _add_sums(x: Any, out: Any, work: Any) -> Any:
    """On the CPU, with as many elements of work as there are channels."""
    sums = np.sum(x, axis=(0, 2), out=work[: out.size])
    return np.add(out, sums, out=out)


@functools.cache
def _none(dtype: Any) -> Any:
    return np.empty(0, dtype)
