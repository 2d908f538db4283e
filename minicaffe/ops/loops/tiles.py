"""Tiles of images as Winograd's convolution has them: read and written, transformed on the way.

Tiles are transformed `LANES` side by side. (a0, a1) pixels become P tile Q', (b0, b1) points, first along one
axis and then along the other: b0 a1 (a0 + b1) multiplications instead of the a0 a1 b0 b1 of the Kronecker
product. Points lie in memory as (b0 b1, channels, tiles): a matrix each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.ops.loops import at, helper_sums

LANES = 128


@helper_sums
def _sum(p: Any, row: int, a: Any, start: int, apart: int, out: Any, to: int, count: int) -> None:
    """out[to + q] = sum over k of p[row, k] a[start + k apart + q] for q < count, four terms at a time."""
    y, terms = out[to : to + count], p.shape[1]
    for k in range(0, terms - 3, 4):
        w = start + k * apart
        a0, a1 = a[w : w + count], a[w + apart : w + apart + count]
        w += 2 * apart
        a2, a3 = a[w : w + count], a[w + apart : w + apart + count]
        p0, p1, p2, p3 = p[row, k], p[row, k + 1], p[row, k + 2], p[row, k + 3]
        if k == 0:
            for q in range(count):
                y[at(q)] = p0 * a0[at(q)] + p1 * a1[at(q)] + p2 * a2[at(q)] + p3 * a3[at(q)]
        else:
            for q in range(count):
                y[at(q)] += p0 * a0[at(q)] + p1 * a1[at(q)] + p2 * a2[at(q)] + p3 * a3[at(q)]
    for k in range(terms // 4 * 4, terms):
        a0, p0 = a[start + k * apart : start + k * apart + count], p[row, k]
        if k == 0:
            for q in range(count):
                y[at(q)] = p0 * a0[at(q)]
        else:
            for q in range(count):
                y[at(q)] += p0 * a0[at(q)]


@helper_sums
def _next(column: int, row: int, sample: int, channel: int, ends: Any) -> tuple[int, int, int, int]:
    """The tile after this: by channel, sample, row and column."""
    column += 1
    if column == ends[2]:
        column, row = 0, row + 1
    if row == ends[1]:
        row, sample = 0, sample + 1
    if sample == ends[0]:
        sample, channel = 0, channel + 1
    return column, row, sample, channel


@helper_sums
def read(
    x: Any,
    start: int,
    sizes: Any,
    ends: Any,
    pad: Any,
    step: Any,
    p: Any,
    q: Any,
    points: Any,
    to: int,
    apart: int,
) -> None:
    """points[i b1 + j] = (P tile Q')[i, j] for all tiles of the images from `start` on.

    sizes are the images' c, h, w; ends the number of samples, of rows and of columns of tiles. Points begin
    at `to` and lie `apart`.
    """
    (c, h, w), (a0, a1) = sizes, (p.shape[1], q.shape[1])
    count = c * ends[0] * ends[1] * ends[2]
    tiles, half = np.empty(a0 * a1 * LANES, x.dtype), np.empty(a1 * LANES, x.dtype)
    column, row, sample, channel = 0, 0, 0, 0
    for done in range(0, count, LANES):
        lanes = min(LANES, count - done)
        for lane in range(lanes):
            top, left = row * step[0] - pad[0], column * step[1] - pad[1]
            plane = start + (sample * c + channel) * h * w
            j0, j1 = max(0, -left), max(0, min(a1, w - left))
            for i in range(a0):
                here, there = plane + (top + i) * w + left, i * a1 * LANES + lane
                inside = 0 <= top + i < h
                if not inside or j1 - j0 < a1:
                    for j in range(a1):
                        tiles[at(there + j * LANES)] = 0
                if inside:
                    for j in range(j0, j1):
                        tiles[at(there + j * LANES)] = x[at(here + j)]
            column, row, sample, channel = _next(column, row, sample, channel, ends)
        for i in range(len(p)):
            _sum(p, i, tiles, 0, a1 * LANES, half, 0, a1 * LANES)
            for j in range(len(q)):
                _sum(q, j, half, 0, LANES, points, to + (i * len(q) + j) * apart + done, lanes)


@helper_sums
def write(
    points: Any,
    p: Any,
    q: Any,
    bias: Any,
    y: Any,
    start: int,
    sizes: Any,
    ends: Any,
    pad: Any,
    step: Any,
    apart: int = 0,
) -> None:
    """Tiles (P points Q') back to images, with the bias; or added to them, if points lie `apart`."""
    (c, h, w), (b0, b1), (a0, a1) = sizes, (len(p), len(q)), (p.shape[1], q.shape[1])
    count = c * ends[0] * ends[1] * ends[2]
    add, apart = apart > 0, apart if apart > 0 else count
    tiles, half = np.empty(a0 * a1 * LANES, y.dtype), np.empty(a1 * LANES, y.dtype)
    out = np.empty(b0 * b1 * LANES, y.dtype)
    column, row, sample, channel = 0, 0, 0, 0
    for done in range(0, count, LANES):
        lanes = min(LANES, count - done)
        for k in range(a0 * a1):
            for lane in range(lanes):
                tiles[at(k * LANES + lane)] = points[at(k * apart + done + lane)]
        for i in range(b0):
            _sum(p, i, tiles, 0, a1 * LANES, half, 0, a1 * LANES)
            for j in range(b1):
                _sum(q, j, half, 0, LANES, out, (i * b1 + j) * LANES, LANES)
        for lane in range(lanes):
            top, left = row * step[0] - pad[0], column * step[1] - pad[1]
            plane = start + (sample * c + channel) * h * w
            j0, j1 = max(0, -left), max(0, min(b1, w - left))
            more = bias[at(channel)] if bias.size else bias.dtype.type(0)
            for i in range(max(0, -top), min(b0, h - top)):
                here, there = plane + (top + i) * w + left, i * b1 * LANES + lane
                if add:
                    for j in range(j0, j1):
                        y[at(here + j)] += out[at(there + j * LANES)]
                else:
                    for j in range(j0, j1):
                        y[at(here + j)] = out[at(there + j * LANES)] + more
            column, row, sample, channel = _next(column, row, sample, channel, ends)
