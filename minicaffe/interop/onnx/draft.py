"""A net of Caffe's while it is made of a graph: blobs with shapes, layers, the numbers they hold.

A reader asks for layers and gets blobs. What nothing reads in the end is left out, so that a reader may look
back at what computed its input and say both in one layer.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.interop.onnx.table import READERS, RefusedError

Shape = tuple[int, ...]
Sizes = Sequence[int]
FLOATS = ("float32", "float16", "float64", "bfloat16")  # types that a blob can hold
OPSET = 17  # that readers of one of our own operators are asked for
MAX_NUMBERS = 2**24  # that a reader makes, such as a kernel of ones: 64 MiB in float32
MAX_PIECES = 64  # of a Slice, where entries of an axis are put in another order
MAX_PARTS = 8  # of channels put in another order; more are a product by ones and zeros


@dataclass(eq=False)
class Blob:
    """A blob: its shape, and the layer that computes it; None of an input."""

    shape: Shape
    layer: Layer | None = None
    name: str = ""
    refused: tuple[str, ...] = ()  # why no layer computes it: of its nodes, those that are refused
    states: Layer | None = None  # the RNN whose states it is, no top of which they are


Blobs = Mapping[str, Blob]


@dataclass(eq=False)
class Layer:
    """A layer: its type and keys, what it reads and writes, its parameters."""

    type: str
    bottoms: list[Blob]
    keys: dict[str, Any]
    arrays: list[np.ndarray]
    tops: list[Blob] = field(default_factory=list)
    name: str = ""
    origin: str = ""  # the node it was made of


@dataclass(eq=False)
class Tensor:
    """A tensor of the graph: a constant, or what a blob holds."""

    name: str
    shape: Shape | None  # None where only the numbers tell
    dtype: str
    data: np.ndarray | None = None
    blob: Blob | None = None
    node: Node | None = None  # what computes it
    readers: int = 0  # nodes that read it; an output of the model is read once more


@dataclass(eq=False)
class Node:
    """An operation: its inputs, None where one is left out, its outputs, and its attributes."""

    kind: str
    name: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: dict[str, Any]
    opset: int
    outer: Mapping[str, Tensor]  # what a graph within it may read

    @property
    def known(self) -> list[Tensor]:
        """The inputs that are not left out: onnx's checker has seen to those that an operator needs."""
        return [one for one in self.inputs if one is not None]

    def input(self, index: int) -> Tensor | None:
        """An input, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def const(self, index: int) -> np.ndarray | None:
        """An input that is a constant, or None."""
        tensor = self.input(index)
        return tensor.data if tensor is not None else None

    def needs_const(self, index: int, what: str) -> np.ndarray:
        """An input that must be a constant. Raises RefusedError for one that depends on the net's inputs."""
        data = self.const(index)
        if data is None:
            raise RefusedError(f"its {what} is computed of the input; a layer needs it as a number")
        return data

    def optional_const(self, index: int, what: str) -> np.ndarray | None:
        """An input that must be a constant where it is not left out."""
        return None if self.input(index) is None else self.needs_const(index, what)

    def get(self, key: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(key, default)

    def ints(self, key: str, index: int) -> list[int] | None:
        """Numbers, an attribute in old opsets and an input in later ones; None where they are not set."""
        if key in self.attributes:
            numbers = self.attributes[key]
            return [int(one) for one in (numbers if isinstance(numbers, list) else [numbers])]
        if self.input(index) is None:
            return None
        return [int(one) for one in self.needs_const(index, key).ravel()]

    def number(self, key: str, index: int, default: float) -> float:
        """A number, an attribute in old opsets and an input in later ones."""
        if self.input(index) is None:
            return float(self.get(key, default))
        array = self.needs_const(index, key)
        return float(array.ravel()[0]) if array.size else default

    @property
    def shape(self) -> Shape:
        """The shape of the first output. Raises RefusedError where it is not known."""
        shape = self.outputs[0].shape
        if shape is None:
            raise RefusedError("the size of its output depends on the numbers; a blob's does not")
        return shape


class Draft:
    """The layers of a net under way, and the types that its target has; None where it is minicaffe."""

    def __init__(self, types: Collection[str] | None = None) -> None:
        self.types = types
        self.groups = True  # whether the target has groups of a Deconvolution's channels
        self.inputs: list[Blob] = []
        self.layers: list[Layer] = []
        self.origin = ""
        self._constants: dict[bytes, Blob] = {}

    def lacks(self, kind: str) -> bool:
        """True if the target has no layer of this type."""
        return self.types is not None and kind not in self.types

    def add(
        self,
        kind: str,
        bottoms: Sequence[Blob],
        shapes: Sequence[Sizes],
        arrays: Sequence[Any] = (),
        **keys: Any,
    ) -> list[Blob]:
        """Add a layer whose tops have these shapes; returns them. Parameters become float32."""
        numbers = [np.asarray(array, np.float32, order="C") for array in arrays]
        layer = Layer(kind, list(bottoms), keys, numbers, origin=self.origin)
        layer.tops = [Blob(tuple(int(size) for size in shape), layer) for shape in shapes]
        self.layers.append(layer)
        return layer.tops

    def layer(
        self, kind: str, *bottoms: Blob, shape: Sizes | None = None, arrays: Any = (), **keys: Any
    ) -> Blob:
        """Add a layer of one top, of the first bottom's shape if none is given; returns it."""
        shape = bottoms[0].shape if shape is None else shape
        return self.add(kind, bottoms, [shape], arrays, **keys)[0]

    def op(self, kind: str, *operands: Any, **attributes: Any) -> Blob:
        """Returns what an operator that broadcasts becomes, of blobs, or of a blob and a number."""
        if kind in ("Add", "Mul", "Pow") and isinstance(operands[1], float):
            x, number = operands
            if kind == "Pow":
                return self.power(x, number)
            return self.linear(x, number) if kind == "Mul" else self.linear(x, shift=number)
        inputs: list[Any] = [Tensor("", one.shape, "float32", blob=one) for one in operands]
        output = Tensor("", np.broadcast_shapes(*(one.shape for one in operands)), "float32")
        return READERS[kind](self, Node(kind, "", inputs, [output], attributes, OPSET, {}))

    def blob(self, tensor: Tensor | None) -> Blob:
        """What holds a tensor: a constant is the parameter of a Parameter layer. Raises RefusedError."""
        if tensor is not None and tensor.blob is not None:
            return tensor.blob
        if tensor is None or tensor.data is None:
            raise RefusedError("an input is missing")
        return self.constant(tensor.data)

    def constant(self, array: np.ndarray) -> Blob:
        """A blob that holds these numbers."""
        array = np.asarray(array, np.float32, order="C")
        key = repr(array.shape).encode() + array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.add(
                "Parameter", [], [array.shape], [array], shape={"dim": list(array.shape)}
            )[0]
        return self._constants[key]

    def reshape(self, x: Blob, shape: Sizes) -> Blob:
        """The numbers in another shape, the samples' axis kept by name. Raises RefusedError for others."""
        shape = tuple(int(size) for size in shape)
        if shape == x.shape:
            return x
        if math.prod(shape) != math.prod(x.shape):
            raise RefusedError(f"a blob of shape {x.shape} cannot have the shape {shape}")
        if x.layer is not None and x.layer.type == "Reshape":
            return self.reshape(x.layer.bottoms[0], shape)
        if self.lacks("Reshape") and shape == (x.shape[0], math.prod(x.shape[1:])):
            return self.layer("Flatten", x, shape=shape)
        dims = list(shape)
        if shape and x.shape and shape[0] == x.shape[0]:
            dims[0] = 0
        return self.add("Reshape", [x], [shape], shape={"dim": dims})[0]

    def linear(self, x: Blob, scale: float = 1.0, shift: float = 0.0) -> Blob:
        """shift + scale x, entry by entry; one layer with a Power before it that does no more."""
        before, factor, offset = self.before_power(x)
        if before is not x:
            return self.linear(before, scale * factor, shift + scale * offset)
        return x if (scale, shift) == (1.0, 0.0) else self.power(x, 1.0, scale, shift)

    def before_power(self, x: Blob, power: float = 1.0) -> tuple[Blob, float, float]:
        """The blob, scale and shift that x is (shift + scale blob)^power of; x, 1 and 0 if none."""
        layer = x.layer
        if layer is None or layer.type != "Power" or layer.keys.get("power", 1.0) != power:
            return x, 1.0, 0.0
        return layer.bottoms[0], layer.keys.get("scale", 1.0), layer.keys.get("shift", 0.0)

    def power(self, x: Blob, power: float, scale: float = 1.0, shift: float = 0.0) -> Blob:
        """(shift + scale x)^power, entry by entry."""
        keys = differing(power=(power, 1.0), scale=(scale, 1.0), shift=(shift, 0.0))
        return self.layer("Power", x, **keys)

    def raised(self, x: Blob, power: float) -> Blob:
        """x^power; with a Power before it that only scales and shifts, one layer."""
        before, scale, shift = self.before_power(x)
        return self.power(before, power, scale, shift)

    def part(self, x: Blob, axis: int, start: int, stop: int) -> Blob:
        """Entries start to stop of an axis; the others go into a Silence."""
        size = x.shape[axis]
        if (start, stop) == (0, size):
            return x
        cuts = [point for point in (start, stop) if 0 < point < size]
        return self.cut(x, axis, cuts)[1 if start > 0 else 0]

    def cut(self, x: Blob, axis: int, points: Sizes) -> list[Blob]:
        """A blob cut along an axis before these entries."""
        if not points:
            return [x]
        edges = [0, *points, x.shape[axis]]
        shapes = [sized(x.shape, axis, stop - start) for start, stop in itertools.pairwise(edges)]
        return self.add("Slice", [x], shapes, axis=axis, slice_point=list(points))

    def concat(self, parts: Sequence[Blob], axis: int) -> Blob:
        """Blobs joined along an axis."""
        if len(parts) == 1:
            return parts[0]
        shape = sized(parts[0].shape, axis, sum(part.shape[axis] for part in parts))
        return self.layer("Concat", *parts, shape=shape, axis=axis)

    def take(self, x: Blob, axis: int, indices: Sizes) -> Blob:
        """Entries of an axis in this order: parts, joined anew. Raises RefusedError if those are too many."""
        upwards = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
        runs = [(int(run[0]), int(run[-1]) + 1) for run in upwards]
        points = sorted({p for run in runs for p in run} - {0, x.shape[axis]})
        if axis == 1 and len(runs) > MAX_PARTS:
            return self.picked(x, indices)
        if len(points) >= MAX_PIECES or len(runs) > MAX_PIECES:
            raise RefusedError(
                f"it puts axis {axis} into another order, which would take {len(runs)} parts"
            )
        edges = [0, *points, x.shape[axis]]
        pieces = dict(zip(edges, self.cut(x, axis, points), strict=False))
        parts = []
        for start, stop in runs:
            parts += [pieces[edge] for edge in edges if start <= edge < stop]
        return self.concat(parts, axis)

    def picked(self, x: Blob, indices: Sizes) -> Blob:
        """Channels in another order: a product with ones and zeros, a Convolution by a 1 x 1 kernel."""
        pick = np.zeros(limited(len(indices), x.shape[1]), np.float32)
        pick[np.arange(len(indices)), indices] = 1
        return self.mixed(x, pick)

    def mixed(self, x: Blob, matrix: np.ndarray) -> Blob:
        """A matrix times the channels of each place: a Convolution by a 1 x 1 kernel."""
        n, c, *image = x.shape
        flat = self.reshape(x, (n, c, math.prod(image[:-1]), image[-1] if image else 1))
        shape = (n, len(matrix), *flat.shape[2:])
        y = self.weighted("Convolution", flat, matrix[:, :, None, None], shape, kernel_size=1)
        return self.reshape(y, (n, len(matrix), *image))

    def weighted(
        self, kind: str, x: Blob, weight: Any, shape: Sizes, bias: Any = None, **keys: Any
    ) -> Blob:
        """A Convolution, an InnerProduct or, of a weight (c, outputs a group, ...), a Deconvolution."""
        group = int(keys.pop("group", 1))
        keys |= {"num_output": weight.shape[1] * group if kind == "Deconvolution" else len(weight)}
        keys |= differing(group=(group, 1), bias_term=(bias is not None, True))
        arrays = [weight] if bias is None else [weight, bias]
        return self.layer(kind, x, shape=shape, arrays=arrays, **keys)

    def turned(self, x: Blob, axis: int) -> Blob:
        """The entries of an axis from the last to the first."""
        layer = x.layer
        if layer is not None and layer.type == "Reverse" and layer.keys["axis"] == axis:
            return layer.bottoms[0]
        return self.layer("Reverse", x, axis=axis)

    def tile(self, x: Blob, shape: Sizes) -> Blob:
        """A blob repeated along its axes until it has this shape."""
        for axis, size in enumerate(shape):
            if x.shape[axis] != size:
                keys = {"axis": axis, "tiles": size // x.shape[axis]}
                x = self.layer("Tile", x, shape=sized(x.shape, axis, size), **keys)
        return x

    def spread(self, x: Blob, shape: Sizes) -> Blob:
        """A blob broadcast to a shape of as many axes or more, by the rule of NumPy."""
        x = self.reshape(x, (*(1,) * (len(shape) - len(x.shape)), *x.shape))
        return self.tile(x, shape)

    def times(self, x: Blob, factor: np.ndarray) -> Blob:
        """x times numbers that broadcast into its shape."""
        return self._with_numbers("Scale", x, factor)

    def plus(self, x: Blob, term: np.ndarray) -> Blob:
        """x plus numbers that broadcast into its shape."""
        return self._with_numbers("Bias", x, term)

    def _with_numbers(self, kind: str, x: Blob, numbers: np.ndarray) -> Blob:
        numbers = np.asarray(numbers, np.float32)
        if numbers.size == 1 or (numbers == numbers.flat[0]).all():
            one = float(numbers.flat[0])
            return self.linear(x, scale=one) if kind == "Scale" else self.linear(x, shift=one)
        axis, run = numbers_run(numbers, x.shape)
        layer = x.layer
        if kind != "Bias" or layer is None or not _takes_bias(layer, axis, run):
            return self.layer(kind, x, arrays=[run], axis=axis, num_axes=run.ndim)
        keys = {key: value for key, value in layer.keys.items() if key != "bias_term"}
        keys |= {"bias_term": True} if layer.type == "Scale" else {}
        arrays = [*layer.arrays, run]
        return self.layer(layer.type, *layer.bottoms, shape=x.shape, arrays=arrays, **keys)

    def product(self, a: Blob, b: Blob) -> Blob:
        """a b, entry by entry."""
        return self.layer("Eltwise", a, b, operation="PROD")

    def combined(self, kind: str, a: Blob, b: Blob, shape: Shape) -> Blob:
        """a + b or a b ("Bias", "Scale"), broadcast by the rule of NumPy to `shape`."""
        if a.shape == b.shape == shape:
            return self.layer("Eltwise", a, b) if kind == "Bias" else self.product(a, b)
        if a.shape != shape:
            a, b = b, a
        if a.shape != shape:
            a = self.spread(a, shape)
        padded = (*(1,) * (len(shape) - len(b.shape)), *b.shape)
        own = [axis for axis, size in enumerate(padded) if size != 1]
        first, last = (own[0], own[-1]) if own else (0, 0)
        if padded and padded[0] == shape[0]:
            first = 0  # of the samples: the same net at another size of the batch
        b = self.tile(self.reshape(b, padded[first : last + 1]), shape[first : last + 1])
        return self.layer(kind, a, b, axis=first)


def sized(shape: Sizes, axis: int, size: int) -> Shape:
    """Returns a shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def differing(**keys: tuple[Any, Any]) -> dict[str, Any]:
    """Returns the keys whose values are not the usual ones, given as (value, usual).

    >>> differing(group=(1, 1), axis=(2, 1))
    {'axis': 2}
    """
    return {key: value for key, (value, usual) in keys.items() if value != usual}


def limited(*shape: int) -> Shape:
    """A shape of numbers that a layer is to hold. Raises RefusedError where they are too many."""
    if math.prod(shape) > MAX_NUMBERS:
        raise RefusedError(f"it needs numbers of shape {shape}, more than any layer holds")
    return shape


def numbers_run(numbers: np.ndarray, shape: Shape) -> tuple[int, np.ndarray]:
    """The first axis that numbers vary along, and the numbers over the axes from there to the last such.

    >>> axis, run = numbers_run(np.arange(3.0).reshape(3, 1, 1), (2, 3, 4, 4))
    >>> axis, run.shape
    (1, (3,))
    """
    padded = numbers.reshape((1,) * (len(shape) - numbers.ndim) + numbers.shape)
    own = [axis for axis in range(padded.ndim) if padded.shape[axis] != 1]
    first, last = own[0], own[-1]
    inner = shape[first : last + 1]
    return first, np.broadcast_to(padded.reshape(padded.shape[first : last + 1]), inner)


def _takes_bias(layer: Layer, axis: int, run: np.ndarray) -> bool:
    """Whether numbers for these axes can be the bias that a layer does not have."""
    if len(layer.arrays) != 1:
        return False
    if layer.type == "Scale":
        return layer.arrays[0].shape == run.shape and layer.keys.get("axis", 1) == axis
    rows = ("InnerProduct", "Embed")
    if layer.type not in ("Convolution", "Deconvolution", *rows):
        return False
    channels = len(layer.tops[0].shape) - 1 if layer.type in rows else 1
    return run.ndim == 1 and axis == channels and len(run) == layer.keys["num_output"]


def readable(name: str, kind: str = "") -> str:
    """A tensor's or weight's name as that of a layer.

    >>> readable("/layer1/layer1.0/conv1/Conv_output_0", "Conv")
    'layer1/layer1.0/conv1'
    >>> readable("layer1.0.conv1.weight")
    'layer1.0.conv1'
    """
    name = re.sub(r"_output_\d+$", "", name).strip("/")
    if kind and name.endswith(f"/{kind}"):
        name = name.rpartition("/")[0]
    name = re.sub(r"\.(weight|bias)$", "", name)
    return re.sub(r"[^\w./:+-]+", "_", name)


SIGNS = r"\w./:+-"  # what a name may hold, as between the brackets of a regular expression


def living(outputs: Blobs) -> list[Layer]:
    """The layers that an output is computed of, each behind those that it reads."""
    live: list[Layer] = []
    seen = set[Layer]()
    stack = [(blob.layer, False) for blob in reversed(list(outputs.values())) if blob.layer]
    while stack:
        layer, done = stack.pop()
        if done:
            live.append(layer)
        elif layer not in seen:
            seen.add(layer)
            stack.append((layer, True))
            stack += [(blob.layer, False) for blob in reversed(layer.bottoms) if blob.layer]
    return live


def plain(name: str, signs: str = SIGNS) -> str:
    """A name whose characters are all of `signs`, as between the brackets of a regular expression.

    >>> plain("main graph!"), plain("é:0+", "A-Za-z0-9_./-")
    ('main_graph_', '__0_')
    """
    return re.sub(f"[^{signs}]", "_", name) or "net"


def give_names(
    layers: list[Layer],
    inputs: Blobs,
    outputs: Blobs,
    tensors: Blobs,
    hints: Mapping[str, str],
    signs: str = SIGNS,
) -> list[str]:
    """Name blobs and layers: inputs and outputs as the model does, a layer as its top.

    `tensors` are the blobs that hold a tensor of the model, `hints` readable names of some of these tensors.
    A layer that holds a weight `conv1.weight` is conv1; any other is called after the tensor it computes, and
    one that a node needs beside, after the layer that it leads to. A name holds only characters of `signs`; no
    two are the same. Returns a line on the inputs and outputs that could not keep their names.
    """
    taken, numbers = set[str](), Counter[str]()

    def unique(wanted: str) -> str:
        base = free = plain(wanted, signs)
        while free in taken:
            numbers[base] += 1
            free = f"{base}_{numbers[base] + 1}"
        taken.add(free)
        return free

    renamed = []
    for word, ends in (("input", inputs), ("output", outputs)):
        for wanted, blob in ends.items():
            blob.name = unique(wanted)
            if blob.name != wanted:
                renamed.append(f"{word} {wanted!r} is called {blob.name!r}")
    live = {blob for layer in layers for blob in layer.tops}
    tensors = {tensor: blob for tensor, blob in tensors.items() if blob in live}
    for tensor, blob in tensors.items():
        if not blob.name and blob.layer is not None and len(blob.layer.tops) == 1:
            blob.name = unique(hints.get(tensor) or readable(tensor) or "blob")
    for tensor, blob in tensors.items():
        if not blob.name:
            blob.name = unique(readable(tensor) or "blob")
    last: dict[str, str] = {}
    for layer in layers:
        for blob in layer.tops:
            if blob.name:
                last.setdefault(layer.origin, blob.name)
    for layer in layers:
        for blob in layer.tops:
            if not blob.name:
                word = "part" if layer.type == "Slice" else layer.type.lower()
                blob.name = unique(f"{last.get(layer.origin, '') or 'net'}_{word}")
        layer.name = layer.tops[0].name if len(layer.tops) == 1 else ""
    for layer in layers:
        if not layer.name:
            layer.name = unique(f"{layer.tops[0].name}_{layer.type.lower()}")
    return [", ".join(renamed)] if renamed else []


def hints(nodes: Sequence[Any], weights: Container[str]) -> dict[str, str]:
    """A readable name of each node's first output: that of its weight, or of its node."""
    names = {}
    for node in nodes:
        weight = next((one for one in node.input[1:] if one in weights), "")
        named = re.fullmatch(r"(.*[^.])\.weight", weight)
        names[node.output[0]] = readable(named[1] if named else node.output[0], node.op_type)
    return names
