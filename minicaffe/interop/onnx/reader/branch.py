"""Graphs within nodes: what they read of the graph around; the branch of an If, put into its place."""

from __future__ import annotations

from collections import Counter
from typing import Any

from minicaffe.interop.onnx.draft import Blob, Draft, Node
from minicaffe.interop.onnx.reader.source import graphs
from minicaffe.interop.onnx.table import RefusedError, reads
from minicaffe.interop.onnx.writer.library import packages


@reads("If")
def if_(draft: Draft, node: Node) -> Blob:
    """The branch that a constant condition takes, in its place; another condition is refused."""
    raise RefusedError(
        "its condition is computed of the input; a net of Caffe's is the same for all inputs"
    )


def outer_reads(node: Any) -> Counter[str]:
    """How often the graphs within a node read each name of the graph around it; of two branches, the most."""
    counts = Counter[str]()
    for graph in graphs(node):
        counts |= _reads(graph)
    return counts


def _reads(graph: Any) -> Counter[str]:
    counts = Counter(value.name for value in graph.output)
    for node in graph.node:
        counts.update(name for name in node.input if name)
        counts.update(outer_reads(node))
    for name in _made(graph):
        counts.pop(name, None)
    return counts


def _made(graph: Any) -> list[str]:
    """The names that a graph makes its own: of its inputs, its arrays, and what its nodes compute."""
    names = [one.name for one in (*graph.input, *graph.initializer)]
    names += [one.values.name for one in graph.sparse_initializer]
    return names + [name for node in graph.node for name in node.output if name]


def taken(proto: Any, condition: Any, names: set[str]) -> tuple[list[Any], list[Any]]:
    """Copies of the nodes and arrays of the branch that an If takes, to stand in its place.

    What the branch returns is called as the If's outputs, and nothing else as any of `names`, to which the
    new names are added. Raises RefusedError for a branch that cannot stand there.
    """
    if condition.size != 1 or condition.dtype != bool:
        raise RefusedError(
            f"its condition is {condition.dtype} of shape {list(condition.shape)}, expected one bool"
        )
    key = "then_branch" if condition.item() else "else_branch"
    branch = next(one.g for one in proto.attribute if one.name == key)  # onnx's checker wants one
    results = [value.name for value in branch.output]  # of its own, as onnx's checker demands
    if len(results) != len(proto.output):
        raise RefusedError(
            f"its {key} returns {len(results)} tensors, expected {len(proto.output)}"
        )
    if branch.input or branch.sparse_initializer:
        what = "inputs" if branch.input else "sparse arrays"
        raise RefusedError(f"its {key} has {what}, which are not read")
    new = dict[str, str]()
    computed = {name for node in branch.node for name in node.output}
    for inner, outer in zip(results, proto.output, strict=True):
        if outer and inner in computed:
            new.setdefault(inner, outer)
    for name in _made(branch):
        if name not in new:
            new[name] = _free(name, proto.output[0], names)
    arrays, nodes = [_copy(one) for one in branch.initializer], [_copy(one) for one in branch.node]
    for array in arrays:
        array.name = new[array.name]
    for node in nodes:
        node.output[:] = [new.get(name, name) for name in node.output]
        _rename_inputs(node, new)
    onnx, _ = packages()
    for inner, outer in zip(results, proto.output, strict=True):
        if outer and new[inner] != outer:  # an array, or a result twice
            nodes.append(onnx.helper.make_node("Identity", [new[inner]], [outer]))
    return nodes, arrays


def _free(name: str, prefix: str, names: set[str]) -> str:
    """The name, or one that tells where it stands, that nothing else has."""
    free, number = name, 1
    while free in names:
        free = f"{prefix}/{name}" if number == 1 else f"{prefix}/{name}_{number}"
        number += 1
    names.add(free)
    return free


def _copy(proto: Any) -> Any:
    copied = type(proto)()
    copied.CopyFrom(proto)
    return copied


def _rename_inputs(node: Any, new: dict[str, str]) -> None:
    """Rename what a node reads, and what the graphs within it read of the graph around."""
    node.input[:] = [new.get(name, name) for name in node.input]
    for graph in graphs(node):
        own = set(_made(graph))
        outer = {name: other for name, other in new.items() if name not in own}
        for value in graph.output:
            value.name = outer.get(value.name, value.name)
        for inner in graph.node:
            _rename_inputs(inner, outer)
