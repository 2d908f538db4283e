"""What a picture shows: boxes with lines of text, and arrows between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# The colour of a family of layers: of mid lightness, so that it does on light paper and on dark.
COLOURS: Mapping[str, str] = {
    "data": "#64748b",
    "convolution": "#e5484d",
    "pooling": "#f08c1a",
    "product": "#9b59d0",
    "normalization": "#0d9c97",
    "activation": "#3f9b46",
    "loss": "#d6409f",
    "other": "#3b82f6",
}


@dataclass(frozen=True)
class Node:
    """A box. Of its `lines` the first is its name, the second its type; `title` tells all there is to know.

    `family` is its colour, a key of COLOURS; `folded` are the names of layers drawn in the same box.
    """

    lines: tuple[str, ...]
    family: str = "other"
    title: str = ""
    folded: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first line."""
        return self.lines[0]


@dataclass(frozen=True)
class Edge:
    """An arrow from one node to a later one, by their numbers, and what is written where it begins.

    Edges of one source and one `port` begin in one point: they carry the same.
    """

    source: int
    target: int
    label: str = ""
    port: int = 0


@dataclass(frozen=True)
class Graph:
    """Nodes, each after those that it has edges from, and the edges.

    >>> Graph("net", [Node(("data", "Input")), Node(("ip", "InnerProduct"))], [Edge(0, 1, "64x10")]).title
    'net: 2 boxes'
    """

    name: str
    nodes: Sequence[Node]
    edges: Sequence[Edge] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """No edge goes back."""
        count = len(self.nodes)
        assert all(0 <= edge.source < edge.target < count for edge in self.edges)

    @property
    def title(self) -> str:
        """What the picture is of."""
        return f"{self.name or 'net'}: {len(self.nodes)} boxes"
