"""The micro-kernels: a tile of sums, a vector of neighbours each, that stays in registers. Needs Numba.

Two tables of int32 say which numbers meet, and serve all three directions of a sum such as a convolution's:

    steps[k]  = (where in a, where in b)    of a weight, and of the pixel it sees from place 0
    places[p] = (where in b, where in c)    how much further that pixel is, and where the output is

    product:  c[r apart + cp + l] = sum over k of a[r row + ak] b[bk + bp + l]
    sums:     a[r row + ak] += sum over p, l of c[r apart + cp + l] b[bk + bp + l]

l counts the lanes of a vector: `lanes(dtype)` of them, neighbours in b and c. A tile is ROWS values of r by
COLUMNS places; where fewer rows are left, its last is computed again. All positions are in elements.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba.core import cgutils, types

from minicaffe.cpu import helper
from minicaffe.cpu.vector_ir import LONG, Emitter, lanes, made, wide

__all__ = [
    "ADD",
    "BIAS",
    "COLUMNS",
    "ROWS",
    "ZERO",
    "add_sums",
    "lanes",
    "multiply",
    "one",
    "product",
    "sums",
]
ZERO, BIAS, ADD = range(
    3
)  # what the sums of `product` begin with: nothing, a number a row, c itself
# In registers at a time: the sums, a vector of b for each column and one of a. 25 of 32, or all of 16.
ROWS, COLUMNS = (5, 4) if wide() else (4, 3)


def _tile(on: Emitter, columns: int = COLUMNS) -> list[list[Any]]:
    """Accumulators: [row][column]."""
    make = functools.partial(cgutils.alloca_once, on.builder, on.vector)
    return [[make() for _ in range(columns)] for _ in range(ROWS)]


def _upto(b: Any, most: int, there: Any) -> list[Any]:
    """0, 1, ... most - 1, but none beyond the last that is there."""
    last = b.sub(there, LONG(1))
    return [b.select(b.icmp_signed("<", LONG(i), last), LONG(i), last) for i in range(most)]


def _product(columns: int) -> Any:
    """The kernel `product` for a tile of so many columns."""

    @made
    def made_of_them(
        typing,
        a,
        a0,
        row,
        rows,
        steps,
        step,
        count,
        b,
        b0,
        places,
        place,
        c,
        c0,
        apart,
        begin,
        bias,
        i0,
    ):
        """A tile of c (see above): rows 0..rows, `columns` places from `place`, steps `step`.. + count.

        `begin`: ZERO, BIAS (row r begins with bias[i0 + r]) or ADD. a, b and c begin at a0, b0 and c0.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a_, a0, row, rows, steps_, step, count, b_, b0, places_, place, *rest = args
            c_, c0, apart, begin, bias_, i0 = rest
            on, add, mul = Emitter(context, builder, a), builder.add, builder.mul
            table, where = on.data(steps, steps_), on.data(places, places_)
            down, across = _upto(builder, ROWS, rows), [add(place, LONG(v)) for v in range(columns)]
            left = [on.at(on.data(a, a_), add(a0, mul(row, r))) for r in down]
            right = [on.at(on.data(b, b_), b0, on.entry(where, p, 0)) for p in across]
            lines = [on.at(on.data(c, c_), add(c0, mul(apart, r))) for r in down]
            ends = [[on.at(line, on.entry(where, p, 1)) for p in across] for line in lines]
            sums = _tile(on, columns)
            with builder.if_else(builder.icmp_signed("==", begin, LONG(ADD))) as (there, anew):
                with there:
                    for r, v in np.ndindex(ROWS, columns):
                        builder.store(on.load(ends[r][v]), sums[r][v])
                with anew:
                    for r, v in np.ndindex(ROWS, columns):
                        builder.store(on.zero(), sums[r][v])
                    with builder.if_then(builder.icmp_signed("==", begin, LONG(BIAS))):
                        starts = [on.spread(on.at(on.data(bias, bias_), add(i0, r))) for r in down]
                        for r, v in np.ndindex(ROWS, columns):
                            builder.store(starts[r], sums[r][v])
            with cgutils.for_range(builder, count) as loop:
                k = add(step, loop.index)
                here, there = on.entry(table, k, 0), on.entry(table, k, 1)
                pixels = [on.load(on.at(pointer, there)) for pointer in right]
                for r in range(ROWS):
                    weight = on.spread(on.at(left[r], here))
                    for v in range(columns):
                        on.multiply_add(weight, pixels[v], sums[r][v])
            for r, v in np.ndindex(ROWS, columns):
                on.store(builder.load(sums[r][v]), ends[r][v])
            return context.get_dummy_value()

        long = types.int64
        tables = steps, long, long, b, long, places, long
        return types.void(a, long, long, long, *tables, c, long, long, long, bias, long), generate

    return made_of_them


