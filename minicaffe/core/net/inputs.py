"""What a pass of a net may be told: arrays for blobs that none of its layers computes, and for their diffs."""

from collections.abc import Collection, Mapping
from typing import Any

from minicaffe.backends.device import device_of
from minicaffe.core.layers import Blob
from minicaffe.core.layers.blob import numbers
from minicaffe.core.net.step import Graph, Step, Value
from minicaffe.errors import ShapeError, did_you_mean


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
        device = blobs[name].device
        is_there = device.is_cuda and device_of(array).is_cuda
        copy = device.xp.copyto if is_there else device.copy_from_host
        copy(getattr(blobs[name], which), array)


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
            problem = f"{step.spec} gives them together{hint}"
            raise ShapeError(f"blob {inputs[0]!r} is given, {', '.join(missing)} is not: {problem}")
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


def diff_targets(graph: Graph, start: int | None, names: Collection[str]) -> dict[str, Blob]:
    """The blobs whose diffs a backward pass from `start` may be given. Raises ShapeError for other blobs."""
    values = dict(graph.outputs)
    if start is not None:
        values |= {value.name: value for value in graph.steps[start].tops}
    read = {value for step in graph.steps if step.layer.runs_backward for value in step.tops}
    known = {value.name for step in graph.steps for value in step.tops}
    for name in names:
        if name in known and name not in values:
            raise ShapeError(f"the diff of blob {name!r} is computed from the layers that read it")
        if name in values and values[name] not in read:
            value = values[name]
            forced = graph.forced or not (value.wants_gradient or value.producer.bottom)
            remedy = "" if forced else "; with force_backward: true in the model all are computed"
            raise ShapeError(
                f"the diff of blob {name!r} would go nowhere: the layer that writes it computes no "
                f"gradient, since no loss depends on it or nothing below it learns{remedy}"
            )
    return {name: value.blob for name, value in values.items()}
