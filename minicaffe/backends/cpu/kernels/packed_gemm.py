"""Convolution by weights that were packed before: filters fill vectors, pixels are spread from where they lie.

A panel is the weights of as many filters as VECTORS hold, element by element, and before them the biases: one
stream for the memory. A tile of places by filters stays in registers until its sums are complete, and is
turned then, so that places are neighbours again. where[k] is how far from a place's first pixel the one lies
that element k is multiplied with. So it is for each point of Winograd's tiles, whose panels are transformed
weights: a panel is (bias, points, elements, filters), with one point if nothing is transformed.
"""

from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels.filters import ADDS, NORMALISES, RECTIFIES, pool
from minicaffe.backends.cpu.kernels.im2col import lay
from minicaffe.backends.cpu.kernels.normalize import recalled
from minicaffe.backends.cpu.kernels.winograd import apart, points_of
from minicaffe.backends.cpu.kernels.winograd_transforms import RESULTS, of_sizes, read_images
from minicaffe.backends.cpu.microkernel import accumulators, clear
from minicaffe.backends.cpu.vector_ir import LONG, emitted, lanes_of, turned, wide
from minicaffe.backends.cpu.vector_ir import lanes as lanes

# Of a tile, whose sums fill the registers, and of smaller ones: places, and vectors of filters
PLACES, EVEN, FEW, VECTORS = (14, 8, 7, 2) if wide() else (4, 3, 2, 3)
STEPS = 1, 2, 4  # pixels from place to place
WORK, TURNED, KEPT = range(3)  # how weights are packed: see `pack`
APART = 256, 32  # products that are summed apart, and of transformed tiles, which lose digits


def _tile(places: int, vectors: int, step: int) -> Any:
    """The kernel of a tile of so many places, `step` pixels apart, and of so many vectors of a panel."""

    @emitted("a")
    def tile(on, a, a0, where, count, block, b, b0, bias, ahead, each, c, c0):
        """c[i wide + v] = bias[v] + sum over k < count of a[where[k] + i step] b[k wide + v].

        `block` products at a time are summed. The bias lies at b[bias]; there is none if that is negative. For
        each k so many numbers are asked of memory, from b[ahead] on.
        """
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        left, right, next_one, to = on.at(a, a0), on.at(b, b0), on.at(b, ahead), on.at(c, c0)
        tile, wide = accumulators(on, places, vectors), VECTORS * on.count
        sums = [one for line in tile for one in line]
        ends = [on.at(to, LONG(i * wide + v * on.count)) for i, v in np.ndindex(places, vectors)]
        with cgutils.for_range_slice(builder, LONG(0), count, block, LONG) as (start, _):
            clear(on, tile)
            begins = builder.icmp_signed("==", start, LONG(0))
            with builder.if_then(builder.and_(begins, builder.icmp_signed(">=", bias, LONG(0)))):
                for i, one in enumerate(sums):
                    builder.store(on.load(on.at(b, bias, LONG(i % vectors * on.count))), one)
            end = add(start, block)
            end = builder.select(builder.icmp_signed("<", end, count), end, count)
            with cgutils.for_range(builder, end, start) as loop:
                line = on.at(right, mul(loop.index, LONG(wide)))
                pixels = on.at(left, builder.load(on.at(where, loop.index)))
                weights = [on.load(on.at(line, LONG(v * on.count))) for v in range(vectors)]
                on.prefetch(on.at(next_one, mul(loop.index, each)))
                for i, own in enumerate(tile):
                    number = on.spread(on.at(pixels, LONG(i * step)))
                    for vector, one in zip(weights, own, strict=True):
                        on.multiply_add(number, vector, one)
            with builder.if_then(builder.not_(begins)):
                for one, end_of in zip(sums, ends, strict=True):
                    builder.store(builder.fadd(on.load(end_of), builder.load(one)), one)
            for one, end_of in zip(sums, ends, strict=True):
                on.store(builder.load(one), end_of)

    return tile


def _tiles(places: int, vectors: int) -> Any:
    """The same for all STEPS."""
    one, two, four = (_tile(places, vectors, step) for step in STEPS)

    @helper
    def tiles(step, a, a0, q, args):
        if step == 1:
            one(a, a0 + q, *args)
        elif step == 2:
            two(a, a0 + 2 * q, *args)
        else:
            four(a, a0 + 4 * q, *args)

    return tiles


@helper
def across(x):
    """The filters of a panel."""
    return VECTORS * lanes_of(x)


