"""Space to depth: the images of a strided convolution as padded planes, in which places are one flat run.

Along an axis with stride s, output o reads through kernel element t the pixel o s + t dilation - pad. So each
remainder q of t dilation divided by s has a plane of its pixels, and

    plane q:  X[q][u] = x[u s + q - pad]          y[o] = sum over t of w[t] X[q(t)][o + t dilation // s]

reads every plane pixel after pixel. The zeros to the right of a line are those to the left of the next line.
dx is the same of dy, with one job for each remainder of a place: it selects the kernel elements that read it.
A block of places is computed at a time: a band of a sample's lines, or whole samples if these are small. Of a
block, few channels are copied into planes at a time, just before they are used, so that they are in the cache.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minicaffe.core.ops.geometry import ConvGeometry, lift

IN_CACHE = 2**18  # elements of a block's planes
MOST = 512  # places of a block, at most, unless a line has more
DEPTH = 144  # rows of a panel, so that it stays in the first cache while weights are multiplied;
FEW = 128  # if a block has at most so many columns, the weights are read most, so a panel has as
MANY = 2**17  # many rows as make so many elements, and the weights are read in long runs
LANES = 16  # numbers of a vector, at most


@dataclass(frozen=True)
class Run:
    """Targets along an axis that read one set of kernel elements; the first of them, `start`, reads `base`."""

    base: int
    count: int
    start: int
    taps: tuple[tuple[int, int, int], ...]  # (kernel element, plane, offset of what it reads)


@dataclass
class Axis:
    """The sources along an axis as planes: `step` and `pad` of a plane's pixels, and the runs of targets."""

    size: int
    step: int
    pad: int
    phases: tuple[int, ...]
    extent: int  # pixels read beyond the number of targets
    runs: Sequence[Run]

    def __post_init__(self) -> None:
        self.targets = max(run.count for run in self.runs)  # of the longest run
        self.length = self.targets + self.extent  # pixels of a plane that are read
        # Pixels from line to line, without the zeros that the next line shares; at times below `targets`
        before, behind = self.pad // self.step, self.length + -(self.size + self.pad) // self.step
        self.pitch = self.length - max(0, min(before, behind))


def _forward(size: int, out: int, k: int, s: int, p: int, d: int) -> Axis:
    """The axis of x from which y is computed: one run, a plane for each remainder."""
    phases = tuple(sorted({t * d % s for t in range(k)}))
    taps = tuple((t, phases.index(t * d % s), t * d // s) for t in range(k))
    return Axis(size, s, p, phases, (k - 1) * d // s, (Run(0, out, 0, taps),))


def _backward(size: int, out: int, k: int, s: int, p: int, d: int) -> Axis:
    """The axis of dy from which dx is computed: one plane, a run for each remainder."""
    far, runs = (k - 1) * d // s, []
    for q in range(s):
        first, end = -((q - p) // s), (size - 1 + p - q) // s + 1  # of (place + pad) // stride
        taps = tuple((t, 0, far - t * d // s) for t in range(k) if t * d % s == q)
        if end > first:
            runs.append(Run(first - far, end - first, s * first + q - p, taps))
    least = min(run.base for run in runs)
    runs = [Run(run.base - least, run.count, run.start, run.taps) for run in runs]
    extent = max(run.base for run in runs) + far  # for each band, even if the last needs less
    return Axis(out, 1, -least, (0,), extent, runs)


class Planes:
    """The sources of a convolution as planes, x or with `back` dy; and the block that is computed at a time.

    With `sums`, for dweight, which sums over places, all channels are in planes at a time.
    """

    def __init__(self, g: ConvGeometry, back: bool, sums: bool = False):
        self.g, self.back, self.sums = g, back, sums
        along = _backward if back else _forward
        sizes = zip(lift(g.image), lift(g.out), *g.window.lifted(), strict=True)
        self.axes = layers, lines, across = tuple(along(*numbers) for numbers in sizes)  # three
        # Channels of sources and of targets in a group, and the number of groups
        c, f = g.c // g.group, g.f // g.group
        self.channels = (f, c, g.group) if back else (c, f, g.group)
        # Planes of a channel, the remainder of each, and the elements through which a job reads it, at most
        phases = itertools.product(*(axis.phases for axis in self.axes))
        self.phases = np.array([*phases], np.int64)
        self.count = len(self.phases)
        self.taps = math.prod(max(len(run.taps) for run in axis.runs) for axis in self.axes)
        # Whether the images themselves are the planes, so that nothing is copied
        self.flat = g.window.is_point
        self.block = self._block()  # samples and lines
        self.bands = -(-lines.targets // self.block[1])  # of a sample
        self.blocks = -(-g.n // self.block[0]) * self.bands  # each with all channels of a group
        # Places of a block for its largest job, in whole vectors
        places = self.block[0] * layers.targets * self.block[1] * across.targets
        self.columns = -(-places // LANES) * LANES
        # Rows of a panel: elements (channel, kernel element) of the sum at a time
        most = MANY // self.columns if self.columns <= FEW else DEPTH
        laid, elements = self._channels(most), self.channels[0] * self.taps
        self.rows = max(1, min(elements, most if laid == self.channels[0] else laid * self.taps))
        # Channels in planes at a time: those of a panel's rows, or all
        self.laid = self._channels(self.rows)
        # Layers, lines and pitch of a plane: of a block's, or of an image
        self.sizes = layers.length, self.block[1] + lines.extent, across.pitch
        if self.flat:
            self.sizes = layers.size, lines.size, across.size
        # Elements from a sample's planes to the next one's
        self.apart = self.laid * (g.group if self.flat else self.count) * math.prod(self.sizes)
        # Elements of a block's planes and of the zeros behind them; 0 if nothing is copied
        more = max(0, across.length - across.pitch) + LANES
        whole = -(-(self.block[0] * self.apart + more) // LANES) * LANES
        self.room = 0 if self.flat else whole

    def _channels(self, rows: int) -> int:
        """Returns the channels in planes at a time, for a panel of `rows`: all, if jobs read them again."""
        if self.sums or self.flat or any(len(axis.runs) > 1 for axis in self.axes):
            return self.channels[0]
        some = max(1, rows // max(1, self.taps))
        if some >= self.channels[0]:
            return self.channels[0]
        return some - some % LANES if some > LANES else some

    def _block(self) -> tuple[int, int]:
        """Returns samples and lines of a block: about MOST places, with planes that stay in the cache."""
        layers, lines, across = self.axes
        places = layers.targets * across.targets
        each = self._channels(DEPTH) * self.count * layers.length * across.pitch
        most = lines.targets if self.flat else max(1, IN_CACHE // each - lines.extent)
        band = min(lines.targets, most, -(-MOST // places))
        if band < lines.targets:  # bands of equal size, in whole vectors if that adds few lines
            band = -(-lines.targets // -(-lines.targets // band))
            step = LANES // math.gcd(places, LANES)
            whole = -(-band // step) * step
            return 1, min(whole, lines.targets) if 2 * whole <= 3 * band else band
        fit = MOST // (places * band)
        if not self.flat:
            fit = min(fit, IN_CACHE // (each * lines.length))
        n = max(1, self.g.n)
        return -(-n // -(-n // max(1, min(n, fit)))), band
