"""Tiles of images as Winograd's convolution has them: read and written, transformed on the way.

A strip is a row of tiles. Its columns are transformed as they lie, a whole row of the image at a time, into
`room`, where zeros are the padding; from there rows of tiles are taken, as many as a vector has lanes, and
transformed in turn. Back it goes the other way, and what lies beyond the image's edge stays in the room.

Points lie in memory as (t0 t1, channels, tiles), a matrix each, `apart`, with lines of so many elements: whole
vectors are written, and what is behind the last tile of a channel is of no meaning.

Pixels of a tile may be some apart, by the dilation or the stride; those along an axis with the same rest of
that are a phase, and lie side by side in the room. `phases` are, of each axis, how far, and how many tiles one
phase has. Dilated, an image has the tiles of all its phases, one phase after the other. With strides a phase
of each axis is a plane, and a channel by itself: `planes` are how many there are along each axis, and how many
channels have their first ones side by side (those of a group).

`cut` is how many strips the room has at a time, how long a row of it is, where in it a strip's pixels are put,
and points half way back, its size, and pixels of a phase in a row. `matrices` are `parity`'s, of each axis.
"""

from __future__ import annotations

from typing import Any

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.kernels.space_to_depth import stepped
from minicaffe.backends.cpu.kernels.winograd_1d import (
    columns_added,
    columns_back,
    image_columns,
    image_rows,
    result_columns,
    result_rows,
    rows_added,
    rows_back,
)
from minicaffe.backends.cpu.vector_ir import add_vector, lanes_of


