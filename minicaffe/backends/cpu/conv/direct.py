"""Direct convolution by compiled loops: rows of pixels times one weight, and planes if it is depthwise.

A depthwise convolution (one channel and one filter in a group) has loops of its own, with and without strides,
which keep tiles of outputs in registers: see `depthwise`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from minicaffe.backends.cpu import no_bias, no_epilogue
from minicaffe.backends.cpu.conv import depthwise
from minicaffe.backends.cpu.conv.rows import row
from minicaffe.backends.cpu.run import run
from minicaffe.core.ops.geometry import ConvGeometry, lift


@row("direct.forward", work=depthwise.elements)
def forward(compiled, x, weight, bias, g, out, work):
    arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    to = no_epilogue(g.f, math.prod(g.out)), out.reshape(-1)
    if depthwise.fits(g, work):
        depthwise.forward(arrays, g, to, work)
    else:
        run(compiled.forward, g.n * g.f, *to, *arrays, _lifted(g))


@row("direct.input_gradient", work=functools.partial(depthwise.elements, back=True))
def input_gradient(compiled, dy, weight, g, out, work):
    arrays = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
    if depthwise.fits(g, work, back=True):
        depthwise.input_gradient(arrays, g, work)
    else:
        run(compiled.input_gradient, g.n * g.c, *arrays, _lifted(g))


@row("direct.weight_gradient")
def weight_gradient(compiled, x, dy, g, out, work):
    arrays = x.reshape(-1), dy.reshape(-1), g.n, out.reshape(-1)
    if depthwise.fits(g, work):
        depthwise.weight_gradient(arrays, g, work)
    else:
        run(compiled.weight_gradient, g.f, *arrays, _lifted(g))


def _lifted(g: ConvGeometry) -> tuple[Any, ...]:
    """Arguments of the direct loops: c, f, group, and the sizes along three axes."""
    return g.c, g.f, g.group, lift(g.image), g.window.lifted(), lift(g.out)
