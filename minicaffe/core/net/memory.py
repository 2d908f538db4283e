"""The memory of a net: how much it needs, and how it is allocated, also for new shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import Blob, Context
from minicaffe.core.layers.blob import Shape
from minicaffe.core.net.graph import Graph, infer_shapes
from minicaffe.core.net.sharing import Sharing
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import ByName, MinicaffeError, ShapeError, SpecError, did_you_mean

NONE: Mapping[Value, Any] = MappingProxyType({})


class Memory:
    """The blobs of a net by name, and its scratch memory. `keep` is as in Net."""

    def __init__(self, graph: Graph, keep: tuple[str, ...] | None):
        self.keep, self.sharing = keep, Sharing(graph, keep)
        self.blobs: dict[str, Blob] = ByName("blob")
        self.first_blobs: dict[str, Blob] = ByName("blob")  # before work in place
        self.scratch: Any = None  # for gradients that are added to others
        self.fits: int | None = None  # how many layers have the current shapes; None: all

    def check_taken(self) -> None:
        """Raise ShapeError if none is allocated: in a net with `shapes_only`."""
        if not self.blobs:
            raise ShapeError("the net has shapes only: it holds no numbers and computes nothing")

    def take(self, graph: Graph, first: int = 0, given: Mapping[Value, Any] = NONE) -> None:
        """Allocate the blobs and layers' own buffers, from step `first` on, of the layers that fit.

        Arrays `given` are used as the data of their values. Raises ShapeError if the memory does not suffice.
        """
        xp, context, scratch = graph.context.device.xp, graph.context, 0
        if not first:
            self.sharing.take()
        for i, step in enumerate(graph.steps[: self.fits]):
            added = 0
            if i >= first:
                self._take(step, context, given)
            for value, needs in zip(step.bottoms, step.layer.needs_gradient, strict=True):
                if needs and (value.readers > 1 or value.loss_weight):  # it may have to be added
                    added += value.blob.size
            scratch = max(scratch, added)
        check(graph, self.sharing)
        if self.scratch is None or self.scratch.size < scratch or not first:
            self.scratch = aligned.empty(xp, scratch, context.dtype)
        self.name_blobs(graph)

    def name_blobs(self, graph: Graph) -> None:
        """Set the blobs by their names."""
        self.blobs.clear()
        self.first_blobs.clear()
        for step in graph.steps:
            for value in step.tops:
                self.blobs[value.name] = shown = self.sharing.shown(value)
                self.first_blobs.setdefault(value.name, shown)

    def _take(self, step: Step, context: Context, given: Mapping[Value, Any]) -> None:
        for value in step.tops:
            fresh = Blob(value.shape, context.device, value.dtype)
            if value in given:
                fresh.lie_in(given[value])
            value.blob = fresh if value.reuses is None else value.reuses.blob
            self.sharing.lend(value)
        step.layer.out = [value.blob.data for value in step.tops]
        step.layer.grad = [None] * len(step.bottoms)
        step.ran = False
        with step.named():
            step.layer.allocate()
            context.taken += 1


def names(spec: NetSpec, keep: Any) -> tuple[str, ...] | None:
    """The names of blobs to keep; some layer, in any phase, writes each. Raises SpecError."""
    if keep is None:
        return None
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise SpecError(f"keep: expected a list of names of blobs, got {keep!r}")
    kept = tuple(keep)
    known = {name: None for layer in spec.layers for name in layer.tops}
    for name in kept:
        if not isinstance(name, str) or name not in known:
            raise SpecError(f"keep: there is no blob {name!r}{did_you_mean(str(name), known)}")
    return kept


def fit(graph: Graph, memory: Memory, step: Step, arrays: Sequence[Any]) -> None:
    """Use the arrays that a layer has just returned as its tops, and reshape the layers after it.

    For layers whose `sizes_vary`. If a size has changed since the last pass, the layers after it are
    allocated again. Raises ShapeError, and leaves the net in its largest size, if they refuse the size.
    """
    if [array.shape for array in arrays] == [value.shape for value in step.tops]:
        return
    behind = graph.steps.index(step) + 1
    try:
        for value, array in zip(step.tops, arrays, strict=True):
            value.shape = array.shape
            value.blob = Blob(value.shape, graph.context.device, value.dtype)
            value.blob.lie_in(array)
        infer_shapes(graph.steps[behind:])
        memory.take(graph, behind)
    except (MinicaffeError, MemoryError):
        infer_shapes(graph.steps)
        memory.take(graph)
        raise


def check(graph: Graph, sharing: Sharing) -> None:
    """Raise ShapeError if the device cannot hold a net's blobs, parameters and workspace.

    A convolution's workspace is known when its layer has been allocated.
    """
    context = graph.context
    copies = 1 if context.forward_only else 2
    count = sum(copies * param.size for param in graph.learnable) + context.workspace_size
    size = sharing.after + count * context.dtype.itemsize
    context.device.check_fits(size, f"{graph.file}: the net")


def reshape(
    graph: Graph,
    memory: Memory,
    shapes: Mapping[str, Shape],
    fits: int | None = None,
    given: Mapping[Value, Any] = NONE,
) -> None:
    """Set new shapes of blobs. Raises ShapeError, and leaves the net unchanged, if they do not fit.

    With `fits` only that many layers are reshaped; those above are unchanged, and cannot run before `extend`.
    `given` are arrays for the data of values.
    """
    values = resizable(graph)
    if graph.context.share.size > 1:
        raise ShapeError("a net of several ranks keeps its shapes: each has its part of them")
    for name, shape in shapes.items():
        if name not in values:
            hint = did_you_mean(name, values)
            raise ShapeError(f"{name!r} is not a top of an Input or Data layer{hint}")
        sizes = shape if isinstance(shape, (tuple, list)) else (None,)
        if not all(
            type(n) is not bool and isinstance(n, (int, np.integer)) and n > 0 for n in sizes
        ):
            raise ShapeError(f"{name}: expected a shape of integers of at least 1, got {shape}")
    before = {name: values[name].shape for name in shapes}
    work, sharing, taken = graph.context.workspace_size, memory.sharing, False
    had, memory.fits = memory.fits, fits
    try:
        _infer(graph, memory, values, shapes)
        check(graph, memory.sharing)
        taken = bool(memory.blobs)  # not with `shapes_only`
        if taken:
            memory.take(graph, given=given)
    except (MinicaffeError, MemoryError):
        memory.fits = had
        _infer(graph, memory, values, before)
        graph.context.workspace_size = work
        if taken:
            memory.take(graph)
        elif memory.blobs:
            memory.sharing = sharing
            for step in graph.steps[:had]:
                step.layer.allocate()
            graph.context.taken += 1
        raise


def extend(
    graph: Graph, memory: Memory, fits: int | None, given: Mapping[Value, Any] = NONE
) -> None:
    """Reshape more layers, after `reshape` with `fits`. Raises ShapeError if the shapes do not fit."""
    infer_shapes(graph.steps[memory.fits : fits])
    had, memory.fits = memory.fits, fits
    try:
        memory.take(graph, had or 0, given)
    except (MinicaffeError, MemoryError):
        memory.fits = had
        raise


def resizable(graph: Graph) -> dict[str, Value]:
    """The values that can be reshaped, by name: tops of Input and Data layers."""
    return {v.name: v for s in graph.steps for v in s.tops if hasattr(s.layer, "resize")}


def _infer(
    graph: Graph, memory: Memory, values: Mapping[str, Value], shapes: Mapping[str, Shape]
) -> None:
    for name, shape in shapes.items():
        inputs: Any = values[name].producer
        inputs.resize(name, tuple(int(size) for size in shape))
    graph.context.workspace_size = 0
    infer_shapes(graph.steps[: memory.fits])
    memory.sharing = Sharing(graph, memory.keep)
    for name, shape in shapes.items():
        if values[name].shape != tuple(shape):
            raise ShapeError(
                f"{name} cannot have shape {tuple(shape)} while another top of its layer has other samples"
            )
