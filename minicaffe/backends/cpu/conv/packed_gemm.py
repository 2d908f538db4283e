"""Convolution by packed weights: which panels, bands and tiles the compiled loops compute.

Panels, and how tiles are multiplied by them, are those of backends/cpu/kernels/packed_gemm.py. A 1 x 1
convolution, and one without pads, reads the image where it lies; else a thread copies the rows that it
reads, between zeros (dweight is then that of `implicit`). Of 3 x 3 kernels the panels are Winograd's U, with
as many numbers of a kernel as the tile has points.
"""

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.conv.strips import GAP, adjoint, strips
from minicaffe.backends.cpu.ops import row
from minicaffe.backends.cpu.threads import even_parts, evenly, run, share
from minicaffe.core.ops.conv.winograd import by_axes, of_weights, two
from minicaffe.core.ops.geometry import ConvGeometry

STEPS = 1, 2, 4  # strides that the loops know; of others `implicit` computes y
CHANNELS = 16  # of a group, at least, for tiles
LARGE = 2**23  # numbers of transformed weights that take as long to read as few tiles to compute
WIDTHS = {16: 32, 8: 24, 4: 12}  # filters of a panel at most, by the numbers of a vector
LINE = 300  # places of a line at most
FEWEST = 7  # places, or tiles, that are computed at a time, at most the fewest
BLOCK = 256  # places of a block, whose pixels stay in the cache
TURNED = 128  # places whose dy is turned at a time: they stay in the first cache
WIDEST = 64  # filters that are turned at a time, at most
LANES = 16  # numbers of a vector, at most
TILES = 64  # of a chunk, at most, unless a row has more


