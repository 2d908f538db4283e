"""The three directions of the implicit GEMM on CUDA, by their arguments for backends/cuda/kernels/implicit.cu.

x (n, c, *image), weight (f, c/group, *kernel), y (n, f, *out). For sample s, place o and kernel element e

    y = weight x       y[s, f, o] = sum over c, e of weight[f, c, e] x[s, c, o stride - pad + e dilation]
    dx = weight' dy    dx[s, c, i] = sum over f, e of weight[f, c, e] dy[s, f, (i + pad - e dilation) / stride]
    dweight = dy x'    dweight[f, c, e] = sum over s, o of dy[s, f, o] x[s, c, o stride - pad + e dilation]

and a product of matrices, which is a convolution of images of one place. Sums are always computed in the same
order on one kind of GPU. Inputs of float16 and bfloat16 are summed in float32.

From the A100 on, tensor cores multiply inputs of float16 and bfloat16. Those of float32 are multiplied by the
`precision` of the device (backends.Device): with `tf32` on tensor cores too, rounded to TF32 (a sign, 8 bits
of exponent, 10 of mantissa); with `high` as a sum of two such numbers each, three products for one, on the
cards whose tensor cores are that fast; else, and with `highest`, by multiply-adds.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.cuda.capture import COUNTERS, arrived
from minicaffe.backends.cuda.device import TF32_SINCE, capability, multiprocessors, precision
from minicaffe.backends.cuda.launch import in_sum_type, launch_blocks
from minicaffe.backends.device import TOO_MANY
from minicaffe.core.ops.geometry import lift
from minicaffe.errors import ShapeError

UNIT = 16  # of the kernel's depth: a block reads one or two units of a sum at a time
FAN = 16  # partial sums that one block adds up
SMALL = tuple((tm, tn) for tm in (1, 2, 4) for tn in (2, 4))
LARGE = (8, 4), (4, 8), (8, 8)
# The multiplier in mma.cu, by type, of float32 by precision; the last where tensor cores are FAST
CORES = {"float16": "F16", "bfloat16": "Bf16", "tf32": "Tf32", "high": "Tf32x3"}
FAST = 80, 90, 100  # of A100, H100, B200: three products take less time than one by Fma
# The time of a block with tm x tn sums for each thread, in us for each 32 of the depth, if it is alone on its
# multiprocessor and if two share it: a + b (tm + tn) + c tm tn; what each block takes besides; what parts of
# the depth take. Fitted to times of an H100: examples/benchmarks/results/gpu/tiles_h100.json; Tf32x3 modelled
PAIRS = 2
COSTS = {
    "Fma": ((0.605, 0.0549, 0.0446), (0.873, 0.072, 0.0766), 2.93, 5.29),
    "Tf32": ((0.181, 0.136, 0), (0.257, 0.144, 0.0116), 2.9, 3.33),
    "F16": ((0.155, 0.0925, 0), (0.259, 0.0803, 0.0126), 3.18, 3.27),
    "Tf32x3": ((0.253, 0.19, 0), (0.36, 0.202, 0.0162), 2.9, 3.33),  # Tf32's times 1.4
}
COSTS["Bf16"] = COSTS["F16"]
ENTRY_US = 15.6e-6
POOL_US = 3.0  # of a pooling that is launched apart, at the least
PARTS = tuple(sorted(2**i * j for i in range(8) for j in (2, 3)))  # 2, 3, 4, 6, ..., that are tried


def _integers(names: str) -> list[tuple[str, Any]]:
    return [(name, np.int32) for name in names.split()]


AXES = _integers("d h w step_z step_y step_x z y x offset left")
PRODUCT = np.dtype(  # the kernel's struct of this name
    [
        *_integers(
            "rows columns depth left_group entries_group out_group left_row out_row out_outer"
        ),
        *(("column", AXES), ("k", AXES)),
        *_integers("d h w sd sh sw elements_in_k"),
    ]
)
ELEMENTS = 31  # bits of the kernel's Bits: as many positions as a kernel has along all its axes


class Product(NamedTuple):
    """The kernel's integers, and how what it reads lies. There are `rests` products of the `sizes`."""

    struct: np.ndarray
    sizes: tuple[int, ...]
    left: tuple[str, int]
    entries: tuple[str, int]
    where: str
    rests: int


