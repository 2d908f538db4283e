"""The micro-kernels: a tile of sums, a vector of neighbours each, that stays in registers. Needs Numba.

    product:  c[r apart + v] = sum over k of a[r row + k] b[k deep + v]
    sparse:   the same of a[r row + ak] b[bk + v], by a table of int32:  steps[k] = (ak, bk)
    sums:     a[r row + ak] += sum over p, l of c[r apart + cp + l] b[bk + bp + l],  places[p] = (bp, cp)

v counts the neighbours in b and c, and l the lanes of a vector: `lanes(dtype)` of them. A tile of a product
is ROWS values of r by COLUMNS vectors, one of few rows or of sums FEW_ROWS by FEW_COLUMNS; where fewer rows
are left, the last is computed again. All positions are in elements.
"""

import functools
from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import helper
from minicaffe.backends.cpu.vector_ir import LONG, Emitter, emitted, lanes_of, wide
from minicaffe.backends.cpu.vector_ir import lanes as lanes

# What sums begin with: nothing, or a number a row; with ADD c is added at the end
ZERO, BIAS, ADD = range(3)
# In registers at a time: the sums, a vector of b for each column and one of a. 28 of 32, or all of 16. Eight
# rows read b, which seldom fits the first cache, less often than five would.
ROWS, COLUMNS = (8, 3) if wide() else (4, 3)
FEW_ROWS, FEW_COLUMNS = (5, 4) if wide() else (4, 3)
FOUR_ROWS = 6 if wide() else 0  # of tiles of four vectors
FETCHED = 16  # steps at a time, before which their numbers of the next rows are asked of memory
DEPTH = 144  # steps that are summed before the sums are added to c, which rounds less than one sum of all
BLOCK = 16  # steps of Winograd's products, which lose digits, that are summed apart before that


def accumulators(on: Emitter, rows: int, columns: int) -> list[list[Any]]:
    """Accumulators: [row][column]."""
    make = functools.partial(cgutils.alloca_once, on.builder, on.vector)
    return [[make() for _ in range(columns)] for _ in range(rows)]


def _upto(b: Any, most: int, count: Any) -> list[Any]:
    """0, 1, ... most - 1, but none beyond the last that is there."""
    last = b.sub(count, LONG(1))
    return [b.select(b.icmp_signed("<", LONG(i), last), LONG(i), last) for i in range(most)]


def _begin(on: Emitter, sums: Any, begin: Any, starts: Any) -> None:
    """What the sums begin with: see ZERO, BIAS, ADD; `starts` are where the rows' biases are."""
    builder = on.builder
    clear(on, sums)
    with builder.if_then(builder.icmp_signed("==", begin, LONG(BIAS))):
        for line, start in zip(sums, starts, strict=True):
            value = on.spread(start)
            for one in line:
                builder.store(value, one)


def clear(on: Emitter, sums: Any) -> None:
    """Make all accumulators 0."""
    for line in sums:
        for one in line:
            on.builder.store(on.zero(), one)


def _product(rows: int, columns: int) -> Any:
    """The kernel `product` for a tile of so many rows and vectors."""

    @emitted("a")
    def product(on, a, a0, row, many, steps, b, b0, c, c0, apart, how, bias, i0):
        """A tile of c (see above): rows 0..many; steps = (products of a sum, how far rows of b are apart).

        how = (ZERO, BIAS: row r begins with bias[i0 + r], or ADD; the steps that are summed apart, a multiple
        of FETCHED). a, b and c begin at a0, b0 and c0.
        """
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        (count, deep), (begin, block) = steps, how
        down = _upto(builder, rows, many)
        left, right = [on.at(a, a0, mul(row, r)) for r in down], on.at(b, b0)
        ends = _ends(on, on.at(c, c0), apart, down, columns)
        sums, totals = accumulators(on, rows, columns), accumulators(on, rows, columns)
        _begin(on, sums, begin, [on.at(bias, i0, r) for r in down])

        def add_steps(first: Any, last: Any) -> None:
            with cgutils.for_range(builder, last, first) as loop:
                line = on.at(right, mul(loop.index, deep))
                values = [on.load(on.at(line, LONG(v * on.count))) for v in range(columns)]
                _add(on, sums, [on.at(pointer, loop.index) for pointer in left], values)

        def add_up(more: Any, to: Any) -> None:
            for line, own in zip(more, to, strict=True):
                for one, total in zip(line, own, strict=True):
                    builder.store(builder.fadd(builder.load(total), builder.load(one)), total)

        clear(on, totals)
        whole = mul(builder.sdiv(count, LONG(FETCHED)), LONG(FETCHED))
        with cgutils.for_range_slice(builder, LONG(0), whole, block, LONG) as (start, _):
            with builder.if_then(builder.icmp_signed(">", start, LONG(0))):
                add_up(sums, totals)
                clear(on, sums)
            end = add(start, block)
            end = builder.select(builder.icmp_signed("<", end, whole), end, whole)
            with cgutils.for_range_slice(builder, start, end, LONG(FETCHED), LONG) as (k, _):
                for pointer in left:  # the rows of the next tile
                    on.prefetch(on.at(pointer, mul(row, LONG(rows)), k))
                add_steps(k, add(k, LONG(FETCHED)))
        add_steps(whole, count)
        with builder.if_then(builder.icmp_signed(">", whole, block)):
            add_up(totals, sums)
        _end(on, sums, ends, begin)

    return product


