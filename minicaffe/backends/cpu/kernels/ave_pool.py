"""Average pooling of planes (h, w); planes first..last of a batch. Windows share sums as in `pool`."""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels.pool import extents, lay, padded


@helper
def sum_of(x, start, count, k, step, out, to):
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
def ave_pool(x, image, window, out, rows, columns, work, y, first, last):
    """Each window's sum, divided by its rows and columns."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    extent = extents(window[0], window[1], out)
    laid = padded(image, window[2], extent)
    lines, across = extent
    pitch = across if laid else w
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
        if laid:
            lay(x, start, image, window[2], extent, x.dtype.type(0), work)
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
