"""Pictures of nets: boxes and arrows, which come in as data, laid out in ranks, as SVG, PNG or DOT."""

from minicaffe.tools.visualize.drawing.graph import Edge, Graph, Node
from minicaffe.tools.visualize.drawing.layout import Layout, layout
from minicaffe.tools.visualize.drawing.svg import dot, png, svg

__all__ = ["Edge", "Graph", "Layout", "Node", "dot", "layout", "png", "svg"]
