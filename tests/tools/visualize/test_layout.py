"""Layouts of any graph: boxes apart, edges forward, everything in the picture; and the order found."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.errors import SpecError
from minicaffe.tools.visualize.drawing import Edge, Graph, Node, layout
from minicaffe.tools.visualize.drawing.layout import spread
from minicaffe.tools.visualize.drawing.ranks import crossings, order, ranks

LINES = st.lists(st.text(max_size=60), min_size=1, max_size=5).map(tuple)


@st.composite
def graphs(draw):
    count = draw(st.integers(0, 14))
    nodes = [Node(draw(LINES)) for _ in range(count)]
    edges = []
    if count > 1:
        for _ in range(draw(st.integers(0, 24))):
            source = draw(st.integers(0, count - 2))
            target = draw(st.integers(source + 1, count - 1))
            edges.append(Edge(source, target, draw(st.text(max_size=12)), draw(st.integers(0, 2))))
    return Graph("any", nodes, edges)


@settings(max_examples=100)
@given(graphs(), st.sampled_from(["TB", "LR"]))
def test_boxes_are_apart_and_edges_go_forward(graph, direction):
    laid = layout(graph, direction)
    assert all(map(math.isfinite, (laid.width, laid.height)))
    for box in laid.boxes:
        assert box.width > 0 and box.height > 0
        assert box.x >= 0 and box.x + box.width <= laid.width
        assert box.y >= 0 and box.y + box.height <= laid.height
    for a, b in itertools.combinations(laid.boxes, 2):
        beside = a.x + a.width + 1 < b.x or b.x + b.width + 1 < a.x
        below = a.y + a.height + 1 < b.y or b.y + b.height + 1 < a.y
        assert beside or below
    along = 1 if direction == "TB" else 0
    for edge, way in zip(graph.edges, laid.ways, strict=True):
        deep = [point[along] for point in way.points]
        assert deep == sorted(deep) and deep[0] < deep[-1]
        for node, (x, y) in ((edge.source, way.points[0]), (edge.target, way.points[-1])):
            box = laid.boxes[node]
            assert box.x - 1e-6 <= x <= box.x + box.width + 1e-6
            assert box.y - 1e-6 <= y <= box.y + box.height + 1e-6
        for x, y in way.points:
            assert 0 <= x <= laid.width and 0 <= y <= laid.height


@settings(max_examples=60)
@given(graphs())
def test_points_of_long_edges_pass_beside_the_boxes(graph):
    laid = layout(graph)
    for edge, way in zip(graph.edges, laid.ways, strict=True):
        for number, box in enumerate(laid.boxes):
            if number in (edge.source, edge.target):
                continue
            for (x, y), (u, v) in itertools.pairwise(way.points):
                if x == u:  # straight on, past a rank
                    inside = box.x < x < box.x + box.width
                    assert not (inside and y < box.y + box.height and box.y < v)


def test_a_chain_is_a_straight_line_and_a_fork_stands_in_the_middle():
    chain = Graph(
        "chain", [Node((name,)) for name in ("a", "bb", "cccccccc")], [Edge(0, 1), Edge(1, 2)]
    )
    assert len({round(box.x + box.width / 2, 6) for box in layout(chain).boxes}) == 1
    fork = Graph("fork", [Node((name,)) for name in "abcd"], [Edge(0, i) for i in (1, 2, 3)])
    top, left, middle, right = (box.x + box.width / 2 for box in layout(fork).boxes)
    assert top == pytest.approx(middle) and left < middle < right


def test_a_crossing_that_need_not_be_is_taken_away():
    # two chains whose ends are given crosswise: a0 -> b1, a1 -> b0
    found = ranks(4, [Edge(0, 3), Edge(1, 2)])
    assert crossings(found) == 1
    order(found)
    assert crossings(found) == 0
    # K(3, 3) can not be drawn with fewer than 9 crossings in two ranks
    found = ranks(6, [Edge(a, b) for a in range(3) for b in range(3, 6)])
    order(found)
    assert crossings(found) == 9


def test_labels_come_down_to_the_loss_that_reads_them():
    # data 0, label 1, conv 2, ip 3, loss 4
    found = ranks(5, [Edge(0, 2), Edge(2, 3), Edge(3, 4), Edge(1, 4)])
    assert [sorted(rank) for rank in found.ranks] == [[0], [2], [1, 3], [4]]


def test_edges_that_carry_the_same_share_their_points():
    edges = [Edge(0, 1), Edge(1, 2), Edge(2, 3), Edge(0, 2), Edge(0, 3)]
    shared = ranks(4, edges)
    assert shared.count == 4 + 2 and shared.ways[3][1] == shared.ways[4][1]
    assert ranks(4, [*edges[:4], Edge(0, 3, port=1)]).count == 4 + 3


@settings(max_examples=60)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=6), st.floats(0, 9))
def test_spread_keeps_the_gaps_and_the_bounds(wanted, gap):
    wanted.sort()
    high = gap * len(wanted)
    found = spread(wanted, [gap] * (len(wanted) - 1), 0, high)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(found))
    assert found[0] >= -1e-9 and found[-1] <= high + 1e-9


def test_another_direction_is_refused():
    with pytest.raises(SpecError, match="direction: expected TB or LR, got 'UP'"):
        layout(Graph("net", [Node(("a",))]), "UP")


def test_four_hundred_layers_keep_their_crossings_few():
    """Forty modules of four branches, as GoogLeNet has nine: no crossing is left."""
    nodes, edges, last = [Node(("data",))], [], 0
    for _ in range(40):
        first = len(nodes)
        nodes += [Node((f"n{first + i}",)) for i in range(10)]
        for branch in range(4):
            way = [last, *range(first + 2 * branch, first + 2 * branch + (1 if branch == 0 else 2))]
            edges += [Edge(a, b) for a, b in itertools.pairwise([*way, first + 9])]
        edges += [Edge(last, first + 1), Edge(first + 1, first + 9)]
        last = first + 9
    graph = Graph("deep", nodes, edges)
    found = ranks(len(nodes), edges)
    order(found)
    assert crossings(found) == 0
    assert len(layout(graph).boxes) == 401
