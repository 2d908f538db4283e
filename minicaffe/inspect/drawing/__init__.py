"""Pictures of nets: boxes and arrows, which come in as data, laid out in ranks, as SVG, PNG or DOT."""

from minicaffe.inspect.drawing.dot import dot
from minicaffe.inspect.drawing.graph import Edge, Graph, Node
from minicaffe.inspect.drawing.layout import Layout, layout
from minicaffe.inspect.drawing.png import png
from minicaffe.inspect.drawing.svg import svg

__all__ = ["Edge", "Graph", "Layout", "Node", "dot", "layout", "png", "svg"]
