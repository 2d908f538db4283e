"""LSTM and RNN: ONNX's, of one direction or two, in Caffe's, whose gates stand in another order; our exports.

ONNX's own LSTM knows no stream that begins anew in the middle, so `cont` would be lost; a Scan says what our
layer does, and takes any number of steps. Without expose_hidden the states are zeros when a run begins: what
the layer carries from one forward pass to the next is not carried on.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.interop.onnx.draft import Blob, Draft, Layer, Node, Tensor
from minicaffe.interop.onnx.patterns import recognises
from minicaffe.interop.onnx.table import UNREAD, RefusedError, draws_below, reads, writes
from minicaffe.interop.onnx.writer.model import Body, Graph, Written

ORDER = (0, 2, 1, 3)  # Caffe's i, f, o, g of ONNX's i, o, f, c
STATES = {"LSTM": 2, "RNN": 1}  # h and c, or h
ZERO = np.zeros(1)
ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
HIDDEN = "its states are read; the top of a Caffe RNN is tanh(W h + b), its last state alone a top"


@reads("LSTM", "RNN")
def read_recurrent(draft: Draft, node: Node, x: Blob) -> list[Blob]:
    """LSTM or RNN, one for each direction; with expose_hidden where states are set or read, an RNN's always.

    Returns the operator's outputs: all states (t, directions, n, d), the last ones (directions, n, d). Of all
    states of an RNN only tanh(W h + b) is read.
    """
    kind = node.kind
    w, r = node.needs_const(1, "W"), node.needs_const(2, "R")
    bias = node.optional_const(3, "B")
    steps, batch, _ = x.shape
    _check(node, kind, steps)
    hidden, back = r.shape[-1], node.get("direction", "forward") == "reverse"
    first = [node.input(5 + i) for i in range(STATES[kind])]
    lasts_read = node.outputs[1 if kind == "RNN" else 2 :]
    exposed = not all(map(_zero, first)) or any(one.readers for one in lasts_read)
    if exposed:  # `cont` is 1: the first step goes on from the states that are bottoms
        cont = draft.constant(np.ones((steps, batch)))
    else:
        keys = {"time_step": steps, "batch_size": batch}
        cont = draft.layer("ContinuationIndicator", shape=(steps, batch), **keys)  # of no bottom
    tops, lasts = [], list[list[Blob]]()
    for d in range(len(w)):
        turns = back or d == 1
        turned = draft.take(x, 0, range(steps)[::-1]) if turns else x
        both = np.zeros(len(w[d]))
        if bias is not None:  # one of the inputs and one of the states
            both = np.add(*np.split(bias[d].astype(np.float64), 2))
        arrays = [np.asarray(one, np.float32) for one in (w[d], both, r[d])]
        if kind == "LSTM":
            arrays = [np.concatenate([np.split(one, 4)[i] for i in ORDER]) for one in arrays]
        states = [_state(draft, one, d, (batch, hidden)) for one in first] if exposed else None
        h, *last = recurrent(draft, kind, [turned, cont], arrays, states)
        if not exposed:
            last = [draft.part(h, 0, steps - 1, steps)]
        tops.append(draft.take(h, 0, range(steps)[::-1]) if turns and not h.refused else h)
        lasts.append(last)
    if kind == "RNN":
        shape, one_way = (steps, len(tops), batch, hidden), len(tops) == 1 and not back
        ys = Blob(shape, refused=(HIDDEN,), states=tops[0].states if one_way else None)
    else:
        ys = draft.concat([draft.reshape(h, (steps, 1, batch, hidden)) for h in tops], 1)
    ends = [draft.concat(list(parts), 0) for parts in zip(*lasts, strict=True)]
    return [ys, *ends][: len(node.outputs)]


def recurrent(
    draft: Draft,
    kind: str,
    bottoms: Sequence[Blob],
    arrays: Sequence[np.ndarray],
    states: Sequence[Blob] | None,
) -> list[Blob]:
    """States h (t, n, d), and the last (1, n, d) where first ones are bottoms; an RNN's are no top."""
    steps, batch = bottoms[0].shape[:2]
    hidden = arrays[-1].shape[1]
    keys: dict[str, Any] = {"num_output": hidden}
    shapes = [(steps, batch, hidden)]
    if states is not None:
        keys["expose_hidden"] = True
        shapes += [(1, batch, hidden)] * len(states)
    if kind == "RNN":  # W and b of tanh(W h + b), until it is known what reads h
        arrays = [*arrays, np.zeros((hidden, hidden)), np.zeros(hidden)]
    top, *last = draft.add(kind, [*bottoms, *(states or ())], shapes, arrays, **keys)
    if kind == "RNN":
        return [Blob(top.shape, refused=(HIDDEN,), states=top.layer), *last]
    return [top, *last]


