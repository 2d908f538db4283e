"""Tiles of images as Winograd's convolution has them: read and written, transformed on the way.

A strip is a row of tiles. Its neighbours are transformed from the image, without strides and dilation: see
`_beside`. Else whole rows of pixels are transformed into `room`, where zeros are the padding, and from there
rows of tiles. Back it goes the other way, and what lies beyond the image's edge stays in the room.

Points lie in memory as (t0 t1, channels, tiles), a matrix each, `apart`, with lines of so many elements: whole
vectors are written, and what is behind the last tile of a channel is of no meaning.

Pixels of a tile may be some apart, by the dilation or the stride; those along an axis with the same rest of
that are a phase, and lie side by side in the room. `phases` are, of each axis, how far, and how many tiles one
phase has. Dilated, an image has the tiles of all its phases, one phase after the other. With strides a phase
of each axis is a plane, and a channel by itself: `planes` are how many there are along each axis, and how many
channels have their first ones side by side (those of a group).

`cut` is how many strips the room has at a time, how long a row of it is, where in it a strip's pixels are put,
and points half way back, its size, and pixels of a phase in a row. `matrices` are `parity`'s, of each axis.

Along one axis a vector of tiles or of pixels is transformed at a time. Points come as 0, p, -p, q, -q, ...,
infinity, an even number, so half the multiplications do: rows for p and -p have the same even columns, and odd
ones of the other sign, and those of 0 and of infinity have nothing but even and odd ones. `numbers` (2, t / 2,
a / 2) are the even columns of the rows of 0, p, q, ..., and the odd ones of infinity, p, q, ...:

    to points:    e = sum over k of numbers[0, j, k] x[2 k]
                  o = sum over k of numbers[1, j, k] x[2 k + 1]
                  y[2 j - 1], y[2 j] = e + o, e - o;  of j = 0:  y[0], y[t - 1] = e, o
    from points:  the transpose of that

A matrix is B' if it is square, else A, whose entries are powers of the points. Both have entries that are 0
or 1 whatever the points are: of those no product is taken. Where rows are transformed, lanes are tiles.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import LONG, Emitter, add_vector, emitted, ir, lanes_of

IMAGES = ((4, 4), (3, 3), (2, 2))  # halves of the sizes of B'
RESULTS = ((4, 2), (3, 2), (4, 1), (3, 1), (2, 1))  # and of A


class _Transform(Emitter):
    """One matrix: its numbers in registers, or near."""

    def __init__(self, on: Emitter, numbers: Any, sizes: tuple[int, int], count: int = 0):
        super().__init__(on.context, on.builder, on.kind, count)
        self.pairs, self.halves = sizes
        self.numbers = {}
        for entry in np.ndindex(2, *sizes):
            if self._known(*entry) is None:
                where = int(np.ravel_multi_index(entry, (2, *sizes)))
                self.numbers[entry] = self.spread(self.at(numbers, LONG(where)))

    def _known(self, odd: int, j: int, k: int) -> int | None:
        """An entry that is 0 or 1 for all points."""
        end = self.halves - 1 if odd else 0
        if self.pairs == self.halves:
            return 0 if j and k == end else None
        if j == 0:
            return int(k == end)
        return 1 if not odd and k == 0 else None

    def _sum(self, terms: Sequence[tuple[tuple[int, int, int], Any]]) -> Any:
        """The sum of entries times vectors."""
        total = None
        for entry, vector in terms:
            known = self._known(*entry)
            if known == 0:
                continue
            if known == 1:
                total = vector if total is None else self.builder.fadd(total, vector)
            elif total is None:
                total = self.builder.fmul(self.numbers[entry], vector)
            else:
                total = self.fused(self.numbers[entry], vector, total)
        return total

    def to_points(self, x: Sequence[Any]) -> list[Any]:
        """t vectors from a."""
        parts = []
        for j, odd in np.ndindex(self.pairs, 2):
            parts.append(self._sum([((odd, j, k), x[2 * k + odd]) for k in range(self.halves)]))
        pairs = zip(parts[2::2], parts[3::2], strict=True)
        inner = [f(*pair) for pair in pairs for f in (self.builder.fadd, self.builder.fsub)]
        return [parts[0], *inner, parts[1]]

    def from_points(self, y: Sequence[Any]) -> list[Any]:
        """a vectors from t."""
        parts = [(y[0], y[-1])]
        for j in range(1, self.pairs):
            pair = y[2 * j - 1], y[2 * j]
            parts.append((self.builder.fadd(*pair), self.builder.fsub(*pair)))
        sums = []
        for k, odd in np.ndindex(self.halves, 2):
            sums.append(self._sum([((odd, j, k), part[odd]) for j, part in enumerate(parts)]))
        return sums

    def vectors(self, count: Any) -> Any:
        """How many it takes for so many numbers."""
        return self.builder.sdiv(self.builder.add(count, LONG(self.count - 1)), LONG(self.count))

    def gather(self, spots: Sequence[Any], size: int) -> list[Any]:
        """From each spot, one a lane, `size` numbers: the first of all spots, the second, ..."""
        numbers, block = [], self.block
        for start in range(0, size, block):
            kind = ir.VectorType(self.real, block)
            parts = [self.load(self.at(spot, LONG(start)), kind) for spot in spots]
            numbers += self.squares([self.joined(parts[i::block]) for i in range(block)])
        return numbers[:size]

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
                    lanes = [j * self.block + k for k in range(width)]
                    self.give(self.pick(line, lanes), self.at(spot, LONG(start)), add)


def of_sizes(on: Emitter, matrix: Any, known: Any) -> Iterator[_Transform]:
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
        for by in of_sizes(on, matrix, known):
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
        for by in of_sizes(on, matrix, known):
            with cgutils.for_range(builder, by.vectors(count)) as loop:
                q = mul(loop.index, LONG(on.count))
                where = [builder.load(on.at(places, add(q, LONG(i)))) for i in range(on.count)]
                spots = [on.at(tiles, tiles0, builder.sext(one, LONG)) for one in where]
                lines = [
                    on.at(points, points0, add(q, mul(apart, LONG(i)))) for i in range(2 * by.pairs)
                ]
                if back:
                    by.scatter(by.from_points([on.load(line) for line in lines]), spots, add_to)
                else:
                    vectors = by.to_points(by.gather(spots, 2 * by.halves))
                    for vector, line in zip(vectors, lines, strict=True):
                        on.store(vector, line)

    return rows


def _beside(known: Any, move_of: Any) -> Any:
    """The transform of whole tiles that lie in an image: `move_of` a size is how far its neighbour is."""

    @emitted("x")
    def beside(on, matrix, x, here, image, corner, points, to, apart, some):
        """points[to + (i t + j) apart + q] = (P tile P')[i, j] of tiles q < some, as many as a vector holds.

        The first begins at a `corner` of the image (h, w) at x[here], around which all is 0.
        """
        builder, ((h, w), (top, left)) = on.builder, (image, corner)
        across = [on.within(builder.add(left, LONG(side)), w) for side in (0, on.count)]
        none = ir.Constant(across[0].type, None)
        for by in of_sizes(on, matrix, known):
            half = _Transform(on, matrix[0], (by.pairs, by.halves), on.count // 2)
            t, a, mask, rows = 2 * by.pairs, 2 * by.halves, half.within(LONG(0), some), []
            for i in range(a):
                row = builder.add(top, LONG(i))
                begin = on.at(x, here, builder.mul(row, w), left)
                inside = builder.icmp_unsigned("<", row, h)
                masks = [builder.select(inside, mask, none) for mask in across]
                rows.append([*map(on.load_some, (begin, on.at(begin, LONG(on.count))), masks)])
            low, high = map(by.to_points, zip(*rows, strict=True))
            places = [min(move_of(a) * q, 2 * on.count - a) for q in range(half.count)]
            for i, pair in enumerate(zip(low, high, strict=True)):
                tiles = [on.pick(pair[0], [q + j for q in places], pair[1]) for j in range(a)]
                for j, vector in enumerate(half.to_points(tiles)):
                    place = on.at(points, to, builder.mul(apart, LONG(i * t + j)))
                    half.store_some(vector, place, mask)

    return beside


columns_back, rows_back = _columns(RESULTS, True), _rows(RESULTS, True)
columns_added, rows_added = _columns(IMAGES, True, True), _rows(IMAGES, True, True)


def _reader(known: Any, move_of: Any) -> Any:
    """`read` by matrices of known sizes: see `_beside`."""
    tiles, columns, rows = _beside(known, move_of), _columns(known), _rows(known)

    @helper
    def read(where, phases, planes, matrices, cut, places, room, points, apart):
        """points[i t1 + j] = (P0 tile P1')[i, j] for tiles of the images of x from `start` on.

        `where` is x, start, sizes, channels, ends, high, line, pad and step:
        sizes are the images' c, h, w, of which channels first..last are read (all, if they have planes); ends
        the number of samples, of rows from `high` on and of columns of tiles, which are `step` apart.
        """
        x, start, sizes, channels, ends, high, line, pad, step = where
        (c, h, w), (most, pitch, own), (p0, p1) = sizes, cut[:3], matrices
        (further, many), (between, _) = phases
        of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
        down, along, alike = planes
        strips, size = ends[0] * ends[1], max(1, 2 * p0.shape[2])
        t0, t1 = max(1, 2 * p0.shape[1]), 2 * p1.shape[1]
        each = min(lanes_of(x) // 2, (2 * lanes_of(x) - size) // step[1] + 1)
        plain = further == between == down == along == 1 and p0.shape == p1.shape
        if plain and 2 * ends[2] >= each:  # else too few of a vector's lanes are used
            for unit in range(channels[0] * strips, channels[1] * strips):
                channel, i = divmod(unit, strips)
                (sample, row), to = divmod(i, ends[1]), (channel - channels[0]) * line + i * ends[2]
                here, top = start + (sample * c + channel) * h * w, (high + row) * step[0] - pad[0]
                for q in range(0, ends[2], each):
                    corner, some = (top, q * step[1] - pad[1]), ends[2] - q
                    tiles(of_rows, x, here, (h, w), corner, points, to + q, apart, some)
            return
        for q in range(own):
            room[at(q)] = 0
        for channel in range(channels[0] * down, channels[1] * down):
            which, plane = divmod(channel, down)
            lines = (which // alike * down + plane) * along * alike + which % alike - channels[0]
            for first in range(0, strips, most):
                some = min(most, strips - first)
                for i in range(some):
                    sample, row = divmod(first + i, ends[1])
                    phase, number = divmod(high + row, many)
                    top = number * step[0] * further + phase + plane - pad[0]
                    here, to = start + (sample * c + which) * h * w, i * t0 * pitch
                    for j in range(size):
                        line_of, r = own + j * pitch, top + j * further
                        for q in range(pitch):
                            room[at(line_of + q)] = 0
                        if 0 <= r < h:
                            _deal(x, here + r * w, w, pad[1], between, room, line_of, cut[5])
                    if p0.shape[1]:
                        columns(of_columns, room, own, pitch, room, to, pitch, pitch)
                    else:
                        for q in range(pitch):
                            room[at(to + q)] = room[at(own + q)]
                for j in range(along):
                    point = (lines + j * alike) * line + first * ends[2]
                    for i in range(t0):
                        from_, to = i * pitch + j * cut[5], point + i * t1 * apart
                        rows(of_rows, room, from_, places, points, to, apart, some * ends[2])

    return read


read_images = _reader(IMAGES, lambda size: 2 if size == 4 else 4)
read_results = _reader(RESULTS, lambda size: size)


@helper
def _deal(x, line, w, pad, between, room, to, seen):
    """A line of an image, phase after phase with so many pixels each, to where there are zeros."""
    for phase in range(between):
        first = max(0, -((phase - pad) // between))
        last, here = min(seen, (w - 1 + pad - phase) // between + 1), line + phase - pad
        place = to + phase * seen
        for q in range(first, last):
            room[at(place + q)] = x[at(here + q * between)]


@helper
def _line(a, a0, count, more, b, b0):
    """b[b0 + q] = a[a0 + q] + more for q < count."""
    lanes = lanes_of(a)
    if count < lanes:
        for q in range(count):
            b[at(b0 + q)] = a[at(a0 + q)] + more
        return
    for begin in range(0, count, lanes):
        q = min(begin, count - lanes)
        add_vector(a, a0 + q, more, b, b0 + q)


@helper
def write(points, apart, matrices, bias, where, phases, planes, cut, places, room):
    """Tiles (P0' points P1) to images `where` says, as of `read`, with the bias."""
    y, start, sizes, channels, ends, high, line, pad, step = where
    (f, h, w), (p0, p1), m0 = sizes, matrices, step[0]
    (further, many), (between, across) = phases
    of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
    down, along, alike = planes
    (most, half), lanes, pitch = (cut[0], cut[3]), lanes_of(y), ends[2] * step[1]
    strips, t1 = ends[0] * ends[1], 2 * p1.shape[1]
    for channel in range(channels[0], channels[1]):
        group, plane = divmod(channel // alike, down * along)
        which, (below, right) = group * alike + channel % alike, divmod(plane, along)
        more = bias[at(which)] if bias.size else bias.dtype.type(0)
        for first in range(0, strips, most):
            some = min(most, strips - first)
            tiles, point = some * ends[2], (channel - channels[0]) * line + first * ends[2]
            wide = (tiles + lanes - 1) // lanes * lanes
            for j in range(t1):
                from_, to = point + j * apart, half + j * wide
                if p0.shape[1]:
                    columns_back(of_columns, points, from_, t1 * apart, room, to, t1 * wide, wide)
                else:
                    for q in range(tiles):
                        room[at(to + q)] = points[at(from_ + q)]
            for i in range(m0):
                rows_back(of_rows, room, i * pitch, places, room, half + i * t1 * wide, wide, tiles)
            for i in range(some):
                sample, row = divmod(first + i, ends[1])
                phase, number = divmod(high + row, many)
                top = number * m0 * further + phase + below - pad[0]
                begin, end = max(0, -(top // further)), min(m0, (h - 1 - top) // further + 1)
                here, to = i * m0 * pitch, start + ((sample * f + which) * h + top) * w
                if further == between == 1 and pitch == w:
                    _line(room, here, end * w, more, y, to)
                    continue
                for j in range(begin, end):
                    from_, target = here + j * pitch, to + j * w * further
                    if between == 1:
                        _line(room, from_, w, more, y, target)
                        continue
                    for other in range(1 if along > 1 else min(between, w)):
                        own, shift = from_ + other * across * step[1], other + right - pad[1]
                        _spread(room, own, pitch, more, y, target, w, shift, between)


@helper
def _spread(room, here, count, more, y, to, w, shift, step):
    """Pixels to every `step`-th of a line of w, the first to `shift`: those that are in it."""
    for q in range(max(0, -(shift // step)), min(count, (w - 1 - shift) // step + 1)):
        y[at(to + shift + q * step)] = room[at(here + q)] + more


@helper
def add_up(points, apart, matrices, x, start, sizes, ends, line, pad, step, cut, places, room):
    """The transpose of `read_images`: whole images as sums of tiles P0' points P1."""
    (c, h, w), (most, pitch, own), (p0, p1), rows = sizes, cut[:3], matrices, ends[1]
    t0, t1, plane = 2 * p0.shape[1], 2 * p1.shape[1], rows * ends[2]
    of_columns, of_rows = (p0, p0.shape), (p1, p1.shape)
    size = ((rows - 1) * step[0] + t0) * pitch
    for channel in range(c):
        for first in range(0, ends[0], most // rows):
            some, tile = min(most // rows, ends[0] - first), channel * line + first * plane
            for q in range(some * rows * t0 * pitch):
                room[at(q)] = 0
            for i in range(t0):
                from_ = tile + i * t1 * apart
                rows_added(of_rows, room, i * pitch, places, points, from_, apart, some * plane)
            for i in range(some):
                for q in range(own, own + size):
                    room[at(q)] = 0
                for row in range(rows):
                    strip, to = (i * rows + row) * t0 * pitch, own + row * step[0] * pitch
                    columns_added(of_columns, room, strip, pitch, room, to, pitch, pitch)
                to, none = start + ((first + i) * c + channel) * h * w, x.dtype.type(0)
                for j in range(h):
                    _line(room, own + (pad[0] + j) * pitch + pad[1], w, none, x, to + j * w)