def workspace(g: Any, limit: int, size: int = 4) -> int:
    """Returns the elements, of `size` bytes, for partial sums by which blocks share a product: faster."""
    import cupy

    if g.is_product:
        return min(limit, g.n + g.f * max(g.n, g.c))
    most, processors = 0, multiprocessors(cupy.cuda.Device().id)
    written = math.prod(g.y_shape), math.prod(g.x_shape), math.prod(g.weight_shape) + g.f
    for product, sums in zip(_directions(g), written, strict=True):
        sums *= 2 if size == 2 else 1
        shared = max(size, 4), processors, 0.0, limit // max(1, sums), "Fma"
        _, parts = _share(product.sizes, g.group * product.rests, *shared)
        most = max(most, parts * sums if parts > 1 else 0)
    return most


def forward(x: Any, weight: Any, bias: Any, g: Any, out: Any, work: Any = None) -> Any:
    """Writes y = weight * x + bias to `out`, and returns it; `work` is optional."""
    even = len(g.out) == 2 and not any(size % 2 for size in g.out)
    return _run((weight, x, bias, out), _directions(g)[0], g.group, work, pools=even)


def input_gradient(dy: Any, weight: Any, g: Any, out: Any, work: Any = None) -> Any:
    """Writes dx = weight' * dy to `out`, and returns it; `work` is optional."""
    return _run((weight, dy, None, out), _directions(g)[1], g.group, work)


def weight_gradient(
    x: Any, dy: Any, g: Any, out: Any, work: Any = None, dbias: Any | None = None
) -> Any:
    """Adds dweight = dy * x to `out`, and sums of dy to `dbias`; returns `out`. `work` is optional."""
    return _run((dy, x, None, out), _directions(g)[2], g.group, work, True, dbias, True)


@functools.lru_cache(4096)
def _directions(g: Any) -> tuple[Product, Product, Product]:
    """The products of y, dx and dweight, for each group."""
    kernel, stride, pad, dilation = g.window.lifted()
    c, f, k, pixels = g.c // g.group, g.f // g.group, math.prod(kernel), math.prod(g.image)
    image, out, ones, zeros, places = lift(g.image), lift(g.out), (1, 1, 1), (0, 0, 0), g.places
    x, y, weight, x_at, y_at = c * pixels, f * places, f * c * k, g.c * pixels, g.f * places
    along, elements = (*stride, *(-p for p in pad)), (*kernel, *dilation, *zeros, pixels)
    against = *kernel, *(-d for d in dilation), *zeros, places, c * k
    forward = (f, g.n * places, c * k), (weight, x, y), (c * k, places, y_at)
    backward = (c, g.n * pixels, f * k), (weight, y, x), (k, pixels, x_at)
    learning = (f, c * k, g.n * places), (y, x, weight), (places, c * k, k)
    of_x, of_y = (*image, *ones), (*out, *stride)
    return (
        _product(*forward, (*out, *along, x_at, 0), (*elements, k), of_x),
        _product(*backward, (*image, *ones, *pad, y_at, 0), against, of_y),
        _product(*learning, (*elements, 0), (*out, *along, x_at, y_at), of_x),
    )


