"""Winograd's convolution with all tiles at a time and some filters after the other.

Tiles of all samples are transformed once, for all threads: V, and what dy becomes. Then each thread takes its
filters block by block: it transforms their weights, multiplies and writes their outputs, or adds up and takes
back their dweight. So U, and the sums that become dweight, are never in memory. A unit of these two is ROWS
filters of a group; `block` says how many filters a block has, in work of the thread's own, and how far its
points are apart. `sizes` are the sizes, pads, tiles, step, phases, planes, line, cut and places of
`winograd`, whose letters these are; k and m are the channels and filters of a group.
"""

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.kernels.winograd import apart, points_of
from minicaffe.backends.cpu.kernels.winograd_transforms import read_images, read_results, write
from minicaffe.backends.cpu.microkernel import BLOCK, ROWS, ZERO, multiply, multiply_sparse
from minicaffe.backends.cpu.vector_ir import lanes as lanes
from minicaffe.backends.cpu.vector_ir import lanes_of, to_lanes


@compiled
def images(sizes, matrices, x, v, room, first, last):
    """V of the channels first..last."""
    (n, c, h, w, _, _, _, _), pads, tiles, step, phases, planes, line, cut, places = sizes
    where = x, 0, (c, h, w), (first, last), (n, tiles[0], tiles[1]), 0, line, pads[0], step
    how = phases[0], planes[0], matrices[0], cut, places[0], room
    read_images(where, *how, v[first * line :], apart(c, line))


@compiled
def results(sizes, matrices, dy, out, room, first, last):
    """A dy A' of the filters first..last."""
    (n, _, _, _, f, oh, ow, _), _, tiles, step, phases, planes, line, cut, places = sizes
    where = dy, 0, (f, oh, ow), (first, last), (n, tiles[0], tiles[1]), 0, line, (0, 0), step
    how = phases[1], planes[1], matrices[1], cut, places[0], room
    read_results(where, *how, out[first * line :], apart(f, line))


@compiled
def images_turned(sizes, matrices, x, table, wide, v, rest, first, last):
    """V with a group's channels side by side: tiles of `wide` by a `table`; a unit is a vector of channels."""
    (n, c, h, w, _, _, _, groups), pads, tiles, step, phases, planes, line, cut, places = sizes
    points, k, count = points_of(matrices[0]), c // groups, n * tiles[0] * tiles[1]
    across = lanes_of(x)
    vectors = (k + across - 1) // across
    of_own, of_v = apart(across, line), apart(groups * count, wide)
    room, own = rest[: cut[4]], rest[cut[4] :]
    for unit in range(first, last):
        group, begin = unit // vectors, unit % vectors * across
        many, one = min(across, k - begin), group * k + begin
        where = x, 0, (c, h, w), (one, one + many), (n, tiles[0], tiles[1]), 0, line, pads[0], step
        read_images(where, phases[0], planes[0], matrices[0], cut, places[0], room, own, of_own)
        for i in range(points):
            to = i * of_v + group * count * wide + begin
            to_lanes(own, i * of_own, line, many, count, table, 0, v, to)


