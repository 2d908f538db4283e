"""Pooling of planes (h, w), by the largest pixel or by the average; planes first..last of a batch.

What all windows share is computed once, at every pixel, in two passes over a plane as one long row: the best
(or the sum) of kw neighbours, then of kh of those a row apart. A window's result is then found at its corner.
Vectors are thus filled whatever the width. Where windows reach past the image, the plane is first laid out
with what never wins around it. Of windows of 2 x 2 side by side a vector of neighbours is computed at a time.
Of regions of interest the largest pixel is taken region by region, its gradient channel by channel.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels.im2col import lay
from minicaffe.backends.cpu.vector_ir import INT, emitted, ir

# Windows of 2 x 2 of a vector; where a row has fewer left, its last are computed again
MANY, SOME = 8, 4


@helper
def extents(image, window, out):
    """Rows and columns from the first window to the last, and whether some reach past the image."""
    (kh, kw), (sh, sw), (ph, pw) = window
    lines, across = (out[0] - 1) * sh + kh, (out[1] - 1) * sw + kw
    return (lines, across), ph + pw > 0 or lines > image[0] or across > image[1]


def _of_neighbours(join: Any, neutral: float) -> Any:
    """The loop that joins k neighbours, beginning with a number that changes none."""

    @helper
    def of_neighbours(x, start, count, k, step, out, to):
        """out[to + p] = all x[start + p + i step], i < k, joined."""
        first = out.dtype.type(neutral)
        if k == 3:
            for p in range(count):
                two = join(join(first, x[at(start + p)]), x[at(start + p + step)])
                out[at(to + p)] = join(two, x[at(start + p + 2 * step)])
            return
        for p in range(count):
            out[at(to + p)] = join(first, x[at(start + p)])
        for i in range(1, k):
            for p in range(count):
                out[at(to + p)] = join(out[at(to + p)], x[at(start + p + i * step)])

    return of_neighbours


best_of = _of_neighbours(helper(lambda best, a: a if a > best else best), -np.inf)  # a NaN is none
sum_of = _of_neighbours(helper(lambda total, a: total + a), -0.0)


def _find_best(named: bool) -> Any:
    """`best_of` that names each winner, by what it was named before, if it was, and by its number."""

    @helper
    def find_best(x, start, names, before, count, k, step, each, out, to, winners):
        """out[winners + p] = each i + names[before + p + i step] of the first x[start + p + i step], i < k."""
        kind = out.dtype.type
        least, none, zero, one, two = kind(-np.inf), kind(-1), kind(0), kind(each), kind(2 * each)
        if k == 3:
            for p in range(count):
                a, b, c = x[at(start + p)], x[at(start + p + step)], x[at(start + p + 2 * step)]
                name = names[at(before + p)] if named else zero
                second = one + names[at(before + p + step)] if named else one
                third = two + names[at(before + p + 2 * step)] if named else two
                best = a if a > least else least
                name = name if a > least else none
                name = second if b > best else name
                best = b if b > best else best
                out[at(winners + p)] = third if c > best else name
                out[at(to + p)] = c if c > best else best
            return
        for p in range(count):
            a = x[at(start + p)]
            number = names[at(before + p)] if named else zero
            out[at(to + p)] = a if a > least else least
            out[at(winners + p)] = number if a > least else none
        for i in range(1, k):
            for p in range(count):
                a, best, name = x[at(start + p + i * step)], out[at(to + p)], out[at(winners + p)]
                number = (names[at(before + p + i * step)] if named else zero) + kind(each * i)
                out[at(to + p)] = a if a > best else best
                out[at(winners + p)] = number if a > best else name

    return find_best


_best_along, _best_down = _find_best(False), _find_best(True)


@helper
def best_of_row(line, start, k, step, out, to, count):
    """out[to + q] = the largest of line[start + step q + i], i < k, where no number is less than -inf."""
    if k == 3 and step == 2:  # said apart: a step known beforehand becomes vector loads
        for q in range(count):
            a, b = line[at(start + 2 * q)], line[at(start + 2 * q + 1)]
            c, best = line[at(start + 2 * q + 2)], b if b > a else a
            out[at(to + q)] = c if c > best else best
        return
    for q in range(count):
        out[at(to + q)] = line[at(start + step * q)]
    for i in range(1, k):
        for q in range(count):
            a, best = line[at(start + step * q + i)], out[at(to + q)]
            out[at(to + q)] = a if a > best else best


@compiled
def largest(x, image, window, out, work, y, first, last):
    """Each window's largest pixel, as `max_pool`: down the columns of its row, then along it.

    Where the results are as many as the pixels, all rows are one long row, whose ends are then written anew.
    """
    (h, w), (oh, ow), ((kh, kw), (sh, sw), (ph, pw)) = image, out, window
    alike = sh == 1 and sw == 1 and h == oh and w == ow
    pad = 0 if alike else pw
    across = (ow - 1) * sw + kw
    seen = min(ow, -(-(w + pw) // sw))  # windows of a row that are not past the image
    for q in range(0 if alike else max(across, w + pw)):
        work[at(q)] = work.dtype.type(-np.inf)
    for plane in range(first, last):
        start, to = plane * h * w, plane * oh * ow
        oy = 0
        while oy < oh:
            low, high, rows = max(0, oy * sh - ph), min(h, oy * sh - ph + kh), 1
            if alike and high - low == kh:
                rows = max(1, h - kh + ph + 1 - oy)
            here = oy * w if alike else 0
            if low < high:
                best_of(x, start + low * w, rows * w, high - low, w, work, here + pad)
                if not alike:
                    best_of_row(work, 0, kw, sw, y, to + oy * ow, seen)
            if not alike:
                for q in range(seen if low < high else 0, ow):
                    y[at(to + oy * ow + q)] = 0
            oy += rows
        if alike:
            best_of(work, 0, h * w - kw + 1, kw, 1, y, to + pw)
            for i in range(kw - 1):
                q = i if i < pw else w - kw + 1 + i
                a, b = max(0, q - pw), min(w, q - pw + kw)
                for row in range(0, h * w, w):
                    best = work[at(row + a)]
                    for j in range(row + a + 1, row + b):
                        best = work[at(j)] if work[at(j)] > best else best
                    y[at(to + row + q)] = best


@compiled
def max_pool(x, image, window, out, work, y, which, first, last):
    """Each window's largest pixel, and the number of the kernel element that saw it."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    least, (extent, padded) = x.dtype.type(-np.inf), extents(image, window, out)
    lines, across = extent
    pitch = across if padded else w
    size = lines * pitch
    along, down = size - pitch + across - kw + 1, (lines - kh) * pitch + across - kw + 1
    seen = min(ow, -(-(w + pw) // sw))  # windows of a row that are not past the image
    for plane in range(first, last):
        start, to = plane * h * w, plane * oh * ow
        if oh * ow == 1:  # nothing that windows share
            best, winner = least, np.int32(-1)
            for i in range(ph, min(kh, h + ph)):
                for j in range(pw, min(kw, w + pw)):
                    value = x[at(start + (i - ph) * w + j - pw)]
                    winner = np.int32(i * kw + j) if value > best else winner
                    best = value if value > best else best
            y[at(to)], which[at(to)] = best, winner
            continue
        source, base = x, start
        if padded:
            lay(x, start, image, (-ph, -pw), extent, least, work, 0)
            source, base = work, 0
        _best_along(source, base, work, 0, along, kw, 1, 1, work, size, 2 * size)
        _best_down(work, size, work, 2 * size, down, kh, pitch, kw, work, 3 * size, 4 * size)
        for oy in range(oh):
            row, here = to + oy * ow, 3 * size + oy * sh * pitch
            if sw == 2:  # said apart: a step known beforehand becomes vector loads
                for q in range(ow):
                    y[at(row + q)] = work[at(here + 2 * q)]
                for q in range(ow):
                    which[at(row + q)] = np.int32(work[at(here + size + 2 * q)])
            else:
                for q in range(ow):
                    y[at(row + q)] = work[at(here + q * sw)]
                for q in range(ow):
                    which[at(row + q)] = np.int32(work[at(here + size + q * sw)])
            for q in range(seen if oy * sh < h + ph else 0, ow):
                y[at(row + q)] = 0


@compiled
def max_pool_gradient(dy, which, image, window, out, offset, dx, first, last):
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


@compiled_sums
def ave_pool(x, image, window, out, rows, columns, work, y, first, last):
    """Each window's sum, divided by its rows and columns."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    extent, padded = extents(image, window, out)
    lines, across = extent
    pitch = across if padded else w
    size = lines * pitch
    for plane in range(first, last):
        start, to = plane * h * w, plane * oh * ow
        if oh * ow == 1:  # nothing that windows share
            total, runs, run = y.dtype.type(0), min(h, kh - ph), min(w, kw - pw)
            if run == w:  # whole rows
                runs, run = 1, runs * w
            for i in range(runs):
                for p in range(start + i * w, start + i * w + run):
                    total += x[at(p)]
            y[at(to)] = total / rows[0] / columns[0]
            continue
        source, base = x, start
        if padded:
            lay(x, start, image, (-ph, -pw), extent, x.dtype.type(0), work, 0)
            source, base = work, 0
        sum_of(source, base, size - pitch + across - kw + 1, kw, 1, work, size)
        sum_of(work, size, (lines - kh) * pitch + across - kw + 1, kh, pitch, work, 2 * size)
        for oy in range(oh):
            row, here = to + oy * ow, 2 * size + oy * sh * pitch
            if sw == 2:
                for q in range(ow):
                    y[at(row + q)] = work[at(here + 2 * q)] / rows[oy] / columns[at(q)]
            else:
                for q in range(ow):
                    y[at(row + q)] = work[at(here + q * sw)] / rows[oy] / columns[at(q)]


@compiled
def ave_pool_gradient(dy, image, window, out, rows, columns, work, dx, first, last):
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


def _best_of_four(count: int) -> Any:
    """The kernel for `count` windows: the largest pixel of each and, with `keep`, which of 0..3 it is."""

    @emitted("x", count)
    def best(on, x, here, w, y, which, to, keep):
        builder, pixels = on.builder, []
        for start in (here, builder.add(here, w)):
            two = on.load(on.at(x, start)), on.load(on.at(x, start, INT(count)))
            pixels += [on.pick(two[0], range(i, 2 * count, 2), two[1]) for i in (0, 1)]
        least = best = ir.Constant(on.vector, [-np.inf] * count)
        for pixel in pixels:
            best = builder.select(builder.fcmp_ordered(">", pixel, best), pixel, best)
        on.store(best, on.at(y, to))
        with builder.if_then(keep):
            number = on.integers(3)
            for k in (2, 1, 0):
                same = builder.fcmp_ordered("==", pixels[k], best)
                number = builder.select(same, on.integers(k), number)
            number = builder.select(builder.fcmp_ordered(">", best, least), number, on.integers(-1))
            on.store(number, on.at(which, to))

    return best


def _spread_over_four(count: int) -> Any:
    """The kernel for `count` windows: the gradient of each goes to the pixel that won, 0 to the others."""

    @emitted("dy", count)
    def spread(on, dx, here, w, dy, which, to, keep):
        builder, value = on.builder, on.load(on.at(dy, to))
        winner = on.load(on.at(which, to), on.integers(0).type)
        pixels = [
            builder.select(builder.icmp_signed("==", winner, on.integers(k)), value, on.zero())
            for k in range(4)
        ]
        mixed = [j // 2 + j % 2 * count for j in range(2 * count)]
        for start, left, right in ((here, *pixels[:2]), (builder.add(here, w), *pixels[2:])):
            on.store(on.pick(left, mixed[:count], right), on.at(dx, start))
            on.store(on.pick(left, mixed[count:], right), on.at(dx, start, INT(count)))

    return spread


def _rows_of_halves(name: str, kernel_of: Callable[[int], Any]) -> Any:
    """The loop over all rows of windows of planes first..last, by kernels as wide as a row allows."""
    many, some, one = map(kernel_of, (MANY, SOME, 1))

    def rows(x, w, y, which, out, keep, first, last):
        oh, ow = out
        for row in range(first * oh, last * oh):
            here, to = 2 * row * w, row * ow
            if ow >= MANY:
                for i in range(0, ow, MANY):
                    q = min(i, ow - MANY)
                    many(x, here + 2 * q, w, y, which, to + q, keep)
            elif ow >= SOME:
                for i in range(0, ow, SOME):
                    q = min(i, ow - SOME)
                    some(x, here + 2 * q, w, y, which, to + q, keep)
            else:
                for q in range(ow):
                    one(x, here + 2 * q, w, y, which, to + q, keep)

    rows.__name__ = name  # under which it is kept
    return compiled(rows)


# `max_pool` and its gradient of such windows: all is known but the pixels, and all of these are written
max_halve = _rows_of_halves("max_halve", _best_of_four)
max_halve_gradient = _rows_of_halves("max_halve_gradient", _spread_over_four)


FAR = 1 << 28


@compiled
def pixel(value):
    """The nearest whole number, of two the one away from 0; what is far off is FAR."""
    if not (value > -FAR and value < FAR):
        return FAR if value > 0 else -FAR
    size = math.floor(abs(value))
    whole = int(size) + (1 if abs(value) - size >= 0.5 else 0)
    return whole if value > 0 else -whole


@compiled
def roi_pool(x, rois, image, out, scale, y, which, refused, first, last):
    """The bins of channels first..last, region by region; an image that is not there sets `refused`."""
    (n, c, h, w), (oh, ow) = image, out
    one = scale * 0 + 1  # in its type, as are the lengths of bins
    for unit in range(first, last):
        r, k = unit // c, unit % c
        x0, y0 = pixel(rois[r * 5 + 1] * scale), pixel(rois[r * 5 + 2] * scale)
        x1, y1 = pixel(rois[r * 5 + 3] * scale), pixel(rois[r * 5 + 4] * scale)
        bin_h = one * max(y1 - y0 + 1, 1) / (one * oh)
        bin_w = one * max(x1 - x0 + 1, 1) / (one * ow)
        if not (rois[r * 5] > -1 and rois[r * 5] < n):
            refused[0] = 1
            for here in range(unit * oh * ow, (unit + 1) * oh * ow):
                y[at(here)] = np.nan
                which[at(here)] = -1
            continue
        plane = (int(rois[r * 5]) * c + k) * h * w
        for p in range(oh):
            top = min(max(math.floor(one * p * bin_h) + y0, 0), h)
            bottom = min(max(math.ceil(one * (p + 1) * bin_h) + y0, 0), h)
            for q in range(ow):
                left = min(max(math.floor(one * q * bin_w) + x0, 0), w)
                right = min(max(math.ceil(one * (q + 1) * bin_w) + x0, 0), w)
                best, winner = -np.inf, -1
                if bottom <= top or right <= left:
                    best = 0.0
                for i in range(top, bottom):
                    for j in range(left, right):
                        value = x[at(plane + i * w + j)]
                        if value > best:
                            best, winner = value, i * w + j
                here = ((r * c + k) * oh + p) * ow + q
                y[at(here)] = best
                which[at(here)] = winner


@compiled
def roi_pool_gradient(dy, which, rois, shape, bins, dx, first, last):
    """The gradient of channels first..last of all images."""
    n, c, h, w = shape
    for image in range(n):
        for i in range((image * c + first) * h * w, (image * c + last) * h * w):
            dx[at(i)] = 0
    for r in range(len(rois) // 5):
        for k in range(first, last):
            plane = (int(rois[r * 5]) * c + k) * h * w
            for b in range((r * c + k) * bins, (r * c + k + 1) * bins):
                if which[at(b)] >= 0:
                    dx[at(plane + which[at(b)])] += dy[at(b)]