def product(
    a: Any,
    b: Any,
    out: Any,
    work: Any,
    bias: Any | None = None,
    add: bool = False,
    sums: Any | None = None,
    add_sums: bool = False,
) -> Any:
    """out = a b + bias of each row, with `add` added to it; a (m, k), b (k, n), bias (m,), out (m, n).

    Writes the sums of the rows of a to `sums` (m,), or adds them with `add_sums`. All arrays may be transposed
    views. `work` is flat and optional: with it more blocks share the product. Returns out.
    """
    (left_row, left_k), (entry_k, column), (out_row, out_column) = (
        [step // array.itemsize for step in array.strides] for array in (a, b, out)
    )
    one, zeros = (1, 1, 1), (0, 0, 0)
    columns, depth = (*one, *one, *zeros, column, 0), (*one, *one, *zeros, entry_k, left_k)
    sizes, steps = (out.shape[0], out.shape[1], a.shape[1]), (left_row, out_row, out_column)
    left, right, to = (array if array.flags.c_contiguous else array.T for array in (a, b, out))
    numbers = _product(sizes, zeros, steps, columns, depth, (*one, *one))
    _run((left, right, bias, to), numbers, 1, work, add, sums, add_sums)
    return out


def _run(
    arrays: tuple[Any, ...],
    product: Product,
    products: int,
    work: Any,
    add: bool = False,
    left_sums: Any | None = None,
    add_sums: bool = False,
    pools: bool = False,
) -> Any:
    """Launches the kernel for all groups, in parts of the depth if `work` holds their partial sums.

    With `pools` a pooling may follow, which a tile of 4 columns a thread takes with it: see cuda.fusion.
    """
    out = arrays[3]
    part = out.size + (0 if left_sums is None else left_sums.size)
    largest = max(arrays[0].size, arrays[1].size, part)
    if largest + 2**16 >= 2**31:
        raise ShapeError(f"implicit: {largest} {TOO_MANY}")
    partials = in_sum_type(work, out)
    way, number = multiplier(arrays[1]), arrays[1].device.id
    most = partials.size // max(1, part)
    products *= product.rests
    shared = out.itemsize, multiprocessors(number), POOL_US * pools, most, way
    tile, parts = _share(product.sizes, products, *shared)
    rows, columns, _ = product.sizes
    grid = (-(-columns // (16 * tile[1])), -(-rows // (16 * tile[0])), products * parts)
    assert parts == 1 or grid[0] * grid[1] * products * _sums(parts) <= COUNTERS
    partial_args = (partials, arrived()) if parts > 1 else (None, None)
    relu = 0
    mask = pooled = which = None  # optional arguments that cuda.fusion sets, as relu
    args = parts, part, int(add), int(add_sums), relu, product.struct
    at_once = 8 if way in ("F16", "Bf16") else 4
    lie = zip((product.left, product.entries), arrays[:2], tile, strict=True)
    types = arrays[1], out, *tile, *(_read(at_once, *one) for one in lie), product.where, way
    arrays = *arrays[:3], mask, out, pooled, which, left_sums, *partial_args
    launch_blocks("implicit", grid, types, *arrays, *args)
    return out


def multiplier(array: Any) -> str:
    """What multiplies numbers of an array's type on its device: tensor cores, or "Fma"."""
    kind, since = array.dtype.name, capability(array.device.id)
    way = CORES.get(precision() if kind == "float32" else kind, "Fma")
    able = since in FAST if way == "Tf32x3" else since >= TF32_SINCE
    return way if able else "Fma"


def _read(at_once: int, lies: tuple[str, int], array: Any, many: int) -> str:
    """How a thread reads an array: Packs if runs of k's begin at multiples of `at_once` numbers."""
    aligned = lies[1] % at_once == 0 and array.data.ptr % (at_once * array.itemsize) == 0
    return "Packs" if aligned and many > 3 else lies[0]


@functools.lru_cache(4096)
def _product(*numbers: tuple[int, ...]) -> Product:
    """The integers as the kernel's struct; CuPy passes an array of one entry by value."""
    flat = [number for part in numbers for number in part]
    if max(flat) >= 2**31:
        raise ShapeError(f"implicit: {max(flat)} {TOO_MANY}")
    sizes, groups, steps, column, k, source = numbers
    rests = math.prod(strides := source[3:])
    pixels = [-(-many // stride) for many, stride in zip(column[:3], strides, strict=True)]
    steps_of_k = zip(k[:3], k[3:6], strides, strict=True)
    elements = [-(-many * math.gcd(stride, step) // stride) for many, step, stride in steps_of_k]
    struct = np.array([*flat, int(sum(elements) <= sum(pixels))], np.int32).view(PRODUCT)
    where = "Bits" if min(sum(elements), sum(pixels)) <= ELEMENTS else "Spot"
    where += ", true" if rests > 1 else ", false"  # whether there are strides
    left = ("Each", 1) if rests > 1 else _left_lies(sizes, groups, steps, k)
    entries = _entries_lie(sizes, groups, column, k, source)
    rows, columns, depth = sizes
    columns = columns // max(1, math.prod(column[:3])) * math.prod(pixels)
    return Product(struct, (rows, columns, -(-depth // rests)), left, entries, where, rests)


def _left_lies(
    sizes: tuple[int, ...], groups: tuple[int, ...], steps: tuple[int, ...], k: tuple[int, ...]
) -> tuple[str, int]:
    """How a thread reads `left` (kernels/implicit.cu), and how many neighbouring k's it could read at once."""
    run = math.prod(k[:3])
    follows, row = k[-1] if run == 1 else 1, steps[0]
    if follows > row:  # rows are neighbours
        return "Each", 1
    if run == k[-1]:  # all of a row's are
        return "Deep", math.gcd(sizes[2], row, groups[0])
    return "Deep", math.gcd(run, k[-1], row, groups[0])


def _entries_lie(
    sizes: tuple[int, ...],
    groups: tuple[int, ...],
    column: tuple[int, ...],
    k: tuple[int, ...],
    source: tuple[int, ...],
) -> tuple[str, int]:
    """The same of the entries: "Each" if more columns than k's are neighbours in memory, else "Deep"."""

    def run(axes: tuple[int, ...]) -> float:
        count, offset = math.prod(axes[:3]), axes[9]
        return axes[2] if count > 1 else (math.inf if offset == 1 else 1)

    if run(column) >= run(k):
        return "Each", 1
    whole = k[:9] == (*source[:3], 1, 1, 1, 0, 0, 0) and source[3:] == (1, 1, 1)
    if not whole or math.prod(column[:3]) > 1 or any(column[6:9]):
        return "Deep", 1
    if math.prod(k[:3]) == k[9]:
        return "Deep", math.gcd(sizes[2], column[9], groups[1])
    return "Deep", math.gcd(math.prod(k[:3]), k[9], column[9], groups[1])


def _sums(parts: int) -> int:
    """Returns how many sums of FAN neighbours, and again of FAN such sums, add up `parts` parts.

    >>> _sums(256), _sums(17), _sums(1)
    (17, 3, 0)
    """
    count = 0
    while parts > 1:
        parts = -(-parts // FAN)
        count += parts
    return count


def tiles(multiplier: str, size: int) -> tuple[tuple[int, int], ...]:
    """The tiles of sums, each of `size` bytes, that a thread's registers hold."""
    large = () if size == 8 else LARGE[:1] if multiplier == "Tf32x3" else LARGE
    return (*(SMALL if multiplier == "Fma" else SMALL[2:]), *large)


@functools.lru_cache(4096)
def _share(
    sizes: tuple[int, ...],
    products: int,
    size: int,
    processors: int,
    pool_us: float,
    most: int,
    multiplier: str,
) -> tuple[tuple[int, int], int]:
    """Returns the tile of sums, each of `size` bytes, that a thread keeps, and into how many parts of the
    depth, at most `most`, the sums are divided; those with the least time by COSTS.

    A tile has at most twice the rows. Blocks run in turns of PAIRS a multiprocessor; few turns are rounded up.
    """
    rows, columns, depth = sizes
    most = max(1, min(most, depth // (4 * UNIT)))
    best = (math.inf, (2, 2), 1)
    for tm, tn in tiles(multiplier, size):
        if 16 * tm > max(32, 2 * rows):
            continue
        blocks = -(-rows // (16 * tm)) * -(-columns // (16 * tn)) * products
        *times, block_us, part_us = COSTS[multiplier]
        alone, beside = (a + b * (tm + tn) + c * tm * tn for a, b, c in times)
        for parts in (1, *PARTS):
            if parts > most or (parts > 1 and blocks * _sums(parts) > COUNTERS):
                break
            turns, rest = divmod(blocks * parts, PAIRS * processors)
            slabs = -(-depth // (2 * UNIT)) / parts
            two = slabs * max(alone, beside) + block_us
            us = (turns + rest / (PAIRS * processors)) * two
            if turns < 2:
                last = two if rest > processors else slabs * alone + block_us
                us = turns * two + (last if rest else 0)
            if parts > 1:
                us += part_us + ENTRY_US * rows * columns * products * parts
            us += pool_us if tn % 4 else 0
            best = min(best, (us, (tm, tn), parts))
    return best[1:]
