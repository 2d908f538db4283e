"""Sums: of all entries, of columns, of rows. On CUDA always in one order, in memory that is there."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op

WORK = 1024  # elements of work with which `total` is as fast as can be


@op()
def total(
    x: Any,
    out: Any,
    work: Any = None,
    *,
    scale: float = 1.0,
    squares: bool = False,
    add: bool = False,
) -> Any:
    """out = scale (sum of x), of the squares with `squares`, plus what it was with `add`.

    out is of shape (), of x's type, or float32 for one of 16 bits, in which it is summed. `work` is flat
    scratch that makes large sums quicker: it is as right, and slower, without.

    >>> total(np.array([3.0, 4.0]), np.array(1.0), scale=2, squares=True, add=True)
    array(51.)
    """
    value = np.vdot(x, x) if squares else np.sum(x, dtype=out.dtype)
    out[...] = scale * value + (out if add else 0)


@op("out work", by_calls=True)
def rows(x: Any, out: Any, work: Any, of: str = "values", scale: float = 1.0) -> Any:
    """out[i] = scale (sum of row i of x), of its squares or magnitudes; x (m, k), `work` flat, of x's size.

    >>> rows(np.array([[3.0, -4.0]]), np.empty(1), np.empty(2), of="magnitudes", scale=2.0)
    array([14.])
    """
    if of != "values":
        x = (np.abs if of == "magnitudes" else np.square)(x, out=work[: x.size].reshape(x.shape))
    np.add.reduce(x, axis=1, out=out)
    np.multiply(out, scale, out=out)


@op(by_calls=True)
def add_rows(rows: Any, out: Any, add: bool = True) -> Any:
    """out += the sum of `rows`, from the first on, or = without `add`; (count, ...) to (...).

    >>> add_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    array([5., 7.])
    """
    if not add:
        np.add.reduce(rows, axis=0, out=out)
        return
    for row in rows:
        np.add(out, row, out=out)


@op()
def add_places(x: Any, out: Any, work: Any = None, add: bool = True) -> Any:
    """out[f] += the sum of x over samples and places, or = without `add`; x (n, f, p), `work` as in `total`.

    >>> add_places(np.arange(12.0).reshape(2, 3, 2), np.zeros(3))
    array([14., 22., 30.])
    """
    sums = np.einsum("nfp->f", x)
    if add:
        out += sums
    else:
        np.copyto(out, sums)
