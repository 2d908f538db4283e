"""What is written of a layout: SVG is XML whatever the names, PNG a picture of the same size, DOT as Graphviz reads it."""

import io
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.errors import DataError, ShapeError
from minicaffe.tools.visualize.drawing import Edge, Graph, Node, dot, layout, png, svg

HOSTILE = "</svg><script>alert('x')</script>&\"\x00\ud800\u202e\n"
NAME = "{http://www.w3.org/2000/svg}"
NET = Graph(
    "net",
    [
        Node(("data", "Input"), "data"),
        Node(("ip", "InnerProduct"), "product", "ip: all of it", ("relu",)),
        Node(("loss",), "loss"),
    ],
    [Edge(0, 1, "64x10"), Edge(1, 2, "64x2"), Edge(0, 2, "64", 1)],
)


@settings(max_examples=60)
@given(st.text(max_size=80), st.text(max_size=80), st.booleans())
def test_svg_is_xml_whatever_the_names(name, title, alone):
    graph = Graph(
        name,
        [Node((name, title), title=title, folded=(name,)), Node((title or "b",))],
        [Edge(0, 1, name)],
    )
    root = ElementTree.fromstring(svg(layout(graph), alone).encode())
    assert root.tag == f"{NAME}svg"
    assert len(root.findall(f".//{NAME}rect")) == 2


def test_hostile_names_are_text_in_svg_and_dot():
    graph = Graph(
        HOSTILE, [Node((HOSTILE, HOSTILE), title=HOSTILE), Node(("b",))], [Edge(0, 1, HOSTILE)]
    )
    text = svg(layout(graph), alone=True)
    assert {element.tag for element in ElementTree.fromstring(text.encode()).iter()} == {
        f"{NAME}{tag}" for tag in ("svg", "title", "style", "g", "path", "rect", "text")
    }
    assert "<script" not in text
    assert len(dot(graph).splitlines()) == 7  # nothing breaks out of its quotes


def test_each_box_has_its_title_and_each_port_one_label():
    root = ElementTree.fromstring(svg(layout(NET)))
    boxes = {
        group.get("data-layer"): group for group in root.iter(f"{NAME}g") if group.get("data-layer")
    }
    assert set(boxes) == {"data", "ip", "loss"}
    assert boxes["ip"].find(f"{NAME}title").text == "ip: all of it"
    assert boxes["ip"].get("data-folded") == "relu" and boxes["ip"].get("class") == "layer product"
    labels = [text.text for text in root.iter(f"{NAME}text")]
    assert [labels.count(label) for label in ("64x10", "64x2", "64")] == [1, 1, 1]


def test_what_edges_share_is_drawn_once():
    nodes = [Node((name,)) for name in "abcd"]
    edges = [Edge(0, 1), Edge(1, 2), Edge(2, 3), Edge(0, 2), Edge(0, 3)]
    text = svg(layout(Graph("net", nodes, edges)))
    x, y = layout(Graph("net", nodes, edges)).ways[0].points[0]
    assert text.count(f"M{x:.1f} {y:.1f}L") == 1  # where three edges leave


def test_in_a_page_it_takes_the_pages_colours_and_alone_it_brings_its_own():
    inline, alone = svg(layout(NET)), svg(layout(NET), alone=True)
    assert "currentColor" in inline and "<style" not in inline and " id=" not in inline
    assert "prefers-color-scheme:dark" in alone


def test_png_is_as_large_as_the_layout_and_not_empty():
    image = pytest.importorskip("PIL.Image")
    laid = layout(NET)
    with image.open(io.BytesIO(png(laid))) as picture:
        assert picture.size == (round(2 * laid.width), round(2 * laid.height))
        box = laid.boxes[1]
        inside = picture.convert("RGB").getpixel((int(2 * box.x) + 12, int(2 * box.y) + 12))
    assert inside == tuple(round(255 - 0.14 * (255 - part)) for part in bytes.fromhex("9b59d0"))
    assert png(layout(NET, "LR")) != png(laid)


def test_a_png_too_large_is_refused_and_without_pillow_told(monkeypatch):
    pytest.importorskip("PIL.Image")
    monkeypatch.setitem(png.__globals__, "MOST", 1000)
    with pytest.raises(ShapeError, match="pixels is too large; SVG has no such limit"):
        png(layout(NET))
    monkeypatch.setitem(sys.modules, "PIL", None)
    told = "a PNG needs Pillow: .*pip install .*; SVG and DOT need nothing"
    with pytest.raises(DataError, match=told):
        png(layout(NET))
