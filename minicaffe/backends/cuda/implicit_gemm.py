"""The three directions of the implicit GEMM on CUDA, by their arguments for backends/cuda/kernels/implicit.cu.

x (n, c, *image), weight (f, c/group, *kernel), y (n, f, *out). For sample s, place o and kernel element e

    y = weight x       y[s, f, o] = sum over c, e of weight[f, c, e] x[s, c, o stride - pad + e dilation]
    dx = weight' dy    dx[s, c, i] = sum over f, e of weight[f, c, e] dy[s, f, (i + pad - e dilation) / stride]
    dweight = dy x'    dweight[f, c, e] = sum over s, o of dy[s, f, o] x[s, c, o stride - pad + e dilation]

and a product of matrices, which is a convolution of images of one place. Sums are always computed in the same
order. Inputs of float16 and bfloat16 are summed in float32.

From the A100 on, tensor cores multiply inputs of float16 and bfloat16; with `tf32` of the device
(backend.Device) also those of float32, rounded to TF32 (a sign, 8 bits of exponent, 10 of mantissa).
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.cuda.capture import COUNTERS, arrived
from minicaffe.backends.cuda.device import TF32_SINCE, capability, tf32
from minicaffe.backends.cuda.launch import in_sum_type, launch_blocks
from minicaffe.backends.device import TOO_MANY
from minicaffe.core.ops.geometry import lift
from minicaffe.errors import ShapeError

UNIT = 16  # of the kernel's depth: a block reads one or two units of a sum at a time
FAN = 16  # partial sums that one block adds up
SMALL = tuple((tm, tn) for tm in (1, 2, 4) for tn in (2, 4))
LARGE = (4, 8), (8, 4), (8, 8)  # not for sums of 8 bytes: too few registers
CORES = {"float16": "F16", "bfloat16": "Bf16", "float32": "Tf32"}  # the multiplier in mma.cu
# The time of a block with tm x tn sums for each thread, in us for each 32 of the depth, if it is alone on its
# multiprocessor and if two share it: a + b (tm + tn) + c tm tn; what each block takes besides; what parts of
# the depth take. Fitted to times of an H100: examples/benchmarks/results/gpu/tiles_h100.json
MULTIPROCESSORS, PAIRS = 132, 2
COSTS = {
    "Fma": ((0.605, 0.0549, 0.0446), (0.873, 0.072, 0.0766), 2.93, 5.29),
    "Tf32": ((0.181, 0.136, 0), (0.257, 0.144, 0.0116), 2.9, 3.33),
    "F16": ((0.155, 0.0925, 0), (0.259, 0.0803, 0.0126), 3.18, 3.27),
}
COSTS["Bf16"] = COSTS["F16"]
ENTRY_US = 15.6e-6
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
    if g.is_product:
        return min(limit, g.n + g.f * max(g.n, g.c))
    most = 0
    for (_, product), sums in (
        (_forward(g), math.prod(g.y_shape)),
        (_input_gradient(g), math.prod(g.x_shape)),
        (_weight_gradient(g), math.prod(g.weight_shape) + g.f),
    ):
        sums *= 2 if size == 2 else 1
        products = g.group * product.rests
        _, parts = _share(*product.sizes, products, max(size, 4), limit // max(1, sums), "Fma")
        most = max(most, parts * sums if parts > 1 else 0)
    return most


def forward(
    x: Any, weight: Any, bias: Any, g: Any, out: Any, relu: bool = False, work: Any = None
) -> Any:
    """Writes y = weight * x + bias, with `relu` max(0, y), to `out`, and returns it; `work` is optional."""
    _run((weight, x, bias, out), *_forward(g), work=work, relu=relu)
    return out


@functools.lru_cache(4096)
def _forward(g: Any) -> tuple[int, Product]:
    kernel, stride, pad, dilation = g.window.lifted()
    c, f, k, pixels = g.c // g.group, g.f // g.group, math.prod(kernel), math.prod(g.image)
    sizes = f, g.n * g.places, c * k
    groups = f * c * k, c * pixels, f * g.places
    steps = c * k, g.places, g.f * g.places
    columns = *lift(g.out), *stride, *(-p for p in pad), g.c * pixels, 0
    depth = *kernel, *dilation, 0, 0, 0, pixels, k
    return g.group, _product(sizes, groups, steps, columns, depth, (*lift(g.image), 1, 1, 1))


def input_gradient(dy: Any, weight: Any, g: Any, out: Any, work: Any | None = None) -> Any:
    """Writes dx = weight' * dy to `out`, and returns it; `work` is optional."""
    _run((weight, dy, None, out), *_input_gradient(g), work=work)
    return out


@functools.lru_cache(4096)
def _input_gradient(g: Any) -> tuple[int, Product]:
    kernel, stride, pad, dilation = g.window.lifted()
    c, f, k, pixels = g.c // g.group, g.f // g.group, math.prod(kernel), math.prod(g.image)
    sizes = c, g.n * pixels, f * k
    groups = f * c * k, f * g.places, c * pixels
    steps = k, pixels, g.c * pixels
    columns = *lift(g.image), 1, 1, 1, *pad, g.f * g.places, 0
    depth = *kernel, *(-d for d in dilation), 0, 0, 0, g.places, c * k
    return g.group, _product(sizes, groups, steps, columns, depth, (*lift(g.out), *stride))


