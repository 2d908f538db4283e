"""A .caffemodel as compilers of chips want it: layers of V2, named and typed as in the prototxt, whole.

Such a file has of each layer its name, type, bottoms, tops and blobs. A layer's keys are left out: they stand
in the prototxt. Without a net, names and types are those of the file, upgraded as upgrade_proto.cpp does it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.caffe.schema import schema
from minicaffe.caffe.upgrade import type_of_word
from minicaffe.caffe.upgrade_v0 import v1_of_v0, without_padding
from minicaffe.caffe.weights import V1, V2, Layer, blobs_of, same_shape
from minicaffe.data import hdf5, wire
from minicaffe.errors import CheckpointError, did_you_mean
from minicaffe.spec.tree import Mark, Node

# The fields name, type, bottom and top of a layer. V0's name and type stand in V1's field 1.
FIELDS = {V2: (1, 2, 3, 4), V1: (4, 5, 2, 3)}
V0 = 1
SHORTENED = ("Convolution", "InnerProduct")  # by OpenCV's shrinkCaffeModel
LARGEST = 65504  # of float16


@dataclass(frozen=True)
class Wanted:
    """A layer of the net that a file is written for, as its prototxt has it.

    `shapes` are those of its parameters; None where they are not known, as for an unknown type. `owners` is,
    for each parameter, the layer and the number of the one that it shares, its own if none.
    """

    name: str
    type: str
    bottom: Sequence[str]
    top: Sequence[str]
    shapes: Sequence[tuple[int, ...]] | None
    owners: Sequence[tuple[str, int]] = ()


def read_layers(path: str | Path) -> tuple[str, list[Layer]] | None:
    """The net's name and the layers of a .caffemodel of any generation, as those of V2; None if it is HDF5.

    The padding layers of V0 are left out: their readers pad. Raises CheckpointError if the file is not whole,
    or if it holds a type that caffe.proto does not have; SpecError for a V0 layer that cannot be upgraded.
    """
    if hdf5.is_one(path):
        return None
    name = ""
    messages: dict[int, list[memoryview]] = {V1: [], V2: []}
    with wire.opened(path, ".caffemodel", CheckpointError) as data:
        for number, kind, value in wire.fields(data):
            if number == 1:
                name = wire.text(kind, value)
            elif number in messages:
                messages[number].append(wire.message(kind, value))
        generation = V1 if messages[V1] else V2  # as Caffe, where a file has both
        if not messages[generation]:
            raise ValueError("it holds no layers")
        layers = [_layer(message, generation, path) for message in messages[generation]]
    if any(is_v0 for _, is_v0 in layers):
        return name, _v1_of_v0([layer for layer, _ in layers], path)
    return name, [layer for layer, _ in layers]


def _layer(data: memoryview, generation: int, path: str | Path) -> tuple[Layer, bool]:
    """A layer of V2, and whether it is V0's, whose type is then still a word of V0."""
    name, blobs = blobs_of(data, generation)
    type_, is_v0, fields = "", False, FIELDS[generation]
    ends: dict[int, list[str]] = {fields[2]: [], fields[3]: []}
    for number, kind, value in wire.fields(data):
        if number in ends:
            ends[number].append(wire.text(kind, value))
        elif number == V0 and generation == V1:
            is_v0, type_ = True, _text_field(wire.message(kind, value), 2)
        elif number == fields[1] and generation == V2:
            type_ = wire.text(kind, value)
        elif number == fields[1] and not is_v0:
            type_ = _v1_type(wire.integer(kind, value), name)
    if type_ == "BN" and len(blobs) == 5:  # PSPNet's, which is read as BatchNorm
        type_ = "BatchNorm"
    arrays = {i: blob.view() for i, blob in enumerate(blobs)}
    return Layer(name, type_, arrays, ends[fields[2]], ends[fields[3]]), is_v0


def _text_field(data: memoryview, wanted: int) -> str:
    texts = [
        wire.text(kind, value) for number, kind, value in wire.fields(data) if number == wanted
    ]
    return texts[-1] if texts else ""


def _v1_type(number: int, name: str) -> str:
    """The type of V2 for a number of V1LayerParameter.LayerType. Raises ValueError."""
    words = {n: word for word, n in schema().enums["V1LayerParameter"]["LayerType"].items()}
    if number not in words:
        raise ValueError(f"layer {name!r}: {number} is no type of caffe.proto's V1LayerParameter")
    return type_of_word(words[number]) if number else ""