def _reader(columns: Any, rows: Any) -> Any:
    """`read` by one kind of matrix."""

    @helper
    def read(where, phases, planes, matrices, cut, places, room, points, apart):
        """points[i t1 + j] = (P0 tile P1')[i, j] for tiles of the images of x from `start` on.

        `where` is x, start, sizes, channels, ends, high, line, pad and step:
        sizes are the images' c, h, w, of which channels first..last are read (all, if they have planes); ends
        the number of samples, of rows from `high` on and of columns of tiles, which are `step` apart.
        """
        x, start, sizes, channels, ends, high, line, pad, step = where
        (c, h, w), (most, pitch, own), (p0, p1) = sizes, cut[:3], matrices
        (further, many), (between, _) = phases
        of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
        down, along, alike = planes
        strips, size = ends[0] * ends[1], max(1, 2 * p0.shape[2])
        t0, t1 = max(1, 2 * p0.shape[1]), 2 * p1.shape[1]
        begin, skip = max(0, pad[1]), max(0, -pad[1])
        across = w - skip
        whole = between == 1 and across >= lanes_of(x) and p0.shape[1]
        for q in range(own):
            room[at(q)] = 0
        for channel in range(channels[0] * down, channels[1] * down):
            which, plane = divmod(channel, down)
            lines = (which // alike * down + plane) * along * alike + which % alike - channels[0]
            for first in range(0, strips, most):
                some = min(most, strips - first)
                for i in range(some):
                    sample, row = divmod(first + i, ends[1])
                    phase, number = divmod(high + row, many)
                    top = number * step[0] * further + phase + plane - pad[0]
                    here, to = start + (sample * c + which) * h * w, i * t0 * pitch
                    if whole and 0 <= top < h - (size - 1) * further:
                        here += top * w + skip
                        columns(of_columns, x, here, further * w, room, to + begin, pitch, across)
                        continue
                    for j in range(size):
                        line_of, there = own + j * pitch, top + j * further
                        for q in range(pitch):
                            room[at(line_of + q)] = 0
                        if 0 <= there < h:
                            _deal(x, here + there * w, w, pad[1], between, room, line_of, cut[5])
                    if p0.shape[1]:
                        columns(of_columns, room, own, pitch, room, to, pitch, pitch)
                    else:
                        for q in range(pitch):
                            room[at(to + q)] = room[at(own + q)]
                for j in range(along):
                    there = (lines + j * alike) * line + first * ends[2]
                    for i in range(t0):
                        from_, to = i * pitch + j * cut[5], there + i * t1 * apart
                        rows(of_rows, room, from_, places, points, to, apart, some * ends[2])

    return read


read_images, read_results = _reader(image_columns, image_rows), _reader(result_columns, result_rows)


@helper
def _deal(x, line, w, pad, between, room, to, seen):
    """A line of an image, phase after phase with so many pixels each, to where there are zeros."""
    for phase in range(between):
        first = max(0, -((phase - pad) // between))
        last, here = min(seen, (w - 1 + pad - phase) // between + 1), line + phase - pad
        there = to + phase * seen
        if last - first >= lanes_of(x):
            stepped(x, here + first * between, between, room, there + first, last - first)
            continue
        for q in range(first, last):
            room[at(there + q)] = x[at(here + q * between)]


@helper
def _line(a, a0, count, more, b, b0):
    """b[b0 + q] = a[a0 + q] + more for q < count."""
    lanes = lanes_of(a)
    if count < lanes:
        for q in range(count):
            b[at(b0 + q)] = a[at(a0 + q)] + more
        return
    for q in range(0, count - lanes + 1, lanes):
        add_vector(a, a0 + q, more, b, b0 + q)
    if count % lanes:
        add_vector(a, a0 + count - lanes, more, b, b0 + count - lanes)


@helper
def write(points, apart, matrices, bias, where, phases, planes, cut, places, room):
    """Tiles (P0' points P1) to images `where` says, as of `read`, with the bias."""
    y, start, sizes, channels, ends, high, line, pad, step = where
    (f, h, w), (p0, p1), m0 = sizes, matrices, step[0]
    (further, many), (between, across) = phases
    of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
    down, along, alike = planes
    (most, half), lanes, pitch = (cut[0], cut[3]), lanes_of(y), ends[2] * step[1]
    strips, t1 = ends[0] * ends[1], 2 * p1.shape[1]
    for channel in range(channels[0], channels[1]):
        group, plane = divmod(channel // alike, down * along)
        which, (below, right) = group * alike + channel % alike, divmod(plane, along)
        more = bias[at(which)] if bias.size else bias.dtype.type(0)
        for first in range(0, strips, most):
            some = min(most, strips - first)
            tiles, there = some * ends[2], (channel - channels[0]) * line + first * ends[2]
            wide = (tiles + lanes - 1) // lanes * lanes
            for j in range(t1):
                from_, to = there + j * apart, half + j * wide
                if p0.shape[1]:
                    columns_back(of_columns, points, from_, t1 * apart, room, to, t1 * wide, wide)
                else:
                    for q in range(tiles):
                        room[at(to + q)] = points[at(from_ + q)]
            for i in range(m0):
                rows_back(of_rows, room, i * pitch, places, room, half + i * t1 * wide, wide, tiles)
            for i in range(some):
                sample, row = divmod(first + i, ends[1])
                phase, number = divmod(high + row, many)
                top = number * m0 * further + phase + below - pad[0]
                begin, end = max(0, -(top // further)), min(m0, (h - 1 - top) // further + 1)
                here, to = i * m0 * pitch, start + ((sample * f + which) * h + top) * w
                if further == between == 1 and pitch == w:
                    _line(room, here, end * w, more, y, to)
                    continue
                for j in range(begin, end):
                    from_, there = here + j * pitch, to + j * w * further
                    if between == 1:
                        _line(room, from_, w, more, y, there)
                        continue
                    for other in range(1 if along > 1 else min(between, w)):
                        own, shift = from_ + other * across * step[1], other + right - pad[1]
                        _spread(room, own, pitch, more, y, there, w, shift, between)


@helper
def _spread(room, here, count, more, y, to, w, shift, step):
    """Pixels to every `step`-th of a line of w, the first to `shift`: those that are in it."""
    for q in range(max(0, -(shift // step)), min(count, (w - 1 - shift) // step + 1)):
        y[at(to + shift + q * step)] = room[at(here + q)] + more


@helper
def add_up(points, apart, matrices, x, start, sizes, ends, line, pad, step, cut, places, room):
    """The transpose of `read_images`: whole images as sums of tiles P0' points P1."""
    (c, h, w), (most, pitch, own), (p0, p1), rows = sizes, cut[:3], matrices, ends[1]
    t0, t1, plane = 2 * p0.shape[1], 2 * p1.shape[1], rows * ends[2]
    of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
    size = ((rows - 1) * step[0] + t0) * pitch
    for channel in range(c):
        for first in range(0, ends[0], most // rows):
            some, there = min(most // rows, ends[0] - first), channel * line + first * plane
            for q in range(some * rows * t0 * pitch):
                room[at(q)] = 0
            for i in range(t0):
                from_ = there + i * t1 * apart
                rows_added(of_rows, room, i * pitch, places, points, from_, apart, some * plane)
            for i in range(some):
                for q in range(own, own + size):
                    room[at(q)] = 0
                for row in range(rows):
                    strip, to = (i * rows + row) * t0 * pitch, own + row * step[0] * pitch
                    columns_added(of_columns, room, strip, pitch, room, to, pitch, pitch)
                to, none = start + ((first + i) * c + channel) * h * w, x.dtype.type(0)
                for j in range(h):
                    _line(room, own + (pad[0] + j) * pitch + pad[1], w, none, x, to + j * w)