product, *_narrower = (_product(columns) for columns in range(COLUMNS, 0, -1))
one, _two, _three = (_narrower[-i] if i <= len(_narrower) else product for i in (1, 2, 3))


@made
def sums(typing, a, a0, row, rows, steps, step, columns, b, b0, places, place, count, c, c0, apart):
    """A tile of a (see above): rows 0..rows, steps `step`.. + columns, of places `place`.. + count."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_, a0, row, rows, steps_, step, columns, b_, b0, places_, place, count, c_, c0, apart = (
            args
        )
        on, add, mul = Emitter(context, builder, a), builder.add, builder.mul
        table, where = on.data(steps, steps_), on.data(places, places_)
        down, across = (
            _upto(builder, ROWS, rows),
            [add(step, v) for v in _upto(builder, COLUMNS, columns)],
        )
        left = [on.at(on.data(c, c_), add(c0, mul(apart, r))) for r in down]
        right = [on.at(on.data(b, b_), b0, on.entry(table, k, 1)) for k in across]
        lines = [on.at(on.data(a, a_), add(a0, mul(row, r))) for r in down]
        ends = [[on.at(line, on.entry(table, k, 0)) for k in across] for line in lines]
        totals = _tile(on)
        for r, v in np.ndindex(ROWS, COLUMNS):
            builder.store(on.zero(), totals[r][v])
        with cgutils.for_range(builder, count) as loop:
            p = add(place, loop.index)
            there, here = on.entry(where, p, 0), on.entry(where, p, 1)
            pixels = [on.load(on.at(pointer, there)) for pointer in right]
            for r in range(ROWS):
                gradient = on.load(on.at(left[r], here))
                for v in range(COLUMNS):
                    on.multiply_add(gradient, pixels[v], totals[r][v])
        # all are read before one is written: those that are computed twice are written twice
        more = [[builder.load(end) for end in line] for line in ends]
        for r, v in np.ndindex(ROWS, COLUMNS):
            builder.store(on.total(builder.load(totals[r][v]), more[r][v]), ends[r][v])
        return context.get_dummy_value()

    long = types.int64
    tables = steps, long, long, b, long, places, long, long
    return types.void(a, long, long, long, *tables, c, long, long), generate


@helper
def multiply(a, b, c, steps, places, rows, begin, bias):
    """All tiles of `product`: a = (array, start, distance of rows), b = (array, start), c as a.

    steps and places are (table, first, last); the bias is (array, start).
    """
    (x, a0, row), (y, b0), (z, c0, apart), (values, i0) = a, b, c, bias
    (table, step, last), (where, first, end) = steps, places
    for p in range(first, end, COLUMNS):
        across = min(COLUMNS, end - p)
        for r in range(0, rows, ROWS):
            down, x0, z0 = min(ROWS, rows - r), a0 + r * row, c0 + r * apart
            own = x, x0, row, down, table, step, last - step, y, b0, where, p, z, z0, apart
            if across == COLUMNS:
                product(*own, begin, values, i0 + r)
            elif across == 1:
                one(*own, begin, values, i0 + r)
            elif across == 2:
                _two(*own, begin, values, i0 + r)
            else:
                _three(*own, begin, values, i0 + r)


@helper
def add_sums(a, b, c, steps, places, rows):
    """All tiles of `sums`: the arguments are those of `multiply`."""
    (x, a0, row), (y, b0), (z, c0, apart) = a, b, c
    (table, first, end), (where, place, last) = steps, places
    for r in range(0, rows, ROWS):
        down, x0, z0 = min(ROWS, rows - r), a0 + r * row, c0 + r * apart
        for k in range(first, end, COLUMNS):
            own = table, k, min(COLUMNS, end - k), y, b0, where, place, last - place
            sums(x, x0, row, down, *own, z, z0, apart)
