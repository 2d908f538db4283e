"""A net as a model of ONNX: its layers written one after another, its blobs' names kept.

Axes may be dynamic. What then varies is not derived but tried: the net's shapes are inferred at several sizes
of the inputs, the net's own first, and a list of shapes here is always one of each trial. A size that is the
same in all is a number; another is asked for when the graph runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe import __version__
from minicaffe.core.layers.blob import Shape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError, did_you_mean
from minicaffe.interop.onnx.table import packages, writer_of
from minicaffe.tools.inference import inputs

Shapes = Sequence[Sequence[int]]  # of one array, in each trial
Trial = Mapping[Value, Shape]
END = np.iinfo(np.int64).max  # as far as an axis goes


@dataclass
class Node:
    """An operation: what it reads and writes by name, and the layer that it is a part of."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str
    layer: str


class Written(Step):
    """A step of a net that is written; its layer has the keys of its type."""

    layer: Any


class Graph:
    """Nodes and arrays under way to a file. `trials` are the shapes of all values at several sizes."""

    def __init__(self, trials: Sequence[Trial]):
        self.trials = trials
        self.nodes: list[Node] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.tensors: dict[Value, str] = {}  # what holds each value of the net
        self.open: dict[Value, Sequence[int]] = {}  # axes whose sizes only the numbers tell
        self._taken = {value.name for trial in trials for value in trial}  # for what holds blobs
        self._constants: dict[Any, str] = {}
        self.layer = ""  # in whose name nodes are written

    def unique(self, name: str) -> str:
        """A name that nothing else has: this one, or with a number behind it."""
        free, number = name, 1
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add an operation; returns the name of its output.

        An input is the name of a tensor, None where one is left out, or a constant: a number or array, a
        float being of float32, an integer of int64.

        >>> graph = Graph([])
        >>> graph.op("Mul", "x", 2.0), graph.nodes[0].inputs, graph.arrays
        ('/Mul', ['x', '/constant'], {'/constant': array(2., dtype=float32)})
        """
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, outputs: int, *inputs: Any, **attributes: Any) -> list[str]:
        """Add an operation of several outputs; returns their names."""
        name = self.unique(f"{self.layer}/{kind}")
        tops = [name if i == 0 else self.unique(f"{name}:{i}") for i in range(outputs)]
        names = ["" if x is None else x if isinstance(x, str) else self.const(x) for x in inputs]
        self.nodes.append(Node(kind, names, list(tops), attributes, name, self.layer))
        return tops

    def const(self, values: Any, hint: str = "") -> str:
        """The name of a constant array: of float32 or, of integers, int64; bool stays bool."""
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype.kind in "iu":
            array = array.astype(np.int64)
        key = array.dtype, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._hold(hint or f"{self.layer}/constant", array)
        return self._constants[key]

    def param(self, step: Step, index: int, shape: Sequence[int] | None = None) -> str:
        """The name of a parameter's array, that by which `load` knows it; in another shape if one is given."""
        param = step.layer.params[index].owner
        shape = tuple(step.layer.params[index].shape if shape is None else shape)
        key = id(param), shape
        if key not in self._constants:
            array = param.to_host().astype(np.float32, copy=False).reshape(shape)
            self._constants[key] = self._hold(f"{step.spec.name}__{index}", array)
        return self._constants[key]

    def _hold(self, name: str, array: np.ndarray) -> str:
        name = self.unique(name)
        self.arrays[name] = array
        return name

    def turned(self, x: str, axes: Sequence[int]) -> str:
        """The entries of axes from the last to the first."""
        last, backwards = [np.iinfo(np.int64).min] * len(axes), [-1] * len(axes)
        return self.op("Slice", x, backwards, last, list(axes), backwards) if axes else x

    def shapes(self, value: Value) -> list[Shape]:
        """A value's shape in each trial."""
        return [trial[value] for trial in self.trials]

    def varies(self, value: Value, *axes: int) -> bool:
        """Whether any of a value's axes, or of these, is dynamic."""
        shapes = self.shapes(value)
        return any(_differ(shapes, axis) for axis in axes or range(len(shapes[0])))

    def size(self, x: str, axis: int) -> str:
        """The size of a tensor's axis when the graph runs, an int64 array of one number."""
        return self.op("Shape", x, start=axis, end=axis + 1)

    def reshape(self, x: str, before: Shapes, after: Shapes, like: Value | None = None) -> str:
        """`x` of shapes `before` in shapes `after`; sizes that vary are x's or `like`'s, but for one."""
        if [tuple(shape) for shape in before] == [tuple(shape) for shape in after]:
            return x
        sizes: list[int | None] = []
        for axis in range(len(after[0])):
            same = axis < len(before[0]) and _column(before, axis) == _column(after, axis)
            number = None if _differ(after, axis) else after[0][axis]
            sizes.append(0 if number is None and same else number)
        if sizes.count(None) <= 1:
            return self.op("Reshape", x, [-1 if size is None else size for size in sizes])
        sources = [(x, before)] + ([(self.tensors[like], self.shapes(like))] if like else [])
        return self.op("Reshape", x, self.sizes(after, *sources, free=True))

    def sizes(self, shapes: Shapes, *sources: tuple[str, Shapes], free: bool = False) -> str:
        """A shape as a tensor, where sizes that vary are those of axes of `sources`, tensors of known shapes.

        With `free` one of the others may be whatever is left (-1, as Reshape takes it). Raises SpecError if
        a size is not to be had so.
        """
        parts: list[str] = []
        for axis in range(len(shapes[0])):
            column = _column(shapes, axis)
            places = [
                (name, i)
                for name, known in sources
                for i in range(len(known[0]))
                if _column(known, i) == column
            ]
            if not _differ(shapes, axis):
                parts.append(self.const([column[0]]))
            elif places:
                parts.append(self.size(*places[0]))
            elif free:
                parts.append(self.const([-1]))
                free = False
            else:
                raise SpecError(f"axis {axis} of its top cannot be dynamic as others are")
        return self.op("Concat", *parts, axis=0) if parts else self.const(np.empty(0, np.int64))