PRODUCT = ("MatMul", ["!states", ("Squeeze", "!states"), ("Reshape", "!states")], "*weight")


@recognises(("Tanh", [PRODUCT, ("Add", PRODUCT, "*bias")]))
def find_of_states(
    draft: Draft, node: Node, states: Blob, weight: np.ndarray, bias: np.ndarray = ZERO
) -> Blob | None:
    """RNN's top: tanh(W h + b) of its states h, read by nothing else."""
    layer = states.states
    assert layer is not None
    if weight.T.shape != layer.arrays[-2].shape or bias.size not in (1, weight.shape[1]):
        return None
    states.states = None
    layer.arrays[-2:] = [weight.T, np.broadcast_to(bias.ravel(), weight.shape[1])]
    return draft.reshape(layer.tops[0], node.shape)


def _behind_reshapes(blob: Blob) -> Blob:
    while blob.layer is not None and blob.layer.type == "Reshape":
        blob = blob.layer.bottoms[0]
    return blob


def _zero(tensor: Tensor | None) -> bool:
    """Whether first states are left out, or zeros."""
    return tensor is None or (tensor.data is not None and not tensor.data.any())


def _state(draft: Draft, tensor: Tensor | None, direction: int, shape: tuple[int, int]) -> Blob:
    """The first state (1, n, d) of a direction."""
    if tensor is None:
        return draft.constant(np.zeros((1, *shape)))
    if tensor.data is not None:
        return draft.constant(tensor.data[direction : direction + 1])
    return draft.part(draft.blob(tensor), 0, direction, direction + 1)


def _check(node: Node, kind: str, steps: int) -> None:
    """Raise RefusedError for what Caffe's layer does not do."""
    usual = ACTIVATIONS[kind]
    if node.get("layout", 0):
        raise RefusedError(f"layout 1 has the samples first, a Caffe {kind} the steps")
    activations = node.get("activations", usual)
    if activations[: len(usual)] != usual or activations[len(usual) :] not in ([], usual):
        raise RefusedError(f"its activations are {activations}; a Caffe {kind}'s are {usual}")
    if node.get("clip") is not None or node.get("input_forget", 0):
        raise RefusedError(f"clip and input_forget are no keys of a Caffe {kind}")
    if node.input(4) is not None and (node.needs_const(4, "sequence_lens") != steps).any():
        raise RefusedError(f"its sequences differ in length; a Caffe {kind}'s do not")
    if kind == "LSTM" and not _zero(node.input(7)):
        raise RefusedError("its P is set; a Caffe LSTM has no peepholes")


def step_of(graph: Graph, kind: str, weight: str) -> Body:
    """The step that a Scan repeats: of the states h, and c, and of z and cont the next ones, and h again."""
    outer, graph.nodes = graph.nodes, []
    inputs = [graph.unique(name) for name in (*["h", "c"][: STATES[kind]], "z", "cont")]
    h, *c, z, cont = inputs
    gates = graph.op("Add", z, graph.op("Mul", graph.op("Gemm", h, weight, transB=1), cont))
    if kind == "LSTM":
        c[0], h = unit(graph, gates, c[0], cont)
    else:
        h = graph.op("Tanh", gates)
    step = Body(inputs, [h, *c, graph.op("Identity", h)], graph.nodes)
    graph.nodes = outer
    return step


def unit(graph: Graph, gates: str, c: str, cont: str) -> tuple[str, str]:
    """The next c and h of what i, f, o, g are of, side by side on the last axis."""
    i, f, o, g = graph.ops("Split", 4, gates, axis=-1)
    i, f, o = (graph.op("Sigmoid", part) for part in (i, f, o))
    remembered = graph.op("Mul", graph.op("Mul", f, c), cont)
    c = graph.op("Add", remembered, graph.op("Mul", i, graph.op("Tanh", g)))
    return c, graph.op("Mul", graph.op("Tanh", c), o)


