"""Direct convolution by compiled loops: rows of pixels times one weight, and planes if it is depthwise.

A depthwise convolution (one channel and one filter in a group) has loops of its own, which keep tiles of
outputs in registers (backends/cpu/kernels/depthwise.py). Source: A. Howard et al., MobileNets, 2017.
"""

import functools
import itertools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.conv.strips import adjoint
from minicaffe.backends.cpu.ops import row
from minicaffe.backends.cpu.threads import run, share
from minicaffe.core.ops.geometry import ConvGeometry, lift

LANES = 16  # numbers of a vector, at most


def fits(g: ConvGeometry, work: Any, back: bool = False) -> bool:
    """True if it is depthwise, and each thread has the workspace for its planes."""
    return g.is_depthwise and work is not None and work.size // share() >= elements(g, back)


@functools.lru_cache(maxsize=1024)
def elements(g: ConvGeometry, back: bool = False) -> int:
    """Returns the elements of work of one thread; 0 if it is not depthwise."""
    if not g.is_depthwise:
        return 0
    if back and max(g.window.stride) > 1:
        size, _, jobs, _ = _back(g)
        most = max((rows * columns for _, rows, _, columns, *_ in jobs), default=0)
        return math.prod(size) + most
    (*_, (_, step), _, _, (oh, ow), _), (rows, columns), _ = _tables(g, back)
    wide = ow + LANES - 1
    return step * rows * (columns + wide + -ow // LANES * LANES) + oh * wide


@functools.lru_cache(maxsize=1024)
def _tables(g: ConvGeometry, back: bool = False) -> tuple[Any, ...]:
    """Returns `numbers`, `size` and `taps` of the depthwise loops; for dx without strides with `back`.

    `size` are rows and columns of each plane of x, of which vectors are read.
    """
    g = adjoint(g) if back else g
    kernel, stride, pad, dilation = (sizes[1:] for sizes in g.window.lifted())
    image, out = lift(g.image)[1:], lift(g.out)[1:]
    (kh, kw), (sh, sw), (dh, dw), (oh, ow) = kernel, stride, dilation, out
    rows = (oh - 1) * sh + (kh - 1) * dh + 1
    columns = -(-ow // LANES) * LANES + (kw - 1) * dw // sw
    at = [(j * dw % sw * rows + i * dh) * columns + j * dw // sw for i, j in np.ndindex(kh, kw)]
    order = reversed(range(kh * kw)) if back else range(kh * kw)
    taps = np.array([*zip(order, at, strict=True)], np.int64)
    return (g.c, image, kernel, stride, pad, dilation, out, back), (rows, columns), taps


@functools.lru_cache(maxsize=1024)
def _back(g: ConvGeometry) -> tuple[Any, ...]:
    """Returns of dx: size of the plane of dy, its corner, jobs and taps."""
    kernel, stride, pad, dilation = (sizes[1:] for sizes in g.window.lifted())
    image, out = lift(g.image)[1:], lift(g.out)[1:]
    along, corner, size = [], [], []
    for k, s, p, d, pixels, places in zip(kernel, stride, pad, dilation, image, out, strict=True):
        far, reach, runs = (k - 1) * d // s, 0, []
        for q in range(s):
            first = -((q - p) // s) if q < p else 0  # of the pixels q + s P, padded
            count = (pixels - 1 + p - q) // s + 1 - first
            if count > 0:
                taps = [(t, far - t * d // s) for t in range(k) if t * d % s == q]
                runs.append((q + s * first - p, count, first, taps))
                reach = max(reach, first + count + far)
        along.append(runs)
        corner.append(far)
        size.append(max(reach, places + far))
    columns = size[1] + LANES - 1
    jobs: list[tuple[int, ...]] = []
    table: list[tuple[int, int]] = []
    for (line, lines, top, of_rows), (column, wide, left, of_columns) in itertools.product(*along):
        begin = len(table)
        for (i, down), (j, right) in itertools.product(of_rows, of_columns):
            table.append((i * kernel[1] + j, down * columns + right))
        jobs.append((line, lines, column, wide, top * columns + left, begin, len(table)))
    both = np.array(jobs, np.int64).reshape(-1, 7), np.array(table, np.int64).reshape(-1, 2)
    return (size[0], columns), tuple(corner), *both


@row("direct.forward", work=elements)
def forward(compiled, x, weight, bias, g, out, work):
    arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    to = no_epilogue(out)
    if fits(g, work):
        run(_depthwise(x).forward, g.n * g.c, *to, *arrays, *_tables(g), Piece(work))
    else:
        run(compiled.forward, g.n * g.f, *to, *arrays, _lifted(g))


@row("direct.input_gradient", work=functools.partial(elements, back=True))
def input_gradient(compiled, dy, weight, g, out, work):
    arrays = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
    if not fits(g, work, back=True):
        run(compiled.input_gradient, g.n * g.c, *arrays, _lifted(g))
    elif max(g.window.stride) > 1:
        args = *arrays, _tables(g)[0], *_back(g), Piece(work)
        run(_depthwise(dy).input_gradient, g.n * g.c, *args)
    else:
        args = *arrays[:2], no_bias(dy.dtype), *_tables(g, back=True), Piece(work)
        run(_depthwise(dy).forward, g.n * g.c, *no_epilogue(out), *args)


@row("direct.weight_gradient")
def weight_gradient(compiled, x, dy, g, out, work):
    arrays = x.reshape(-1), dy.reshape(-1), g.n, out.reshape(-1)
    if fits(g, work):
        run(_depthwise(x).weight_gradient, g.c, *arrays, *_tables(g), Piece(work))
    else:
        run(compiled.weight_gradient, g.f, *arrays, _lifted(g))


def _depthwise(like: Any) -> Any:
    return loops("depthwise", like.dtype)


def _lifted(g: ConvGeometry) -> tuple[Any, ...]:
    """Arguments of the direct loops: c, f, group, and the sizes along three axes."""
    return g.c, g.f, g.group, lift(g.image), g.window.lifted(), lift(g.out)
