"""The matrices of Winograd's transforms, by the method of Toom and Cook."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.ops.geometry import Sizes

# Where the polynomials are evaluated (and at infinity), for tiles up to 4, 6 and 8 pixels: those of small
# numerators whose powers lose least in float32.
POINTS = {4: (0, 1, -1), 6: (0, 0.75, -0.75, 1.5, -1.5), 8: (0, 0.5, -0.5, 1, -1, 2, -2)}


@functools.cache
def matrices(m: int, r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A' (m, t), G (t, r) and B' (t, t) of F(m, r): y = A' [(G w) * (B' x)], t = m + r - 1.

    Toom and Cook's: x and w are polynomials, multiplied by their values at the points. Transposed, that
    is a filter.

    >>> at, g, bt = matrices(2, 3)
    >>> w, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 5.0])
    >>> at @ ((g @ w) * (bt @ x)), np.correlate(x, w)
    (array([ 7., 19.]), array([ 7., 19.]))
    """
    t = m + r - 1
    points = np.array(next(POINTS[most] for most in POINTS if t <= most)[: t - 1], np.float64)
    at, g, bt = np.zeros((m, t)), np.zeros((t, r)), np.zeros((t, t))
    at[:, :-1], at[-1, -1] = points ** np.arange(m)[:, None], 1
    for i, point in enumerate(points):
        others = np.delete(points, i)
        g[i] = point ** np.arange(r) / np.prod(point - others)
        bt[i, : t - 1] = np.poly(others)[::-1]
    g[-1, -1], bt[-1] = 1, np.poly(points)[::-1]
    return at, g, bt


@functools.cache
def kronecker(m: int, kernel: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices of `matrices` for all axes at once."""
    along = [matrices(m, r) for r in kernel]
    at, g, bt = (functools.reduce(np.kron, parts) for parts in zip(*along, strict=True))
    return at, g, bt


@functools.cache
def constants(m: int, kernel: Sizes, dtype: Any, device: int | None) -> tuple[Any, ...]:
    """The matrices of `kronecker` in a type, on the CPU or a CUDA device."""
    matrices = [matrix.astype(dtype) for matrix in kronecker(m, kernel)]
    if device is None:
        return tuple(matrices)
    import cupy

    return tuple(map(cupy.asarray, matrices))


@functools.cache
def along(
    m: int, kernel: Sizes, dtype: Any
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """A', G and B' of the first of two axes, then of the second, and their transposes; on the CPU.

    Where there is one axis, the second is of size 1, and nothing is done along it.
    """
    axes = [matrices(m, r) for r in kernel] + [(np.ones((1, 1)),) * 3] * (2 - len(kernel))
    found = [matrix for axis in axes for matrix in axis]
    plain, turned = (
        tuple(np.array(a, dtype, order="C") for a in some) for some in (found, [a.T for a in found])
    )
    return plain, turned


@functools.cache
def reversed_columns(m: int, kernel: Sizes, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """G of both axes, for a kernel that is back to front."""
    (_, g0, _, _, g1, _), _ = along(m, kernel, dtype)
    return np.ascontiguousarray(g0[:, ::-1]), np.ascontiguousarray(g1[:, ::-1])


def two(sizes: Sizes, fill: int) -> Sizes:
    """Sizes along two axes: the second is missing where there is one, so that its rows can be split.

    >>> two((7,), 1)
    (7, 1)
    """
    return (*sizes, *[fill] * (2 - len(sizes)))
