"""The definition in NumPy: for each kernel element, its weights times the pixels that it meets, summed.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

The autotuner compares every engine with this, in float64. It is `direct` without compiled loops.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.geometry import ConvGeometry


@op()
def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any) -> Any:
    """Writes y of the samples in x to `out` (s, f, *out), and returns it."""
    out[:] = 0 if bias is None else bias.reshape(-1, *[1] * len(g.image))
    y, x = _grouped(out, g), _grouped(x, g)
    for w, places, pixels in _elements(weight, g):
        y[places] += (w @ _flat(x[pixels])).reshape(y[places].shape)


@op()
def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any) -> Any:
    """Writes dx to `out` (s, c, *image): each dy goes back to the pixels its output read; returns it."""
    out[:] = 0
    dx, dy = _grouped(out, g), _grouped(dy, g)
    for w, places, pixels in _elements(weight, g):
        dx[pixels] += (w.swapaxes(1, 2) @ _flat(dy[places])).reshape(dx[pixels].shape)


@op()
def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any) -> Any:
    """Adds dweight, for each weight the sum of dy times the pixels it met, to `out`, and returns it."""
    dy, x = _grouped(dy, g), _grouped(x, g)
    for w, places, pixels in _elements(out, g):
        w += (_flat(dy[places]) @ _flat(x[pixels]).swapaxes(2, 3)).sum(0)


def _grouped(blob: Any, g: ConvGeometry) -> Any:
    """A view (s, group, channels of a group, *sizes)."""
    n, c, *sizes = blob.shape
    return blob.reshape(n, g.group, c // g.group, *sizes)


def _flat(block: Any) -> Any:
    """A copy of a block (s, group, channels, *sizes) as (s, group, channels, places)."""
    return np.ascontiguousarray(block).reshape(*block.shape[:3], -1)


def _elements(weight: Any, g: ConvGeometry) -> Iterator[Any]:
    """For each kernel element: its weights (group, f/group, c/group), and its index into y and into x."""
    w, lead = weight.reshape(g.group, -1, *g.weight_shape[1:]), (slice(None),) * 3
    for element, places, pixels in g.window.elements(g.image, g.out):
        yield w[lead + element], lead + places, lead + pixels
