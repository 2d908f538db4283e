"""The graph within an operation, such as the step that a Scan repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from minicaffe.interop.onnx.writer.graph import Graph, Node


@dataclass
class Body:
    """Operations of their own, by names of the whole graph; constants lie in that."""

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
