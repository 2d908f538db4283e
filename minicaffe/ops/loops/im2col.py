"""im2col and col2im of three spatial axes.

`steps` are the distances in the flat columns from a sample, a channel, a kernel element and a place to the
next. The first pair of loops is for columns whose places lie side by side, the second for rows, whose kernel
elements do: either way the innermost loop runs along memory.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled


@compiled
def span(size: int, count: int, offset: int, stride: int) -> tuple[int, int]:
    """The outputs o for which pixel o stride + offset lies in the image (geometry.valid_range)."""
    if stride == 1:  # no division, which costs more than all else here
        first, end = max(0, -offset), size - offset
    else:
        first, end = max(0, -(offset // stride)), (size - 1 - offset) // stride + 1
    first = min(first, count)
    return first, max(first, min(count, end))


@compiled
def im2col(
    x: Any, c: int, image: Any, window: Any, out: Any, col: Any, steps: Any, first: int, last: int
) -> None:
    """The columns of samples first..last of x."""
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    sample, channel, element, _ = steps
    for s in range(first, last):
        for k in range(c):
            for a in range(kd):
                z0, z1 = span(d, od, a * dd - pd, sd)
                for i in range(kh):
                    y0, y1 = span(h, oh, i * dh - ph, sh)
                    for j in range(kw):
                        x0, x1 = span(w, ow, j * dw - pw, sw)
                        row = s * sample + k * channel + ((a * kh + i) * kw + j) * element
                        if (z1 - z0) * (y1 - y0) * (x1 - x0) < od * oh * ow:
                            for q in range(od * oh * ow):
                                col[at(row + q)] = 0
                        for z in range(z0, z1):
                            plane = ((s * c + k) * d + z * sd + a * dd - pd) * h
                            for y in range(y0, y1):
                                here = (plane + y * sh + i * dh - ph) * w + j * dw - pw
                                there = row + (z * oh + y) * ow
                                if sw == 1:
                                    for q in range(x0, x1):
                                        col[at(there + q)] = x[at(here + q)]
                                else:
                                    for q in range(x0, x1):
                                        col[at(there + q)] = x[at(here + q * sw)]


@compiled
def col2im(
    col: Any,
    c: int,
    image: Any,
    window: Any,
    out: Any,
    x: Any,
    steps: Any,
    first: int,
    last: int,
    clear: bool,
) -> None:
    """The images first..last, each pixel the sum of the entries read from it; added to without `clear`."""
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    sample, channel, element, _ = steps
    for s in range(first, last):
        for k in range(c):
            if clear:
                for q in range(d * h * w):
                    x[at((s * c + k) * d * h * w + q)] = 0
            for a in range(kd):
                z0, z1 = span(d, od, a * dd - pd, sd)
                for i in range(kh):
                    y0, y1 = span(h, oh, i * dh - ph, sh)
                    for j in range(kw):
                        x0, x1 = span(w, ow, j * dw - pw, sw)
                        row = s * sample + k * channel + ((a * kh + i) * kw + j) * element
                        for z in range(z0, z1):
                            plane = ((s * c + k) * d + z * sd + a * dd - pd) * h
                            for y in range(y0, y1):
                                here = (plane + y * sh + i * dh - ph) * w + j * dw - pw
                                there = row + (z * oh + y) * ow
                                if sw == 1:
                                    for q in range(x0, x1):
                                        x[at(here + q)] += col[at(there + q)]
                                else:
                                    for q in range(x0, x1):
                                        x[at(here + q * sw)] += col[at(there + q)]


@compiled
def im2row(
    x: Any, c: int, image: Any, window: Any, out: Any, col: Any, steps: Any, first: int, last: int
) -> None:
    """The rows of samples first..last of x."""
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    sample, channel, _, place = steps
    for s in range(first, last):
        for k in range(c):
            for oz in range(od):
                for oy in range(oh):
                    for q in range(ow):
                        x0, x1 = span(w, kw, q * sw - pw, dw)
                        there = s * sample + k * channel + ((oz * oh + oy) * ow + q) * place
                        for a in range(kd):
                            z = oz * sd - pd + a * dd
                            for i in range(kh):
                                y = oy * sh - ph + i * dh
                                here = (((s * c + k) * d + z) * h + y) * w + q * sw - pw
                                inside = 0 <= z < d and 0 <= y < h
                                if not inside or x1 - x0 < kw:
                                    for j in range(kw):
                                        col[at(there + j)] = 0
                                if inside and dw == 1:
                                    for j in range(x0, x1):
                                        col[at(there + j)] = x[at(here + j)]
                                elif inside:
                                    for j in range(x0, x1):
                                        col[at(there + j)] = x[at(here + j * dw)]
                                there += kw


@compiled
def row2im(
    col: Any,
    c: int,
    image: Any,
    window: Any,
    out: Any,
    x: Any,
    steps: Any,
    first: int,
    last: int,
    clear: bool,
) -> None:
    """The images first..last from their rows, as `col2im`."""
    (d, h, w), (od, oh, ow) = image, out
    (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
    sample, channel, _, place = steps
    for s in range(first, last):
        for k in range(c):
            if clear:
                for q in range(d * h * w):
                    x[at((s * c + k) * d * h * w + q)] = 0
            for oz in range(od):
                for oy in range(oh):
                    for q in range(ow):
                        x0, x1 = span(w, kw, q * sw - pw, dw)
                        there = s * sample + k * channel + ((oz * oh + oy) * ow + q) * place
                        for a in range(kd):
                            z = oz * sd - pd + a * dd
                            for i in range(kh):
                                y = oy * sh - ph + i * dh
                                here = (((s * c + k) * d + z) * h + y) * w + q * sw - pw
                                inside = 0 <= z < d and 0 <= y < h
                                if inside and dw == 1:
                                    for j in range(x0, x1):
                                        x[at(here + j)] += col[at(there + j)]
                                elif inside:
                                    for j in range(x0, x1):
                                        x[at(here + j * dw)] += col[at(there + j)]
                                there += kw
