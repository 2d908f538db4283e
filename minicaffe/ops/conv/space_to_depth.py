"""How a convolution's images lie so that places are one flat run: planes with the pad in them.

Along an axis with stride s, output o sees through kernel element t the pixel o s + t dilation - pad. So the
pixels are taken apart by what is left of t dilation when divided by s, a plane each, and

    plane q:  X[q][u] = x[u s + q - pad]          y[o] = sum over t of w[t] X[q(t)][o + t dilation // s]

reads every plane one pixel after the other. A line's zeros on the right are those on the left of the next.
dx is the same of dy, with jobs for what is left of its place: through which elements it was seen.
A block of places is computed at a time, a band of a sample's lines, or whole samples if they are small; and
of few channels at a time, which are laid out just before, so that they are read from the cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.ops.geometry import ConvGeometry, lift

IN_CACHE = 2**18  # elements of a block's planes
MOST = 512  # places of a block, unless a line has more
DEPTH = 256  # rows of a panel: with them it stays near while weights pass by,
FEW = 128  # but where a block has no more columns than that, as many rows as make
MANY = 2**17  # elements: then weights are what is read most, and they lie side by side
LANES = 16  # numbers of a vector at the most


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
        """Pixels of a line: all but zeros that the next line has, too; with wide pads less than targets."""
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
    """The sources of a convolution, x or for `back` dy, as planes; and what is computed at a time.

    For `sums` over places, of dweight, all channels are laid out at a time.
    """

    g: ConvGeometry
    back: bool
    sums: bool = False

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
    def count(self) -> int:
        """Planes of a channel."""
        return math.prod(len(axis.phases) for axis in self.axes)

    @property
    def taps(self) -> int:
        """Elements of the kernel through which targets of any job see a channel, at the most."""
        return math.prod(max(len(run.taps) for run in axis.runs) for axis in self.axes)

    def _channels(self, rows: int) -> int:
        """Those that are laid out at a time, for so many rows of a panel: all, if they are read again."""
        if self.sums or self.flat or any(len(axis.runs) > 1 for axis in self.axes):
            return self.channels[0]
        return min(self.channels[0], max(1, rows // max(1, self.taps)))

    @functools.cached_property
    def rows(self) -> int:
        """Of a panel at a time: elements of the kernel."""
        most = MANY // self.columns if self.columns <= FEW else DEPTH
        laid, elements = self._channels(most), self.channels[0] * self.taps
        return max(1, min(elements, most if laid == self.channels[0] else laid * self.taps))

    @functools.cached_property
    def laid(self) -> int:
        """Channels that are laid out at a time: those of a panel's rows, or all."""
        return self._channels(self.rows)

    @functools.cached_property
    def block(self) -> tuple[int, int]:
        """Samples and lines of targets that are computed at a time: of some MOST places, in the cache."""
        layers, lines, across = self.axes
        places = layers.targets * across.targets
        each = self._channels(DEPTH) * self.count * layers.length * across.pitch
        most = lines.targets if self.flat else max(1, IN_CACHE // each - lines.extent)
        band = min(lines.targets, most, -(-MOST // places))
        if band < lines.targets:  # all alike, and of whole vectors if that is nearly as many
            band = -(-lines.targets // -(-lines.targets // band))
            step = LANES // math.gcd(places, LANES)
            whole = -(-band // step) * step
            return 1, min(whole, lines.targets) if 2 * whole <= 3 * band else band
        fit = MOST // (places * band)
        if not self.flat:
            fit = min(fit, IN_CACHE // (each * lines.length))
        n = max(1, self.g.n)
        return -(-n // -(-n // max(1, min(n, fit)))), band

    @property
    def bands(self) -> int:
        """Of how many lines each, a sample has."""
        return -(-self.axes[1].targets // self.block[1])

    @property
    def blocks(self) -> int:
        """How many there are, each with all channels of a group."""
        return -(-self.g.n // self.block[0]) * self.bands

    @property
    def columns(self) -> int:
        """Places of a block at the most, of any job, whole vectors."""
        layers, _, across = self.axes
        places = self.block[0] * layers.targets * self.block[1] * across.targets
        return -(-places // LANES) * LANES

    @property
    def flat(self) -> bool:
        """Whether planes are the images as they are: nothing is laid out."""
        return self.g.window.is_point

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Layers, lines and pitch of a plane: of a block's, or of an image."""
        if self.flat:
            return self.axes[0].size, self.axes[1].size, self.axes[2].size
        return self.axes[0].length, self.block[1] + self.axes[1].extent, self.axes[2].pitch

    @functools.cached_property
    def apart(self) -> int:
        """Elements from a sample's planes to the next one's."""
        of = self.channels[2] if self.flat else self.count
        return self.laid * of * math.prod(self.sizes)

    @functools.cached_property
    def room(self) -> int:
        """Elements of a block's planes, and of zeros behind them."""
        across = self.axes[2]
        more = max(0, across.length - across.pitch) + LANES
        return 0 if self.flat else -(-(self.block[0] * self.apart + more) // LANES) * LANES

    @property
    def phases(self) -> Any:
        """Which pixels each plane of a channel has, along the three axes."""
        return np.array(list(itertools.product(*(axis.phases for axis in self.axes))), np.int64)
