"""Which weights meet which pixels, for `lanes`: bands, and the tables of `loops.tile` for one band.

Along an axis a result sees the source at base + delta, where a phase's results share their deltas:

    y[o],  o = 0, 1 ...    base o stride                     delta t dilation - pad              one phase
    dx[i], i + pad = base stride + phase                     delta (phase - t dilation) / stride, if whole

Bands are so many rows of the result, and of the source all rows that those see. Where much of what results
see is padding, those that see the same elements of the kernel are a phase of their own (see `Axis`): if that
makes fewer steps of tiles.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minicaffe.ops.conv.lanes_axis import Axis, Phase
from minicaffe.ops.geometry import ConvGeometry, Sizes

BAND = 2**17  # entries of a band, turned: half a MiB in float32
TILE = 5  # channels of the result that are computed at a time, at the most
UNEVEN = 1.1  # times the work of a thread, at which it is shared well enough
WIDTHS = (4, 8, 16)  # lanes of vectors of 256 or 512 bits
COLUMNS = (3, 4)  # places of a tile there
START = 4  # steps that it takes to begin and end a tile


@dataclass(frozen=True)
class Sweep:
    """A direction of a convolution as the loops want it, whatever the batch; see `loops.lanes`.

    Of dweight, with `sums`, the result is dy.
    """

    g: ConvGeometry
    turned: bool  # whether it goes from dy to dx
    lanes: int
    sums: bool = False
    columns: int = 0  # places of a tile, for which phases may be split

    @functools.cached_property
    def channels(self) -> tuple[int, int]:
        """Of a group of the source, and of the result."""
        c, f = self.g.c // self.g.group, self.g.f // self.g.group
        return (f, c) if self.turned else (c, f)

    @functools.cached_property
    def images(self) -> tuple[Sizes, Sizes]:
        """Of the source and of the result."""
        g = self.g
        return (g.out, g.image) if self.turned else (g.image, g.out)

    @functools.cached_property
    def rows(self) -> int:
        """Of a band: as many as stay in the cache, and bands of the same size."""
        step = self.g.window.stride[0] if self.turned else 1
        whole = self.images[1][0]
        most = -(-whole // step) * step
        while most > step and self._entries(most) > BAND:
            most = -(-most // (2 * step)) * step
        return -(-whole // -(-whole // most) // step) * step

    @property
    def bands(self) -> int:
        """How many there are."""
        return -(-self.images[1][0] // self.rows)

    @functools.cached_property
    def entries(self) -> int:
        """Of a band of the source and of the result, and what it takes to align them."""
        return self._entries(self.rows) + max(WIDTHS)

    def _entries(self, rows: int) -> int:
        channels, results = self.channels
        vectors = channels * self._plane(rows)
        across = rows * math.prod(self.images[1][1:])
        return (vectors + (results if self.sums else TILE) * across) * self.lanes

    def _plane(self, rows: int) -> int:
        """Vectors of a channel's band of the source; the last is for pixels that no window sees."""
        return math.prod(axis.extent for axis in self._axes(rows)) + 1

    def _axes(self, rows: int) -> tuple[Axis, ...]:
        window = self.g.window
        parts = zip(window.kernel, window.stride, window.pad, window.dilation, strict=True)
        sizes = zip((rows, *self.images[1][1:]), self.images[0], parts, strict=True)
        axes = [Axis(size, source, *part, self.turned) for size, source, part in sizes]
        if not self.columns:
            return tuple(axes)
        last = len(axes) - 1
        ways = [
            (axis,)
            if i == 0 and rows < self.images[1][0]  # bands differ
            else (axis, dataclasses.replace(axis, least=self.columns if i == last else 1))
            for i, axis in enumerate(axes)
        ]
        return min(itertools.product(*ways), key=self._steps)

    def _steps(self, axes: Sequence[Axis]) -> int:
        """Steps of all tiles of a row of them."""
        total = 0
        for phase in _phases(axes):
            places = math.prod(len(part.results) for part in phase)
            steps = math.prod(len(part.elements) for part in phase) * self.channels[0]
            total += -(-places // self.columns) * (steps + START)
        return total

    @functools.cached_property
    def source(self) -> tuple[int, ...]:
        """Channels, rows, pixels of a row, rows of a band, distance and begin of bands, plane, padded."""
        axes, image = self._axes(self.rows), self.images[0]
        stride = self.g.window.stride[0]
        apart = self.rows // stride if self.turned else self.rows * stride
        plain = self.bands == 1 and axes[0].begin == 0 and axes[0].extent == image[0]
        plain &= all(
            a.begin == 0 and a.extent <= i for a, i in zip(axes[1:], image[1:], strict=True)
        )
        sizes = (self.channels[0], image[0], math.prod(image[1:]), axes[0].extent, apart)
        return *sizes, axes[0].begin, self._plane(self.rows), int(not plain)

    @functools.cached_property
    def result(self) -> tuple[int, ...]:
        """The same of the result."""
        _, (rows, *others) = self.images
        across = math.prod(others)
        partial = int(rows % self.rows != 0)
        return (
            *(self.channels[1], rows, across, self.rows),
            *(self.rows, 0, self.rows * across, partial),
        )

    @functools.cached_property
    def weights(self) -> tuple[int, int]:
        """How far the weights of groups are apart, and those of channels of the result."""
        g = self.g
        kernel, c = math.prod(g.window.kernel), g.c // g.group
        return g.f // g.group * c * kernel, kernel if self.turned else c * kernel

    @functools.cached_property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Where a band's pixels go, steps, places, phases, and how far samples are apart in the result.

        With `sums`, the last two are where the result's pixels go.
        """
        axes, lanes = self._axes(self.rows), self.lanes
        extents = [axis.extent for axis in axes]
        pitch = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
        steps, places, phases = self._meetings(axes, pitch)
        to = self._to(axes, pitch)
        if self.sums:
            plain = np.arange(self.rows * self.result[2], dtype=np.int32) * lanes
            return to, steps, places, plain
        sample = self.g.group * self.channels[1] * math.prod(self.images[1])
        return to, steps, places, phases, np.arange(lanes, dtype=np.int32) * sample

    def _to(self, axes: Sequence[Axis], pitch: Sequence[int]) -> np.ndarray:
        """For each pixel of a band's rows of the source: where in the plane."""
        sizes = (axes[0].extent, *self.images[0][1:])
        begins = (0, *(axis.begin for axis in axes[1:]))
        spots, inside = np.zeros(sizes, np.int64), np.ones(sizes, bool)
        for i, (axis, begin) in enumerate(zip(axes, begins, strict=True)):
            shape = [-1 if j == i else 1 for j in range(len(sizes))]
            at = (np.arange(sizes[i]) - begin).reshape(shape)
            spots += at * pitch[i]
            inside &= (at >= 0) & (at < axis.extent)
        last = self._plane(self.rows) - 1
        return (np.where(inside, spots, last) * self.lanes).astype(np.int32).ravel()

    def _meetings(
        self, axes: Sequence[Axis], pitch: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """steps, places, and for each phase the first and last of both."""
        kernel, plane = self.g.window.kernel, self._plane(self.rows)
        size = math.prod(kernel)
        channel = np.arange(self.channels[0]).reshape(-1, 1)
        apart = self.g.c // self.g.group * size if self.turned else size
        out = (self.rows, *self.images[1][1:])
        found_steps, found_places, phases, k, p = [], [], [], 0, 0
        for phase in _phases(axes):
            places = np.zeros((1, 2), np.int64)
            taps = np.zeros((1, 2), np.int64)
            for i, (part, axis, distance) in enumerate(zip(phase, axes, pitch, strict=True)):
                results = part.results * math.prod(out[i + 1 :])
                at = np.stack([part.bases * distance, results], 1)
                places = (places[:, None] + at).reshape(-1, 2)
                elements = part.elements * math.prod(kernel[i + 1 :])
                tap = np.stack([elements, (part.deltas - axis.begin) * distance], 1)
                taps = (taps[:, None] + tap).reshape(-1, 2)
            steps = np.stack([channel * apart + taps[:, 0], channel * plane + taps[:, 1]], 2)
            found_steps.append(steps.reshape(-1, 2) * (1, self.lanes))
            found_places.append(places * self.lanes)
            phases.append((k, k + steps.size // 2, p, p + len(places)))
            k, p = phases[-1][1], phases[-1][3]
        tables = np.concatenate(found_steps), np.concatenate(found_places), np.array(phases)
        of_steps, of_places, ranges = (table.astype(np.int32) for table in tables)
        return of_steps, of_places, ranges

    def units(self, n: int, threads: int, tile: int) -> tuple[int, tuple[int, ...]]:
        """How many there are, and how the work is cut: channels into parts, if there are too few."""
        whole, best = -(-n // self.lanes) * self.g.group * self.bands, (math.inf, 1)
        for parts in range(1, min(threads, -(-self.channels[1] // tile)) + 1):
            uneven = -(-whole * parts // threads) * threads / max(1, whole * parts)
            best = min(best, (uneven, parts))
            if uneven <= UNEVEN:
                break
        return whole * best[1], (n, self.g.group, self.bands, best[1])


def _phases(axes: Sequence[Axis]) -> Iterator[tuple[Phase, ...]]:
    return itertools.product(*(axis.phases for axis in axes))


@functools.lru_cache(maxsize=4096)
def sweep(g: ConvGeometry, turned: bool, lanes: int, sums: bool = False, columns: int = 0) -> Sweep:
    """The sweep of a convolution, remembered."""
    if g.n != 1:
        return sweep(dataclasses.replace(g, n=1), turned, lanes, sums, columns)
    return Sweep(g, turned, lanes, sums, columns)
