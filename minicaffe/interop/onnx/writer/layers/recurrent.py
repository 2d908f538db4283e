"""LSTM and RNN as a Scan over their steps, and LSTMUnit, one step.

ONNX's own LSTM knows no stream that begins anew in the middle, so `cont` would be lost; a Scan says what our
layer does, and takes any number of steps. Without expose_hidden the states are zeros when a run begins: what
the layer carries from one forward pass to the next is not carried on.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.body import body
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes


@writes("LSTM")
def lstm(graph: Graph, step: Step, x: str, cont: str, *more: str) -> list[str]:
    """h and, with expose_hidden, the last h and c."""
    static, states = _more(graph, step, more)
    z, cont = _inputs(graph, step, x, cont, static)
    h, c = (_state(graph, state) for state in states) if states else _zeros(graph, step, x, 2)
    with body(graph, "h", "c", "z", "cont") as within:
        h_in, c_in, z_in, cont_in = within.inputs
        r = graph.op("Gemm", h_in, _state_weight(graph, step), transB=1)
        gates = graph.op("Add", z_in, graph.op("Mul", r, cont_in))
        c_out, h_out = unit(graph, gates, c_in, cont_in)
        within.outputs = [h_out, c_out, graph.op("Identity", h_out)]
    last_h, last_c, hs = graph.ops("Scan", 3, h, c, z, cont, body=within, num_scan_inputs=2)
    return [hs, *(graph.op("Unsqueeze", last, [0]) for last in (last_h, last_c) if states)]


def unit(graph: Graph, gates: str, c: str, cont: str) -> tuple[str, str]:
    """The next c and h of what i, f, o, g are of, side by side on the last axis."""
    i, f, o, g = graph.ops("Split", 4, gates, axis=-1)
    i, f, o = (graph.op("Sigmoid", part) for part in (i, f, o))
    kept = graph.op("Mul", graph.op("Mul", f, c), cont)
    c = graph.op("Add", kept, graph.op("Mul", i, graph.op("Tanh", g)))
    return c, graph.op("Mul", graph.op("Tanh", c), o)


@writes("RNN")
def rnn(graph: Graph, step: Step, x: str, cont: str, *more: str) -> list[str]:
    """o and, with expose_hidden, the last h."""
    static, states = _more(graph, step, more)
    z, cont = _inputs(graph, step, x, cont, static)
    (h,) = (_state(graph, state) for state in states) if states else _zeros(graph, step, x, 1)
    with body(graph, "h", "z", "cont") as within:
        h_in, z_in, cont_in = within.inputs
        r = graph.op("Gemm", h_in, _state_weight(graph, step), transB=1)
        h_out = graph.op("Tanh", graph.op("Add", z_in, graph.op("Mul", r, cont_in)))
        within.outputs = [h_out, graph.op("Identity", h_out)]
    last, hs = graph.ops("Scan", 2, h, z, cont, body=within, num_scan_inputs=2)
    weight, bias = len(step.layer.params) - 2, len(step.layer.params) - 1
    o = graph.op("Add", _product(graph, step, hs, weight), graph.param(step, bias))
    return [graph.op("Tanh", o), *(graph.op("Unsqueeze", last, [0]) for _ in states)]


@writes("LSTMUnit")
def lstm_unit(graph: Graph, step: Step, c: str, x: str, cont: str) -> list[str]:
    """One step of an LSTM, of states and gates that are there."""
    return list(unit(graph, x, c, graph.op("Unsqueeze", cont, [2])))


@draws("LSTM", 1)
@draws("RNN", 1)
@draws("LSTMUnit", 2)
def drawn_cont(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Streams, some of which begin anew."""
    return random.integers(2, size=shape)


def _more(graph: Graph, step: Step, more: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """x_static, its axes behind the first made one, if there is one; the first states, if they are bottoms."""
    layer: Any = step.layer
    if not layer.static:
        return None, more
    before = graph.shapes(step.bottoms[2])
    flat = [(shape[0], math.prod(shape[1:])) for shape in before]
    return graph.reshape(more[0], before, flat), more[1:]


def _inputs(graph: Graph, step: Step, x: str, cont: str, static: str | None) -> tuple[str, str]:
    """What the inputs contribute at each step (t, n, wide), and cont (t, n, 1)."""
    before = graph.shapes(step.bottoms[0])
    x = graph.reshape(x, before, [(*shape[:2], math.prod(shape[2:])) for shape in before])
    z = graph.op("Add", _product(graph, step, x, 0), graph.param(step, 1))
    if static is not None:
        z = graph.op("Add", z, graph.op("Gemm", static, graph.param(step, 2), transB=1))
    return z, graph.op("Unsqueeze", cont, [2])


def _product(graph: Graph, step: Step, x: str, index: int) -> str:
    weight = graph.op("Transpose", graph.param(step, index), perm=(1, 0))
    return graph.op("MatMul", x, weight)


def _state_weight(graph: Graph, step: Step) -> str:
    return graph.param(step, 3 if step.layer.static else 2)  # type: ignore[attr-defined]


def _state(graph: Graph, state: str) -> str:
    return graph.op("Squeeze", state, [0])


def _zeros(graph: Graph, step: Step, x: str, count: int) -> list[str]:
    """First states (n, d)."""
    d: int = step.layer.num_output  # type: ignore[attr-defined]
    shape = graph.op("Concat", graph.size(x, 1), [d], axis=0)
    return [graph.op("Expand", 0.0, shape)] * count
