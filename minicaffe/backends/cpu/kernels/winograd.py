"""Winograd's convolution: transforms of tiles and of the weight, and the products between them.

How tiles are transformed, and lie in memory, says `winograd_transforms`. The letters are `conv.winograd`'s.
With a stride of s a channel is s^2 planes, each seen through elements of the kernel of its own: G, of which
U = G w, is (planes, points, elements of the kernel).

What the loops share, `shared`, in the order of the unpacking: `sizes` are n, c, h, w, f, oh, ow and groups;
`chunk` how many samples, and rows of their tiles, are a unit; `tiles` the rows and columns of tiles of an
image, `step` of outputs of a tile; `pads`, `phases` and `planes` what `winograd_transforms` says, of what is
read and of what is written; `matrices` B' of both axes and A of both; `cut` and `places` are of the room.
"""

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.blas import gemm
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.kernels.winograd_transforms import (
    add_up,
    read_images,
    read_results,
    write,
)
from minicaffe.backends.cpu.microkernel import BLOCK, ZERO, multiply
from minicaffe.backends.cpu.vector_ir import lanes, lanes_of

__all__ = ["forward", "input_gradient", "lanes", "weight_gradient"]
DEEP = 32  # channels from which on a product is ours: tiles of fewer take as long to begin as to compute


@helper
def _unit(unit, chunk, tiles, n):
    """The first sample and row of tiles of a unit, how many of both and of columns it has, and of tiles."""
    bands = (tiles[0] + chunk[1] - 1) // chunk[1]
    s, row = unit // bands * chunk[0], unit % bands * chunk[1]
    samples, rows = min(chunk[0], n - s), min(chunk[1], tiles[0] - row)
    return s, row, (samples, rows, tiles[1]), samples * rows * tiles[1]


@helper
def points_of(images):
    """How many a tile has."""
    return max(1, 2 * images[0].shape[1]) * 2 * images[1].shape[1]


@helper
def apart(channels, line):
    """How far the matrices of points are apart: an odd number of lines, whose sets in the cache differ."""
    return (channels * line + 47) // 32 * 32 + 16


@helper
def _by_blas(blas, u, v, out, points, groups, line, count):
    """out[i] = U[i] v[i] of all points and groups; both are (array, distance of points, lines of a group)."""
    (x, of_x, k), (y, of_y, m) = v, out
    for i in range(points):
        for j in range(groups):
            left, right = (u, (i * groups + j) * m * k, k), (x, i * of_x + j * k * line, line)
            to = y, i * of_y + j * m * line, line
            gemm(blas, (m, count, k), (*left, False), (*right, False), False, to)


@helper
def _by_tiles(u, v, out, points, groups, line, count):
    """The same by the micro-kernel, which does not copy U first."""
    (x, of_x, k), (y, of_y, m) = v, out
    tile_args = k, (count + lanes_of(x) - 1) // lanes_of(x), m, ZERO, (u, 0), BLOCK
    for i in range(points):
        for j in range(groups):
            left = u, (i * groups + j) * m * k, k
            right = x, i * of_x + j * k * line, line, 0
            multiply(left, right, (y, i * of_y + j * m * line, line), *tile_args)


@compiled
def forward(epilogue, y, blas, shared, x, bias, u, rest, first, last):
    """y = A' [U V] A + bias; an epilogue of images whose rows are not those of several tiles."""
    sizes, chunk, pads, tiles, step, phases, planes, line, cut, places, matrices = shared
    n, c, h, w, f, oh, ow, groups = sizes
    images, results = matrices
    points, room, rest = points_of(images), rest[: cut[4]], rest[cut[4] :]
    c_of, f_of = c * planes[0][0] * planes[0][1], f * planes[1][0] * planes[1][1]
    k, m = c_of // groups, f_of // groups
    for unit in range(first, last):
        s, row, ends, count = _unit(unit, chunk, tiles, n)
        of_v, of_m = apart(c_of, line), apart(f_of, line)
        v, out = rest[: points * of_v], rest[points * of_v :]
        where = x, s * c * h * w, (c, h, w), (0, c), ends, row, line, pads[0], step
        read_images(where, phases[0], planes[0], images, cut, places[0], room, v, of_v)
        product_args = u, (v, of_v, k), (out, of_m, m), points, groups, line, count
        if k < DEEP:
            _by_blas(blas, *product_args)
        else:
            _by_tiles(*product_args)
        outputs = y, s * f * oh * ow, (f, oh, ow), (0, f_of), ends, row, line, pads[1], step
        write(out, of_m, results, bias, outputs, phases[1], planes[1], cut, places[1], room)
        top = row * step[0] - pads[1][0]
        begin, end = max(0, top), min(oh, top + ends[1] * step[0])
        for i in range(ends[0] * f if epilogue[0] else 0):
            finish(y, ((s * f + i) * oh + begin) * ow, (end - begin) * ow, epilogue)