def _v1_of_v0(layers: list[Layer], path: str | Path) -> list[Layer]:
    """Layers of V0 as those of V2, less the padding layers. Raises SpecError."""
    mark = Mark(str(path))
    by_node: list[tuple[Node, Layer]] = []
    for layer in layers:
        inner = {"name": Node(layer.name, mark), "type": Node(layer.type, mark)}
        fields = {"layer": Node(inner, mark, dict.fromkeys(inner, mark))}
        for key, names in (("bottom", layer.bottom), ("top", layer.top)):
            fields[key] = Node([Node(name, mark) for name in names], mark)
        by_node.append((Node(fields, mark, dict.fromkeys(fields, mark)), layer))
    kept = without_padding(node for node, _ in by_node)
    rest = [layer for layer in layers if layer.type != "padding"]
    upgraded = []
    for node, layer in zip(map(v1_of_v0, kept), rest, strict=True):
        bottom = [one.value for one in node.value["bottom"].value]
        type_ = type_of_word(node.value["type"].value)
        upgraded.append(dataclasses.replace(layer, type=type_, bottom=bottom))
    return upgraded


def fitted(
    layers: Sequence[Layer], net: Sequence[Wanted], name: str, source: str | Path
) -> list[Layer]:
    """The layers of a net with the blobs that `layers` have for them, in the shapes of the net's parameters.

    Shapes are compared by Caffe's rule (`weights.same_shape`). Raises CheckpointError, in one line, for a
    layer with blobs that the net `name` lacks, a blob that the net has and `layers` lack or the reverse, and
    for another shape.
    """
    blobs = {one.name: one.blobs for one in layers if one.blobs}
    types = {one.name: one.type for one in layers}
    names = {one.name: one for one in net}
    lacking = next((one for one in blobs if one not in names), None)
    if lacking is not None:
        kind = f" ({types[lacking]})" if types[lacking] else ""
        raise CheckpointError(
            f"{source}: layer {lacking!r}{kind} has {len(blobs[lacking])} blobs; the net {name!r} has"
            f" no such layer{did_you_mean(lacking, names)}"
        )
    return [
        Layer(one.name, one.type, _blobs(one, blobs, source), one.bottom, one.top) for one in net
    ]


def _blobs(
    layer: Wanted, blobs: Mapping[str, Mapping[int, Any]], source: str | Path
) -> dict[int, np.ndarray]:
    """The blobs of a layer, in its net's shapes; one that it shares may stand with its owner alone."""
    own = dict(blobs.get(layer.name, {}))
    if layer.shapes is None:
        return own
    what = f"{source}: layer {layer.name!r} ({layer.type})"
    if more := sorted(own.keys() - set(range(len(layer.shapes)))):
        raise CheckpointError(
            f"{what}: blob {more[0]}: expected {len(layer.shapes)} blobs, got shape {own[more[0]].shape} too"
        )
    arrays = {}
    for i, shape in enumerate(layer.shapes):
        owner, number = layer.owners[i]
        array = own[i] if i in own else blobs.get(owner, {}).get(number)
        if array is None:
            raise CheckpointError(f"{what}: blob {i}: expected shape {shape}, got none")
        if not same_shape(array.shape, shape):
            raise CheckpointError(f"{what}: blob {i}: expected shape {shape}, got {array.shape}")
        arrays[i] = array.reshape(shape)
    return arrays


def halved(layers: Sequence[Layer], source: str | Path) -> list[Layer]:
    """Layers whose convolutions and inner products are to be written in float16, as shrinkCaffeModel does it.

    Each number becomes the nearest of float16, of two equally near ones the even one. Raises CheckpointError
    for a finite number that would become infinite, and where no layer is of those types.
    """
    if not any(layer.type in SHORTENED and layer.blobs for layer in layers):
        hint = "" if any(layer.type for layer in layers) else "; --model NET gives the types"
        raise CheckpointError(
            f"{source}: --half: has no blobs of {' or '.join(SHORTENED)}, the types in float16{hint}"
        )
    return [_halved(layer, source) if layer.type in SHORTENED else layer for layer in layers]


def _halved(layer: Layer, source: str | Path) -> Layer:
    blobs = {}
    for i, blob in layer.blobs.items():
        array = np.asarray(blob)
        with np.errstate(over="ignore"):
            blobs[i] = array.astype(np.float16)
        if (np.isinf(blobs[i]) & np.isfinite(array)).any():
            largest = np.abs(array[np.isfinite(array)]).max()
            raise CheckpointError(
                f"{source}: layer {layer.name!r} ({layer.type}): blob {i}: --half: the largest number is"
                f" {largest:.6g}, float16's is {LARGEST}"
            )
    return dataclasses.replace(layer, blobs=blobs, half=True)