STEPS = {kind: step_of(Graph([]), kind, "w") for kind in STATES}


def _is_step(graph: Any, ours: Body) -> bool:
    """True if a Scan's graph has the operators of a step of ours; what it reads of the graph around is w."""
    if (len(graph.input), len(graph.node)) != (len(ours.inputs), len(ours.nodes)):
        return False
    names = dict(zip(ours.inputs, (value.name for value in graph.input), strict=True))
    for mine, theirs in zip(ours.nodes, graph.node, strict=True):
        inputs = [name if name in names.values() else None for name in theirs.input]
        attributes = {one.name: one.i for one in theirs.attribute}
        wanted = mine.kind, list(map(names.get, mine.inputs)), mine.attributes, len(mine.outputs)
        if (theirs.op_type, inputs, attributes, len(theirs.output)) != wanted:
            return False
        names |= zip(mine.outputs, theirs.output, strict=True)
    return [value.name for value in graph.output] == [names[name] for name in ours.outputs]


@reads("Scan")
def read_scan(draft: Draft, node: Node) -> list[Blob]:
    """LSTM or RNN, where it is that of an export of ours; whatever else a Scan does is refused."""
    step = node.attributes["body"]
    kind = next((kind for kind, ours in STEPS.items() if _is_step(step, ours)), None)
    if kind is None or node.attributes.keys() != {"body", "num_scan_inputs"}:
        raise RefusedError(UNREAD["Loop"])
    count = STATES[kind]
    first, (z, cont) = node.inputs[:count], [draft.blob(one) for one in node.inputs[count:]]
    weight = node.outer.get(step.node[0].input[1])
    if weight is None or weight.data is None or len(z.shape) != 3:
        raise RefusedError("its weight is not a constant")
    x, static, arrays = _products(draft, z)
    bottoms = [x, draft.reshape(cont, cont.shape[:2]), *static]
    batch, hidden, states = z.shape[1], weight.data.shape[1], None
    if not all(map(_zero, first)) or any(one.readers for one in node.outputs[:count]):
        states = [draft.reshape(draft.blob(one), (1, batch, hidden)) for one in first]
    h, *last = recurrent(draft, kind, bottoms, [*arrays, weight.data], states)
    if states is None:
        return [*(Blob((batch, hidden), refused=("it is not read",)) for _ in range(count)), h]
    return [*(draft.reshape(one, (batch, hidden)) for one in last), h]


def _products(draft: Draft, z: Blob) -> tuple[Blob, list[Blob], list[np.ndarray]]:
    """What inputs z (t, n, w) are of: x, x_static or None; W, b, and W of x_static. Raises RefusedError."""
    steps, batch, wide = z.shape
    bias, static = np.zeros(wide, np.float32), list[Layer]()
    layer = _behind_reshapes(z).layer
    while layer is not None and layer.type in ("Power", "Bias"):
        if layer.keys.keys() == {"shift"}:
            bias = bias + np.float32(layer.keys["shift"])
        elif len(layer.bottoms) == 2 and not static:
            added = layer.bottoms[1]
            if math.prod(added.shape) != batch * wide or layer.keys["axis"] + len(added.shape) != 3:
                break
            static.append(_product(_behind_reshapes(added).layer, (batch,)))
        else:
            break
        layer = _behind_reshapes(layer.bottoms[0]).layer
    product = _product(layer, (steps, batch))
    bias = bias + product.arrays[1] if len(product.arrays) > 1 else bias
    x = draft.reshape(product.bottoms[0], (steps, batch, product.arrays[0].shape[1]))
    shapes = [(batch, one.arrays[0].shape[1]) for one in static]
    more = [draft.reshape(one.bottoms[0], to) for one, to in zip(static, shapes, strict=True)]
    return x, more, [product.arrays[0], bias, *(one.arrays[0] for one in static)]


