"""Winograd's transforms along one axis, a vector of tiles or of pixels at a time. Needs Numba.

Points come as 0, p, -p, q, -q, ..., infinity, an even number of them, so half the multiplications do: the
rows of a matrix for p and -p have the same even columns, and odd columns of the other sign, and those of 0
and of infinity have nothing but even and odd ones. `numbers` (2, t / 2, a / 2) are the even columns of the
rows of 0, p, q, ..., and the odd ones of infinity, p, q, ...:

    to points:    e = sum over k of numbers[0, j, k] x[2 k]
                  o = sum over k of numbers[1, j, k] x[2 k + 1]
                  y[2 j - 1], y[2 j] = e + o, e - o;  of j = 0:  y[0], y[t - 1] = e, o
    from points:  the transpose of that

A matrix is B' if it is square, else A, whose entries are powers of the points. Both have entries that are 0
or 1 whatever the points are: of those no product is taken. Where rows are transformed, lanes are tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu.vector_ir import LONG, Emitter, emitted, ir

IMAGES = ((4, 4), (3, 3), (2, 2))  # halves of the sizes of B'
RESULTS = ((4, 2), (3, 2), (4, 1), (3, 1), (2, 1))  # and of A


class _Transform(Emitter):
    """One matrix: its numbers in registers, or near."""

    def __init__(self, on: Emitter, numbers: Any, sizes: tuple[int, int]):
        super().__init__(on.context, on.builder, on.kind)
        self.pairs, self.halves = sizes
        self.numbers = {}
        for at in np.ndindex(2, *sizes):
            if self._known(*at) is None:
                where = int(np.ravel_multi_index(at, (2, *sizes)))
                self.numbers[at] = self.spread(self.at(numbers, LONG(where)))

    def _known(self, odd: int, j: int, k: int) -> int | None:
        """An entry that is 0 or 1 for all points."""
        end = self.halves - 1 if odd else 0
        if self.pairs == self.halves:
            return 0 if j and k == (end if odd else 0) else None
        if j == 0:
            return int(k == end)
        return 1 if not odd and k == 0 else None

    def _sum(self, terms: Sequence[tuple[tuple[int, int, int], Any]]) -> Any:
        """The sum of entries times vectors."""
        total = None
        for at, vector in terms:
            known = self._known(*at)
            if known == 0:
                continue
            if known == 1:
                total = vector if total is None else self.builder.fadd(total, vector)
            elif total is None:
                total = self.builder.fmul(self.numbers[at], vector)
            else:
                total = self.fused(self.numbers[at], vector, total)
        return total

    def to_points(self, x: Sequence[Any]) -> list[Any]:
        """t vectors from a."""
        parts = [
            [
                self._sum([((odd, j, k), x[2 * k + odd]) for k in range(self.halves)])
                for odd in (0, 1)
            ]
            for j in range(self.pairs)
        ]
        inner = [f(*pair) for pair in parts[1:] for f in (self.builder.fadd, self.builder.fsub)]
        return [parts[0][0], *inner, parts[0][1]]

    def from_points(self, y: Sequence[Any]) -> list[Any]:
        """a vectors from t."""
        parts = [(y[0], y[-1])]
        for j in range(1, self.pairs):
            pair = y[2 * j - 1], y[2 * j]
            parts.append((self.builder.fadd(*pair), self.builder.fsub(*pair)))
        return [
            self._sum([((odd, j, k), parts[j][odd]) for j in range(self.pairs)])
            for k in range(self.halves)
            for odd in (0, 1)
        ]

    def vectors(self, count: Any) -> Any:
        """How many it takes for so many numbers."""
        more = self.builder.add(count, LONG(self.count - 1))
        return self.builder.sdiv(more, LONG(self.count))

    def gather(self, spots: Sequence[Any], size: int) -> list[Any]:
        """From each spot, one a lane, `size` numbers: the first of all spots, the second, ..."""
        found, block = [], self.block
        for start in range(0, size, block):
            kind = ir.VectorType(self.real, block)
            parts = [self.load(self.at(spot, LONG(start)), kind) for spot in spots]
            lines = [self.joined(parts[i::block]) for i in range(block)]
            found += self.squares(lines)
        return found[:size]

    def give(self, vector: Any, pointer: Any, add: bool) -> None:
        """Store a vector, or add it to what is there."""
        if add:
            vector = self.builder.fadd(self.load(pointer, vector.type), vector)
        self.store(vector, pointer)

    def scatter(self, vectors: Sequence[Any], spots: Sequence[Any], add: bool) -> None:
        """The other way round; or added to what is there, spot by spot."""
        for start in range(0, len(vectors), self.block):
            some = list(vectors[start : start + self.block])
            width = len(some)
            some += [self.zero()] * (self.block - width)
            for i, line in enumerate(self.squares(some)):
                for j, spot in enumerate(spots[i :: self.block]):
                    there = [j * self.block + k for k in range(width)]
                    self.give(self.pick(line, there), self.at(spot, LONG(start)), add)


def _of_sizes(on: Emitter, matrix: Any, known: Any) -> Iterator[_Transform]:
    """The transform, for whichever of the known sizes the matrix has."""
    builder, (numbers, sizes) = on.builder, matrix
    for pairs, halves in known:
        same = [
            builder.icmp_signed("==", one, LONG(size))
            for one, size in zip(sizes[1:], (pairs, halves), strict=True)
        ]
        with builder.if_then(builder.and_(*same)):
            yield _Transform(on, numbers, (pairs, halves))


def _columns(known: Any, back: bool = False, add_to: bool = False) -> Any:
    """The transform of columns by a matrix of known sizes: (its numbers, their shape)."""

    @emitted("a")
    def columns(on, matrix, a, a0, apart, b, b0, further, count):
        """b[b0 + i further + q] from all a[a0 + k apart + q], for q < count: at least a vector."""
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        for by in _of_sizes(on, matrix, known):
            last, lanes = builder.sub(count, LONG(on.count)), LONG(on.count)
            with cgutils.for_range(builder, by.vectors(count)) as loop:
                q = mul(loop.index, lanes)
                q = builder.select(builder.icmp_signed("<", q, last), q, last)
                size = 2 * (by.pairs if back else by.halves)
                x = [on.load(on.at(a, a0, add(q, mul(apart, LONG(k))))) for k in range(size)]
                to = by.from_points(x) if back else by.to_points(x)
                for i, vector in enumerate(to):
                    by.give(vector, on.at(b, b0, add(q, mul(further, LONG(i)))), add_to)

    return columns


def _rows(known: Any, back: bool = False, add_to: bool = False) -> Any:
    """The transform of the rows of tiles by a matrix of known sizes."""

    @emitted("tiles")
    def rows(on, matrix, tiles, tiles0, places, points, points0, apart, count):
        """From tiles[tiles0 + places[q]], a row of tile q < count, to points[points0 + i apart + q] for all i.

        What lies behind the last, up to a vector, is of no meaning. If it is `back`, the other way.
        """
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        for by in _of_sizes(on, matrix, known):
            with cgutils.for_range(builder, by.vectors(count)) as loop:
                q = mul(loop.index, LONG(on.count))
                where = [builder.load(on.at(places, add(q, LONG(i)))) for i in range(on.count)]
                spots = [on.at(tiles, tiles0, builder.sext(one, LONG)) for one in where]
                lines = [
                    on.at(points, points0, add(q, mul(apart, LONG(i)))) for i in range(2 * by.pairs)
                ]
                if back:
                    x = by.from_points([on.load(line) for line in lines])
                    by.scatter(x, spots, add_to)
                else:
                    found = by.to_points(by.gather(spots, 2 * by.halves))
                    for vector, line in zip(found, lines, strict=True):
                        on.store(vector, line)

    return rows


image_columns, image_rows = _columns(IMAGES), _rows(IMAGES)
result_columns, result_rows = _columns(RESULTS), _rows(RESULTS)
columns_back, rows_back = _columns(RESULTS, True), _rows(RESULTS, True)
columns_added, rows_added = _columns(IMAGES, True, True), _rows(IMAGES, True, True)
