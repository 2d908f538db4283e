"""The matrices of Winograd's transforms, by the method of Toom and Cook."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
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
    """The matrices A' and B' in a type, an axis each, with G for all axes between them; on a CUDA device
    each for all axes at once.
    """
    at, g, bt = kronecker(m, kernel)
    if device is None:
        each = [[matrix.astype(dtype) for matrix in matrices(m, r)] for r in kernel]
        return [one[0] for one in each], g.astype(dtype), [one[2] for one in each]
    import cupy

    at, g, bt = (cupy.asarray(matrix.astype(dtype)) for matrix in (at, g, bt))
    return [at], g, [bt]


@functools.cache
def by_axes(m: int, kernel: Sizes, dtype: Any) -> tuple[tuple[np.ndarray, ...], ...]:
    """B' and A of the first of two axes and of the second, as `loops.parity` wants them; on the CPU.

    Where there is one axis, nothing is done along the first.
    """
    none = (np.zeros((2, 0, 0)),) * 2
    axes = [none] * (2 - len(kernel))
    for r in kernel:
        at, _, bt = matrices(m, even(m + r - 1) - m + 1)
        axes.append((halves(bt), halves(at.T)))
    return tuple(
        tuple(np.array(a, dtype, order="C") for a in some) for some in zip(*axes, strict=True)
    )


@functools.cache
def of_weights(m: int, kernel: Sizes, stride: Sizes, dtype: Any, reverse: bool) -> np.ndarray:
    """G for both axes at once, for the tiles of `by_axes`; for a kernel that is back to front, if asked.

    One for each plane of a channel, (planes, points, elements of the kernel): of plane q of an axis element t
    is the (t // s)-th, if t % s = q. The planes' kernels are as long as the longest.
    """
    planes = []
    for rests in itertools.product(*map(range, stride)):
        along: list[np.ndarray] = []
        for k, s, q in zip(kernel, stride, rests, strict=True):
            r = -(-k // s)
            some = matrices(m, even(m + r - 1) - m + 1)[1][:, :r][:, :: -1 if reverse else 1]
            of_axis = np.zeros((len(some), k))
            of_axis[:, q::s] = some[:, : len(range(q, k, s))]
            along.append(of_axis)
        planes.append(functools.reduce(np.kron, along))
    return np.array(planes, dtype, order="C")


def halves(matrix: np.ndarray) -> np.ndarray:
    """Of rows for points 0, p, -p, q, ..., infinity those that differ, the even columns and the odd ones.

    >>> halves(matrices(2, 3)[0].T)
    array([[[1.],
            [1.]],
    <BLANKLINE>
           [[1.],
            [1.]]])
    """
    rows = range(1, len(matrix) - 1, 2)
    return np.stack([matrix[[0, *rows], ::2], matrix[[-1, *rows], 1::2]])


def even(size: int) -> int:
    """The next even size, if it is not: the points but 0 and infinity then are pairs."""
    return size + size % 2


def two(sizes: Sequence[int], fill: int) -> Sizes:
    """Sizes along two axes: where there is one, it is the second.

    >>> two((7,), 1)
    (1, 7)
    """
    return (*[fill] * (2 - len(sizes)), *sizes)
