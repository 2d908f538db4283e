"""Pictures in DOT, the language of Graphviz."""

from __future__ import annotations

from collections.abc import Sequence

from minicaffe.errors import SpecError
from minicaffe.tools.visualize.drawing.graph import COLOURS, Graph
from minicaffe.tools.visualize.drawing.layout import DIRECTIONS

ESCAPES = {"\n": "\\n", '"': '\\"', "\\": "\\\\"}


def dot(graph: Graph, direction: str = "TB") -> str:
    """A graph in DOT, for Graphviz to lay out. Raises SpecError.

    >>> from minicaffe.tools.visualize.drawing.graph import Edge, Node
    >>> nodes = [Node(("data", "Input"), "data"), Node(("ip", "InnerProduct"), "product")]
    >>> print(dot(Graph("net", nodes, [Edge(0, 1, "64x10")])))
    digraph "net" {
      rankdir="TB"
      node [shape="box" style="rounded,filled" fontname="Helvetica"]
      n0 [label="data\\nInput" tooltip="data" color="#64748b" fillcolor="#64748b24"]
      n1 [label="ip\\nInnerProduct" tooltip="ip" color="#9b59d0" fillcolor="#9b59d024"]
      n0 -> n1 [label="64x10"]
    }
    <BLANKLINE>
    """
    if direction not in DIRECTIONS:
        raise SpecError(f"direction: expected {' or '.join(DIRECTIONS)}, got {direction!r}")
    style = with_keys("node", shape="box", style="rounded,filled", fontname="Helvetica")
    lines = [f"rankdir={quoted(direction)}", style]
    for i, node in enumerate(graph.nodes):
        colour = COLOURS[node.family]
        colours = {"color": colour, "fillcolor": f"{colour}24"}
        told = {"label": "\n".join(node.lines), "tooltip": node.title or node.name}
        lines.append(with_keys(f"n{i}", **told, **colours))
    for edge in graph.edges:
        label = {"label": edge.label} if edge.label else {}
        lines.append(with_keys(f"n{edge.source} -> n{edge.target}", **label))
    return digraph(graph.name or "net", lines)


def digraph(name: str, lines: Sequence[str]) -> str:
    """A graph of a name that holds these lines."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"digraph {quoted(name)} {{\n{body}}}\n"


def with_keys(what: str, **keys: str) -> str:
    """A node or an edge with what is told of it."""
    told = " ".join(f"{key}={quoted(value)}" for key, value in keys.items())
    return f"{what} [{told}]" if told else what


def quoted(text: str) -> str:
    """A text in quotes as DOT reads it; what cannot be printed is a question mark.

    >>> print(quoted('a "b"'))
    "a \\"b\\""
    """
    return '"' + "".join(ESCAPES.get(c, c if c.isprintable() else "?") for c in text) + '"'
