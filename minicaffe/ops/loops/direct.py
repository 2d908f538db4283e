"""Direct convolution of three spatial axes, a row of pixels times one weight at a time; all three directions.

What a row does is decided for each anew, outside the innermost loop, where it costs nothing.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled_sums
from minicaffe.ops.loops.im2col import span

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)


@compiled_sums
def direct(
    way: int,
    x: Any,
    weight: Any,
    y: Any,
    c: int,
    f: int,
    group: int,
    image: Any,
    window: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """y += weight * x, or x += weight' * y, or weight += the sum of y times the pixels it met.

    For samples first..last; the two others are only read.
    """
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    cg, fg = c // group, f // group
    for s in range(first, last):
        for k in range(f):
            element = k * cg * kd * kh * kw
            for b in range(cg):
                channel = s * c + k // fg * cg + b
                for a in range(kd):
                    z0, z1 = span(d, od, a * dd - pd, sd)
                    for i in range(kh):
                        y0, y1 = span(h, oh, i * dh - ph, sh)
                        for j in range(kw):
                            x0, x1 = span(w, ow, j * dw - pw, sw)
                            value = weight[at(element)]
                            total = value * 0
                            for z in range(z0, z1):
                                for r in range(y0, y1):
                                    plane = channel * d + z * sd + a * dd - pd
                                    line = plane * h + r * sh + i * dh - ph
                                    here = line * w + j * dw - pw
                                    there = (((s * f + k) * od + z) * oh + r) * ow
                                    if way == WEIGHT_GRADIENT:
                                        for q in range(x0, x1):
                                            total += y[at(there + q)] * x[at(here + q * sw)]
                                    elif way == FORWARD and sw == 1:
                                        for q in range(x0, x1):
                                            y[at(there + q)] += value * x[at(here + q)]
                                    elif way == FORWARD:
                                        for q in range(x0, x1):
                                            y[at(there + q)] += value * x[at(here + q * sw)]
                                    elif sw == 1:
                                        for q in range(x0, x1):
                                            x[at(here + q)] += value * y[at(there + q)]
                                    else:
                                        for q in range(x0, x1):
                                            x[at(here + q * sw)] += value * y[at(there + q)]
                            if way == WEIGHT_GRADIENT:
                                weight[at(element)] += total
                            element += 1