def _sparse(rows: int, columns: int, in_order: bool = False) -> Any:
    """The kernel `sparse` for a tile of so many rows and vectors.

    `in_order`: with ADD the sums begin with c, so that the bits are the same however steps are divided.
    """

    @emitted("a")
    def sparse(on, a, a0, row, many, steps, b, b0, c, c0, apart, begin, bias, i0):
        """A tile of c (see above), steps = (table, the first, how many); else as `product`."""
        (table, step, count), builder, down = steps, on.builder, _upto(on.builder, rows, many)
        left, right = [on.at(a, a0, builder.mul(row, r)) for r in down], on.at(b, b0)
        ends, sums = _ends(on, on.at(c, c0), apart, down, columns), accumulators(on, rows, columns)
        _begin(on, sums, begin, [on.at(bias, i0, r) for r in down])
        if in_order:
            _add_ends(on, sums, ends, begin)
        with cgutils.for_range(builder, count) as loop:
            k = builder.add(step, loop.index)
            number, vectors = on.entry(table, k, 0), on.at(right, on.entry(table, k, 1))
            values = [on.load(on.at(vectors, LONG(v * on.count))) for v in range(columns)]
            _add(on, sums, [on.at(line, number) for line in left], values)
        _end(on, sums, ends, LONG(ZERO) if in_order else begin)

    return sparse


def _ends(on: Emitter, start: Any, apart: Any, down: Any, columns: int) -> list[list[Any]]:
    """Where a tile's vectors are: [row][column]."""
    lines = [on.at(start, on.builder.mul(apart, r)) for r in down]
    return [[on.at(line, LONG(v * on.count)) for v in range(columns)] for line in lines]


def _add(on: Emitter, sums: Any, lines: Any, values: Any) -> None:
    """Add to each row's sums its number times the vectors."""
    for line, own in zip(lines, sums, strict=True):
        number = on.spread(line)
        for value, one in zip(values, own, strict=True):
            on.multiply_add(number, value, one)


def _add_ends(on: Emitter, sums: Any, ends: Any, begin: Any) -> None:
    """With ADD, adds what is there to the sums."""
    builder = on.builder
    with builder.if_then(builder.icmp_signed("==", begin, LONG(ADD))):
        for line, own in zip(ends, sums, strict=True):
            for end, one in zip(line, own, strict=True):
                builder.store(builder.fadd(on.load(end), builder.load(one)), one)


def _end(on: Emitter, sums: Any, ends: Any, begin: Any) -> None:
    """Stores a tile; with ADD, added to what is there."""
    builder = on.builder
    # all are read before one is written: rows that are computed twice are written twice
    _add_ends(on, sums, ends, begin)
    for line, own in zip(ends, sums, strict=True):
        for end, one in zip(line, own, strict=True):
            on.store(builder.load(one), end)


few_product = _product(FEW_ROWS, FEW_COLUMNS)
few, few_of_one = (_sparse(FEW_ROWS, columns, in_order=True) for columns in (FEW_COLUMNS, 1))