def _lines(vectors: int) -> Any:
    """All tiles of a line by so many vectors of a panel."""
    whole, few, even = _tiles(PLACES, vectors), _tiles(FEW, vectors), _tile(EVEN, vectors, 1)

    @helper
    def line(a, a0, step, where, steps, b, begins, c, c0, n):
        """The tiles of n neighbouring places; the last computes some of them again.

        steps = (elements, how many are summed apart); begins = (weights, bias, what is read next).
        """
        (count, block), (b0, bias, ahead), wide, q = steps, begins, across(c), 0
        alike = step == 1 and n % PLACES > 0 and n % EVEN == 0 and n < 2 * PLACES
        size = EVEN if alike else PLACES
        tiles = (n + size - 1) // size
        each = (wide + tiles - 1) // tiles  # of what is read next, for each step of a tile
        while q < n:  # of fewer than FEW, what is behind them is of no meaning, and written over
            args = (where, count, block, b, b0, bias, ahead + q // size * each * count, each, c)
            if alike:
                even(a, a0 + q, *args, c0 + q * wide)
                q += EVEN
            elif n - q > FEW and n >= PLACES:
                tile = min(q, n - PLACES)
                whole(step, a, a0, tile, (*args, c0 + tile * wide))
                q += PLACES
            else:
                tile = max(0, min(q, n - FEW))
                few(step, a, a0, tile, (*args, c0 + tile * wide))
                q += FEW

    return line


_whole_line, _half_line = _lines(VECTORS), _lines(1)


@helper
def _line(filters, a, a0, step, where, steps, b, begins, c, c0, n):
    """The tiles of n neighbouring places by a panel of so many filters."""
    if filters > lanes_of(c):
        _whole_line(a, a0, step, where, steps, b, begins, c, c0, n)
    else:
        _half_line(a, a0, step, where, steps, b, begins, c, c0, n)


def _giver(normalises: bool, adds: bool) -> Any:
    @emitted("a")
    def give(on, a, a0, apart, y, y0, further, floor, numbers, k, other):
        """A square: y[y0 + i further + l] = a[a0 + l apart + i], or `floor` where that is less.

        If it `normalises`, numbers = (mean, rate, factor, term) of filter k + i; if it `adds`, then `other`.
        """
        b, least = on.builder, on.repeated(floor)
        rows = [on.load(on.at(a, a0, b.mul(apart, LONG(i)))) for i in range(on.count)]
        for i, vector in enumerate(turned(on, rows)):
            if normalises:
                mean, rate, factor, term = (on.spread(on.at(one, k, LONG(i))) for one in numbers)
                vector = b.fadd(b.fmul(b.fmul(b.fsub(vector, mean), rate), factor), term)
            if adds:
                vector = b.fadd(vector, on.load(on.at(other, y0, b.mul(further, LONG(i)))))
            less = b.fcmp_ordered("<=", vector, least)
            on.store(b.select(less, least, vector), on.at(y, y0, b.mul(further, LONG(i))))

    return give


_give, _give_normalised = _giver(False, False), _giver(True, False)
_give_sum, _give_normalised_sum = _giver(False, True), _giver(True, True)


@helper
def _back(room, start, y, to, plane, count, first, filters, floor, epilogue):
    """`count` places of a panel's filters, the first of them `first`, to their planes."""
    lanes, wide, kind = lanes_of(y), across(y), y.dtype.type
    (_, _, _, _, mean, _, rate), factors, terms, other = epilogue[-1]
    numbers, steps = (mean, rate, factors, terms), epilogue[0]
    for v in range(0, filters, lanes):
        some = min(lanes, filters - v)
        for begin in range(0, count, lanes):
            q, k = min(begin, count - lanes), first + v
            from_, target = start + q * wide + v, to + v * plane + q
            if some == lanes and q >= 0:
                args = room, from_, wide, y, target, plane, floor, numbers, k, other
                if steps & NORMALISES and steps & ADDS:
                    _give_normalised_sum(*args)
                elif steps & NORMALISES:
                    _give_normalised(*args)
                elif steps & ADDS:
                    _give_sum(*args)
                else:
                    _give(*args)
                continue
            for i in range(some):
                k = at(first + v + i)
                for j in range(begin, min(count, begin + lanes)):
                    value, target = room[at(start + j * wide + v + i)], to + (v + i) * plane + j
                    if steps & NORMALISES:
                        value = kind((value - mean[k]) * rate[k]) * factors[k] + terms[k]
                    if steps & ADDS:
                        value = value + other[at(target)]
                    y[at(target)] = floor if value <= floor else value


@helper
def _floor(y, epilogue):
    """The least number that is written: 0 if a ReLU follows."""
    return y.dtype.type(0) if epilogue[0] & RECTIFIES else y.dtype.type(-np.inf)


@helper
def _recall(epilogue, first, last):
    """What a BatchNorm recalls of some filters."""
    if epilogue[0] & NORMALISES:
        mean, variance, batches, eps, mean_out, spread, rate = epilogue[-1][0]
        for k in range(first, last):
            recalled(k, mean, variance, batches, eps, mean_out, spread, rate)


@compiled
def forward(epilogue, y, cut, sizes, image, where, x, w, rest, first, last):
    """y = w x + bias. A unit is one of `parts` of the panels, for a band of the lines of some samples' group.

    cut = (bands, parts, lines of a block, samples of a unit); sizes: samples, groups, and of one its channels,
    filters, elements of one; lines of an image, places of each. image = (rows, pixels of each; steps and pads
    of both; and, if it is copied with its pads, rows that a line reads, pixels and elements of a row and of a
    channel, else 0).
    """
    (bands, parts, high, most), (samples, groups, c, f, k, lines, n) = cut, sizes
    (h, across_x), (down, step), pads, (rows, pitch, of_channel) = image
    pixels = rest if rows else x
    wide, floor, before, of_image = across(y), _floor(y, epilogue), -1, c * h * across_x
    panels, size, room = (f + wide - 1) // wide, (k + 1) * wide, rest[c * of_channel :]
    for unit in range(first, last):
        part, which = unit % parts, unit // parts
        band, g, s = which % bands, which // bands % groups, which // bands // groups * most
        r, end = lines * band // bands, lines * (band + 1) // bands
        p, stop = panels * part // parts, panels * (part + 1) // parts
        own, begin = g * f, g * panels * size
        _recall(epilogue, own + p * wide, own + min(stop * wide, f))
        if rows and which != before:
            corner, extent = (r * down - pads[0], -pads[1]), ((end - r - 1) * down + rows, pitch)
            for i in range(c):
                plane, zero = ((s * groups + g) * c + i) * h * across_x, x.dtype.type(0)
                lay(x, plane, (h, across_x), corner, extent, zero, rest, i * of_channel)
            before = which
        for top in range(r, end, high):
            some = min(high, end - top)
            for i in range(p, stop):
                bias, filters = begin + i * size, min(wide, f - i * wide)
                begins = bias + wide, bias, bias + size if i + 1 < stop else begin + p * size
                for sample in range(s * groups + g, min(s + most, samples) * groups, groups):
                    for j in range(some):
                        row, to, steps = (top + j) * down, j * n * wide, (k, APART[0])
                        here = sample * of_image + row * across_x
                        here = (row - r * down) * pitch if rows else here
                        _line(filters, pixels, here, step, where, steps, w, begins, room, to, n)
                    to, count = ((sample * f + i * wide) * lines + top) * n, some * n
                    k_of = own + i * wide
                    _back(room, 0, y, to, lines * n, count, k_of, filters, floor, epilogue)
        for sample in range(s * groups + g, min(s + most, samples) * groups, groups):
            for i in range(p * wide, min(stop * wide, f) if epilogue[0] else 0):
                pool(((sample * f + i) * lines + r) * n, (end - r) * n, epilogue)


@emitted("m")
def _results(on, matrix, m, m0, further, b, bias, s, s0, pitch):
    """s[(i pitch + j) wide + v] = (A' M A)[i, j] + bias[v], M[i, j] = m[(i t + j) further + v], v < wide."""
    builder, add, mul = on.builder, on.builder.add, on.builder.mul
    for by in of_sizes(on, matrix, RESULTS):
        t = 2 * by.pairs
        for v in range(VECTORS):
            first, lane = on.at(m, m0, LONG(v * on.count)), LONG(v * on.count)
            columns = []
            for j in range(t):
                points = (on.at(first, mul(further, LONG(i * t + j))) for i in range(t))
                columns.append(by.from_points([*map(on.load, points)]))
            more = on.load(on.at(b, bias, lane))
            for i, line in enumerate(zip(*columns, strict=True)):
                for j, vector in enumerate(by.from_points(line)):
                    place = mul(add(mul(pitch, LONG(i)), LONG(j)), LONG(VECTORS * on.count))
                    on.store(builder.fadd(vector, more), on.at(s, s0, place, lane))


@compiled
def winograd(epilogue, y, cut, shared, matrices, where, x, u, all_v, rest, first, last):
    """y = A' [U V] A + bias: a unit is one of `parts` of a group's panels, for a chunk of the tiles.

    cut = (bands of an image's tiles, parts, groups, samples of a chunk); `shared` is that of
    `winograd_filters`. V is read here, unless `all_v` is that of all tiles.
    """
    (bands, parts, groups, most), (n, c_all, h, w, f_all, oh, ow, _) = cut, shared[0]
    _, pads, tiles, step, phases, planes, line, ends, places = shared
    c, f, wide, floor, before = c_all // groups, f_all // groups, across(y), _floor(y, epilogue), -1
    points, of_matrix, of_v = points_of(matrices[0]), matrices[1][1], apart(c_all, line)
    panels, size, own_v = (f + wide - 1) // wide, (points * c + 1) * wide, rest[ends[4] :]
    for unit in range(first, last):
        part, g, chunk = unit % parts, unit // parts % groups, unit // parts // groups
        s, row = chunk // bands * most, tiles[0] * (chunk % bands) // bands
        rows = tiles[0] * (chunk % bands + 1) // bands - row
        some, each, top = min(most, n - s), rows * tiles[1], row * step[0]
        lines, count = min(rows * step[0], oh - top), max(some * each, FEW)
        if not all_v.size and chunk != before:
            sizes, ends_of = (c_all, h, w), (some, rows, tiles[1])
            of_x = x, s * c_all * h * w, sizes, (0, c_all), ends_of, row, line, pads[0], step
            of_axes = phases[0], planes[0], matrices[0], ends, places[0]
            read_images(of_x, *of_axes, rest, own_v, of_v)
            before = chunk
        v, products = (all_v if all_v.size else own_v), own_v[0 if all_v.size else points * of_v :]
        room = products[points * count * wide :]
        p, stop = panels * part // parts, panels * (part + 1) // parts
        _recall(epilogue, g * f + p * wide, g * f + min(stop * wide, f))
        for i in range(p, stop):
            bias, k, filters = (g * panels + i) * size, g * f + i * wide, min(wide, f - i * wide)
            for point in range(points):
                begin, here = bias + (1 + point * c) * wide, point * of_v + g * c * line
                begins, steps = (begin, -1, begin + c * wide), (c, APART[1])
                to = point * count * wide
                _line(filters, v, here, 1, where, steps, u, begins, products, to, count)
            for sample in range(some):
                for tile in range(each):  # from the right: what is beyond the edge is written over
                    r, q = tile // tiles[1], tiles[1] - 1 - tile % tiles[1]
                    here = (sample * each + r * tiles[1] + q) * wide
                    to, further = (r * step[0] * ow + q * step[1]) * wide, count * wide
                    of_axis = of_matrix, of_matrix.shape
                    _results(of_axis, products, here, further, u, bias, room, to, ow)
                to, plane = (((s + sample) * f_all + k) * oh + top) * ow, oh * ow
                _back(room, 0, y, to, plane, lines * ow, k, filters, floor, epilogue)
        for i in range(p * wide, min(stop * wide, f) if epilogue[0] else 0):
            for sample in range(s, s + some):
                pool(((sample * f_all + g * f + i) * oh + top) * ow, lines * ow, epilogue)


@compiled
def pack(sizes, how, g, w, bias, out, first, last):
    """The panels first..last of all groups: G w of each filter and channel, G (points, elements of a kernel).

    sizes = (filters and channels of a group); G has no points if the weights are packed as they are. How: for
    dx, TURNED, the weight has the filters as channels, and kernels are reversed; those that stay are KEPT.
    """
    (f, c), (points, size), wide, panels = sizes, g.shape, across(out), -(-sizes[0] // across(out))
    turned = how == TURNED
    of_filter, of_channel = (size, f * size) if turned else (c * size, size)
    many, room = c * (points if points else size), np.empty(size * wide, out.dtype)
    for unit in range(first, last):
        group, filters = unit // panels, unit % panels * wide
        some, begin = min(wide, f - filters), unit * (1 + many) * wide
        for q in range(begin, begin + (1 + many) * wide):
            out[at(q)] = 0
        for i in range(some if bias.size else 0):
            out[at(begin + i)] = bias[at(group * f + filters + i)]
        deep, vectors = c * size, lanes_of(out)
        straight = not (points or turned) and some == wide and deep >= vectors
        for e in range(0, deep if straight else 0, vectors):
            q = min(e, deep - vectors)
            for i in range(0, wide, vectors):
                from_, to = (group * f + filters + i) * deep + q, begin + (1 + q) * wide + i
                _give(w, from_, deep, out, to, wide, out.dtype.type(-np.inf), (w, w, w, w), 0, w)
        for channel in range(0 if straight else c):
            here = group * f * c * size + filters * of_filter + channel * of_channel
            to = begin + (1 + channel * (1 if points else size)) * wide
            for i in range(some):
                for e in range(size):
                    number = w[at(here + i * of_filter + (size - 1 - e if turned else e))]
                    if points:
                        room[at(e * wide + i)] = number
                    else:
                        out[at(to + e * wide + i)] = number
            for point in range(points):
                for e in range(size):
                    number = g[point, e]
                    for i in range(some):
                        out[at(to + point * c * wide + i)] += number * room[at(e * wide + i)]
