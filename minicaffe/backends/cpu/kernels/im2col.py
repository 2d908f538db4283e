"""im2col and col2im of three spatial axes, plane by plane.

`steps` are the distances in the flat columns from a sample, a channel, a kernel element and a place to the
next; places lie side by side, so that the innermost loop runs along memory.
"""

from typing import Any

from minicaffe.backends.cpu import at, compiled, helper


@helper
def span(size, count, offset, stride):
    """The outputs o for which pixel o stride + offset lies in the image (geometry.valid_range)."""
    if stride == 1:  # no division, which costs more than all else here
        first, end = max(0, -offset), size - offset
    else:
        first, end = max(0, -(offset // stride)), (size - 1 - offset) // stride + 1
    first = min(first, count)
    return first, max(first, min(count, end))


@helper
def lay(x, start, image, corner, extent, filling, out, to):
    """out[to..] = the rows of a plane from a corner on, of `extent`, and `filling` where there is no pixel."""
    (h, w), (top, left), (lines, across) = image, corner, extent
    for r in range(lines):
        row, here, inside = to + r * across, start + (top + r) * w + left, 0 <= top + r < h
        begin = min(max(0, -left), across) if inside else across
        end = min(w - left, across) if inside else across
        for q in range(begin):
            out[at(row + q)] = filling
        for q in range(begin, end):
            out[at(row + q)] = x[at(here + q)]
        for q in range(end, across):
            out[at(row + q)] = filling


@helper
def _copy(x, here, step, col, place, first, last):
    """Pixels to columns, a row of them."""
    if step == 1:
        for q in range(first, last):
            col[at(place + q)] = x[at(here + q)]
    else:
        for q in range(first, last):
            col[at(place + q)] = x[at(here + q * step)]


@helper
def _add(x, here, step, col, place, first, last):
    """Columns to the pixels that they are of, a row of them."""
    if step == 1:
        for q in range(first, last):
            x[at(here + q)] += col[at(place + q)]
    else:
        for q in range(first, last):
            x[at(here + q * step)] += col[at(place + q)]


def _rows(move: Any, fills: bool) -> Any:
    """Move all rows of one plane of x, and of its columns; if it `fills` these, 0 where there is no pixel."""

    @helper
    def rows(x, plane, image, window, out, col, row, element):
        """The columns begin at col[row]; a kernel element is `element` from the next."""
        (d, h, w), (od, oh, ow) = image, out
        (kd, kh, kw), (sd, sh, sw), (pd, ph, pw), (dd, dh, dw) = window
        for a in range(kd):
            z0, z1 = span(d, od, a * dd - pd, sd)
            for i in range(kh):
                y0, y1 = span(h, oh, i * dh - ph, sh)
                for j in range(kw):
                    x0, x1 = span(w, ow, j * dw - pw, sw)
                    if fills and (z1 - z0) * (y1 - y0) * (x1 - x0) < od * oh * ow:
                        for q in range(od * oh * ow):
                            col[at(row + q)] = 0
                    for z in range(z0, z1):
                        depth = (plane * d + z * sd + a * dd - pd) * h
                        for y in range(y0, y1):
                            here = (depth + y * sh + i * dh - ph) * w + j * dw - pw
                            move(x, here, sw, col, row + (z * oh + y) * ow, x0, x1)
                    row += element

    return rows


unroll, _add_rows = _rows(_copy, True), _rows(_add, False)


@helper
def fold(col, row, element, x, plane, image, window, out, clear):
    """One plane of x: each pixel the sum of the entries `unroll` reads from it; added, without `clear`."""
    size = image[0] * image[1] * image[2]
    for q in range(plane * size, (plane + 1) * size if clear else plane * size):
        x[at(q)] = 0
    _add_rows(x, plane, image, window, out, col, row, element)


@compiled
def im2col(x, c, image, window, out, col, steps, first, last):
    """The columns of planes first..last of x, c of which are a sample."""
    sample, channel, element, _ = steps
    for plane in range(first, last):
        row = plane // c * sample + plane % c * channel
        unroll(x, plane, image, window, out, col, row, element)


@compiled
def col2im(col, c, image, window, out, x, steps, clear, first, last):
    """The planes first..last, each pixel the sum of the entries read from it; added to without `clear`."""
    sample, channel, element, _ = steps
    for plane in range(first, last):
        row = plane // c * sample + plane % c * channel
        fold(col, row, element, x, plane, image, window, out, clear)
