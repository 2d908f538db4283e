"""Max pooling of planes (h, w); planes first..last of a batch.

What all windows share is computed once, at every pixel, in two passes over a plane as one long row: the best
of kw neighbours, then of kh of those a row apart. A window's result is then found at its corner. Vectors are
thus filled whatever the width. Windows that reach past the image are computed one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.ops.loops import at, compiled, helper


@helper
def whole(size: int, count: int, kernel: int, stride: int, pad: int) -> tuple[int, int]:
    """The windows, from first to end, that lie in the image along an axis."""
    first = -(-pad // stride)
    return min(first, count), max(
        min((size - kernel + pad) // stride + 1, count), min(first, count)
    )


@helper
def best_of(x: Any, start: int, count: int, k: int, step: int, out: Any, to: int) -> None:
    """out[to + p] = the largest of x[start + p + i step], i < k; a NaN is none."""
    least = out.dtype.type(-np.inf)
    if k == 3:
        for p in range(count):
            a, b, c = x[at(start + p)], x[at(start + p + step)], x[at(start + p + 2 * step)]
            best = a if a > least else least
            best = b if b > best else best
            out[at(to + p)] = c if c > best else best
        return
    for p in range(count):
        a = x[at(start + p)]
        out[at(to + p)] = a if a > least else least
    for i in range(1, k):
        for p in range(count):
            a, best = x[at(start + p + i * step)], out[at(to + p)]
            out[at(to + p)] = a if a > best else best


@helper
def find_best(
    x: Any,
    start: int,
    known: Any,
    count: int,
    k: int,
    step: int,
    each: int,
    out: Any,
    to: int,
    names: int,
) -> None:
    """`best_of`, and out[names + p] = each i + known[known's start + p + i step] of the first such."""
    numbers, there, given = known
    kind = out.dtype.type
    least = kind(-np.inf)
    if k == 3 and not given:
        one, two = kind(each), kind(2 * each)
        for p in range(count):
            a, b, c = x[at(start + p)], x[at(start + p + step)], x[at(start + p + 2 * step)]
            best = a if a > least else least
            name = kind(0) if a > least else kind(-1)
            name = one if b > best else name
            best = b if b > best else best
            out[at(names + p)] = two if c > best else name
            out[at(to + p)] = c if c > best else best
        return
    if k == 3:
        one, two = kind(each), kind(2 * each)
        for p in range(count):
            a, b, c = x[at(start + p)], x[at(start + p + step)], x[at(start + p + 2 * step)]
            name = numbers[at(there + p)]
            second = one + numbers[at(there + p + step)]
            third = two + numbers[at(there + p + 2 * step)]
            best = a if a > least else least
            name = name if a > least else kind(-1)
            name = second if b > best else name
            best = b if b > best else best
            out[at(names + p)] = third if c > best else name
            out[at(to + p)] = c if c > best else best
        return
    for p in range(count):
        a = x[at(start + p)]
        number = numbers[at(there + p)] if given else kind(0)
        out[at(to + p)] = a if a > least else least
        out[at(names + p)] = number if a > least else kind(-1)
    for i in range(1, k):
        for p in range(count):
            a, best, name = x[at(start + p + i * step)], out[at(to + p)], out[at(names + p)]
            number = (numbers[at(there + p + i * step)] if given else kind(0)) + kind(each * i)
            out[at(to + p)] = a if a > best else best
            out[at(names + p)] = number if a > best else name


@compiled
def max_pool(
    x: Any,
    image: Any,
    window: Any,
    out: Any,
    keep: bool,
    work: Any,
    y: Any,
    which: Any,
    first: int,
    last: int,
) -> None:
    """Each window's largest pixel and, with `keep`, the number of the kernel element that saw it."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    y0, y1 = whole(h, oh, kh, sh, ph)
    x0, x1 = whole(w, ow, kw, sw, pw)
    if oh * ow == 1 or y1 <= y0 or x1 <= x0:  # nothing that windows share
        y1, x1 = y0, x0
    size, along, down = h * w, h * w - kw + 1, (h - kh) * w + w - kw + 1
    for plane in range(first, last):
        start, to = plane * size, plane * oh * ow
        if y1 > y0 and keep:
            find_best(x, start, (work, 0, False), along, kw, 1, 1, work, 0, size)
            given = (work, size, True)
            find_best(work, 0, given, down, kh, w, kw, work, 2 * size, 3 * size)
        elif y1 > y0:
            best_of(x, start, along, kw, 1, work, 0)
            best_of(work, 0, down, kh, w, work, size)
        found = 2 * size if keep else size
        for oy in range(oh):
            top, row = oy * sh - ph, to + oy * ow
            inner = y0 <= oy < y1
            here = found + top * w - pw
            if inner and sw == 2:  # said apart: a step known beforehand becomes vector loads
                for q in range(x0, x1):
                    y[at(row + q)] = work[at(here + 2 * q)]
            elif inner:
                for q in range(x0, x1):
                    y[at(row + q)] = work[at(here + q * sw)]
            if inner and keep and sw == 2:
                for q in range(x0, x1):
                    which[at(row + q)] = np.int32(work[at(here + size + 2 * q)])
            elif inner and keep:
                for q in range(x0, x1):
                    which[at(row + q)] = np.int32(work[at(here + size + q * sw)])
            within = x1 - x0 if inner else 0
            for k in range(ow - within):  # the others
                q = k if k < x0 else k + within
                left = q * sw - pw
                best, winner = y.dtype.type(-np.inf), np.int32(-1)
                for i in range(max(0, -top), min(kh, h - top)):
                    for j in range(max(0, -left), min(kw, w - left)):
                        value = x[at(start + (top + i) * w + left + j)]
                        winner = np.int32(i * kw + j) if value > best else winner
                        best = value if value > best else best
                y[at(row + q)] = 0 if top >= h or left >= w else best
                if keep:
                    which[at(row + q)] = winner


@compiled
def max_pool_gradient(
    dy: Any,
    which: Any,
    image: Any,
    window: Any,
    out: Any,
    offset: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """Each window's gradient to the pixel that won it, at `offset[winner]` from the window's corner."""
    (h, w), (oh, ow) = image, out
    _, (sh, sw), (ph, pw) = window
    for i in range(first * h * w, last * h * w):
        dx[at(i)] = 0
    for row in range(first * oh, last * oh):
        corner = (row // oh * h + row % oh * sh - ph) * w - pw
        for q in range(ow):
            winner = which[at(row * ow + q)]
            if winner >= 0:
                dx[at(corner + q * sw + offset[at(winner)])] += dy[at(row * ow + q)]