@helper
def _some(unit, last, m, high):
    """Of the block that begins with a unit: its units, group, first filter of that, and filters."""
    units = (m + ROWS - 1) // ROWS
    group, begin = divmod(unit, units)
    many = min(last - unit, min(units - begin, high // ROWS))
    return many, group, begin * ROWS, min(many * ROWS, m - begin * ROWS)


@helper
def _weights(weights, room, u, of_u, first, rows):
    """U of so many filters, or if `turned` channels, from the first on, the matrices of points `of_u` apart.

    The kernels of each are first put to `room`, the same element of all side by side. `weights` are G, the
    weight, its sizes, whether it is turned, and where elements go.
    """
    g, weight, (m, k), turned, (wide, places) = weights
    _, points, size = g.shape
    numbers, lanes = g.reshape(-1), lanes_of(weight)
    count, inner = m if turned else k, k if turned else m
    vectors = (count + lanes - 1) // lanes
    for row in range(rows):
        group, one = divmod(first + row, inner)
        start = (group * m * k + (one if turned else one * k)) * size
        further = k * size if turned else size
        for q in range(count):
            for i in range(size):
                room[at(places[at(i)] + q)] = weight[at(start + q * further + i)]
        sums = (u, row * wide, of_u), size, vectors, points, ZERO, (u, 0)
        multiply((numbers, 0, size), (room, 0, wide, 0), *sums)


@helper
def _weights_back(g, tables, sums, first, k, room, dw, start):
    """dw += G' sums of one filter, which begin at `first`: the transpose."""
    (_, points, size), (steps, wide, places), lanes = g.shape, tables, lanes_of(sums)
    right, vectors = (sums, first, 0, 0), (k + lanes - 1) // lanes
    result = (room, 0, wide), (steps, 0, points), vectors, size, ZERO, (sums, 0)
    multiply_sparse((g.reshape(-1), 0, 1), right, *result)
    for q in range(k):
        for i in range(size):
            dw[at(start + q * size + i)] += room[at(places[at(i)] + q)]


@compiled
def forward(epilogue, y, sizes, matrices, block, weights, v, bias, rest, first, last):
    """y = A' [U V] A + bias."""
    (n, c, _, _, f, oh, ow, groups), pads, tiles, step, phases, planes, line, cut, places = sizes
    points, k, m, lanes = points_of(matrices[0]), c // groups, f // groups, lanes_of(y)
    count, wide = n * tiles[0] * tiles[1], weights[4][0]
    (high, of_u), of_v, of_m = block, apart(c, line), apart(block[0], line)
    room, u, out = rest[: cut[4]], rest[cut[4] :], rest[cut[4] + points * of_u :]
    elements = rest[cut[4] + points * (of_u + of_m) :]
    vectors = (count + lanes - 1) // lanes
    unit = first
    while unit < last:
        many, group, begin, rows = _some(unit, last, m, high)
        unit, one = unit + many, group * m + begin
        _weights(weights, elements, u, of_u, one, rows)
        for i in range(points):
            right = v, i * of_v + group * k * line, line, 0
            result = (out, i * of_m, line), k, vectors, rows, ZERO, (u, 0), BLOCK
            multiply((u, i * of_u, wide), right, *result)
        ends = n, tiles[0], tiles[1]
        outputs = y, 0, (f, oh, ow), (one, one + rows), ends, 0, line, pads[1], step
        write(out, of_m, matrices[1], bias, outputs, phases[1], planes[1], cut, places[1], room)
        for s in range(n if epilogue[0] else 0):
            for i in range(one, one + rows):
                finish(y, (s * f + i) * oh * ow, oh * ow, epilogue)


@compiled
def weight_gradient(sizes, matrices, block, g, kernels, v, out, dw, rest, first, last):
    """dw += G' [(A dy A') V'] G."""
    (n, c, _, _, f, _, _, groups), _, tiles, _, _, _, line, _, _ = sizes
    k, m, lanes, (_, points, size) = c // groups, f // groups, lanes_of(v), g.shape
    count, wide = n * tiles[0] * tiles[1], kernels[1]
    (high, of_s), of_v, of_m = block, apart(groups * count, wide), apart(f, line)
    sums, room = rest[: points * of_s], rest[points * of_s :]
    vectors = (k + lanes - 1) // lanes
    unit = first
    while unit < last:
        many, group, begin, rows = _some(unit, last, m, high)
        unit, one = unit + many, group * m + begin
        for i in range(points):
            right = v, i * of_v + group * count * wide, wide, 0
            result = (sums, i * of_s, wide), count, vectors, rows, ZERO, (sums, 0)
            multiply((out, i * of_m + one * line, line), right, *result)
        for row in range(rows):
            _weights_back(g, kernels, sums, row * wide, k, room, dw, (one + row) * k * size)
