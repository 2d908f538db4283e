"""How a convolution's images lie so that places are one flat run: planes with the pad in them.

Along an axis with stride s, output o sees through kernel element t the pixel o s + t dilation - pad. So the
pixels are taken apart by what is left of t dilation when divided by s, a plane each, and

    plane q:  X[q][u] = x[u s + q - pad]          y[o] = sum over t of w[t] X[q(t)][o + t dilation // s]

reads every plane one pixel after the other. A line's zeros on the right are those on the left of the next.
dx is the same of dy, with jobs for what is left of its place: through which elements it was seen.
A band of lines is laid out at a time, so that it stays in the cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.ops.geometry import ConvGeometry, lift

IN_CACHE = 2**17  # elements of a band
LANES = 16  # the most there are


@dataclass(frozen=True)
class Run:
    """Targets along an axis: from `start`, `count` of them `step` apart; the first reads from `base` on."""

    base: int
    count: int
    start: int
    taps: tuple[tuple[int, int, int], ...]  # kernel element, plane, what it reads further on


@dataclass(frozen=True)
class Axis:
    """Sources along an axis as planes."""

    size: int
    step: int
    pad: int
    phases: tuple[int, ...]
    extent: int  # pixels read beyond the number of targets
    runs: tuple[Run, ...]

    @property
    def targets(self) -> int:
        """The most that a run has."""
        return max(run.count for run in self.runs)

    @property
    def length(self) -> int:
        """Pixels that are read."""
        return self.targets + self.extent

    @property
    def pitch(self) -> int:
        """Pixels of a line: all but those zeros that the next line has, too."""
        before, behind = self.pad // self.step, self.length + -(self.size + self.pad) // self.step
        return self.length - max(0, min(before, behind))


def _forward(size: int, out: int, k: int, s: int, p: int, d: int) -> Axis:
    phases = tuple(sorted({t * d % s for t in range(k)}))
    taps = tuple((t, phases.index(t * d % s), t * d // s) for t in range(k))
    return Axis(size, s, p, phases, (k - 1) * d // s, (Run(0, out, 0, taps),))


def _backward(size: int, out: int, k: int, s: int, p: int, d: int) -> Axis:
    far, runs = (k - 1) * d // s, []
    for q in range(s):
        first, end = -((q - p) // s), (size - 1 + p - q) // s + 1  # of (place + pad) // stride
        taps = tuple((t, 0, far - t * d // s) for t in range(k) if t * d % s == q)
        if end > first:
            runs.append(Run(first - far, end - first, s * first + q - p, taps))
    least = min(run.base for run in runs)
    runs = [Run(run.base - least, run.count, run.start, run.taps) for run in runs]
    extent = max(run.base for run in runs) + far  # of each band, though the whole may end before
    return Axis(out, 1, -least, (0,), extent, tuple(runs))


@dataclass(frozen=True)
class Planes:
    """The sources of a convolution, x or for `back` dy, as planes; what the loops want to know."""

    g: ConvGeometry
    back: bool
    laid: bool = False  # always, also where they are the images as they are

    @functools.cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The three axes."""
        along = _backward if self.back else _forward
        sizes = zip(lift(self.g.image), lift(self.g.out), *self.g.window.lifted(), strict=True)
        return tuple(along(*numbers) for numbers in sizes)

    @functools.cached_property
    def channels(self) -> tuple[int, int, int]:
        """Sources and targets of a group, and groups."""
        g = self.g
        c, f = g.c // g.group, g.f // g.group
        return (f, c, g.group) if self.back else (c, f, g.group)

    @functools.cached_property
    def layers(self) -> int:
        """Lines of the first axis."""
        return self.axes[0].length

    @functools.cached_property
    def count(self) -> int:
        """Planes of a channel."""
        return math.prod(len(axis.phases) for axis in self.axes)

    @functools.cached_property
    def band(self) -> int:
        """Lines of targets that are computed at a time: as many as the cache holds, all bands alike."""
        lines = self.axes[1]
        each = self.channels[0] * self.count * self.layers * self.axes[2].pitch
        most = max(1, IN_CACHE // each - lines.extent)
        return -(-lines.targets // -(-lines.targets // most))

    @property
    def bands(self) -> int:
        """How many there are."""
        return -(-self.axes[1].targets // self.band)

    @property
    def lines(self) -> int:
        """Lines that a band's targets see."""
        return self.band + self.axes[1].extent

    @functools.cached_property
    def room(self) -> int:
        """Elements of a band's planes, and of zeros behind them."""
        lines, across = self.layers * self.lines, self.axes[2]
        more = across.length - across.pitch + LANES
        return self.channels[0] * self.count * lines * across.pitch + more

    @property
    def run(self) -> int:
        """Elements of a band's targets in one channel, whole vectors."""
        across = self.axes[2]
        most = (self.band - 1) * across.pitch + max(across.targets, across.pitch)
        return -(-most // LANES) * LANES

    @property
    def numbers(self) -> tuple[Any, ...]:
        """`plane` of the loops."""
        image, steps, pads = (
            tuple(getattr(axis, name) for axis in self.axes) for name in ("size", "step", "pad")
        )
        sizes = self.layers, self.lines, self.axes[2].pitch
        return self.channels, image, steps, pads, sizes, (self.band, self.bands)

    @functools.cached_property
    def flat(self) -> bool:
        """Whether planes are the images as they are: bands of places of a 1 x 1 convolution."""
        last = self.axes[1].targets - (self.bands - 1) * self.band
        some = not self.laid and self.axes[0].targets == 1 and last * self.axes[2].pitch >= LANES
        return some and self.g.window.is_point

    def starts(self, vector: int) -> Any:
        """Where a band's vectors start in the planes, and in the targets; `flat`: and of the last band."""
        runs, pitch = [self.run], self.axes[2].pitch
        if self.flat:
            last = self.axes[1].targets - (self.bands - 1) * self.band
            runs = [lines * pitch for lines in (self.band, last)]
        each = [np.minimum(np.arange(0, run, vector), max(0, run - vector)) for run in runs]
        starts = np.concatenate(each).astype(np.int32)
        return np.stack((starts, starts), axis=1)

    @property
    def phases(self) -> Any:
        """Which pixels each plane of a channel has, along the three axes."""
        return np.array(list(itertools.product(*(axis.phases for axis in self.axes))), np.int64)

    @property
    def tables(self) -> tuple[Any, Any]:
        """The jobs, and the steps of all of them: where in the weight, where in the planes."""
        jobs: list[list[int]] = []
        steps: list[Any] = []
        sizes, kernel = (self.layers, self.lines, self.axes[2].pitch), lift(self.g.window.kernel)
        plane, taps = self.g.places if self.flat else math.prod(sizes), math.prod(kernel)
        channels = np.arange(self.channels[0])[:, None]
        counts = [len(axis.phases) for axis in self.axes]
        row = self.g.c // self.g.group * taps if self.back else taps  # of the weight, a source
        for runs in itertools.product(*(axis.runs for axis in self.axes)):
            base = _flat([run.base for run in runs], sizes)
            first = sum(map(len, steps))
            ways = list(itertools.product(*(run.taps for run in runs)))
            a = [_flat([t for t, _, _ in way], kernel) for way in ways]
            b = [
                _flat([q for _, q, _ in way], counts) * plane + _flat([v for *_, v in way], sizes)
                for way in ways
            ]
            a_, b_ = (np.array(part, np.int64).reshape(1, -1) for part in (a, b))
            both = np.stack((channels * row + a_, channels * self.count * plane + b_), axis=-1)
            steps.append(both.reshape(-1, 2).astype(np.int32))
            numbers = [getattr(run, name) for name in ("count", "start") for run in runs]
            jobs.append([first, first + len(steps[-1]), base, *numbers])
        return np.array(jobs, np.int64), np.concatenate(steps)


def _flat(index: Any, sizes: Any) -> int:
    """Where an entry lies in an array."""
    return int((index[0] * sizes[1] + index[1]) * sizes[2] + index[2])
