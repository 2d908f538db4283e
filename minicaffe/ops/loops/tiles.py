"""Tiles of images as Winograd's convolution has them: read and written, transformed on the way.

A strip is a row of tiles. Its columns are transformed as they lie, a whole row of the image at a time, into
`room`, where zeros are the padding; from there rows of tiles are taken, as many as a vector has lanes, and
transformed in turn. Back it goes the other way, and what lies beyond the image's edge stays in the room.

Points lie in memory as (t0 t1, channels, tiles), a matrix each, `apart`: further than such a matrix, for
whole vectors are written, and what is behind the last tile of a channel gives way to the next channel's.

`cut` is how many strips the room has at a time, how long a row of it is, and where in it a strip's pixels
are put, and points that are half way back. `matrices` are as `parity` wants them, of each axis.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, helper
from minicaffe.ops.loops.parity import (
    columns_added,
    columns_back,
    image_columns,
    image_rows,
    result_columns,
    result_rows,
    rows_added,
    rows_back,
)
from minicaffe.ops.loops.vector import add_vector, lanes_of


def _reader(columns: Any, rows: Any) -> Any:
    """`read` by one kind of matrix."""

    @helper
    def read(
        x: Any,
        start: int,
        sizes: Any,
        ends: Any,
        pad: Any,
        step: Any,
        matrices: Any,
        cut: Any,
        places: Any,
        room: Any,
        points: Any,
        apart: int,
    ) -> None:
        """points[i t1 + j] = (P0 tile P1')[i, j] for all tiles of the images from `start` on.

        sizes are the images' c, h, w; ends the number of samples, of rows and of columns of tiles, which are
        `step` apart.
        """
        (c, h, w), (most, pitch, own), (p0, p1) = sizes, cut[:3], matrices
        count, strips = ends[0] * ends[1] * ends[2], ends[0] * ends[1]
        t0, t1 = max(1, 2 * p0.shape[1]), 2 * p1.shape[1]
        size = max(1, 2 * p0.shape[2])
        begin, skip = max(0, pad[1]), max(0, -pad[1])
        across = w - skip
        wide = max(across, lanes_of(x))
        for q in range(own):
            room[at(q)] = 0
        for channel in range(c):
            for first in range(0, strips, most):
                some = min(most, strips - first)
                for i in range(some):
                    sample, row = divmod(first + i, ends[1])
                    top, to = row * step[0] - pad[0], i * t0 * pitch + begin
                    plane = start + (sample * c + channel) * h * w + skip
                    if 0 <= top <= h - size and across == wide and p0.shape[1]:
                        columns(p0, x, plane + top * w, w, room, to, pitch, across)
                        continue
                    for j in range(size):
                        line, inside = own + j * wide, 0 <= top + j < h
                        for q in range(wide):
                            room[at(line + q)] = 0
                        if inside:
                            for q in range(across):
                                room[at(line + q)] = x[at(plane + (top + j) * w + q)]
                    if p0.shape[1]:
                        columns(p0, room, own, wide, room, to, pitch, wide)
                    else:
                        for q in range(wide):
                            room[at(to + q)] = room[at(own + q)]
                there, tiles = channel * count + first * ends[2], some * ends[2]
                for i in range(t0):
                    rows(p1, room, i * pitch, places, points, there + i * t1 * apart, apart, tiles)

    return read


read_images, read_results = _reader(image_columns, image_rows), _reader(result_columns, result_rows)


@helper
def _line(a: Any, a0: int, count: int, more: Any, b: Any, b0: int) -> None:
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
def write(
    points: Any,
    apart: int,
    matrices: Any,
    bias: Any,
    y: Any,
    start: int,
    sizes: Any,
    ends: Any,
    top: int,
    step: Any,
    cut: Any,
    places: Any,
    room: Any,
) -> None:
    """Tiles (P0' points P1) to images, with the bias; the first row of tiles is the images' row `top`."""
    (f, h, w), (p0, p1), m0 = sizes, matrices, step[0]
    (most, half), lanes, pitch = (cut[0], cut[3]), lanes_of(y), ends[2] * step[1]
    count, strips, t1 = ends[0] * ends[1] * ends[2], ends[0] * ends[1], 2 * p1.shape[1]
    for channel in range(f):
        more = bias[at(channel)] if bias.size else bias.dtype.type(0)
        for first in range(0, strips, most):
            some = min(most, strips - first)
            tiles, there = some * ends[2], channel * count + first * ends[2]
            wide = (tiles + lanes - 1) // lanes * lanes
            for j in range(t1):
                from_, to = there + j * apart, half + j * wide
                if p0.shape[1]:
                    columns_back(p0, points, from_, t1 * apart, room, to, t1 * wide, wide)
                else:
                    for q in range(tiles):
                        room[at(to + q)] = points[at(from_ + q)]
            for i in range(m0):
                rows_back(p1, room, i * pitch, places, room, half + i * t1 * wide, wide, tiles)
            for i in range(some):
                sample, row = divmod(first + i, ends[1])
                line = top + row * m0
                high, to = min(m0, h - line), start + ((sample * f + channel) * h + line) * w
                if pitch == w:
                    _line(room, i * m0 * pitch, high * w, more, y, to)
                else:
                    for j in range(high):
                        _line(room, (i * m0 + j) * pitch, w, more, y, to + j * w)


@helper
def add_up(
    points: Any,
    apart: int,
    matrices: Any,
    x: Any,
    start: int,
    sizes: Any,
    ends: Any,
    pad: Any,
    step: Any,
    cut: Any,
    places: Any,
    room: Any,
) -> None:
    """The transpose of `read_images`: whole images as sums of tiles P0' points P1."""
    (c, h, w), (most, pitch, own), (p0, p1), rows = sizes, cut[:3], matrices, ends[1]
    t0, t1, plane = 2 * p0.shape[1], 2 * p1.shape[1], rows * ends[2]
    count, size = ends[0] * plane, ((rows - 1) * step[0] + t0) * pitch
    for channel in range(c):
        for first in range(0, ends[0], most // rows):
            some = min(most // rows, ends[0] - first)
            there = channel * count + first * plane
            for q in range(some * rows * t0 * pitch):
                room[at(q)] = 0
            for i in range(t0):
                line = there + i * t1 * apart
                rows_added(p1, room, i * pitch, places, points, line, apart, some * plane)
            for i in range(some):
                for q in range(own, own + size):
                    room[at(q)] = 0
                for row in range(rows):
                    strip, to = (i * rows + row) * t0 * pitch, own + row * step[0] * pitch
                    columns_added(p0, room, strip, pitch, room, to, pitch, pitch)
                to, none = start + ((first + i) * c + channel) * h * w, x.dtype.type(0)
                for j in range(h):
                    _line(room, own + (pad[0] + j) * pitch + pad[1], w, none, x, to + j * w)
