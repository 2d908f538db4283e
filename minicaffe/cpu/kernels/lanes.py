"""Convolution with samples side by side, a vector of each pixel; all three directions.

A unit of work is a block of samples, a group, a band of rows of the result and a part of its channels. Its
rows of the source are turned into the piece of work, with the padding around them, and met by the weights as
the tables say (`tile`): y and dx are both a sum over steps, of other tables.

`cut` are the samples, groups, bands and parts of channels. A blob is (channels of a group, rows, pixels of a
row, rows of a band) and, if it is the source, (how far bands are apart, where the first begins, vectors of a
channel's band, whether some are not written).
"""

from __future__ import annotations

from typing import Any

from minicaffe.cpu import at, compiled, helper
from minicaffe.cpu.kernels.transpose import from_lanes, to_lanes
from minicaffe.cpu.microkernel import BIAS, COLUMNS, ROWS, ZERO, add_sums, multiply
from minicaffe.cpu.vector_ir import lanes, lanes_of

__all__ = ["COLUMNS", "ROWS", "added", "lanes", "multiplied", "summed"]
LINE = 64  # bytes of the cache, to which vectors are aligned


@helper
def _aligned(work: Any) -> int:
    """The first entry at which a line of the cache begins."""
    return (-work.ctypes.data % LINE) // work.itemsize


@helper
def _fill(
    x: Any, cut: Any, block: int, group: int, band: int, blob: Any, places: Any, work: Any, to: int
) -> None:
    """A band of a block of samples and a group, turned into the work, with zeros around it."""
    (samples, groups, _, _), width = cut, lanes_of(x)
    channels, rows, across, most, apart, begin, plane, padded = blob
    if padded:
        for q in range(to, to + channels * plane * width):
            work[at(q)] = 0
    top = begin + band * apart
    first, last = max(0, top), min(rows, top + most)
    for k in range(channels):
        start = ((block * width * groups + group) * channels + k) * rows + first
        size, there = groups * channels * rows * across, to + k * plane * width
        count, place = (last - first) * across, (first - top) * across
        valid = min(width, samples - block * width)
        to_lanes(x, start * across, size, valid, count, places, place, work, there)


@helper
def _place(unit: int, cut: Any) -> tuple[int, int, int, int]:
    """The block, group, band and part of a unit."""
    _, groups, bands, parts = cut
    rest, part = divmod(unit, parts)
    rest, band = divmod(rest, bands)
    block, group = divmod(rest, groups)
    return block, group, band, part


@helper
def _channels(channels: int, part: int, parts: int) -> tuple[int, int]:
    """The first and last channels of a part: whole tiles."""
    tiles = (channels + ROWS - 1) // ROWS
    return tiles * part // parts * ROWS, min(channels, tiles * (part + 1) // parts * ROWS)


@compiled
def multiplied(
    cut: Any,
    source: Any,
    result: Any,
    weights: Any,
    tables: Any,
    x: Any,
    w: Any,
    bias: Any,
    biased: bool,
    work: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """y = the sums of w x over the steps of each phase, and the bias: forward, and the input's gradient.

    weights are the distances of groups and of rows; tables where pixels go, steps, places, phases (their
    first and last steps and places), and where the samples of a block are in y.
    """
    width, (channels, rows, across, most) = lanes_of(x), result
    to, steps, places, phases, samples = tables
    seen, line = _aligned(work), most * across * width
    out = seen + source[0] * source[6] * width
    for unit in range(first, last):
        block, group, band, part = _place(unit, cut)
        if part == 0 or unit == first:
            _fill(x, cut, block, group, band, source, to, work, seen)
        count = min(most, rows - band * most) * across
        low, high = _channels(channels, part, cut[3])
        for r in range(low, high, ROWS):
            down = min(ROWS, high - r)
            left = w, group * weights[0] + r * weights[1], weights[1]
            for phase in range(len(phases)):
                k0, k1, p0, p1 = phases[phase]
                some, where = (steps, k0, k1), (places, p0, p1)
                more = bias, group * channels + r
                begin = BIAS if biased else ZERO
                multiply(left, (work, seen), (work, out, line), some, where, down, begin, more)
            for i in range(down):
                k = (block * width * cut[1] + group) * channels + r + i
                there = (k * rows + band * most) * across
                valid = min(width, cut[0] - block * width)
                from_lanes(work, out + i * line, count, samples, valid, y, there)


@compiled
def summed(
    cut: Any,
    source: Any,
    result: Any,
    weights: Any,
    tables: Any,
    chunk: int,
    x: Any,
    dy: Any,
    work: Any,
    first: int,
    last: int,
) -> None:
    """The weight's gradient of some units, at the end of the work; `chunk` places are summed at a time."""
    width, size = lanes_of(x), weights[0] * cut[1]
    to, steps, places, plain = tables
    channels, end = result[0], work.size - size
    seen = _aligned(work)
    out, line = seen + source[0] * source[6] * width, result[6] * width
    for q in range(end, work.size):
        work[at(q)] = 0
    for unit in range(first, last):
        block, group, band, part = _place(unit, cut)
        if part == 0 or unit == first:
            _fill(x, cut, block, group, band, source, to, work, seen)
            _fill(dy, cut, block, group, band, result, plain, work, out)
        low, high = _channels(channels, part, cut[3])
        left = work, end + group * weights[0] + low * weights[1], weights[1]
        for p in range(0, len(places), chunk):
            some = places, p, min(p + chunk, len(places))
            there = work, out + low * line, line
            add_sums(left, (work, seen), there, (steps, 0, len(steps)), some, high - low)


@compiled
def added(work: Any, slices: int, out: Any, first: int, last: int) -> None:
    """out += what each slice of `summed` has at the end of its piece, in the order of the slices."""
    piece = work.size // slices
    for t in range(slices):
        start = (t + 1) * piece - out.size
        for q in range(first, last):
            out[at(q)] += work[at(start + q)]
