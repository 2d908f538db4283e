"""Weights in Caffe's files: .caffemodel and .caffemodel.h5, read and written.

A .caffemodel is a NetParameter of Protocol Buffers. Of it only names, types and blobs are read, from layers
of all three generations: V2 (`layer`, 2014 on), V1 (`layers`) and V0 (`layers { layer { ... } }`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.net.step import Graph
from minicaffe.core.net.weights import named
from minicaffe.errors import CheckpointError
from minicaffe.interop.caffe.schema import is_declared
from minicaffe.storage import checkpoint, hdf5, wire
from minicaffe.storage.checkpoint import ArrayFile
from minicaffe.storage.wire import BlobProto

Arrays = Mapping[str, np.ndarray]
ENDINGS = (".caffemodel", ".h5")
STATES = (".solverstate", ".solverstate.h5")
V1, V2 = 2, 100  # fields of NetParameter
_DEPTH = 16  # of names with slashes, in HDF5
_FIELDS = {V2: (1, 2, 7), V1: (4, 5, 6), 1: (1, 2, 50)}  # name, type, blobs; 1 is V0's, within V1's


@dataclass
class Layer:
    """A layer to be written: its name, its blobs by number, and what other readers than Caffe like to know."""

    name: str
    type: str
    blobs: Mapping[int, Any] = field(repr=False)
    bottom: Sequence[str] = ()
    top: Sequence[str] = ()


def is_caffes(path: str | Path) -> bool:
    """Whether a name is that of Caffe's weights."""
    return str(path).lower().endswith(ENDINGS)


