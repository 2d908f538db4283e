"""The definition, one kernel element at a time: no column matrix.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

The reference of all other engines. As compiled loops, rows of pixels times one weight, it is also the quick
one where a group has few channels and filters, for there is nothing a GEMM could reuse; of one each, with
stride 1 (depthwise), loops keep tiles of outputs in registers. Without loops it is `definition`.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.cpu import loops, no_bias
from minicaffe.cpu.threads import Piece, share
from minicaffe.cuda.launch import launch
from minicaffe.ops.conv import reference
from minicaffe.ops.conv.common import add_partial_sums, by_samples, is_depthwise, partial_sums
from minicaffe.ops.conv.engine import Engine
from minicaffe.ops.geometry import ConvGeometry, lift
from minicaffe.replay.dispatch import run
from minicaffe.replay.trace import do

LANES = 16  # of a vector, at the most


class Direct(Engine):
    """The definition, by loops without a column matrix."""

    name = "direct"
    traced = True
    rule_rank = 3
    tie_rank = 3

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs: partial sums of dweight; two planes if depthwise, within the limit."""
        sums, room = math.prod(g.weight_shape), max(_room(g), _room(g, back=True))
        return sums + room if room <= limit else sums

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs for `forward`."""
        return _room(g) if _room(g) <= limit else 0

    def cuda_workspace(self, g: ConvGeometry, limit: int, size: int) -> int:
        """On CUDA a thread is all that an entry needs."""
        return 0

    def is_compiled(self, dtype: Any) -> bool:
        """Whether loops serve arrays of a type."""
        return loops("direct", dtype) is not None

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = weight * x + bias, into `out`."""
        if on_cuda(x):
            launch("direct.cu", "conv", out.size, out, x, weight, bias, *_sizes(g), out)
            return out
        fast = loops("direct", x.dtype)
        if fast is not None:
            given = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
            if (deep := _depthwise(x, g, work)) is not None:
                to = out.reshape(-1), _planes(g), False, Piece(work)
                run(deep.forward, g.n * g.c, *given, *to)
                return out
            run(fast.forward, g.n * g.f, *given, out.reshape(-1), _lifted(g))
            return out

        def part(first: int, last: int, _: Any) -> None:
            do(reference.forward, x[first:last], weight, bias, g, out=out[first:last])

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dx: each output's gradient goes back to the pixels it saw, times their weights; into `out`."""
        if on_cuda(dy):
            launch("direct.cu", "conv_input_gradient", out.size, out, dy, weight, *_sizes(g), out)
            return out
        fast = loops("direct", dy.dtype)
        if fast is not None:
            if (deep := _depthwise(dy, g, work, back=True)) is not None:
                given = dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype)
                to = out.reshape(-1), _planes(g, back=True), True, Piece(work)
                run(deep.forward, g.n * g.c, *given, *to)
                return out
            given = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
            run(fast.input_gradient, g.n * g.c, *given, _lifted(g))
            return out

        def part(first: int, last: int, _: Any) -> None:
            do(reference.input_gradient, dy[first:last], weight, g, out=out[first:last])

        by_samples(part, g, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dweight: for each weight the sum of output gradients times the pixels it met; added to `out`."""
        if on_cuda(x):
            launch("direct.cu", "conv_weight_gradient", out.size, out, x, dy, *_sizes(g), out)
            return out
        fast = loops("direct", dy.dtype)
        if fast is not None:
            given = x.reshape(-1), dy.reshape(-1), g.n, out.reshape(-1)
            if (deep := _depthwise(dy, g, work)) is not None:
                run(deep.weight_gradient, g.c, *given, _planes(g), Piece(work))
                return out
            run(fast.weight_gradient, g.f, *given, _lifted(g))
            return out

        def part(first: int, last: int, work: Any) -> None:
            sums = partial_sums(work, g).reshape(g.weight_shape)
            do(reference.weight_gradient, x[first:last], dy[first:last], g, out=sums)

        add_partial_sums(by_samples(part, g, work), out)
        return out


def _depthwise(x: Any, g: ConvGeometry, work: Any, back: bool = False) -> Any:
    """The loops for it, if it is depthwise and each thread has room for its planes."""
    able = is_depthwise(g) and work is not None and work.size // share(work) >= _room(g, back)
    return loops("depthwise", x.dtype) if able else None


def _planes(g: ConvGeometry, back: bool = False) -> tuple[Any, ...]:
    """What loops are told of y, or of dx, a convolution of dy: channels, and sizes along two axes."""
    kernel, _, pad, dilation = (sizes[1:] for sizes in g.window.lifted())
    image, out = lift(g.image)[1:], lift(g.out)[1:]
    if back:
        far = tuple((k - 1) * d - p for k, d, p in zip(kernel, dilation, pad, strict=True))
        return g.c, out, kernel, far, dilation, image
    return g.c, image, kernel, pad, dilation, out


def _room(g: ConvGeometry, back: bool = False) -> int:
    """Elements for a plane that is padded, and for one of dy, in rows of whole vectors; 0 if not depthwise."""
    if not is_depthwise(g):
        return 0
    _, _, kernel, _, dilation, (rows, columns) = _planes(g, back)
    down, right = ((k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    wide = columns + LANES - 1
    return (rows + down) * (wide + right) + rows * wide


def _lifted(g: ConvGeometry) -> tuple[Any, ...]:
    return g.c, g.f, g.group, lift(g.image), g.window.lifted(), lift(g.out)


def _sizes(g: ConvGeometry) -> tuple[int, ...]:
    kernel, stride, pad, dilation = g.window.lifted()
    parts = (lift(g.image), kernel, pad, stride, dilation, lift(g.out))
    return (g.n, g.c, g.f, g.group, *(size for part in parts for size in part))
