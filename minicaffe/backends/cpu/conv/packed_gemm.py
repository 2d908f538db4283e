"""Convolution as a packed GEMM of our own: neighbouring places fill a vector; no column matrix, no BLAS.

    y[f, p] = bias[f] + sum over k of w[f, k] X[where[k] + p]

X holds the channels as planes (`space_to_depth`): the pixel that place p reads through element k of the kernel
is at where[k] + p. For a 1 x 1 convolution X is the image, whose whole vectors are multiplied where they lie.
Else, for a block of places, some DEPTH elements k at a time are packed into panels, which stay in the cache
while all weights are multiplied; a tile of filters by vectors of places stays in registers
(backends/cpu/microkernel.py). dx is the same of dy with the weight transposed. For dweight[f, k] = sum over p
of dy[f, p] X[where[k] + p] the filters fill a vector. Threads share blocks and tiles of channels of y and dx,
so that one image keeps all of them busy; for dweight they share channels of x. Source: K. Goto, R. van de
Geijn, Anatomy of High-Performance Matrix Multiplication, 2008; here the weights are not packed.

A column is a place of a block, in the order of samples, layers, lines and pixels. A panel holds some vectors
of neighbouring columns; its row k holds the pixels that its places read through element k of the kernel. These
pixels lie in the planes in runs, and are copied one vector at a time (`pieces`):

    panel[k, to : to + lanes] = planes[where[k] + at : where[k] + at + lanes]

Full-vector stores may overrun; the next store overwrites the tail. The targets of a block lie in `runs`, too.
"""

import functools
import itertools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.conv.space_to_depth import LANES, Planes, Run
from minicaffe.backends.cpu.ops import row
from minicaffe.backends.cpu.skinny import table
from minicaffe.backends.cpu.threads import even_parts, run, share
from minicaffe.core.ops.geometry import ConvGeometry, lift

RESULTS = 2**17  # sums of a block at a time, so that they stay in the cache
TILE = 8  # filters of a tile, at most
TURNED = 128  # columns that are transposed at a time, for dweight: they stay in the first cache
WIDEST = 64  # numbers of a panel's row, at most
SUMMED = 4  # columns that are left, at most, if they are summed