@dataclass
class Body:
    """The graph within an operation, such as the step of a Scan; its constants lie in the whole graph."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: list[Node]


def _column(shapes: Shapes, axis: int) -> list[int]:
    return [shape[axis] for shape in shapes]


def _differ(shapes: Shapes, axis: int) -> bool:
    return len(set(_column(shapes, axis))) > 1


WORDS = {"batch": 0, "height": 2, "width": 3}
Axes = Mapping[Value, Mapping[int, str]]  # of inputs, their dynamic axes, and a word for each


def dynamic_axes(net: Net, words: Sequence[str]) -> Axes:
    """Axes of words: `batch`, of inputs of the first's samples; `height` and `width`. Raises SpecError."""
    axes: dict[Value, dict[int, str]] = {}
    for word in words:
        if word not in WORDS:
            hint = did_you_mean(word, WORDS) or f"; expected {', '.join(WORDS)}"
            raise SpecError(f"dynamic: there is no axis {word!r}{hint}")
        axis = WORDS[word]
        fits = [v for v in inputs(net) if len(v.shape) == 4 or (not axis and v.shape)]
        if not fits:
            raise SpecError(f"dynamic: no input of net {net.name!r} has a {word}")
        for value in fits:
            if axis or value.shape[0] == fits[0].shape[0]:
                axes.setdefault(value, {})[axis] = word
    return axes


def words_of(axes: Axes) -> list[str]:
    """The words of dynamic axes, each once."""
    return list(dict.fromkeys(word for those in axes.values() for word in those.values()))


def trials(net: Net, axes: Axes) -> list[Trial]:
    """The shapes of all values at the net's own size, at others of one word each, and at others of all.

    Larger by 32, which nets of strides of 2 can do with, and by 37 where the net can: what is one size
    with the former need not be with the latter. Raises the error of the layer that cannot take another size.
    """
    words = words_of(axes)
    mine = [value for step in net.steps for value in step.tops]
    shapes_at: list[Trial] = [{value: value.shape for value in mine}]
    if not words:
        return shapes_at
    shapes = Net(net.spec, "TEST", device="cpu", shapes_only=True)
    for some, more in [*(([word], 32) for word in words), (words, 32), (words, 37)]:
        try:
            shapes.reshape(**sizes(net, axes, some, more))
        except MinicaffeError as error:
            if more == 37:
                break
            raise error.at(f"dynamic {', '.join(some)}: another size will not do") from None
        sizes_now = [value.shape for step in shapes.steps for value in step.tops]
        shapes_at.append(dict(zip(mine, sizes_now, strict=True)))
    return shapes_at


def sizes(net: Net, axes: Axes, words: Sequence[str], more: int = 32) -> dict[str, Shape]:
    """Shapes of a net's inputs, larger along axes of these words, the first of a shape by 2."""
    return {
        value.name: tuple(
            size + (2 if axis == 0 else more) * (axes.get(value, {}).get(axis) in words)
            for axis, size in enumerate(value.shape)
        )
        for value in inputs(net)
    }


OPSET = 17  # of 2022: read by onnxruntime from 1.12 on
IR_VERSION = 8
MOST = 2**31 - 2**20  # bytes of a file: protobuf's limit, with room for what is no array