def _tiles(kernel_of: Any, four_rows: int = 0) -> Any:
    """All tiles of a product by its kernels. Four vectors are two tiles of two: one alone would be loads for
    the most; or, if they are neighbours and `four_rows`, tiles of so many rows and all four.
    """
    one, two, three = (kernel_of(ROWS, columns) for columns in range(1, COLUMNS + 1))
    four = kernel_of(four_rows or 1, 4)

    @helper
    def tiles(a, b, c, steps, vectors, rows, how, bias):
        (x, a0, row), (y, b0, further), (z, c0, apart), (values, i0) = a, b, c, bias
        lanes, p, tile = lanes_of(y), 0, 0
        while p < vectors:
            across, high = 2 if vectors - p == 4 else min(COLUMNS, vectors - p), ROWS
            if four_rows and vectors - p == 4 and not further:
                across, high = 4, four_rows
            begun = b0 + (tile * further if further else p * lanes)
            for r in range(0, rows, high):
                down, x0, z0 = min(high, rows - r), a0 + r * row, c0 + r * apart + p * lanes
                own = x, x0, row, down, steps, y, begun, z, z0, apart, how, values, i0 + r
                if across == COLUMNS:
                    three(*own)
                elif across == 1:
                    one(*own)
                elif across == 2:
                    two(*own)
                else:
                    four(*own)
            p, tile = p + across, tile + 1

    return tiles


_multiply, _multiply_sparse = _tiles(_product, FOUR_ROWS), _tiles(_sparse)


def _sums(rows: int, columns: int) -> Any:
    """The kernel `sums` for a tile of so many rows and columns."""

    @emitted("a")
    def sums(on, a, a0, row, many, steps, step, some, b, b0, places, place, count, c, c0, apart):
        """A tile of a (see above): rows 0..many, steps `step`.. + some, of places `place`.. + count."""
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        down = _upto(builder, rows, many)
        across = [add(step, v) for v in _upto(builder, columns, some)]
        left = [on.at(c, c0, mul(apart, r)) for r in down]
        right = [on.at(b, b0, on.entry(steps, k, 1)) for k in across]
        lines = [on.at(a, a0, mul(row, r)) for r in down]
        ends = [[on.at(line, on.entry(steps, k, 0)) for k in across] for line in lines]
        totals = accumulators(on, rows, columns)
        clear(on, totals)
        with cgutils.for_range(builder, count) as loop:
            p = add(place, loop.index)
            of_b, of_c = on.entry(places, p, 0), on.entry(places, p, 1)
            pixels = [on.load(on.at(pointer, of_b)) for pointer in right]
            for line, own in zip(left, totals, strict=True):
                gradient = on.load(on.at(line, of_c))
                for pixel, total in zip(pixels, own, strict=True):
                    on.multiply_add(gradient, pixel, total)
        # all are read before one is written: those that are computed twice are written twice
        more = [[builder.load(end) for end in line] for line in ends]
        for r, v in np.ndindex(rows, columns):
            builder.store(on.total(builder.load(totals[r][v]), more[r][v]), ends[r][v])

    return sums


_sums_of_all, _sums_of_one = _sums(FEW_ROWS, FEW_COLUMNS), _sums(ROWS, 1)


@helper
def multiply(a, b, c, count, vectors, rows, begin, bias, block=DEPTH):
    """All tiles of `product`: a = (array, start, distance of rows), c as a, and the bias (array, start).

    b = (array, start, distance of its rows, and of the vectors of a tile and the next; 0 where all vectors are
    neighbours). Of a sum of `count`, DEPTH steps of all tiles at a time, `block` of them summed apart.
    """
    (x, a0, row), (y, b0, deep, further) = a, b
    for k in range(0, max(1, count), DEPTH):
        left, right = (x, a0 + k, row), (y, b0 + k * deep, further)
        steps, how = (min(DEPTH, count - k), deep), ((begin if k == 0 else ADD), block)
        _multiply(left, right, c, steps, vectors, rows, how, bias)


@helper
def multiply_sparse(a, b, c, steps, vectors, rows, begin, bias):
    """The same of `sparse`: steps = (table, first, last), which says how far rows of b are apart, too."""
    (y, b0, _, further), (table, first, last) = b, steps
    for k in range(first, max(first + 1, last), DEPTH):
        some, how = (table, k, min(DEPTH, last - k)), begin if k == first else ADD
        _multiply_sparse(a, (y, b0, further), c, some, vectors, rows, how, bias)


@helper
def add_sums(a, b, c, steps, places, rows):
    """All tiles of `sums`: the arguments are those of `multiply`."""
    (x, a0, row), (y, b0), (z, c0, apart) = a, b, c
    (table, first, end), (where, place, last) = steps, places
    alone = end - first == 1
    high = ROWS if alone else FEW_ROWS
    for r in range(0, rows, high):
        down, x0, z0 = min(high, rows - r), a0 + r * row, c0 + r * apart
        for k in range(first, end, FEW_COLUMNS):
            of_steps = table, k, min(FEW_COLUMNS, end - k)
            own = x, x0, row, down, *of_steps, y, b0, where, place, last - place, z, z0, apart
            if alone:
                _sums_of_one(*own)
            else:
                _sums_of_all(*own)