def _product(layer: Layer | None, rows: tuple[int, ...]) -> Layer:
    """The layer, if it is the product of so many rows with a matrix. Raises RefusedError."""
    if layer is None or layer.type != "InnerProduct":
        what = layer.type if layer is not None else "blob"
        raise RefusedError(f"its gates are a {what}, expected a product with a matrix")
    shape, axis = layer.bottoms[0].shape, layer.keys.get("axis", 1)
    if math.prod(shape[:axis]) != math.prod(rows):
        raise RefusedError("its gates are no product of each step's input")
    return layer


# Streams, some of which begin anew
draws_below(lambda step: 2, ("LSTM", 1), ("RNN", 1), ("LSTMUnit", 2), ("Lstm", 1))


@writes("LSTM", "RNN")
def write_recurrent(graph: Graph, step: Written, x: str, cont: str, *more: str) -> list[str]:
    """h, of an RNN tanh(W h + b), and, with expose_hidden, the last states."""
    layer = step.layer
    kind, count, states = step.spec.type, STATES[step.spec.type], more
    if layer.static:  # x_static, its axes behind the first made one
        shapes = graph.shapes(step.bottoms[2])
        flat = [(shape[0], math.prod(shape[1:])) for shape in shapes]
        static, states = graph.reshape(more[0], shapes, flat), more[1:]
    shapes = graph.shapes(step.bottoms[0])
    rows = graph.reshape(x, shapes, [(*shape[:2], math.prod(shape[2:])) for shape in shapes])
    z = graph.op("Add", _write_product(graph, step, rows, 0), graph.param(step, 1))
    if layer.static:
        z = graph.op("Add", z, graph.op("Gemm", static, graph.param(step, 2), transB=1))
    cont = graph.op("Unsqueeze", cont, [2])
    if states:
        first = [graph.op("Squeeze", state, [0]) for state in states]
    else:
        shape = graph.op("Concat", graph.size(x, 1), [layer.num_output], axis=0)
        first = [graph.op("Expand", 0.0, shape)] * count
    within = step_of(graph, kind, graph.param(step, 3 if layer.static else 2))
    *last, top = graph.ops("Scan", count + 1, *first, z, cont, body=within, num_scan_inputs=2)
    if kind == "RNN":
        index = len(layer.params) - 2
        o = graph.op("Add", _write_product(graph, step, top, index), graph.param(step, index + 1))
        top = graph.op("Tanh", o)
    return [top, *(graph.op("Unsqueeze", one, [0]) for one in last if states)]


@writes("LSTMUnit")
def write_lstm_unit(graph: Graph, step: Written, c: str, x: str, cont: str) -> list[str]:
    """One step of an LSTM, of states and gates that are there."""
    return list(unit(graph, x, c, graph.op("Unsqueeze", cont, [2])))


def _write_product(graph: Graph, step: Written, x: str, index: int) -> str:
    return graph.op("MatMul", x, graph.op("Transpose", graph.param(step, index), perm=(1, 0)))


@writes("Lstm")
def write_unclipped(graph: Graph, step: Written, x: str, clip: str | None = None) -> str:
    """A Scan over the steps, as of LSTM: states are zeros when a run begins."""
    n, d, before = step.layer.batch_size, step.layer.num_output, graph.shapes(step.bottoms[0])
    x = graph.reshape(x, before, [(shape[0], math.prod(shape[1:])) for shape in before])
    z = graph.op("Gemm", x, graph.param(step, 0), graph.param(step, 2), transB=1)
    z = graph.op("Reshape", z, [-1, n, 4 * d])
    if clip is None:
        cont = graph.op("Expand", 1.0, graph.op("Concat", graph.size(z, 0), [n, 1], axis=0))
    else:
        cont = graph.op("Reshape", clip, [-1, n, 1])
    zeros = graph.const(np.zeros((n, d), np.float32))
    within = step_of(graph, "LSTM", graph.param(step, 1))
    *_, hs = graph.ops("Scan", 3, zeros, zeros, z, cont, body=within, num_scan_inputs=2)
    return graph.op("Reshape", hs, [-1, d])


@writes("ContinuationIndicator")
def write_continuation_indicator(graph: Graph, step: Written) -> str:
    """A constant."""
    indicator = np.ones(step.tops[0].shape, np.float32)
    indicator[0] = 0
    return graph.const(indicator)
