"""The matrices of Winograd's transforms, by the method of Toom and Cook.

Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.core.ops.geometry import Sizes, Window

# The points at which the polynomials are evaluated (and at infinity), for tiles of up to 4, 6 and 8 pixels:
# with small numerators, and with powers that lose least in float32.
POINTS = {4: (0, 1, -1), 6: (0, 0.6875, -0.6875, 1.4375, -1.4375), 8: (0, 0.5, -0.5, 1, -1, 2, -2)}


@functools.cache
def matrices(m: int, r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns A' (m, t), G (t, r) and B' (t, t) of F(m, r): y = A' [(G w) * (B' x)], t = m + r - 1.

    By Toom and Cook the product of two polynomials is computed from their values at the points. The transpose
    of this product is a filter.

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
    """Returns the matrices of `matrices` for all axes at once: their Kronecker products."""
    along = [matrices(m, r) for r in kernel]
    at, g, bt = (functools.reduce(np.kron, parts) for parts in zip(*along, strict=True))
    return at, g, bt


@functools.cache
def constants(m: int, kernel: Sizes, dtype: Any, xp: Any, device: str) -> tuple[Any, ...]:
    """Returns A', G and B' in a type: G for all axes at once, A' and B' as lists of one matrix for each axis;
    on a CUDA device each list is one matrix for all axes.
    """
    at, g, bt = kronecker(m, kernel)
    if xp is np:
        each = [[matrix.astype(dtype) for matrix in matrices(m, r)] for r in kernel]
        return [one[0] for one in each], g.astype(dtype), [one[2] for one in each]
    at, g, bt = (xp.asarray(matrix.astype(dtype)) for matrix in (at, g, bt))
    return [at], g, [bt]


@functools.cache
def by_axes(m: int, kernel: Sizes, dtype: Any) -> tuple[tuple[np.ndarray, ...], ...]:
    """Returns B' of two axes and A of two axes, as `halves`, for the loops of
    backends/cpu/kernels/winograd_transforms.py.

    With one axis, the matrices of the first are empty.
    """
    none = (np.zeros((2, 0, 0)),) * 2
    axes = [none] * (2 - len(kernel))
    for r in kernel:
        at, _, bt = matrices(m, even(m + r - 1) - m + 1)
        axes.append((halves(bt), halves(at.T)))
    return tuple(
        tuple(np.array(a, dtype, order="C") for a in pair) for pair in zip(*axes, strict=True)
    )


@functools.cache
def of_weights(m: int, kernel: Sizes, stride: Sizes, dtype: Any, reverse: bool) -> np.ndarray:
    """Returns G for both axes at once, for the tiles of `by_axes`; with `reverse` for a reversed kernel.

    One matrix for each plane of a channel, (planes, points, kernel elements). Plane q of an axis has the
    kernel elements t with t % s = q; shorter kernels are filled with zeros.
    """
    planes = []
    for rests in itertools.product(*map(range, stride)):
        along: list[np.ndarray] = []
        for k, s, q in zip(kernel, stride, rests, strict=True):
            r = -(-k // s)
            g = matrices(m, even(m + r - 1) - m + 1)[1][:, :r][:, :: -1 if reverse else 1]
            of_axis = np.zeros((len(g), k))
            of_axis[:, q::s] = g[:, : len(range(q, k, s))]
            along.append(of_axis)
        planes.append(functools.reduce(np.kron, along))
    return np.array(planes, dtype, order="C")


def halves(matrix: np.ndarray) -> np.ndarray:
    """Returns the even columns of the rows for 0, p, q, ..., and the odd ones for infinity, p, q, ...

    The row for -p has the same even columns and the negative odd ones, so it shares the products of p.

    >>> halves(matrices(2, 3)[0].T)
    array([[[1.],
            [1.]],
    <BLANKLINE>
           [[1.],
            [1.]]])
    """
    rows = range(1, len(matrix) - 1, 2)
    return np.stack([matrix[[0, *rows], ::2], matrix[[-1, *rows], 1::2]])


def taps(window: Window) -> Sizes:
    """Returns the kernel elements along each axis that read one plane, at most."""
    return tuple(-(-k // s) for k, s in zip(window.kernel, window.stride, strict=True))


def even(size: int) -> int:
    """Returns the size rounded up to even, so that the points except 0 and infinity are pairs."""
    return size + size % 2


def two(sizes: Sequence[int], fill: int) -> tuple[int, int]:
    """Returns sizes along two axes; a single axis is the second.

    >>> two((7,), 1)
    (1, 7)
    """
    first, second = *[fill] * (2 - len(sizes)), *sizes
    return first, second
