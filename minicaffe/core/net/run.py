"""Running the layers of a net: forward, and backward; gradients are added if a blob is read twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minicaffe.backends.device import Device, device_of
from minicaffe.core.layers import Blob
from minicaffe.core.layers.blob import numbers
from minicaffe.core.net import debug as debug_info
from minicaffe.core.net.graph import Graph
from minicaffe.core.net.memory import Memory, fit
from minicaffe.core.net.step import Step, Value
from minicaffe.core.ops import arrays
from minicaffe.errors import ShapeError, did_you_mean


class Forward:
    """The forward passes of a net, layer by layer. A backend may replay them, unless `never` says why not."""

    nodes: Sequence[Any] = ()  # of a replay

    def __init__(self, graph: Graph, memory: Memory):
        self.graph, self.memory, self.never = graph, memory, ""

    def forget(self) -> None:
        """Drop what was kept of passes: the net's arrays will be others."""

    def run(self, steps: Sequence[Step], left_out: Collection[Step], debug: debug_info.Say) -> None:
        """Run some neighbouring layers, except those that are left out."""
        for step in steps:
            if step not in left_out:
                forward(step, self.graph, self.memory, debug)


def forward(
    step: Step, graph: Graph, memory: Memory, debug: debug_info.Say = None, prepare: bool = True
) -> None:
    """Run one layer forward, after its `prepare` if `prepare` is true; `debug` receives lines on its tops."""
    layer, device = step.layer, graph.context.device
    step.tell("before_forward")
    with step.named():
        if prepare:
            layer.prepare()
            graph.context.slots.send()
        tops = layer.forward(*[value.blob.data for value in step.bottoms])
        if not layer.traits.sizes_vary:
            _store(step, tops, layer.out, step.tops)
    if layer.traits.sizes_vary:
        fit(graph, memory, step, list(tops) if isinstance(tops, (tuple, list)) else [tops])
    debug_info.tell(debug, debug_info.forward_lines(step, device))
    step.ran = True
    step.tell("after_forward")


def fitting(arrays: Mapping[str, Any], blobs: Mapping[str, Blob], which: str) -> dict[str, Any]:
    """Check arrays of the host or the device for data or diffs of blobs. Raises ShapeError, DataError."""
    checked = {}
    for name, array in arrays.items():
        if name not in blobs:
            raise ShapeError(f"there is no blob {name!r}{did_you_mean(name, blobs)}")
        blob = blobs[name]
        checked[name] = array = numbers(array, f"blob {name!r}", blob.shape)
        if (shape := array.shape) != blob.shape:
            may_be = which == "data" and len(shape) == len(blob.shape)
            hint = f"; net.reshape({name}={shape}) would change it" if may_be else ""
            raise ShapeError(f"blob {name!r} has shape {blob.shape}, got {shape}{hint}")
    return checked


def put(arrays: Mapping[str, Any], blobs: Mapping[str, Blob], which: str) -> None:
    """Copy checked arrays into the data or diffs of blobs."""
    for name, array in arrays.items():
        blob = blobs[name]
        copy = blob.device.xp.copyto if device_of(array).is_cuda else blob.device.copy_from_host
        copy(getattr(blob, which), array)


def given_to(
    graph: Graph, first: int, last: int, names: Collection[str]
) -> tuple[dict[str, Blob], set[Step]]:
    """The blobs that can be inputs of a forward pass through these layers, and the steps it leaves out.

    Those are tops of layers without bottoms, and bottoms that none of the layers computes; a
    step is left out if all its tops are inputs. Raises ShapeError for another name, and for some tops of a
    layer whose tops belong together, because the other tops would have other samples.
    """
    case = first, last, frozenset(names)
    if case not in graph.inputs:
        graph.inputs[case] = _given_to(graph, first, last, names)
    values, left_out = graph.inputs[case]
    return {name: value.blob for name, value in values.items()}, {*left_out}


def _given_to(
    graph: Graph, first: int, last: int, names: Collection[str]
) -> tuple[dict[str, Value], set[Step]]:
    """The values of `given_to`, without its cache."""
    steps, left_out = graph.steps[first : last + 1], set()
    values: dict[str, Value] = {}
    written = {value for step in steps for value in step.tops}
    for step in graph.steps:
        if step.layer.traits.tops_apart:
            values |= {value.name: value for value in step.tops}
    for step in steps:
        values |= {v.name: v for v in step.bottoms if v not in written}
        if step.bottoms:
            continue
        values |= {value.name: value for value in step.tops}
        inputs = [value.name for value in step.tops if value.name in names]
        missing = [value.name for value in step.tops if value.name not in names]
        if inputs and missing and not step.layer.traits.tops_apart:
            hint = "" if step.tops[0].name in missing else "; minicaffe.Classifier needs no labels"
            raise ShapeError(
                f"blob {inputs[0]!r} is given, {', '.join(missing)} is not: {step.spec} gives them "
                f"together{hint}"
            )
        if inputs and not missing:
            left_out.add(step)
    known = {value.name: step for step in graph.steps for value in step.tops}
    for name in names:
        if name in known and name not in values:
            raise ShapeError(
                f"blob {name!r} is computed by layer {known[name].spec.name!r} or not read by the layers "
                "that run; to give it, begin at a layer that reads it: forward(start=...)"
            )
    return values, left_out


def backward(
    step: Step,
    device: Device,
    written: set[Value],
    scratch: Any,
    loss_scale: float,
    debug: debug_info.Say = None,
) -> None:
    """Run one layer backward; `written` are the values whose diff already holds a gradient.

    A gradient that is added to another is computed in `scratch` first. The losses' gradients are those of
    `loss_scale` times the loss.
    """
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
        if not layer.needs_gradient[i]:
            layer.grad[i] = None
        elif value in written or value.loss_weight:
            if value not in written:
                arrays.fill(value.blob.diff, value.loss_weight * loss_scale)
            part = scratch[offset : offset + value.blob.size]
            layer.grad[i] = part.reshape(value.shape)
            offset += value.blob.size
            added.append((value.blob, layer.grad[i]))
        else:
            layer.grad[i] = value.blob.diff
        if layer.needs_gradient[i]:
            written.add(value)
    with step.named():
        bottoms = layer.backward(*[value.blob.diff for value in step.tops])
        _store(step, bottoms, layer.grad, step.bottoms)
    for blob, part in added:
        arrays.add(part, blob.diff)
    debug_info.tell(debug, debug_info.backward_lines(step, device))
    step.tell("after_backward")


def diff_targets(graph: Graph, start: int | None, names: Collection[str]) -> dict[str, Blob]:
    """The blobs whose diffs can be inputs of a backward pass from step `start`.

    Raises ShapeError for one of `names` whose diff is computed, or that no layer would read.
    """
    values = dict(graph.outputs)
    if start is not None:
        values |= {value.name: value for value in graph.steps[start].tops}
    read = {value for step in graph.steps if step.layer.runs_backward for value in step.tops}
    known = {value.name for step in graph.steps for value in step.tops}
    for name in names:
        if name in known and name not in values:
            raise ShapeError(f"the diff of blob {name!r} is computed from the layers that read it")
        if name in values and values[name] not in read:
            forced = graph.forced or (
                not values[name].wants_gradient and not values[name].producer.bottom
            )
            remedy = "" if forced else "; with force_backward: true in the model all are computed"
            raise ShapeError(
                f"the diff of blob {name!r} would go nowhere: the layer that writes it computes no "
                f"gradient, since no loss depends on it or nothing below it learns{remedy}"
            )
    return {name: value.blob for name, value in values.items()}


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
