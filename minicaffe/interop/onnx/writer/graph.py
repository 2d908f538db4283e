"""A graph of ONNX while it is written: nodes, constants, parameters, and names that are taken once.

Axes may be dynamic. What then varies is not derived but tried: the net's shapes are inferred at several sizes
of the inputs, the net's own first, and a list of shapes here is always one of each trial. A size that is the
same in all is a number; another is asked for when the graph runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.core.layers.blob import Shape
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import SpecError

Shapes = Sequence[Sequence[int]]  # of one array, in each trial
Trial = Mapping[Value, Shape]


@dataclass
class Node:
    """An operation: what it reads and writes by name, and the layer that it is a part of."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str
    layer: str


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
        self._layer = ""

    def begin(self, step: Step) -> None:
        """Write what follows in a layer's name."""
        self._layer = step.spec.name

    def unique(self, name: str) -> str:
        """A name that nothing else has: this one, or with a number behind it."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found

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
        name = self.unique(f"{self._layer}/{kind}")
        found = [name if i == 0 else self.unique(f"{name}:{i}") for i in range(outputs)]
        given = ["" if x is None else x if isinstance(x, str) else self.const(x) for x in inputs]
        self.nodes.append(Node(kind, given, list(found), attributes, name, self._layer))
        return found

    def const(self, values: Any, hint: str = "") -> str:
        """The name of a constant array: of float32 or, of integers, int64; bool stays bool."""
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype.kind in "iu":
            array = array.astype(np.int64)
        key = array.dtype, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._hold(hint or f"{self._layer}/constant", array)
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

    def rename(self, new: Mapping[str, str]) -> None:
        """Give outputs of nodes other names."""
        for node in self.nodes:
            node.inputs = [new.get(name, name) for name in node.inputs]
            node.outputs = [new.get(name, name) for name in node.outputs]
        self.tensors = {value: new.get(name, name) for value, name in self.tensors.items()}

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
        """The numbers of `x`, of the shapes `before`, in the shapes `after`.

        Where several sizes vary they are those of axes of x, or of `like`, but for one.
        """
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
            found = [
                (name, i)
                for name, known in sources
                for i in range(len(known[0]))
                if _column(known, i) == column
            ]
            if not _differ(shapes, axis):
                parts.append(self.const([column[0]]))
            elif found:
                parts.append(self.size(*found[0]))
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
    outputs: Sequence[str] = ()
    nodes: list[Node] = field(default_factory=list)


@contextmanager
def body(graph: Graph, *inputs: str) -> Iterator[Body]:
    """Within it, operations go into a body that takes these inputs, whose names are made unique."""
    outer, own = graph.nodes, Body([graph.unique(name) for name in inputs])
    graph.nodes = own.nodes
    try:
        yield own
    finally:
        graph.nodes = outer


def _column(shapes: Shapes, axis: int) -> list[int]:
    return [shape[axis] for shape in shapes]


def _differ(shapes: Shapes, axis: int) -> bool:
    return len(set(_column(shapes, axis))) > 1
