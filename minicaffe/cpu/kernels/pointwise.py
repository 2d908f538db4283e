"""Products of a matrix with each sample: a 1 x 1 convolution, its adjoint, and its weight's gradient.

`sizes` are the groups, the rows (m) and the columns (k) of a group's matrix, and the places.
"""

from __future__ import annotations

from typing import Any

from minicaffe.cpu import at, compiled
from minicaffe.cpu.blas import gemm


@compiled
def product(
    blas: int,
    sizes: Any,
    parts: Any,
    w: Any,
    turned: bool,
    x: Any,
    bias: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """y[s, g] = w[g] x[s, g] + bias[g]: (m, k) (k, p); w lies there as (k, m) if it is `turned`.

    A unit is one of parts[0] bands of rows of y, and of parts[1] of places, of a sample's group.
    """
    groups, m, k, p = sizes
    down, across = parts
    for unit in range(first, last):
        i, j, whole = unit // across % down, unit % across, unit // across // down
        top, end, start, stop = m * i // down, m * (i + 1) // down, p * j // across, 0
        stop = p * (j + 1) // across
        here = whole % groups * m * k
        left = (w, here + top, m, True) if turned else (w, here + top * k, k, False)
        to = (whole * m + top) * p + start
        right, shape = (x, whole * k * p + start, p, False), (end - top, stop - start, k)
        gemm(blas, shape, left, right, False, (y, to, p))
        if bias.size:
            for row in range(whole % groups * m + top, whole % groups * m + end):
                for q in range(to, to + stop - start):
                    y[at(q)] += bias[at(row)]
                to += p


@compiled
def weight_gradient(
    blas: int,
    sizes: Any,
    parts: Any,
    n: int,
    x: Any,
    dy: Any,
    dw: Any,
    first: int,
    last: int,
) -> None:
    """dw[g] += sum over n samples of dy[s, g] x[s, g]': (m, p) (p, k).

    A unit is one of parts[0] bands of rows, and of parts[1] of columns, of a group.
    """
    groups, m, k, p = sizes
    down, across = parts
    for unit in range(first, last):
        i, j, g = unit // across % down, unit % across, unit // across // down
        top, end, start, stop = m * i // down, m * (i + 1) // down, k * j // across, 0
        stop = k * (j + 1) // across
        for s in range(n):
            whole = s * groups + g
            left = dy, (whole * m + top) * p, p, False
            right = x, (whole * k + start) * p, p, True
            shape = end - top, stop - start, p
            gemm(blas, shape, left, right, True, (dw, (g * m + top) * k + start, k))
