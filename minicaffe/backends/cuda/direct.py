"""The direct convolution on CUDA: by its definition, and depthwise by kernels that read each number once.

kernels/direct.cu is the definition, of any window; in float64 it decides what is right. kernels/depthwise.cu
is for a kernel of each channel, of the usual windows, in float32 and 16 bits.
"""

import itertools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cuda.capture import COUNTERS, arrived
from minicaffe.backends.cuda.device import multiprocessors
from minicaffe.backends.cuda.launch import THREADS, in_sum_type, launch, launch_blocks, launch_typed
from minicaffe.core.ops.geometry import lift

ROWS = 4  # of outputs, that a thread has one below the other
KERNELS, STRIDES = ((3, 3), (5, 5)), ((1, 1), (2, 2))  # whose window finds room in registers
BLOCKS, EACH = 4, 2  # of a multiprocessor, and columns of each thread, that are enough


def workspace(g: Any, limit: int, size: int = 4) -> int:
    """Returns the elements, of `size` bytes, for partial sums by which blocks share dweight: faster."""
    import cupy

    sums = math.prod(g.weight_shape) * (2 if size == 2 else 1)
    parts = _parts(g, cupy.cuda.Device().id, limit // max(1, sums)) if _usual(g) and size < 8 else 1
    return sums * parts if parts > 1 else 0


def forward(x: Any, weight: Any, bias: Any, g: Any, out: Any) -> None:
    """y = weight * x + bias, into `out`."""
    if _depthwise(g, x):
        total = g.n * g.c * _strips(g.out[0]) * g.out[1]
        args = x, weight, bias, *_planes(g), _strips(g.out[0]), out
        launch_typed("depthwise", total, _types(g, x), *args)
    else:
        launch("conv", out.size, out, x, weight, bias, *_sizes(g), out)


def input_gradient(dy: Any, weight: Any, g: Any, out: Any) -> None:
    """dx = weight' * dy, into `out`."""
    if not _depthwise(g, dy):
        launch("conv_input_gradient", out.size, out, dy, weight, *_sizes(g), out)
        return
    stride, pads = g.window.stride[0], g.window.pad
    first = [pad // stride for pad in pads]
    sizes = zip(g.image, pads, first, strict=True)
    down, across = ((size - 1 + pad) // stride - place + 1 for size, pad, place in sizes)
    args = dy, weight, *_planes(g), *first, across, _strips(down), out
    launch_typed(
        "depthwise_input_gradient", g.n * g.c * _strips(down) * across, _types(g, dy), *args
    )


def weight_gradient(x: Any, dy: Any, g: Any, out: Any, work: Any) -> None:
    """dweight = dy * x, added to `out`; with `work` more blocks share it."""
    if not _depthwise(g, x):
        launch("conv_weight_gradient", out.size, out, x, dy, *_sizes(g), out)
        return
    partials = in_sum_type(work, out)
    parts = _parts(g, x.device.id, partials.size // max(1, out.size))
    shared = (partials, arrived()) if parts > 1 else (None, None)
    args = x, dy, g.n, *_planes(g), _strips(g.out[0]), *shared, out
    launch_blocks("depthwise_weight_gradient", (g.c, parts), _types(g, x), *args)


def _usual(g: Any) -> bool:
    window = g.window
    if not g.is_depthwise or window.kernel not in KERNELS or window.stride not in STRIDES:
        return False
    return window.dilation == (1, 1) and g.c > 0 and math.prod(g.image) > 0


def _depthwise(g: Any, array: Any) -> bool:
    return _usual(g) and array.dtype != np.float64


def _parts(g: Any, number: int, most: int) -> int:
    """Into how many parts a channel's columns are divided, of which `most` find room."""
    columns = g.n * _strips(g.out[0]) * g.out[1]
    enough = min(-(-BLOCKS * multiprocessors(number) // g.c), columns // (EACH * THREADS), most)
    return max(1, enough) if g.c <= COUNTERS else 1


def _strips(rows: int) -> int:
    return -(-rows // ROWS)


def _types(g: Any, array: Any) -> tuple[Any, ...]:
    return array, g.window.kernel[0], g.window.stride[0]


def _planes(g: Any) -> tuple[int, ...]:
    return (g.c, *g.image, *g.window.pad, *g.out)


def _sizes(g: Any) -> tuple[int, ...]:
    """n, c, f, group, and the sizes of image, kernel, pad, stride, dilation and out along three axes."""
    kernel, stride, pad, dilation = g.window.lifted()
    parts = lift(g.image), kernel, pad, stride, dilation, lift(g.out)
    return (g.n, g.c, g.f, g.group, *itertools.chain(*parts))
