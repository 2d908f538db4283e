"""Average pooling of planes (h, w); planes first..last of a batch. Windows share sums as in `pool`."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, compiled_sums, helper
from minicaffe.ops.loops.pool import whole


@helper
def sum_of(x: Any, start: int, count: int, k: int, step: int, out: Any, to: int) -> None:
    """out[to + p] = the sum of x[start + p + i step], i < k."""
    if k == 3:
        for p in range(count):
            pair = x[at(start + p)] + x[at(start + p + step)]
            out[at(to + p)] = pair + x[at(start + p + 2 * step)]
        return
    for p in range(count):
        out[at(to + p)] = x[at(start + p)]
    for i in range(1, k):
        for p in range(count):
            out[at(to + p)] += x[at(start + p + i * step)]


@compiled_sums
def ave_pool(
    x: Any,
    image: Any,
    window: Any,
    out: Any,
    rows: Any,
    columns: Any,
    work: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """Each window's sum, divided by its rows and columns."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    y0, y1 = whole(h, oh, kh, sh, ph)
    x0, x1 = whole(w, ow, kw, sw, pw)
    if oh * ow == 1 or y1 <= y0 or x1 <= x0:
        y1, x1 = y0, x0
    size = h * w
    for plane in range(first, last):
        start = plane * size
        if y1 > y0:
            sum_of(x, start, size - kw + 1, kw, 1, work, 0)
            sum_of(work, 0, (h - kh) * w + w - kw + 1, kh, w, work, size)
        for oy in range(oh):
            top, row = oy * sh - ph, (plane * oh + oy) * ow
            inner = y0 <= oy < y1
            here = size + top * w - pw
            if inner and sw == 2:
                for q in range(x0, x1):
                    y[at(row + q)] = work[at(here + 2 * q)] / rows[oy] / columns[at(q)]
            elif inner:
                for q in range(x0, x1):
                    y[at(row + q)] = work[at(here + q * sw)] / rows[oy] / columns[at(q)]
            within = x1 - x0 if inner else 0
            for k in range(ow - within):  # the others
                q = k if k < x0 else k + within
                left, total = q * sw - pw, y.dtype.type(0)
                if left <= 0 and left + kw >= w:  # whole rows
                    upper, lower = max(0, top), min(h, top + kh)
                    for p in range(start + upper * w, start + lower * w):
                        total += x[at(p)]
                    y[at(row + q)] = total / rows[oy] / columns[q]
                    continue
                for i in range(max(0, -top), min(kh, h - top)):
                    for j in range(max(0, -left), min(kw, w - left)):
                        total += x[at(start + (top + i) * w + left + j)]
                y[at(row + q)] = total / rows[oy] / columns[q]


@compiled
def ave_pool_gradient(
    dy: Any,
    image: Any,
    window: Any,
    out: Any,
    rows: Any,
    columns: Any,
    work: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """Each window's gradient, divided by its rows and columns, to all its pixels: to a row, then down."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    for i in range(first * h * w, last * h * w):
        dx[at(i)] = 0
    for row in range(first * oh, last * oh):
        top, plane = row % oh * sh - ph, row // oh * h
        for p in range(w):
            work[at(p)] = 0
        for q in range(ow):
            work[at(w + q)] = dy[at(row * ow + q)] / rows[row % oh] / columns[at(q)]
        for j in range(min(kw, w + pw)):
            x0, x1 = max(0, -((j - pw) // sw)), min(ow, (w - 1 - j + pw) // sw + 1)
            if sw == 1:
                for q in range(x0, x1):
                    work[at(j - pw + q)] += work[at(w + q)]
            else:
                for q in range(x0, x1):
                    work[at(j - pw + q * sw)] += work[at(w + q)]
        for i in range(max(0, -top), min(kh, h - top)):
            here = (plane + top + i) * w
            for p in range(w):
                dx[at(here + p)] += work[at(p)]
