"""BatchReindex and Filter: entries of the first axis, by number or by a selector."""

from __future__ import annotations

from typing import Any

from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes

BOOL, INT64 = 9, 7  # ONNX's numbers of those types


@writes("BatchReindex")
def batch_reindex(graph: Graph, step: Step, x: str, index: str) -> str:
    """Gather."""
    return graph.op("Gather", x, graph.op("Cast", index, to=INT64), axis=0)


@draws("BatchReindex", 1)
def drawn_index(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Numbers of entries that there are."""
    return random.integers(step.bottoms[0].shape[0], size=shape)


@writes("Filter", jumps=True)
def filter_(graph: Graph, step: Step, *bottoms: str) -> list[str]:
    """Compress of each bottom but the last."""
    *xs, selector = bottoms
    graph.open |= {value: [0] for value in step.tops}
    flat = [(shape[0],) for shape in graph.shapes(step.bottoms[-1])]
    selector = graph.reshape(selector, graph.shapes(step.bottoms[-1]), flat)
    chosen = graph.op("Cast", selector, to=BOOL)
    return [graph.op("Compress", x, chosen, axis=0) for x in xs]


@draws("Filter", -1)
def drawn_selector(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Some of them 0."""
    return random.integers(2, size=shape)
