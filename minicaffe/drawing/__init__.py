"""Pictures of nets: boxes and arrows, which come in as data, laid out in ranks, as SVG, PNG or DOT."""

from minicaffe.drawing.dot import dot
from minicaffe.drawing.graph import Edge, Graph, Node
from minicaffe.drawing.layout import Layout, layout
from minicaffe.drawing.png import png
from minicaffe.drawing.svg import svg

__all__ = ["Edge", "Graph", "Layout", "Node", "dot", "layout", "png", "svg"]
