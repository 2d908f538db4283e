"""The definition itself, in NumPy: for each element of the kernel a product of its weights and what it sees.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

What the planner holds engines against, in float64, and the form of `direct` where there are no loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.ops.geometry import ConvGeometry


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any) -> Any:
    """y of some samples, into `out`."""
    out[:] = 0 if bias is None else bias.reshape(-1, *[1] * len(g.image))
    y, seen = _grouped(out, g), _grouped(x, g)
    for w, places, pixels in _elements(weight, g):
        y[places] += (w @ _flat(seen[pixels])).reshape(y[places].shape)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any) -> Any:
    """dx of some samples: each output's gradient goes back to the pixels it saw; into `out`."""
    out[:] = 0
    dx, seen = _grouped(out, g), _grouped(dy, g)
    for w, places, pixels in _elements(weight, g):
        dx[pixels] += (w.swapaxes(1, 2) @ _flat(seen[places])).reshape(dx[pixels].shape)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any) -> Any:
    """dweight: for each weight the sum of output gradients times the pixels it met; added to `out`."""
    there, seen = _grouped(dy, g), _grouped(x, g)
    for w, places, pixels in _elements(out, g):
        w += (_flat(there[places]) @ _flat(seen[pixels]).swapaxes(2, 3)).sum(0)
    return out


def _grouped(blob: Any, g: ConvGeometry) -> Any:
    """(s, group, channels of one, *sizes)."""
    n, c, *sizes = blob.shape
    return blob.reshape(n, g.group, c // g.group, *sizes)


def _flat(some: Any) -> Any:
    """(s, group, channels, places)."""
    return np.ascontiguousarray(some).reshape(*some.shape[:3], -1)


def _elements(weight: Any, g: ConvGeometry) -> Iterator[Any]:
    """For each kernel element: its weights (g, f/g, c/g), where in y it is used, and what of x it sees."""
    w, lead = weight.reshape(g.group, -1, *g.weight_shape[1:]), (slice(None),) * 3
    for element, places, pixels in g.window.elements(g.image, g.out):
        yield w[lead + element], lead + places, lead + pixels
