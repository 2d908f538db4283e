"""Local response normalisation of images x (m, h, w); windows reach `up` rows and `side` columns either way.

A unit is a strip of an image, of `wide` columns, whose rows are read again out of the cache: all columns
where windows reach to the side. Units are counted strip by strip, then image by image.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels import maths


@functools.cache
def of(dtype: np.dtype, root: bool) -> tuple[Any, Any]:
    """The loops for a type, forward and back; with `root` for beta = 3/4, which takes no power."""
    power, kind = maths.words(dtype)["power"], dtype.type

    @helper
    def shrunk(value, s, beta):
        """Value s^-beta."""
        if root:
            second = math.sqrt(s)
            return value / (second * math.sqrt(second))
        return value * power(s, -beta)

    @helper
    def down(x, squares, row, h, w, up, span, out):
        """out = the sum of x, or of its squares, over the rows around row `row` of all images' rows."""
        here, image, (q0, q1) = row * w, row // h * h, span
        for q in range(q0, q1):
            out[at(here + q)] = 0
        for near in range(max(image, row - up), min(image + h, row + up + 1)):
            line = near * w
            if squares:
                for q in range(q0, q1):
                    out[at(here + q)] += x[at(line + q)] * x[at(line + q)]
            else:
                for q in range(q0, q1):
                    out[at(here + q)] += x[at(line + q)]

    @helper
    def along(x, here, w, side, out):
        """out = the sum of x over the columns around each of a row."""
        for q in range(here, here + w):
            out[at(q)] = x[at(q)]
        for step in range(1, min(side, w - 1) + 1):
            for q in range(here, here + w - step):
                out[at(q)] += x[at(q + step)]
            for q in range(here + step, here + w):
                out[at(q)] += x[at(q - step)]

    def lrn(x, sizes, reach, numbers, work, s, y, first, last):
        (h, w, wide), (up, side), (base, alpha, beta) = sizes, reach, numbers
        strips = -(-w // wide)
        for unit in range(first, last):
            q0 = unit % strips * wide
            q1 = min(w, q0 + wide)
            for row in range(unit // strips * h, (unit // strips + 1) * h):
                here = row * w
                if side:
                    down(x, True, row, h, w, up, (q0, q1), work)
                    along(work, here, w, side, s)
                else:
                    down(x, True, row, h, w, up, (q0, q1), s)
                for q in range(here + q0, here + q1):
                    s[at(q)] = base + alpha * s[at(q)]
                    y[at(q)] = shrunk(x[at(q)], s[at(q)], beta)

    def lrn_gradient(x, dy, sizes, reach, numbers, s, ratio, total, dx, first, last):
        (h, w, wide), (up, side), (_, alpha, beta) = sizes, reach, numbers
        strips, factor = -(-w // wide), kind(2) * alpha * beta
        for unit in range(first, last):
            q0 = unit % strips * wide
            q1, top = min(w, q0 + wide), unit // strips * h
            for row in range(top, top + h):
                for q in range(row * w + q0, row * w + q1):
                    dx[at(q)] = shrunk(dy[at(q)], s[at(q)], beta)
                    ratio[at(q)] = dx[at(q)] * x[at(q)] / s[at(q)]
            for row in range(top, top + h):
                down(ratio, False, row, h, w, up, (q0, q1), total)
            for row in range(top, top + h):
                here = row * w
                if side:
                    along(total, here, w, side, ratio)
                    for q in range(here, here + w):
                        dx[at(q)] -= factor * x[at(q)] * ratio[at(q)]
                else:
                    for q in range(here + q0, here + q1):
                        dx[at(q)] -= factor * x[at(q)] * total[at(q)]

    for loop in (lrn, lrn_gradient):
        loop.__name__ += "_root" if root else ""  # under which it is kept
    return compiled(lrn), compiled(lrn_gradient)