def weight_gradient(
    x: Any, dy: Any, g: Any, out: Any, work: Any | None = None, dbias: Any | None = None
) -> Any:
    """Adds dweight = dy * x to `out`, and sums of dy to `dbias`; returns `out`. `work` is optional."""
    arrays, numbers = (dy, x, None, out), _weight_gradient(g)
    _run(arrays, *numbers, work=work, add=True, left_sums=dbias, add_sums=True)
    return out


@functools.lru_cache(4096)
def _weight_gradient(g: Any) -> tuple[int, Product]:
    kernel, stride, pad, dilation = g.window.lifted()
    c, f, k, pixels = g.c // g.group, g.f // g.group, math.prod(kernel), math.prod(g.image)
    sizes = f, c * k, g.n * g.places
    groups = f * g.places, c * pixels, f * c * k
    steps = g.places, c * k, k
    columns = *kernel, *dilation, 0, 0, 0, pixels, 0
    depth = *lift(g.out), *stride, *(-p for p in pad), g.c * pixels, g.f * g.places
    return g.group, _product(sizes, groups, steps, columns, depth, (*lift(g.image), 1, 1, 1))


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
    _run((left, right, bias, to), 1, numbers, work=work, add=add, left_sums=sums, add_sums=add_sums)
    return out


def _run(
    arrays: tuple[Any, ...],
    products: int,
    product: Product,
    work: Any = None,
    add: bool = False,
    relu: bool = False,
    left_sums: Any | None = None,
    add_sums: bool = False,
) -> None:
    """Launches the kernel for all groups, in parts of the depth if `work` holds their partial sums."""
    out = arrays[3]
    part = out.size + (0 if left_sums is None else left_sums.size)
    largest = max(arrays[0].size, arrays[1].size, part)
    if largest + 2**16 >= 2**31:
        raise ShapeError(f"implicit: {largest} {TOO_MANY}")
    partials = in_sum_type(work, out)
    kind = arrays[1].dtype.name  # tensor cores of its type multiply, or Fma
    able = kind in CORES and (kind != "float32" or tf32())
    able = able and capability(arrays[1].device.id) >= TF32_SINCE
    multiplier = CORES[kind] if able else "Fma"
    most = partials.size // max(1, part)
    products *= product.rests
    tile, parts = _share(*product.sizes, products, out.itemsize, most, multiplier)
    rows, columns, _ = product.sizes
    grid = (-(-columns // (16 * tile[1])), -(-rows // (16 * tile[0])), products * parts)
    assert parts == 1 or grid[0] * grid[1] * products * _sums(parts) <= COUNTERS
    partial_args = (partials, arrived()) if parts > 1 else (None, None)
    args = parts, part, int(add), int(add_sums), int(relu), product.struct
    at_once = 8 if multiplier in ("F16", "Bf16") else 4
    lie = zip((product.left, product.entries), arrays[:2], tile, strict=True)
    types = arrays[1], out, *tile, *(_read(at_once, *one) for one in lie), product.where, multiplier
    mask = pooled = which = None  # optional arguments that cuda.fusion sets
    arrays = *arrays[:3], mask, out, pooled, which, left_sums, *partial_args
    launch_blocks("implicit.cu", "implicit", grid, types, *arrays, *args)


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


@functools.lru_cache(4096)
def _share(
    rows: int, columns: int, depth: int, products: int, size: int, most: int, multiplier: str
) -> tuple[tuple[int, int], int]:
    """Returns the tile of sums, each of `size` bytes, that a thread keeps, and into how many parts of the
    depth, at most `most`, the sums are divided; those with the least time by COSTS.

    A tile has at most twice the rows. Blocks run in turns of PAIRS a multiprocessor; few turns are rounded up.
    """
    most = max(1, min(most, depth // (4 * UNIT)))
    tiles = SMALL if size == 8 else (*SMALL, *LARGE)
    best = (math.inf, (2, 2), 1)
    for tm, tn in tiles if multiplier == "Fma" else [tile for tile in tiles if tile[0] > 1]:
        if 16 * tm > max(32, 2 * rows):
            continue
        blocks = -(-rows // (16 * tm)) * -(-columns // (16 * tn)) * products
        *times, block_us, part_us = COSTS[multiplier]
        alone, beside = (a + b * (tm + tn) + c * tm * tn for a, b, c in times)
        for parts in (1, *PARTS):
            if parts > most or (parts > 1 and blocks * _sums(parts) > COUNTERS):
                break
            turns, rest = divmod(blocks * parts, PAIRS * MULTIPROCESSORS)
            slabs = -(-depth // (2 * UNIT)) / parts
            two = slabs * max(alone, beside) + block_us
            us = (turns + rest / (PAIRS * MULTIPROCESSORS)) * two
            if turns < 2:
                last = two if rest > MULTIPROCESSORS else slabs * alone + block_us
                us = turns * two + (last if rest else 0)
            if parts > 1:
                us += part_us + ENTRY_US * rows * columns * products * parts
            best = min(best, (us, (tm, tn), parts))
    return best[1:]
