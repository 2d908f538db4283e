"""Direct convolution, one kernel element at a time, without a column matrix.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

All other engines are compared with it. A compiled loop multiplies rows of pixels by one weight; this is also
fast if a group has few channels and filters, because a GEMM could then reuse nothing. A depthwise convolution
(one channel and one filter in a group) has loops of its own, with and without strides, which keep tiles of
outputs in registers. Without compiled loops the engine is `reference`.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.backends.cpu import loops, no_bias, no_epilogue
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.core.ops.conv import depthwise, reference
from minicaffe.core.ops.conv.common import add_partial_sums, by_samples, partial_sums
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.geometry import ConvGeometry, lift


class Direct(Engine):
    """The definition as loops, without a column matrix."""

    name = "direct"
    traced = True
    rule_rank = 3
    tie_rank = 3

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: partial sums of dweight, and two planes if depthwise."""
        planes = max(depthwise.elements(g), depthwise.elements(g, back=True))
        return math.prod(g.weight_shape) + (planes if planes <= limit else 0)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: two planes if depthwise, within `limit`."""
        return depthwise.elements(g) if depthwise.elements(g) <= limit else 0

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns 0: a CUDA thread computes one entry alone."""
        return 0

    def is_compiled(self, dtype: Any) -> bool:
        """Whether there are compiled loops for a type."""
        return loops("direct", dtype) is not None

    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        if on_cuda(x):
            launch("direct.cu", "conv", out.size, out, x, weight, bias, *_sizes(g), out)
            return out
        kernels = loops("direct", x.dtype)
        if kernels is not None:
            arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
            to = no_epilogue(g.f, math.prod(g.out)), out.reshape(-1)
            if depthwise.fits(g, work):
                depthwise.forward(arrays, g, to, work)
            else:
                run(kernels.forward, g.n * g.f, *to, *arrays, _lifted(g))
            return out

        def part(first: int, last: int, _: Any) -> None:
            reference.forward(x[first:last], weight, bias, g, out[first:last])

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx to `out`: each dy, times its weights, goes back to the pixels its output read."""
        if on_cuda(dy):
            launch("direct.cu", "conv_input_gradient", out.size, out, dy, weight, *_sizes(g), out)
            return out
        kernels = loops("direct", dy.dtype)
        if kernels is not None:
            arrays = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
            if depthwise.fits(g, work, back=True):
                depthwise.input_gradient(arrays, g, work)
            else:
                run(kernels.input_gradient, g.n * g.c, *arrays, _lifted(g))
            return out

        def part(first: int, last: int, _: Any) -> None:
            reference.input_gradient(dy[first:last], weight, g, out[first:last])

        by_samples(part, g, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight, for each weight the sum of dy times the pixels it met, to `out`, and returns it."""
        if on_cuda(x):
            launch("direct.cu", "conv_weight_gradient", out.size, out, x, dy, *_sizes(g), out)
            return out
        kernels = loops("direct", dy.dtype)
        if kernels is not None:
            arrays = x.reshape(-1), dy.reshape(-1), g.n, out.reshape(-1)
            if depthwise.fits(g, work):
                depthwise.weight_gradient(arrays, g, work)
            else:
                run(kernels.weight_gradient, g.f, *arrays, _lifted(g))
            return out

        def part(first: int, last: int, work: Any) -> None:
            sums = partial_sums(work, g).reshape(g.weight_shape)
            reference.weight_gradient(x[first:last], dy[first:last], g, sums)

        add_partial_sums(by_samples(part, g, work), out)
        return out


def _lifted(g: ConvGeometry) -> tuple[Any, ...]:
    """Arguments of the direct loops: c, f, group, and the sizes along three axes."""
    return g.c, g.f, g.group, lift(g.image), g.window.lifted(), lift(g.out)


def _sizes(g: ConvGeometry) -> tuple[int, ...]:
    """Arguments of the CUDA kernels: the same, flat, with n in front."""
    kernel, stride, pad, dilation = g.window.lifted()
    parts = (lift(g.image), kernel, pad, stride, dilation, lift(g.out))
    return (g.n, g.c, g.f, g.group, *(size for part in parts for size in part))
