"""The memory of a net: how much it needs, and taking it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from minicaffe.graph import Value
from minicaffe.layers import Blob

if TYPE_CHECKING:
    from minicaffe.net import Net


def check_memory(net: Net) -> None:
    """Raise ShapeError if the device cannot hold a net's blobs, parameters and workspace."""
    values = [v for step in net.steps for v in step.tops if v.reuses is None]
    count = sum(math.prod(v.shape) * (2 if v.gets_gradient else 1) for v in values)
    count += sum(2 * param.size for param in net.learnable) + net.context.workspace_size
    net.device.check_fits(
        count * net.context.dtype.itemsize, f"{net.spec.layers[0].mark.file}: the net"
    )


def allocate(net: Net) -> None:
    """Take every blob and every layer's own buffers."""
    net.blobs.clear()
    net.first_blobs.clear()
    scratch = 0
    for step in net.steps:
        for value in step.tops:
            fresh = Blob(value.shape, net.device, net.context.dtype)
            value.blob = fresh if value.reuses is None else value.reuses.blob
            net.blobs[value.name] = value.blob
            net.first_blobs.setdefault(value.name, value.blob)
        step.layer.out = [value.blob.data for value in step.tops]
        step.layer.grad = [None] * len(step.bottoms)
        with step.named():
            step.layer.allocate()
        needed = zip(step.bottoms, step.layer.needs_gradient, strict=True)
        scratch = max(scratch, sum(v.blob.size for v, needs in needed if needs and _may_add(v)))
    net.scratch = net.device.xp.empty(scratch, net.context.dtype)
    net.term = net.device.xp.empty((), net.context.dtype)
    net.losses = [v for step in net.steps for v in step.tops if v.loss_weight]


def _may_add(value: Value) -> bool:
    """Whether a gradient may have to be added to one that is there."""
    return len(value.consumers) > 1 or bool(value.loss_weight)