def same_shape(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True if a blob fits a parameter, but for axes of 1 before or behind, as 1x1xNxK fits (N, K)."""
    for first in range(len(given) - len(wanted) + 1):
        rest = given[:first] + given[first + len(wanted) :]
        if given[first : first + len(wanted)] == wanted and all(size == 1 for size in rest):
            return True
    return wanted[: len(given)] == given and all(size == 1 for size in wanted[len(given) :])


class Reader(ArrayFile):
    """The arrays of a file of Caffe's by name, `conv1__0`; `shapes` and `layers` are known before any is read.

    An array of a .caffemodel lies in the mapped file: it is copied only where it is loaded. Raises
    CheckpointError, in one line, for a file that is not whole.
    """

    fits = staticmethod(same_shape)

    def __init__(self, path: str | Path):
        self.path, self._open = Path(path), ExitStack()
        self._blobs: dict[str, Any] = {}
        self.layers: dict[str, list[int]] = {}  # the numbers of each one's blobs
        if str(path).lower().endswith(STATES):
            problem = "is a solver's state; weights are the .caffemodel beside it"
            raise CheckpointError(f"{path}: {problem}")
        with self._open:
            if hdf5.is_one(path):  # as Caffe, which does not look at the name
                self._take(_groups(self._open.enter_context(hdf5.opened(path, CheckpointError))))
            else:
                message = wire.opened(path, ".caffemodel", CheckpointError)
                self._take(_layers(self._open.enter_context(message)))
            self._open = self._open.pop_all()
        self.shapes = {name: tuple(blob.shape) for name, blob in self._blobs.items()}

    def __exit__(self, *_: object) -> None:
        self._blobs.clear()
        self._open.close()

    def __getitem__(self, name: str) -> np.ndarray:
        """One array; of a .caffemodel one that cannot be written to."""
        blob = self._blobs.get(name)
        if blob is None:
            raise CheckpointError(f"{self.path}: has no entry {name!r}")
        if isinstance(blob, BlobProto):
            return blob.view()
        with hdf5.damage_told(f"{self.path}: entry {name!r}", CheckpointError):
            return np.asarray(blob[()])

    def _take(self, layers: Iterator[tuple[str, Mapping[int, Any]]]) -> None:
        for layer, blobs in layers:
            for i in self.layers.get(layer, ()):  # a later layer of the name takes its place
                del self._blobs[f"{layer}__{i}"]
            self.layers[layer] = list(blobs)
            self._blobs |= {f"{layer}__{i}": blob for i, blob in blobs.items()}


def read(path: str | Path) -> dict[str, list[np.ndarray]]:
    """The blobs of each layer that has any, in Caffe's order: {"conv1": [weight, bias], ...}.

    An HDF5 file holds a shared blob once: the list of a layer that shares it lacks it. Raises
    CheckpointError, in one line, for a file that is not whole.
    """
    with Reader(path) as reader:
        return {
            layer: [np.array(reader[f"{layer}__{i}"]) for i in numbers]
            for layer, numbers in reader.layers.items()
        }


def write(path: str | Path, layers: Sequence[Layer], net: str = "", h5: bool | None = None) -> None:
    """Write layers as Caffe does, atomically: as HDF5 (`h5`, or a name in .h5), else as Protocol Buffers.

    float64 is kept, all else becomes float32. Raises CheckpointError if that cannot be.
    """
    if h5 or (h5 is None and str(path).lower().endswith(".h5")):
        write_h5(path, lambda file: _put_layers(file, layers))
        return
    parts = wire.put(1, net) if net else []
    for layer in layers:
        one = [*wire.put(1, layer.name), *wire.put(2, layer.type)]
        for number, blobs in ((3, layer.bottom), (4, layer.top)):
            one += [part for name in blobs for part in wire.put(number, name)]
        for blob in layer.blobs.values():
            one += wire.put(7, wire.blob_parts(blob))
        parts += wire.put(V2, one)
    write_message(path, parts)


def save(path: str | Path, graph: Graph, arrays: Arrays, ending: str = "") -> None:
    """Write a net's arrays by name, as HDF5 where `ending`, or else the path's, is .h5."""
    names = {id(param): name for name, param in named(graph).items()}
    h5 = (ending or str(path).lower()).endswith(".h5")  # there a shared parameter is written once
    layers = []
    for step in graph.steps:
        blobs = {
            i: arrays[names[id(param.owner)]]
            for i, param in enumerate(step.layer.params)
            if not h5 or param.owner is param
        }
        spec = step.spec
        bottoms = [value.name for value in step.bottoms]
        layers.append(Layer(spec.name, spec.type, blobs, bottoms, spec.tops))
    write(path, layers, graph.name, h5)


def write_message(path: str | Path, parts: Sequence[wire.Part]) -> None:
    """Write a message, atomically. Raises CheckpointError above the size that Caffe reads."""
    if (size := wire.size_of(parts)) > wire.LIMIT:
        problem = f"would be {size} bytes; Caffe reads at most {wire.LIMIT} (write .h5 or .npz)"
        raise CheckpointError(f"{path}: {problem}")

    def save(file: Any) -> None:
        for part in parts:
            file.write(part if isinstance(part, bytes) else part.data)

    checkpoint.replace(path, save)


def write_h5(path: str | Path, fill: Callable[[Any], None]) -> None:
    """Write an HDF5 file, atomically: `fill` is given it open."""
    h5py = hdf5.library(CheckpointError)

    def save(file: Any) -> None:
        target = hdf5.Writable(file)
        with h5py.File(target, "w") as out:
            fill(out)
        target.check()

    checkpoint.replace(path, save)


def put_h5(group: Any, name: str, array: Any) -> None:
    """Write an array as Caffe does: float64 where it is that, all else as float32."""
    array = np.asarray(array)
    group.create_dataset(name, data=array, dtype="f8" if array.dtype == np.float64 else "f4")


def _put_layers(file: Any, layers: Sequence[Layer]) -> None:
    """The dataset data/LAYER/NUMBER for each blob; a layer named a/b is b within a, as in Caffe."""
    data = file.create_group("data", track_order=True)
    for layer in layers:
        parts = layer.name.split("/")
        if {"", "."} & set(parts) or any(map(_is_number, parts[1:])) or len(parts) > _DEPTH:
            raise OSError(f"HDF5 has no place for a layer named {layer.name!r}")
        group = data.require_group(layer.name)
        for i, blob in layer.blobs.items():
            put_h5(group, str(i), blob)


def _is_number(name: str) -> bool:
    """Whether a name in a layer's group is that of a blob."""
    return name.isdecimal() and len(name) < 4


def _layers(net: memoryview) -> Iterator[tuple[str, Mapping[int, BlobProto]]]:
    """The layers with blobs of a NetParameter; those of V1 alone where it has any, as in Caffe."""
    layers: dict[int, list[tuple[str, list[BlobProto]]]] = {}
    for number, kind, value in wire.fields(net):
        if number in (V1, V2):
            layers.setdefault(number, []).append(blobs_of(wire.message(kind, value), number))
    if not layers:
        raise ValueError("it holds no layers")
    for name, blobs in layers[V1 if V1 in layers else V2]:
        if blobs:
            yield name, dict(enumerate(blobs))


def blobs_of(data: memoryview, generation: int) -> tuple[str, list[BlobProto]]:
    """The name and the blobs of a layer, by the number of the field that holds it: V2, V1, or 1 for V0's."""
    name, blobs, type_ = "", [], ""
    of_name, of_type, of_blobs = _FIELDS[generation]
    for number, kind, value in wire.fields(data):
        if number == of_name:
            name = wire.text(kind, value)
        elif number == of_blobs:
            blobs.append(wire.parse_blob(wire.message(kind, value)))
        elif number == of_type and generation == V2:
            type_ = wire.text(kind, value)
        elif number == 1 and generation == V1:
            name, blobs = blobs_of(wire.message(kind, value), 1)
    if type_ == "BN" and len(blobs) == 4 and not is_declared("BN"):  # PSPNet's, as a BatchNorm's
        scale, bias, mean, variance = blobs
        blobs = [mean, variance, BlobProto((1,), False, [np.ones(1, np.float32)]), scale, bias]
    return name, blobs


def _groups(file: Any) -> Iterator[tuple[str, Mapping[int, Any]]]:
    """The layers with blobs of an HDF5 snapshot; to HDF5 a layer named a/b is b within a."""
    data = hdf5.child(file, "data")
    seen, waiting = {data}, [(name, data, name) for name in reversed(hdf5.names(data))]
    while waiting:
        layer, above, name = waiting.pop()
        group = hdf5.child(above, name)
        inside = hdf5.names(group)
        deeper = [one for one in inside if not _is_number(one)]
        again = group in seen or layer.count("/") >= _DEPTH
        if deeper and (again or not all(hdf5.is_group(group, one) for one in deeper)):
            raise ValueError(f"{group.name!r} holds {', '.join(deeper)}, expected 0, 1, ...")
        seen.add(group)
        waiting += [(f"{layer}/{one}", group, one) for one in reversed(deeper)]
        if blobs := {int(one): hdf5.dataset(group, one) for one in inside if one not in deeper}:
            yield layer, blobs
