"""Direct convolution of three spatial axes: a row of pixels times one weight, added to a row of outputs."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, compiled_sums
from minicaffe.ops.loops.im2col import span


@compiled
def forward(
    x: Any,
    weight: Any,
    c: int,
    f: int,
    group: int,
    image: Any,
    window: Any,
    out: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """Add weight * x to y, for samples first..last."""
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
                            element += 1
                            for z in range(z0, z1):
                                for r in range(y0, y1):
                                    plane = channel * d + z * sd + a * dd - pd
                                    line = plane * h + r * sh + i * dh - ph
                                    here = line * w + j * dw - pw
                                    there = (((s * f + k) * od + z) * oh + r) * ow
                                    if sw == 1:
                                        for q in range(x0, x1):
                                            y[at(there + q)] += value * x[at(here + q)]
                                    else:
                                        for q in range(x0, x1):
                                            y[at(there + q)] += value * x[at(here + q * sw)]


@compiled
def input_gradient(
    dy: Any,
    weight: Any,
    c: int,
    f: int,
    group: int,
    image: Any,
    window: Any,
    out: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """Add weight' * dy to dx, for samples first..last."""
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
                            element += 1
                            for z in range(z0, z1):
                                for r in range(y0, y1):
                                    plane = channel * d + z * sd + a * dd - pd
                                    line = plane * h + r * sh + i * dh - ph
                                    here = line * w + j * dw - pw
                                    there = (((s * f + k) * od + z) * oh + r) * ow
                                    if sw == 1:
                                        for q in range(x0, x1):
                                            dx[at(here + q)] += value * dy[at(there + q)]
                                    else:
                                        for q in range(x0, x1):
                                            dx[at(here + q * sw)] += value * dy[at(there + q)]


@compiled_sums
def weight_gradient(
    x: Any,
    dy: Any,
    c: int,
    f: int,
    group: int,
    image: Any,
    window: Any,
    out: Any,
    dweight: Any,
    first: int,
    last: int,
) -> None:
    """Add the products of dy and the pixels each weight met, over samples first..last, to dweight."""
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
                            for z in range(z0, z1):
                                for r in range(y0, y1):
                                    plane = channel * d + z * sd + a * dd - pd
                                    line = plane * h + r * sh + i * dh - ph
                                    here = line * w + j * dw - pw
                                    there = (((s * f + k) * od + z) * oh + r) * ow
                                    row = dweight[at(element)] * 0
                                    for q in range(x0, x1):
                                        row += dy[at(there + q)] * x[at(here + q * sw)]
                                    dweight[at(element)] += row
                            element += 1
