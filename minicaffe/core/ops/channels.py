"""Functions with a number for each channel k: of x (n, f, p), n samples of f channels of p places."""

import math
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays, rows
from minicaffe.core.ops.sums import WORK


def workspace(xp: Any, nfp: tuple[int, int, int], below: bool = False) -> int:
    """Elements of work for the functions below, of n samples; `below` is add_products'."""
    size, f = math.prod(nfp), nfp[1]
    if xp is np:
        return size + max(f, WORK)
    products = 2 * (size + max(f, WORK)) if below else 0  # of 16 bits, they are of float32
    return max(products, rows.workspace(xp, size, rows.Rows(1, *nfp)))


@op(traced=False)
def scale(x: Any, a: Any | None, b: Any | None, out: Any) -> Any:
    """out = a[k] x + b[k]; without a, x + b[k]. b may be as large as x; `out` may be x itself.

    >>> x = np.arange(4.0).reshape(1, 2, 2)
    >>> scale(x, np.array([1.0, 10.0]), np.array([0.5, 0.0]), np.empty_like(x))
    array([[[ 0.5,  1.5],
            [20. , 30. ]]])
    """
    if a is not None:
        x = arrays.multiply(x, a.reshape(-1, 1), out)
    if b is not None:
        arrays.plus(x, b if b.shape == x.shape else b.reshape(-1, 1), out)


def prelu(x: Any, a: Any, out: Any, work: Any) -> Any:
    """out = x where x > 0, a[k] x elsewhere.

    >>> x = np.array([[[-2.0, 3.0]]])
    >>> prelu(x, np.array([0.5]), np.empty_like(x), np.empty(2))
    array([[[-1.,  3.]]])
    """
    return prelu_gradient(x, x, a, out, work)  # x times the same slope


@op(replays=False)
def prelu_gradient(dy: Any, x: Any, a: Any, out: Any, work: Any) -> Any:
    """dx = dy where x > 0, a[k] dy elsewhere.

    >>> dy, x = np.ones((1, 1, 2)), np.array([[[-2.0, 3.0]]])
    >>> prelu_gradient(dy, x, np.array([0.5]), np.empty_like(x), np.empty(2))
    array([[[0.5, 1. ]]])
    """
    passes = np.greater(x, 0, out=work.view(np.bool_)[: x.size].reshape(x.shape))
    below = np.logical_not(passes, out=passes)  # and NaNs
    if out.ctypes.data != dy.ctypes.data:
        np.copyto(out, dy)
    np.multiply(out, a.reshape(-1, 1), out=out, where=below)


@op(traced=False)
def gradients(dy: Any, x: Any, a: Any, da: Any, db: Any, out: Any, work: Any) -> Any:
    """da[k] += the sum of dy x over samples and places, db[k] += that of dy, out = a[k] dy; all may be None.

    >>> dy, x = np.ones((1, 1, 3)), np.array([[[-2.0, 3.0, -1.0]]])
    >>> da, db = np.zeros(1), np.ones(1)
    >>> gradients(dy, x, np.array([2.0]), da, db, np.empty_like(x), np.empty(4)), da, db
    (array([[[2., 2., 2.]]]), array([0.]), array([4.]))
    """
    if not x.size:
        return
    if db is not None:
        add_sums(dy, db, work)
    if da is not None:
        add_products(dy, x, da, work)
    if out is not None:
        scale(dy, a, None, out)


def add_products(dy: Any, x: Any, out: Any, work: Any, *, below: bool = False) -> Any:
    """out[k] += the sum of dy x over samples and places; with `below`, where x < 0 only.

    >>> dy, x = np.ones((1, 1, 3)), np.array([[[-2.0, 3.0, -1.0]]])
    >>> add_products(dy, x, np.zeros(1), np.empty(4), below=True)
    array([-3.])
    """
    return _add_products(dy, x, out, work, 2 if below else 1)


def add_sums(dy: Any, out: Any, work: Any) -> Any:
    """out[k] += the sum of dy over samples and places.

    >>> add_sums(np.ones((2, 1, 3)), np.ones(1), np.empty(1))
    array([7.])
    """
    return _add_products(dy, dy, out, work, 0)


@op(replays=False)
def _add_products(dy: Any, x: Any, out: Any, work: Any, way: int) -> Any:
    """out[k] += the sum of dy (`way` 0), dy x (1), or dy x where x < 0 (2)."""
    if way:
        part, work = work[: x.size].reshape(x.shape), work[x.size :]
        dy = np.multiply(dy, np.minimum(x, 0, out=part) if way == 2 else x, out=part)
    out += np.sum(dy, axis=(0, 2), out=work[: out.size])
