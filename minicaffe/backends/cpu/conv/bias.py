"""The bias of a convolution, and its gradient, by compiled loops."""

from __future__ import annotations

import math

from minicaffe.backends.cpu.conv.rows import row
from minicaffe.backends.cpu.run import run


@row("common.add_bias", "filters")
def add_bias(compiled, bias, out):
    if bias is not None:
        n, f, *sizes = out.shape
        run(compiled.add_bias, n * f, bias, f, math.prod(sizes), out.reshape(-1))


@row("common.bias_gradient", "filters")
def bias_gradient(compiled, dy, g, out):
    run(compiled.bias_gradient, g.f, dy.reshape(-1), g.n, g.f, g.places, out)