def write(net: Net, trials: Sequence[Trial]) -> Graph:
    """A net's layers as ONNX's nodes. Raises SpecError for a layer, or keys of one, that it cannot say."""
    graph = Graph(trials)
    for value in inputs(net):
        graph.tensors[value] = value.name
    for step in net.steps:
        if step.spec.type == "Input":
            continue
        graph.layer = step.spec.name
        if any(value in graph.open for value in step.bottoms):
            graph.open |= {value: range(len(value.shape)) for value in step.tops}
        with step:
            writer = writer_of(step.spec.type)
            tops = writer(graph, step, *[graph.tensors[value] for value in step.bottoms])
        tops = [tops] if isinstance(tops, str) else tops
        graph.tensors.update(zip(step.tops, tops, strict=True))
    name_blobs(graph, net)
    return graph


def name_blobs(graph: Graph, net: Net) -> None:
    """Name what holds a blob as it, outputs first; what it held before in place by the layer too."""
    fixed = set(graph.arrays) | {graph.tensors[value] for value in inputs(net)}
    outputs: set[str] = set()
    for value in net.graph.outputs.values():
        if graph.tensors[value] in fixed | outputs:
            graph.tensors[value] = graph.op("Identity", graph.tensors[value])
        outputs.add(graph.tensors[value])
    new: dict[str, str] = {}
    tops = [(step, value) for step in reversed(net.steps) for value in step.tops]
    last = set(net.graph.outputs.values())
    for step, value in sorted(tops, key=lambda top: top[1] not in last):
        tensor = graph.tensors[value]
        if tensor in fixed or tensor in new:
            continue
        taken = value.name in fixed or value.name in new.values()
        new[tensor] = graph.unique(f"{value.name}/{step.spec.name}") if taken else value.name
    for node in graph.nodes:
        node.inputs = [new.get(name, name) for name in node.inputs]
        node.outputs = [new.get(name, name) for name in node.outputs]
    graph.tensors = {value: new.get(name, name) for value, name in graph.tensors.items()}


def proto(graph: Graph, net: Net, axes: Axes, more: Iterable[Value] = ()) -> Any:
    """The onnx.ModelProto; values of `more` are outputs too. Raises CheckpointError for a net too large."""
    size = sum(array.nbytes for array in graph.arrays.values())
    if size > MOST:
        raise CheckpointError(
            f"net {net.name!r} has {size >> 20} MiB of parameters; an .onnx file holds less than 2048 MiB"
        )
    onnx, _ = packages()
    helper = onnx.helper
    info = helper.make_tensor_value_info
    outputs = {graph.tensors[value]: value for value in net.graph.outputs.values()}
    computed = {name for node in graph.nodes for name in node.outputs}
    outputs |= {graph.tensors[value]: value for value in more if graph.tensors[value] in computed}
    model = helper.make_model(
        helper.make_graph(
            [operation(helper, node) for node in graph.nodes],
            net.name or "net",
            [info(*described(graph, value, axes)) for value in inputs(net)],
            [info(*described(graph, value, axes)) for value in outputs.values()],
        ),
        producer_name="minicaffe",
        producer_version=__version__,
        doc_string=f"net {net.name!r} of Caffe's kind, as it infers",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    for name, array in graph.arrays.items():  # together they would be held three times
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def operation(helper: Any, node: Node) -> Any:
    """A node as an onnx.NodeProto; a body among its attributes as a graph of matrices."""
    attributes = dict(node.attributes)
    for key, within in node.attributes.items():
        if isinstance(within, Body):
            nodes = [operation(helper, one) for one in within.nodes]
            ends = [
                [helper.make_tensor_value_info(name, 1, [None, None]) for name in names]
                for names in (within.inputs, within.outputs)
            ]
            attributes[key] = helper.make_graph(nodes, f"{node.name}/{key}", *ends)
    return helper.make_node(node.kind, node.inputs, node.outputs, node.name, **attributes)


def described(graph: Graph, value: Value, axes: Axes) -> tuple[str, int, list[Any]]:
    """A value's name, type (1: float32) and shape, with words for the axes that vary or are open."""
    name, shapes = graph.tensors[value], graph.shapes(value)
    words: dict[tuple[int, ...], str] = {}
    for one, those in axes.items():
        for axis, word in those.items():
            if word not in words.values():  # the same word elsewhere would promise the same size
                words[tuple(shape[axis] for shape in graph.shapes(one))] = word
    sizes: list[Any] = []
    for axis, size in enumerate(value.shape):
        own = f"{name}_{axis}"
        if axis in graph.open.get(value, ()):
            sizes.append(own)
        elif graph.varies(value, axis):
            sizes.append(words.get(tuple(shape[axis] for shape in shapes), own))
        else:
            sizes.append(size)
    return name, 1, sizes