@compiled
def input_gradient(blas, shared, dy, u, dx, rest, first, last):
    """dx = the sums of tiles B [U' (A dy A')] B', of units that are whole samples; u is U'."""
    sizes, chunk, pads, tiles, step, phases, planes, line, cut, places, matrices = shared
    n, c, h, w, f, oh, ow, groups = sizes
    images, results = matrices
    points, room, rest = points_of(images), rest[: cut[4]], rest[cut[4] :]
    k, m = c // groups, f // groups
    for unit in range(first, last):
        s, _, ends, count = _unit(unit, chunk, tiles, n)
        of_v, of_m = apart(c, line), apart(f, line)
        v, out = rest[: points * of_v], rest[points * of_v :]
        where = dy, s * f * oh * ow, (f, oh, ow), (0, f), ends, 0, line, (0, 0), step
        read_results(where, phases[1], planes[1], results, cut, places[0], room, out, of_m)
        _by_blas(blas, u, (out, of_m, m), (v, of_v, k), points, groups, line, count)
        pixels = dx, s * c * h * w, (c, h, w), ends, line, pads[0], step
        add_up(v, of_v, images, *pixels, cut, places[0], room)


@compiled
def weight_gradient(blas, shared, x, dy, work, first, last):
    """The sums of (A dy A') V' over units, at the beginning of `work`."""
    sizes, chunk, pads, tiles, step, phases, planes, line, cut, places, matrices = shared
    n, c, h, w, f, oh, ow, groups = sizes
    images, results = matrices
    points = points_of(images)
    c_of = c * planes[0][0] * planes[0][1]
    k, m = c_of // groups, f // groups
    size = points * f * k
    room, rest = work[size : size + cut[4]], work[size + cut[4] :]
    for unit in range(first, last):
        s, row, ends, count = _unit(unit, chunk, tiles, n)
        of_v, of_m = apart(c_of, line), apart(f, line)
        v, out = rest[: points * of_v], rest[points * of_v :]
        where = x, s * c * h * w, (c, h, w), (0, c), ends, row, line, pads[0], step
        read_images(where, phases[0], planes[0], images, cut, places[0], room, v, of_v)
        where = dy, s * f * oh * ow, (f, oh, ow), (0, f), ends, row, line, (0, 0), step
        read_results(where, phases[1], planes[1], results, cut, places[0], room, out, of_m)
        for i in range(points):
            for j in range(groups):
                left = out, i * of_m + j * m * line, line, False
                right = v, i * of_v + j * k * line, line, True
                to = work, (i * groups + j) * m * k, k
                gemm(blas, (m, k, count), left, right, unit > first, to)


PAIRS = 1024  # of a filter and a plane, whose sums are taken back at a time


@compiled
def transform(blas, g, weight, sizes, turned, u, first, last):
    """u = G weight as (points, f, planes c), or (points, group, planes c, f) if it is `turned`.

    sizes are f and c of a group of the weight; G is for both axes at once, one of each plane. Of the filters
    first..last, or if `turned` of such channels.
    """
    (m, k), (count, points, size), numbers = sizes, g.shape, g.reshape(-1)
    pairs = len(u) // points
    if count == 1 and not turned:
        right = weight, first * k * size, size, True
        whole = points, (last - first) * k, size
        gemm(blas, whole, (numbers, 0, size, False), right, False, (u, first * k, pairs))
        return
    each = 1 if turned else count
    for row in range(first * each, last * each):
        if turned:
            (group, plane), many = divmod(row // k, count), m
            right = weight, (group * m * k + row % k) * size, k * size, True
        else:
            (one, plane), many = divmod(row, count), k
            right = weight, one * k * size, size, True
        matrix = numbers, plane * points * size, size, False
        gemm(blas, (points, many, size), matrix, right, False, (u, row * many, pairs))


@compiled
def transform_back(blas, work, slices, g, rows, dw, first, last):
    """dw += G' [the sums of all slices, in their order], of filters first..last of so many.

    Of the equal pieces of `work`, one a slice, each begins with its sums; those of all go to the first's.
    """
    (count, points, size), piece, numbers = g.shape, len(work) // slices, g.reshape(-1)
    k, begin = len(dw) // rows // size, first * (len(dw) // rows // size) * count
    pairs, end = rows * k * count, last * k * count
    alike = pairs if count == 1 else k  # neighbours whose G is one
    while begin < end:
        many = min(PAIRS, end - begin, alike - begin % alike)
        for i in range(1, slices):
            for point in range(points):
                start = point * pairs + begin
                total, more = work[start : start + many], work[i * piece + start :]
                for q in range(many):
                    total[at(q)] += more[at(q)]
        row, plane = divmod(begin // k, count)
        left, right = (work, begin, pairs, True), (numbers, plane * points * size, size, False)
        to = dw, (row * k + begin % k) * size, size
        gemm(blas, (many, size, points), left, right, True, to)
        begin += many
