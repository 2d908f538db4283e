"""The net that infers: a model in the phase TEST without labels and losses, its data Inputs."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import SpecError

PREPARATION = "preparation"  # the first layer of a net that takes pixels as Caffe reads them


def prepares(layers: Iterable[LayerSpec]) -> bool:
    """True if a net makes pictures ready itself, as `minicaffe import --preset` writes it."""
    return any((one.name, one.type) == (PREPARATION, "Convolution") for one in layers)


def inferred_as(layer: LayerSpec) -> str:
    """What stands for a layer in a net that infers, as the trait of that name says."""
    return cast(str, REGISTRY[layer.type].traits.inferred_as)


def reads_data(layer: LayerSpec) -> bool:
    """True if a layer reads data, which the user gives a net that infers."""
    return inferred_as(layer) == "Input"


def picture_said(layer: LayerSpec) -> tuple[int, int, int] | None:
    """Returns (c, h, w) of the pictures of a layer that reads them, if it says them; else None."""
    transform: Any = layer.options.get("transform")
    crop = getattr(transform, "crop_size", 0) or layer.options.get("crop_size", 0)
    sizes = [layer.options.get(key, 0) for key in ("new_height", "new_width")]
    cut = [layer.options.get(key, 0) or crop for key in ("crop_height", "crop_width")]
    if hasattr(transform, "resize_param"):  # SSD's
        cut = [getattr(transform, key, 0) or crop for key in ("crop_h", "crop_w")]
        for resize in transform.resize_param[:1]:
            sizes = [resize.height, resize.width]
    height, width = cut if all(cut) else sizes
    grey = getattr(transform, "force_gray", False) or not layer.options.get("is_color", True)
    return (1 if grey else 3, height, width) if height and width else None


def is_scored(layer: LayerSpec) -> bool:
    """True for a loss whose scores a Softmax makes the answer."""
    return inferred_as(layer) == "Softmax"


def inputs(net: Net) -> Iterator[Value]:
    """Returns the blobs that the user gives: the tops of Inputs."""
    return (value for step in net.steps if step.spec.type == "Input" for value in step.tops)


def for_test(model: NetSpec) -> NetSpec:
    """The net that a model is tested and used as: the first of its test nets if it has no data in TEST itself.

    Solvers as SSD's name a net to train and another one to test.
    """
    state = dataclasses.replace(model.state, phase="TEST")
    types = [layer.type for layer in model.layers if layer.included(state)]
    reads = any(name in REGISTRY and bottom_counts(REGISTRY[name])[1] == 0 for name in types)
    return model if reads or not model.test_nets else model.test_nets[0]


def inference(model: NetSpec) -> tuple[NetSpec, list[str]]:
    """A model as it infers, and a line for each layer that is not as it was.

    Layers that read data become Inputs of one sample. A SoftmaxWithLoss becomes a Softmax, `prob` if it
    is the only one; other losses, Accuracy and what reads their tops are left out, then what nothing else
    reads: labels, what is computed from them. A blob that parameters had a part in, and that only a loss
    read, becomes an output, and so does what a Silence reads if there were none else. Raises SpecError if
    nothing is left.

    >>> from minicaffe.core.net import read
    >>> spec, notes = inference(read("digits"))
    >>> [(layer.type, layer.tops) for layer in (spec.layers[0], *spec.layers[-2:])]
    [('Input', ('data',)), ('InnerProduct', ('ip2',)), ('Softmax', ('prob',))]
    """
    model, sigmoid = _with_sigmoid(for_test(model))
    full = Net(model, "TEST", device="cpu", shapes_only=True)
    layers, notes = _without_losses(full.steps)
    read = _read(layers)
    if not read:  # a Silence at the end: what it reads is what is wanted
        hushed = [step for step in layers if step.spec.type == "Silence"]
        notes |= {step: f"{step.spec}: left out; what it reads is an output" for step in hushed}
        layers = {step: layer for step, layer in layers.items() if step not in hushed}
        read = _read(layers)
    specs = []
    for step, layer in layers.items():
        tops = [value for value in step.tops if value in read]
        if not step.bottoms and not tops:
            continue  # data that only a loss reads
        if step.spec.type == "Input":
            layer = as_input(layer, {value.name: value.shape for value in tops})
        elif reads_data(step.spec):
            layer = as_input(layer, {value.name: (1, *value.shape[1:]) for value in tops})
            notes[step] = f"{step.spec}: an input, {', '.join(layer.tops)}"
        if step in read or not step.bottoms:
            specs.append(layer)
        elif step.spec.type != "Silence":
            notes[step] = f"{step.spec}: left out"
    if all(layer.type == "Input" for layer in specs):
        raise SpecError(f"net {model.name!r}: nothing is left of it without labels and losses")
    spec = dataclasses.replace(model, layers=tuple(specs), solver=None, test_nets=())
    return spec, [*sigmoid, *(notes[step] for step in full.steps if step in notes)]


def _with_sigmoid(model: NetSpec) -> tuple[NetSpec, list[str]]:
    """A model for several labels a picture with a Sigmoid for its loss, without what reads labels; a line."""
    losses = [layer for layer in model.layers if layer.type == "SigmoidCrossEntropyLoss"]
    labels = {top for layer in model.layers if reads_data(layer) for top in layer.tops[1:]}
    ended = any(is_scored(layer) or layer.type in ("Softmax", "Sigmoid") for layer in model.layers)
    bottoms = (losses[-1].bottom or ()) if losses else ()
    if ended or len(bottoms) != 2 or bottoms[1] not in labels:
        return model, []
    end = LayerSpec(name="prob", type="Sigmoid", bottom=bottoms[:1], mark=losses[-1].mark)
    layers, lost = [], labels  # the blobs that depend on labels
    above = False  # whether the layer above does
    for layer in model.layers:
        gone = above if layer.bottom is None else not lost.isdisjoint(layer.bottom)
        if reads_data(layer) or not gone:
            layers.append(layer)
        elif layer is losses[-1]:
            layers.append(end)
        lost = lost | set(layer.tops) if gone and not reads_data(layer) else lost
        above = gone and not reads_data(layer)
    before, count = _bottoms(model.layers), 0
    while count != len(layers):  # what was computed for the layers that are gone
        count, now = len(layers), _bottoms(layers)
        layers = [one for one in layers if not one.tops or set(one.tops) - (before - now)]
    return dataclasses.replace(model, layers=tuple(layers)), [f"{losses[-1]}: a Sigmoid, prob"]


def _bottoms(layers: Sequence[LayerSpec]) -> set[str]:
    """The blobs that layers read, but for those that they write in place."""
    above: tuple[str, ...] = ()
    read = set[str]()
    for layer in layers:
        read |= set(above[:1] if layer.bottom is None else layer.bottom) - set(layer.tops)
        above = layer.tops
    return read


def as_input(layer: LayerSpec, shapes: Mapping[str, Shape]) -> LayerSpec:
    """An Input in the place of a layer, of blobs of these shapes."""
    options = {"shape": tuple(BlobShape(dim=shape) for shape in shapes.values())}
    new: Any = {"type": "Input", "top": tuple(shapes), "options": options, "param": (), "nodes": {}}
    return dataclasses.replace(layer, **new)


def _without_losses(steps: Sequence[Step]) -> tuple[dict[Step, LayerSpec], dict[Step, str]]:
    """The steps that are kept, each with its layer as it is to be, and notes of those that are not."""
    layers: dict[Step, LayerSpec] = {}
    lost: set[Value] = set()
    notes: dict[Step, str] = {}
    scored = [step for step in steps if is_scored(step.spec)]
    names = {name for step in steps for name in (step.spec.name, *step.spec.tops)}
    done = {step.bottoms[0] for step in steps if step.spec.type == "Softmax"}
    for step in steps:
        gone = any(value in lost for value in step.bottoms)
        bottoms = tuple(value.name for value in step.bottoms)
        if step in scored and not gone and step.bottoms[0] not in done:
            alone = len(scored) == 1 and len(step.tops) == 1 and "prob" not in names
            name = "prob" if alone else step.spec.name
            top = step.tops[-1].name if len(step.tops) > 1 else name
            loss: Any = step.layer
            keys: Any = {"bottom": bottoms[:1], "top": (top,), "options": {"axis": loss.axis}}
            layers[step] = LayerSpec(name=name, type="Softmax", mark=step.spec.mark, **keys)
            notes[step] = f"{step.spec}: a Softmax, {top}"
            lost.add(step.tops[0])
        elif gone or step.layer.traits.is_loss or inferred_as(step.spec) == "nothing":
            notes[step] = f"{step.spec}: left out"
            lost |= set(step.tops)
        else:
            keys = {"bottom": bottoms, "include": (), "exclude": ()}
            layers[step] = dataclasses.replace(step.spec, **keys)
    return layers, notes


def _read(layers: dict[Step, LayerSpec]) -> set[Step | Value]:
    """The steps that an output is computed from, and the values they read."""
    learnt: set[Value] = set()
    readers: dict[Value, int] = {}
    for step in layers:
        bottoms = step.bottoms[: len(layers[step].bottom or ())]
        for value in bottoms:
            readers[value] = readers.get(value, 0) + 1
        if step.layer.params or any(value in learnt for value in bottoms):
            learnt |= set(step.tops)
    live: set[Step | Value] = set()
    for step in reversed(layers):
        unread = [value for value in step.tops if value not in readers]
        ends = any(value.readers == 0 or value in learnt for value in unread)
        wanted = is_scored(step.spec) or ends
        if (step.bottoms and wanted) or any(value in live for value in step.tops):
            live |= {step, *step.bottoms[: len(layers[step].bottom or ())]}
    return live