@functools.lru_cache(maxsize=4096)
def transformed(g: ConvGeometry) -> int:
    """Returns m of F(m x m, 3x3), or 0 if the weights are packed as they are."""
    window, c, f = g.window, g.c // g.group, g.f // g.group
    if (window.kernel, max(window.stride + window.dilation)) != ((3, 3), 1) or c < CHANNELS:
        return 0
    tiles = g.n * math.prod(-(-size // 4) for size in g.out)
    return 2 if 36 * c * f > LARGE and tiles <= 16 else 4


@functools.lru_cache(maxsize=1024)
def panels(g: ConvGeometry) -> int:
    """Returns the elements of packed weights, for vectors of any width; 0 if `implicit` computes y."""
    if len(g.image) > 2 or g.window.stride[-1] not in STEPS:
        return 0
    points = (transformed(g) + 2) ** 2 if transformed(g) else math.prod(g.window.kernel)
    filters = max(-(-(g.f // g.group) // wide) * wide for wide in (12, 16, 24, 32))
    return g.group * filters * (1 + g.c // g.group * points)


@functools.lru_cache(maxsize=1024)
def room(g: ConvGeometry, back: bool = False) -> int:
    """Returns the elements of work for one thread, with packed weights; for dx with `back`."""
    if not panels(g) or (back and max(g.window.stride) > 1):
        return 0
    g = adjoint(g) if back else g
    if m := transformed(g):
        return panels(g) + max(_tiles(g, m, lanes, 1)[0] for lanes in WIDTHS)
    lines, n = _lines(g)
    copied = g.c // g.group * _copied(g, lines)[2]
    return panels(g) + copied + (max(BLOCK, n) + FEWEST) * max(WIDTHS.values())


@row("packed_gemm.pack", work=panels)
def pack(compiled, weight, bias, g, out):
    _pack(compiled, weight, bias, g, compiled.KEPT, out)


@row("packed_gemm.forward", work=room)
def forward(compiled, x, weight, bias, g, out, work):
    if not panels(g):
        return NotImplemented
    if weight.ndim > 1:
        weight = _pack(compiled, weight, bias, g, compiled.WORK, work[: panels(g)])
        work = work[panels(g) :]
    return _correlate(compiled, x, weight, g, out, work)


@row("packed_gemm.input_gradient", work=functools.partial(room, back=True))
def input_gradient(compiled, dy, weight, g, out, work):
    if len(g.image) > 2 or max(g.window.stride) > 1:
        return NotImplemented
    back = adjoint(g)
    weight = _pack(compiled, weight, None, back, compiled.TURNED, work[: panels(back)])
    return _correlate(compiled, dy, weight, back, out, work[panels(back) :])


def room_of_sums(g: ConvGeometry) -> int:
    """Returns the elements of work for dweight: a turned block of dy, and sums; 0 if `implicit` does it."""
    sums = g.rows // g.group * -(-(g.f // g.group) // LANES) * LANES
    return 0 if any(g.window.pad) else TURNED * WIDEST + sums


@row("packed_gemm.weight_gradient", "packed_sums", work=room_of_sums)
def weight_gradient(compiled, x, dy, g, out, work):
    if any(g.window.pad) or x.size >= 2**31:  # offsets in it have 32 bits
        return NotImplemented
    arrays = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
    return run(compiled.weight_gradient, g.c, *arrays, *_sums(g, x.dtype), Piece(work))


@functools.lru_cache(maxsize=1024)
def _sums(g: ConvGeometry, dtype: Any) -> tuple[Any, ...]:
    """Returns the arguments `sizes`, `where`, `places` and `turned` of the loop for dweight."""
    tile: Any = loops("microkernel", dtype)
    width, pixels, window = int(tile.lanes(dtype)) * tile.COLUMNS, math.prod(g.image), g.window
    sizes = g.n, g.group, g.c // g.group, g.f // g.group, pixels, width
    apart = [math.prod(g.image[axis + 1 :]) for axis in range(len(g.image))]
    where, places = (
        sum(i * step * far for i, step, far in zip(np.indices(shape), steps, apart, strict=True))
        for shape, steps in ((window.kernel, window.dilation), (g.out, window.stride))
    )
    tables = where.reshape(-1).astype(np.int64), places.reshape(-1).astype(np.int32)
    return sizes, *tables, (np.arange(TURNED) * width).astype(np.int32)


def _pack(compiled: Any, weight: Any, bias: Any, g: ConvGeometry, how: int, out: Any) -> Any:
    """Packs the weight, or for dx the turned one of a convolution whose adjoint is `g`: see the loop."""
    f = g.f // g.group
    units = g.group * -(-f // int(compiled.VECTORS * compiled.lanes(weight.dtype)))
    numbers = weight.reshape(-1), no_bias(weight.dtype) if bias is None else bias, out
    run(compiled.pack, units, (f, g.c // g.group), how, _of_weights(g, weight.dtype), *numbers)
    return out


def _correlate(compiled: Any, x: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> None:
    lanes, none, (epilogue, y) = int(compiled.lanes(x.dtype)), no_bias(x.dtype), no_epilogue(out)
    follows = (none, none, none, x.dtype.type(0), none, none, none), none, none, none
    to = (*epilogue, follows), y
    if m := transformed(g):
        _, units, cut, shared, where, of_v = _tiles(g, m, lanes, share())
        matrices, v = by_axes(m, g.window.kernel, x.dtype), none
        if of_v:  # threads that compute panels of the same tiles transform the images together
            v, work = work[:of_v], work[of_v:]
            filters: Any = loops("winograd_filters", x.dtype)
            run(filters.images, g.c, shared, matrices, x.reshape(-1), v, Piece(work))
        args = cut, shared, matrices, where, x.reshape(-1), weight, v
        run(compiled.winograd, units, *to, *args, Piece(work))
    else:
        units, *tables = _direct(g, compiled.VECTORS * lanes, share())
        run(compiled.forward, units, *to, *tables, x.reshape(-1), weight, Piece(work))


@functools.lru_cache(maxsize=1024)
def _of_weights(g: ConvGeometry, dtype: Any) -> Any:
    """G of both axes, (points, elements of a kernel); without points if nothing is transformed."""
    if m := transformed(g):
        return of_weights(m, g.window.kernel, g.window.stride, dtype, False)[0]
    return np.zeros((0, math.prod(g.window.kernel)), dtype)


@functools.lru_cache(maxsize=1024)
def _lines(g: ConvGeometry) -> tuple[int, int]:
    """Lines of an image's places, and the places of each: of a 1 x 1 convolution any that are side by side."""
    lines, n = two(g.out, 1)
    if g.window.is_point:
        most = min(LINE, lines * n)
        n = next(size for size in range(most, 0, -1) if lines * n % size == 0)
        lines = math.prod(g.out) // n
    return lines, n


def _copied(g: ConvGeometry, lines: int) -> tuple[int, int, int]:
    """Rows that a line reads, pixels of a row and elements of a channel of what is copied; 0 if nothing is."""
    window, n = g.window, _lines(g)[1]
    if not any(window.pad) and n >= FEWEST:
        return 0, 0, 0
    sizes = window.dilation, window.kernel, window.stride
    dilations, kernel, (down, step) = (two(one, 1) for one in sizes)
    rows, pixels = (d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    pitch = -(-(step * (max(n, FEWEST) - 1) + pixels) // 16) * 16
    return rows, pitch, ((lines - 1) * down + rows) * pitch


@functools.lru_cache(maxsize=1024)
def _direct(g: ConvGeometry, wide: int, threads: int) -> tuple[Any, ...]:
    """Returns the units of the loop, and its arguments `cut`, `sizes`, `image` and `where`."""
    (lines, n), f, c, copies = _lines(g), g.f // g.group, g.c // g.group, any(_copied(g, 1))
    panels, bands, parts = -(-f // wide), 1, 1
    most = max(1, min(0 if copies else BLOCK // (lines * n), g.n // threads))
    whole = g.group * -(-g.n // most)
    if not evenly(whole, threads):  # threads share the panels if they can, else the lines
        if (f % wide == 0 and evenly(whole * panels, threads) and not copies) or lines == 1:
            parts = even_parts(whole, threads, panels)
        else:
            bands = even_parts(whole, threads, lines)
    copied, stride = _copied(g, -(-lines // bands)), two(g.window.stride, 1)
    h, across = (lines, n) if g.window.is_point else two(g.image, 1)
    pitch, plane = copied[1:] if copied[0] else (across, h * across)
    kernel, dilation = two(g.window.kernel, 1), two(g.window.dilation, 1)
    channel, i, j = (one.reshape(-1) for one in np.indices((c, *kernel)))
    where = (channel * plane + i * dilation[0] * pitch + j * dilation[1]).astype(np.int64)
    image = (h, across), stride, two(g.window.pad, 0), copied
    args = (bands, parts, max(1, BLOCK // n), most), (g.n, g.group, c, f, len(where), lines, n)
    return whole * bands * parts, *args, image, where


@functools.lru_cache(maxsize=1024)
def _tiles(g: ConvGeometry, m: int, lanes: int, threads: int) -> tuple[Any, ...]:
    """Returns elements of work, the loop's units, `cut`, `shared`, `where`, and of a V that all share or 0."""
    of, wide, c = strips(g, m, lanes), WIDTHS[lanes], g.c // g.group
    (rows, columns), panels = of.tiles, -(-(g.f // g.group) // wide)
    samples = max(1, min(g.n, TILES // (rows * columns)))
    whole = g.group * -(-g.n // samples)
    bands = 1 if samples > 1 else -(-rows // max(1, TILES // columns))
    by_rows = samples == 1 and (bands > 1 or panels % threads > 0)
    if by_rows and not evenly(whole * bands, threads):
        bands = even_parts(whole, threads, rows, bands)
    parts = 1 if evenly(whole * bands, threads) else even_parts(whole * bands, threads, panels)
    high = -(-rows // bands)
    count = max(samples * high * columns, FEWEST)
    line, points = of.line(count), math.prod(of.points)
    v, outputs = points * (g.c * line + GAP), ((high + 1) * m * g.out[1] + m) * wide
    size = of.cut[4] + v + points * count * wide + outputs
    sizes, _, *layout = of.kernel_args((samples, high), line, None)
    of_v = v if parts > 1 and bands == 1 and samples >= g.n else 0
    where = np.arange(c, dtype=np.int64) * line
    cut = bands, parts, g.group, samples
    return size, whole * bands * parts, cut, (sizes, *layout), where, of_v
