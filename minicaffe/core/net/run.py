"""Running the layers of a net: forward, and backward; gradients are added if a blob is read twice."""

from collections.abc import Collection, Sequence
from typing import Any

from minicaffe.backends.device import Device
from minicaffe.core.net import debug as debug_info
from minicaffe.core.net.memory import Memory, fit
from minicaffe.core.net.step import Graph, Step, Value
from minicaffe.core.ops import arrays
from minicaffe.errors import ShapeError


class Forward:
    """The forward passes of a net, layer by layer. A backend may replay them, unless `never` says why not."""

    nodes: Sequence[Any] = ()  # of a replay

    def __init__(self, graph: Graph, memory: Memory):
        self.graph, self.memory, self.never = graph, memory, ""

    def forget(self) -> None:
        """Drop what was kept of passes: the net's arrays will be others."""

    def run(
        self, steps: Sequence[Step], left_out: Collection[Step], debug: debug_info.Say | None
    ) -> None:
        """Run some neighbouring layers, except those that are left out."""
        for step in steps:
            if step not in left_out:
                forward(step, self.graph, self.memory, debug)


def forward(
    step: Step,
    graph: Graph,
    memory: Memory,
    debug: debug_info.Say | None = None,
    prepare: bool = True,
) -> None:
    """Run one layer forward, after its `prepare` if `prepare` is true; `debug` receives lines on its tops."""
    layer = step.layer
    step.tell("before_forward")
    with step:
        if prepare and step.prepares:
            layer.prepare()
            graph.context.slots.send()
        tops = layer.forward(*[value.blob.data for value in step.bottoms])
        if not layer.traits.sizes_vary:
            _store(step, tops, layer.out, step.tops)
    if layer.traits.sizes_vary:
        fit(graph, memory, step, list(tops) if isinstance(tops, (tuple, list)) else [tops])
    if debug is not None:
        debug_info.tell_forward(debug, step, graph.context.device)
    step.ran = True
    step.tell("after_forward")


def backward(
    step: Step,
    device: Device,
    written: set[Value],
    scratch: Any,
    loss_scale: float,
    debug: debug_info.Say | None = None,
) -> None:
    """Run one layer backward; gradients of values in `written` are added, by way of `scratch`."""
    step.tell("before_backward")
    for value in step.tops:
        if value.loss_weight and value not in written:
            arrays.fill(value.blob.diff, value.loss_weight * loss_scale)
        elif step.layer.runs_backward and value not in written:
            arrays.fill(value.blob.diff, 0)
    if not step.layer.runs_backward:
        step.tell("after_backward")
        return
    if not step.ran:
        why = "has not run forward since the net was built or reshaped, and must have before"
        raise ShapeError(f"{step.place}: {why} its gradient")
    layer, added, offset = step.layer, [], 0
    for i, value in enumerate(step.bottoms):
        layer.grad[i] = None
        if not layer.needs_gradient[i]:
            continue
        if value in written or value.loss_weight:
            if value not in written:
                arrays.fill(value.blob.diff, value.loss_weight * loss_scale)
            part = scratch[offset : offset + value.blob.size]
            layer.grad[i] = part.reshape(value.shape)
            offset += value.blob.size
            added.append((value.blob, layer.grad[i]))
        else:
            layer.grad[i] = value.blob.diff
        written.add(value)
    with step:
        bottoms = layer.backward(*[value.blob.diff for value in step.tops])
        _store(step, bottoms, layer.grad, step.bottoms)
    for blob, part in added:
        arrays.add(part, blob.diff)
    if debug is not None:
        debug_info.tell_backward(debug, step, device)
    step.tell("after_backward")


def written_before(steps: Sequence[Step], start: int | None, diffs: Collection[str]) -> set[Value]:
    """The values whose diff holds a gradient before a backward pass from step `start` begins.

    Those are the outputs among `diffs`; and, if the pass does not begin at the top, the tops of
    `start` that are no loss, and the blobs into which the layers above have written a gradient.
    """
    written = {v for s in steps for v in s.tops if v.name in diffs and not v.readers}
    if start is not None:
        written |= {v for v in steps[start].tops if v.name in diffs or not v.loss_weight}
        for step in steps[start + 1 :]:
            wanted = zip(step.bottoms, step.layer.needs_gradient, strict=True)
            written |= {v for v, needs in wanted if needs}
    return written


def _store(step: Step, result: Any, buffers: Sequence[Any], values: Sequence[Value]) -> None:
    """Copy the arrays that a layer returned into its buffers; built-in layers have written there."""
    if result is None and not buffers:
        return
    result = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(result) != len(buffers):
        what = "top" if values is step.tops else "bottom"
        raise ShapeError(f"expected an array for each of {len(buffers)} {what}s, got {len(result)}")
    for array, buffer, value in zip(result, buffers, values, strict=True):
        if array is buffer or buffer is None:
            continue
        if array is None and values is step.bottoms:
            arrays.fill(buffer, 0)
            continue
        shape = getattr(array, "shape", None)
        if shape != value.shape:
            got = f"an array of {shape}" if shape is not None else type(array).__name__
            raise ShapeError(f"setup promised shape {value.shape}, got {got}")
        arrays.copy(array, buffer)