class Panels:
    """The tables of one direction for vectors of `lanes` numbers, at most `columns` vectors in a panel.

    If at most `summed` columns are left that fill no vector, they are no part of the product.
    """

    def __init__(self, planes: Planes, lanes: int, columns: int, summed: int):
        self.planes, self.lanes, self.columns = planes, lanes, columns
        self.width = lanes * columns  # numbers of a panel's row
        self.left = self._left(summed)
        # Every combination of runs along the three axes: its targets read the same kernel elements
        self.jobs = [*itertools.product(*(axis.runs for axis in planes.axes))]
        # The distances of the targets of a job, along each axis
        self.steps = planes.g.window.lifted()[1] if planes.back else (1, 1, 1)
        # Elements from a panel to the next one: the last store of a panel may overrun by a vector
        self.apart = planes.rows * self.width + lanes
        # Elements of panels and columns left, or for dweight of the transposed panel; at most `largest`
        count = max(1, -(-planes.columns // self.width)) + bool(len(self.left[0]))  # of a block
        size = TURNED * self.width if planes.sums else count * self.apart
        self.room = -(-(size + len(self.left[0]) * planes.rows) // LANES) * LANES

    def _left(self, summed: int) -> tuple[Any, Any]:
        """Returns the tables by which columns that are left are summed: of these, and of vectors of elements.

        columns[j] = (which, offset of its elements); vectors[v] = (offset, offset in the weight). Without
        columns if a target's weights are no neighbours, or no whole vectors.
        """
        planes = self.planes
        apart = planes.back or planes.sums or planes.channels[0] * planes.taps % self.lanes
        columns = 0 if apart or planes.rows % self.lanes else summed
        vectors = table(planes.rows // self.lanes, self.lanes, self.lanes)
        return table(columns, 1, planes.rows), vectors

    @property
    def tables(self) -> tuple[Any, ...]:
        """The tables of the loop for y and dx: jobs, steps, where, blocks, pieces and runs.

        jobs[j] = (first step, end of its steps); steps[k] = (offset in the weight, offset in a panel);
        where[k] = offset in the planes; blocks[2 j], and blocks[2 j + 1] for a smaller last block =
        (columns, first piece, end of its pieces, first run, end of its runs); pieces = (at, to);
        runs = (first column, columns, offset in the targets).
        """
        jobs, steps, where, blocks, pieces, runs = ([] for _ in range(6))  # type: ignore[var-annotated]
        for job in self.jobs:
            weights, pixels = self._elements(job)
            jobs.append([len(where), len(where) + len(pixels)])
            where.extend(pixels)
            steps.extend(zip(weights, self._rows(len(weights), self.planes.rows), strict=True))
            for last in (False, True):
                at, to = self._columns(job, last)
                begin = len(pieces), len(runs)
                for panel, (column, end) in enumerate(itertools.pairwise(self._ends(len(at)))):
                    pieces.extend(self._pieces(at[column:end], panel * self.apart))
                runs.extend(_runs(to, self.steps[2]))
                blocks.append([len(at), begin[0], len(pieces), begin[1], len(runs)])
        numbers = (blocks, 5), (pieces, 2), (runs, 3)
        return (
            np.array(jobs, np.int64),
            np.array(steps, np.int32).reshape(-1, 2),
            np.array(where, np.int64),
            *(np.array(table, np.int64).reshape(-1, width) for table, width in numbers),
        )

    @property
    def sums(self) -> tuple[Any, ...]:
        """The tables of the loop for dweight: where, steps, blocks and runs.

        where[t] = offset of kernel element t in a channel's planes; steps[q] = (offset of column q, offset in
        a panel); blocks[0], and blocks[1] for a smaller last block = (first column, end of its columns, first
        run, end of its runs); runs as in `tables`.
        """
        (job,) = self.jobs
        taps, steps, blocks, runs = self.planes.taps, [], [], []  # type: ignore[var-annotated]
        for last in (False, True):
            at, to = self._columns(job, last)
            begin = len(steps), len(runs)
            runs.extend(_runs(to, 1))
            steps.extend(zip(at, self._rows(len(at), TURNED), strict=True))
            blocks.append([begin[0], len(steps), begin[1], len(runs)])
        return (
            self._elements(job)[1][:taps],
            np.array(steps, np.int32).reshape(-1, 2),
            np.array(blocks, np.int64),
            np.array(runs, np.int64).reshape(-1, 3),
        )

    def _ends(self, count: int) -> list[int]:
        """Returns where each panel of so many columns begins and the last one ends: see `multiply`."""
        left = count % self.lanes if count % self.lanes <= len(self.left[0]) else 0
        end, vectors = [0], -(-(count - left) // self.lanes)
        while vectors:
            across = 2 if vectors == 4 else min(self.columns, vectors)
            end.append(end[-1] + across * self.lanes)
            vectors -= across
        return [min(one, count - left) for one in end] + [count] * bool(left)

    def _rows(self, count: int, at_a_time: int) -> Any:
        """Returns the offsets of `count` rows in a panel that holds `at_a_time` of them."""
        return np.arange(count) % at_a_time * self.width

    def _elements(self, job: tuple[Run, ...]) -> tuple[Any, Any]:
        """Returns, for each kernel element that a job reads, its offset in the weight and in the planes."""
        planes, kernel = self.planes, lift(self.planes.g.window.kernel)
        counts, plane = [len(axis.phases) for axis in planes.axes], math.prod(planes.sizes)
        elements, window = list(itertools.product(*(run.taps for run in job))), math.prod(kernel)
        taps = [_flat([t for t, _, _ in element], kernel) for element in elements]
        offsets = [
            _flat([q for _, q, _ in element], counts) * plane
            + _flat([v for *_, v in element], planes.sizes)
            for element in elements
        ]
        row = planes.channels[1] * window if planes.back else window  # of the weight, a source
        channels = np.arange(planes.channels[0])[:, None]
        weights = channels * row + np.array(taps, np.int64)
        pixels = channels % planes.laid * (planes.count * plane) + np.array(offsets, np.int64)
        return weights.reshape(-1), pixels.reshape(-1)

    def _columns(self, job: tuple[Run, ...], last: bool) -> tuple[Any, Any]:
        """Returns, for each column of a block or of a smaller last block, its offset in planes and targets."""
        planes, (layers, lines, across) = self.planes, job
        (samples, band), (_, high, wide) = planes.block, planes.sizes
        if last and planes.bands == 1:
            samples = planes.g.n - (planes.blocks - 1) * samples
        first_line = (planes.bands - 1) * band if last else 0
        counts = samples, layers.count, max(0, min(band, lines.count - first_line)), across.count
        s, *index = np.indices(counts).reshape(4, -1)
        z, i, j = index
        base = _flat([run.base for run in job], planes.sizes)
        at = base + s * planes.apart + (z * high + i) * wide + j
        size = lift(planes.g.image if planes.back else planes.g.out)
        sample = planes.channels[1] * planes.channels[2] * math.prod(size)
        axes = zip(job, index, self.steps, strict=True)
        z, i, j = (run.start + number * step for run, number, step in axes)
        return at, s * sample + (z * size[1] + i) * size[2] + j

    def _pieces(self, at: Any, begin: int) -> Any:
        """Returns rows (at, to) of the vectors that fill a panel, which begins at `begin`."""
        columns = np.arange(len(at))
        begins = np.diff(at, prepend=at[0] - 2) != 1
        since = columns - np.maximum.accumulate(np.where(begins, columns, 0))
        first = since % self.lanes == 0
        return np.stack((at[first], begin + columns[first]), axis=1)


def largest(planes: Planes) -> int:
    """Returns the elements of a block's panels for the vectors with which they are largest."""
    if planes.sums:
        return -(-TURNED * WIDEST // LANES) * LANES
    return (planes.rows + 1) * (planes.columns + 2 * WIDEST) + SUMMED * planes.rows


def _runs(to: Any, step: int) -> list[tuple[int, int, int]]:
    """Returns (first column, columns, offset of its target) of each run of targets `step` apart."""
    begins = np.flatnonzero(np.diff(to, prepend=to[:1] - step - 1) != step)
    return [(a, b - a, to[a]) for a, b in itertools.pairwise((*begins, len(to)))]


def _flat(index: Any, sizes: Any) -> int:
    """Returns the offset of an entry in an array of three axes."""
    return int((index[0] * sizes[1] + index[1]) * sizes[2] + index[2])


@functools.lru_cache(maxsize=4096)
def room(g: ConvGeometry, back: bool = False) -> int:
    """Returns the elements of work for y or dx: panels, planes, and the sums of a part of the targets."""
    planes = Planes(g, back)
    columns, rows = planes.columns, -(-planes.channels[1] // _parts(planes)) + TILE
    return largest(planes) + planes.room + columns * min(planes.channels[1], rows)


def room_of_sums(g: ConvGeometry) -> int:
    """Returns the elements of work for dweight: the panels and planes of a block, and sums."""
    sums = g.rows // g.group * (-(-(g.f // g.group) // LANES) * LANES)
    planes = Planes(g, False, sums=True)
    return largest(planes) + planes.room + sums


@row("packed_gemm.forward", work=room)
def forward(compiled, x, weight, bias, g, out, work):
    arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    _correlate(compiled, g, False, (out.reshape(-1), *arrays), work)


@row("packed_gemm.input_gradient", work=functools.partial(room, back=True))
def input_gradient(compiled, dy, weight, g, out, work):
    arrays = out.reshape(-1), dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype)
    _correlate(compiled, g, True, arrays, work)


@row("packed_gemm.weight_gradient", work=room_of_sums)
def weight_gradient(compiled, x, dy, g, out, work):
    arrays = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
    run(compiled.weight_gradient, g.c, *arrays, *_sums(g, x.dtype), Piece(work))


def _correlate(kernels: Any, g: ConvGeometry, back: bool, arrays: Any, work: Any) -> None:
    """Runs the loop that computes y from x, or dx from dy with `back`."""
    units, *tables = _tables(g, back, arrays[0].dtype, share())
    channels, sizes = (g.c, g.image) if back else (g.f, g.out)
    args = no_epilogue(channels, math.prod(sizes)), *arrays, *tables, Piece(work)
    run(kernels.correlate, units, *args)


def _parts(planes: Planes) -> int:
    """Returns into how many parts the channels of the targets are cut, at least."""
    return min(-(-planes.channels[1] // TILE), -(-planes.channels[1] * planes.columns // RESULTS))


@functools.lru_cache(maxsize=256)
def _tables(g: ConvGeometry, back: bool, dtype: Any, threads: int) -> tuple[Any, ...]:
    """Returns the units of the loop for y or dx and its arguments `plane` ... `left`: see the loop."""
    planes = Planes(g, back)
    tables, tile = _panels(planes, dtype)
    units, tiles = planes.blocks * g.group, -(-planes.channels[1] // tile.ROWS)
    parts = even_parts(units, threads, tiles, _parts(planes))
    more = tables.tables, planes.back, tables.left
    return units * parts, *_layout(tables), parts, planes.phases, *more


@functools.lru_cache(maxsize=256)
def _sums(g: ConvGeometry, dtype: Any) -> tuple[Any, ...]:
    """Returns the arguments `plane` ... `turned` of the loop for dweight."""
    planes = Planes(g, False, sums=True)
    tables, _ = _panels(planes, dtype)
    turned = np.arange(TURNED, dtype=np.int32) * tables.width
    return *_layout(tables), planes.phases, tables.sums, turned


def _panels(planes: Planes, dtype: Any) -> tuple[Panels, Any]:
    """The panels for the microkernel's tile, and the microkernel."""
    tile: Any = loops("microkernel", dtype)
    return Panels(planes, int(tile.lanes(dtype)), tile.COLUMNS, tile.FEW_COLUMNS), tile


def _layout(tables: Panels) -> tuple[Any, Any]:
    """Returns the arguments `plane` and `target` of the loops: the layout of sources, targets and weight."""
    planes, g = tables.planes, tables.planes.g
    row, window = math.prod(g.weight_shape[1:]), math.prod(g.window.kernel)
    image, steps, pads = (
        tuple(getattr(axis, name) for axis in planes.axes) for name in ("size", "step", "pad")
    )
    block = g.n, *planes.block, planes.bands
    room = planes.apart, planes.room, tables.room, tables.width, planes.rows, planes.laid
    plane = planes.channels, image, steps, pads, planes.sizes, block, room
    size, (_, down, along) = lift(g.out), (1, 1, 1)
    if planes.back:
        size, (_, down, along) = lift(g.image), g.window.lifted()[1]
    places = down * size[2], along, math.prod(size)
    return plane, (places, (g.f // g.group * row, window if planes.back else row))
