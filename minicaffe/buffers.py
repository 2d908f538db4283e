"""The memory of a net: how much it needs, taking it, and taking it anew for other shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.errors import MinicaffeError, ShapeError
from minicaffe.graph import Value, infer_shapes
from minicaffe.layers import Blob
from minicaffe.layers.blob import Shape

if TYPE_CHECKING:
    from minicaffe.net import Net


def check_memory(net: Net) -> None:
    """Raise ShapeError if the device cannot hold a net's blobs, parameters and workspace.

    A convolution's work is known when its layer has been allocated.
    """
    values = [v for step in net.steps for v in step.tops if v.reuses is None]
    size = sum(
        math.prod(v.shape) * (2 if v.gets_gradient else 1) * v.dtype.itemsize for v in values
    )
    count = sum(2 * param.size for param in net.learnable) + net.context.workspace_size
    size += count * net.context.dtype.itemsize
    net.device.check_fits(size, f"{net.spec.layers[0].mark.file}: the net")


def allocate(net: Net) -> None:
    """Take every blob and every layer's own buffers. Raises ShapeError if the work does not fit."""
    net.blobs.clear()
    net.first_blobs.clear()
    scratch = 0
    for step in net.steps:
        for value in step.tops:
            fresh = Blob(value.shape, net.device, value.dtype)
            value.blob = fresh if value.reuses is None else value.reuses.blob
            net.blobs[value.name] = value.blob
            net.first_blobs.setdefault(value.name, value.blob)
        step.layer.out = [value.blob.data for value in step.tops]
        step.layer.grad = [None] * len(step.bottoms)
        with step.named():
            step.layer.allocate()
        needed = zip(step.bottoms, step.layer.needs_gradient, strict=True)
        scratch = max(scratch, sum(v.blob.size for v, needs in needed if needs and _may_add(v)))
    check_memory(net)
    net.scratch = net.device.xp.empty(scratch, net.context.dtype)
    net.losses = [v for step in net.steps for v in step.tops if v.loss_weight]


def reshape(net: Net, shapes: Mapping[str, Shape]) -> None:
    """Give Input blobs new shapes. Raises ShapeError, and leaves the net as it was, if they do not fit."""
    values = {v.name: v for s in net.steps for v in s.tops if s.spec.type == "Input"}
    for name, shape in shapes.items():
        if name not in values:
            raise ShapeError(f"{name!r} is not a top of an Input layer")
        if not all(isinstance(size, (int, np.integer)) and size > 0 for size in shape):
            raise ShapeError(f"{name}: expected a shape of integers of at least 1, got {shape}")
    before = {name: values[name].shape for name in shapes}
    work, taken = net.context.workspace_size, False
    try:
        _infer(net, values, shapes)
        check_memory(net)
        taken = bool(net.blobs)  # not where only shapes were asked for
        if taken:
            allocate(net)
    except MinicaffeError:
        _infer(net, values, before)
        net.context.workspace_size = work
        if taken:
            allocate(net)
        raise


def _infer(net: Net, values: Mapping[str, Value], shapes: Mapping[str, Shape]) -> None:
    for name, shape in shapes.items():
        inputs: Any = values[name].producer.layer
        inputs.resize(name, tuple(int(size) for size in shape))
    net.context.workspace_size = 0
    infer_shapes(net.steps)


def _may_add(value: Value) -> bool:
    """Whether a gradient may have to be added to one that is there."""
    return len(value.consumers) > 1 or bool(value.loss_weight)
