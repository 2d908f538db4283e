"""A convolution with places in the lanes: planes of pixels in one flat run each, tiles of filters by places.

`plane` tells how images are laid out (see `conv.planes`): (sources, targets) channels of a group, groups; the
image; the step and the pad at which planes take pixels; layers, lines and pitch of a plane; lines of a band,
bands; elements of work for them, places in a vector, and whether planes are the images as they are (`flat`):
nothing is laid out, and targets are written by whole vectors. `target`: its sizes, how far places of a job are
apart, and the elements of weight of a group and from target to target. `phases` are the planes of a channel:
which pixels of a step each takes. A job is a run of targets: steps first..last of the table, where it begins
in a plane, its counts along the axes, its first target.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, helper
from minicaffe.ops.loops.tile import BIAS, ROWS, ZERO, add_sums, multiply


@helper
def _lay(
    x: Any, start: int, channels: int, plane: Any, phases: Any, line: int, room: int, to: Any
) -> None:
    """Channels of an image as planes, from a line on, with zeros for pixels that are not there."""
    _, (d, h, w), (sd, sh, sw), (pd, ph, pw), (layers, lines, pitch), _, _ = plane
    zero, k = x.dtype.type(0), 0
    for c in range(channels):
        for q in range(len(phases)):
            qd, qh, qw = phases[q, 0] - pd, phases[q, 1] - ph, phases[q, 2] - pw
            begin = min(pitch, max(0, -(qw // sw)))
            end = max(begin, min(pitch, (w - 1 - qw) // sw + 1))
            for z in range(layers):
                for r in range(lines):
                    i, j = z * sd + qd, (line + r) * sh + qh
                    if i < 0 or i >= d or j < 0 or j >= h:
                        for u in range(k, k + pitch):
                            to[at(u)] = zero
                    else:
                        here = start + ((c * d + i) * h + j) * w + qw
                        for u in range(begin):
                            to[at(k + u)] = zero
                        if sw == 1:
                            for u in range(begin, end):
                                to[at(k + u)] = x[at(here + u)]
                        else:
                            for u in range(begin, end):
                                to[at(k + u)] = x[at(here + u * sw)]
                        for u in range(end, pitch):
                            to[at(k + u)] = zero
                    k += pitch
    for u in range(k, room):  # what the last vector reads beyond
        to[at(u)] = zero


@helper
def _run(job: Any, lines: int, pitch: int) -> int:
    """Places from a layer's first to its last."""
    return (lines - 1) * pitch + job[5]


@compiled
def correlate(
    x: Any,
    w: Any,
    bias: Any,
    y: Any,
    plane: Any,
    target: Any,
    phases: Any,
    jobs: Any,
    steps: Any,
    places: Any,
    work: Any,
    first: int,
    last: int,
) -> None:
    """Targets y of sources x, by tiles of ROWS channels: unit ((sample, group, band), tile)."""
    (c, f, groups), (d, h, wide), _, _, (_, lines, pitch), (band, bands), (room, vector, flat) = (
        plane
    )
    (od, oh, ow), (sd, sh, sw), (group, row) = target
    tiles, before = -(-f // ROWS), -1
    sums = work[room:]
    for unit in range(first, last):
        where, tile = unit // tiles, unit % tiles
        line, g, s = where % bands * band, where // bands % groups, where // bands // groups
        start = (s * groups + g) * c * d * h * wide
        if where != before and not flat:
            _lay(x, start, c, plane, phases, line, room, work)
            before = where
        r, rows = tile * ROWS, min(ROWS, f - tile * ROWS)
        for n in range(len(jobs)):
            job = jobs[n]
            down = min(band, job[4] - line)
            if down <= 0 or job[3] <= 0 or job[5] <= 0:
                continue
            vectors = -(-_run(job, down, pitch) // vector)
            a, begin = (w, g * group + r * row, row), BIAS if bias.size else ZERO
            if flat:  # the last vector of a band ends with it: there is a table for the last band
                lap, to = 0 if down == band else len(places) - vectors, (s * groups + g) * f + r
                table, right = (places, lap, lap + vectors), (x, start + line * wide)
                left = y, (to * oh + line) * ow, oh * ow
                multiply(
                    a, right, left, (steps, job[0], job[1]), table, rows, begin, (bias, g * f + r)
                )
                continue
            apart = vectors * vector
            for z in range(job[3]):
                table, right = (places, 0, vectors), (work, job[2] + z * lines * pitch)
                left = sums, 0, apart
                multiply(
                    a, right, left, (steps, job[0], job[1]), table, rows, begin, (bias, g * f + r)
                )
                for k in range(rows):
                    channel = (s * groups + g) * f + r + k
                    for i in range(down):
                        top = (channel * od + job[6] + z * sd) * oh + job[7] + (line + i) * sh
                        to, there = top * ow + job[8], k * apart + i * pitch
                        if sw == 1:
                            for j in range(job[5]):
                                y[at(to + j)] = sums[at(there + j)]
                        else:
                            for j in range(job[5]):
                                y[at(to + j * sw)] = sums[at(there + j)]


@compiled
def weigh(
    x: Any,
    dy: Any,
    dw: Any,
    n: int,
    plane: Any,
    target: Any,
    phases: Any,
    jobs: Any,
    steps: Any,
    places: Any,
    work: Any,
    first: int,
    last: int,
) -> None:
    """dw += sums over places of dy times x, by tiles of ROWS filters: unit (group, tile)."""
    (c, f, groups), (d, h, wide), _, _, (_, lines, pitch), (band, _), (room, vector, _) = plane
    (od, oh, ow), _, (_, row) = target
    tiles, job = -(-f // ROWS), jobs[0]
    zero, gradient = dw.dtype.type(0), work[room:]
    for g in range(first // tiles, -(-last // tiles)):
        begin, end = max(first, g * tiles) - g * tiles, min(last, (g + 1) * tiles) - g * tiles
        for s in range(n):
            for line in range(0, oh, band):
                start = (s * groups + g) * c * d * h * wide
                _lay(x, start, c, plane, phases, line, room, work)
                down = min(band, oh - line)
                vectors = -(-_run(job, down, pitch) // vector)
                apart = vectors * vector
                for r in range(begin * ROWS, min(f, end * ROWS), ROWS):
                    rows = min(ROWS, f - r)
                    for z in range(od):
                        for k in range(rows):
                            to, channel = k * apart, (s * groups + g) * f + r + k
                            for i in range(down):
                                here = ((channel * od + z) * oh + line + i) * ow
                                for j in range(ow):
                                    gradient[at(to + j)] = dy[at(here + j)]
                                for j in range(ow, min(pitch, (k + 1) * apart - to)):
                                    gradient[at(to + j)] = zero
                                to += pitch
                            for j in range(to, (k + 1) * apart):
                                gradient[at(j)] = zero
                        add_sums(
                            (dw, (g * f + r) * row, row),
                            (work, z * lines * pitch),
                            (gradient, 0, apart),
                            (steps, job[0], job[1]),
                            (places, 0, vectors),
                            rows,
                        )
