"""LSTM and RNN: ONNX's, of one direction or two, in Caffe's, whose gates stand in another order; our exports.

An export of ours says Caffe's layers as a Scan, since ONNX's operators have no `cont`: these are read too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Layer, Node, Tensor
from minicaffe.interop.onnx.reader.patterns import match, recognises
from minicaffe.interop.onnx.reader.table import RefusedError, reads

ORDER = (0, 2, 1, 3)  # Caffe's i, f, o, g of ONNX's i, o, f, c
STATES = {"LSTM": 2, "RNN": 1}  # h and c, or h
HIDDEN = "its states are read; the top of a Caffe RNN is tanh(W h + b), its last state alone a top"


@reads("LSTM")
def lstm(draft: Draft, node: Node) -> list[Blob]:
    """LSTM, one for each direction; with expose_hidden where first states are set or the last cell is read."""
    return _directions(draft, node, "LSTM", ["Sigmoid", "Tanh", "Tanh"])


@reads("RNN")
def rnn(draft: Draft, node: Node) -> list[Blob]:
    """RNN with expose_hidden, of which the last state is read; of all states only tanh(W h + b)."""
    return _directions(draft, node, "RNN", ["Tanh"])


def _directions(draft: Draft, node: Node, kind: str, activations: list[str]) -> list[Blob]:
    """The operator's outputs: all states (t, directions, n, d), the last ones (directions, n, d)."""
    x = draft.blob(node.inputs[0])
    w, r = node.needs_const(1, "W"), node.needs_const(2, "R")
    bias = node.needs_const(3, "B") if node.input(3) is not None else None
    steps, batch, _ = x.shape
    _check(node, kind, activations, steps)
    hidden, back = r.shape[-1], node.get("direction", "forward") == "reverse"
    first = [node.input(5 + i) for i in range(STATES[kind])]
    last_read = [one.readers > 0 for one in node.outputs[1:]]
    exposed = not all(map(_zero, first)) or (
        any(last_read) if kind == "RNN" else any(last_read[1:])
    )
    if exposed:  # `cont` is 1: the first step goes on from the states that are bottoms
        cont = draft.constant(np.ones((steps, batch)))
    else:
        keys = {"time_step": steps, "batch_size": batch}
        cont = draft.layer("ContinuationIndicator", shape=(steps, batch), **keys)  # of no bottom
    tops, lasts = [], list[list[Blob]]()
    for d in range(len(w)):
        turns = back or d == 1
        turned = draft.take(x, 0, range(steps)[::-1]) if turns else x
        both = np.zeros(len(w[d])) if bias is None else _both(bias[d])
        arrays = [w[d], both, r[d]]
        if kind == "LSTM":
            arrays = [_gates(array) for array in arrays]
        states = None
        if exposed:
            states = [_state(draft, one, d, (batch, hidden)) for one in first]
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
    """The states h (t, n, d) and, where the first ones are bottoms, the last ones (1, n, d) of a layer.

    Of an RNN h is no top: a blob that `of_states` alone reads.
    """
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


@recognises("Tanh")
def of_states(draft: Draft, node: Node) -> Blob | None:
    """RNN's top: tanh(W h + b) of its states h, read by nothing else."""
    hidden = ["!states", ("Squeeze", "!states"), ("Reshape", "!states")]
    product = ("MatMul", hidden, "*weight")
    words = match(("Tanh", [product, ("Add", product, "*bias")]), node)
    if words is None:
        return None
    blob, weight = words["!states"].blob, words["*weight"].T
    made, bias = blob.states, words.get("*bias", np.zeros(1))
    if weight.shape != made.arrays[-2].shape or bias.size not in (1, len(weight)):
        return None
    blob.states = None
    made.arrays[-2:] = [weight, np.broadcast_to(bias.ravel(), len(weight))]
    return draft.reshape(made.tops[0], node.shape)


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


def _check(node: Node, kind: str, usual: list[str], steps: int) -> None:
    """Raise RefusedError for what Caffe's layer does not do."""
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


def _gates(array: np.ndarray) -> np.ndarray:
    """Rows by i, f, o, g."""
    parts = np.split(np.asarray(array, np.float32), 4)
    return np.concatenate([parts[i] for i in ORDER])


def _both(bias: np.ndarray) -> np.ndarray:
    """ONNX has a bias of the inputs and one of the states: their sum."""
    first, second = np.split(np.asarray(bias, np.float64), 2)
    return first + second


# The steps that interop/onnx/writer/layers/recurrent.py writes: operators, and what they read by number. The
# body's inputs
# come first, then the outputs of its nodes; w is of the graph around. The last line is what a step returns.
LSTM_STEP = """
Gemm 0 w transB=1
Mul 4 3
Add 2 5
Split 6 axis=-1
Sigmoid 7
Sigmoid 8
Sigmoid 9
Mul 12 1
Mul 14 3
Tanh 10
Mul 11 16
Add 15 17
Tanh 18
Mul 19 13
Identity 20
20 18 21
"""
RNN_STEP = """
Gemm 0 w transB=1
Mul 3 2
Add 1 4
Tanh 5
Identity 6
6 7
"""
STEPS = {LSTM_STEP.strip(): "LSTM", RNN_STEP.strip(): "RNN"}


def _step(graph: Any) -> str:
    """A body's operators, and what they read, as in LSTM_STEP."""
    numbers = {value.name: index for index, value in enumerate(graph.input)}
    lines = []
    for node in graph.node:
        words = [node.op_type, *(str(numbers.get(name, "w")) for name in node.input)]
        words += [f"{one.name}={one.i}" for one in node.attribute]
        lines.append(" ".join(words))
        for name in node.output:
            numbers[name] = len(numbers)
    lines.append(" ".join(str(numbers.get(value.name, "w")) for value in graph.output))
    return "\n".join(lines)


@reads("Scan")
def scan(draft: Draft, node: Node) -> list[Blob]:
    """LSTM or RNN, where it is that of an export of ours; whatever else a Scan does is refused."""
    body = node.attributes["body"]
    kind = STEPS.get(_step(body))
    if kind is None or node.attributes.keys() != {"body", "num_scan_inputs"}:
        raise RefusedError(
            "a net of Caffe's is the same for all inputs: unroll it before the export"
        )
    count = STATES[kind]
    first, (z, cont) = node.inputs[:count], [draft.blob(one) for one in node.inputs[count:]]
    weight = node.outer.get(body.node[0].input[1])
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
    """What a step's inputs z (t, n, w) are of: x (t, n, k), x_static if there is one; W, b, and W of x_static.

    Raises RefusedError for what is no sum of products with matrices.
    """
    steps, batch, wide = z.shape
    bias, static = np.zeros(wide, np.float32), list[Layer]()
    made = _behind_reshapes(z).layer
    while made is not None and made.type in ("Power", "Bias"):
        if made.keys.keys() == {"shift"}:
            bias = bias + np.float32(made.keys["shift"])
        elif len(made.bottoms) == 2 and not static:
            added = made.bottoms[1]
            if math.prod(added.shape) != batch * wide or made.keys["axis"] + len(added.shape) != 3:
                break
            static.append(_product(_behind_reshapes(added).layer, (batch,)))
        else:
            break
        made = _behind_reshapes(made.bottoms[0]).layer
    product = _product(made, (steps, batch))
    bias = bias + product.arrays[1] if len(product.arrays) > 1 else bias
    x = draft.reshape(product.bottoms[0], (steps, batch, product.arrays[0].shape[1]))
    shapes = [(batch, one.arrays[0].shape[1]) for one in static]
    more = [draft.reshape(one.bottoms[0], to) for one, to in zip(static, shapes, strict=True)]
    return x, more, [product.arrays[0], bias, *(one.arrays[0] for one in static)]


def _product(made: Layer | None, rows: tuple[int, ...]) -> Layer:
    """The layer, if it is the product of so many rows with a matrix. Raises RefusedError."""
    if made is None or made.type != "InnerProduct":
        what = made.type if made is not None else "blob"
        raise RefusedError(f"its gates are a {what}, expected a product with a matrix")
    shape, axis = made.bottoms[0].shape, made.keys.get("axis", 1)
    if math.prod(shape[:axis]) != math.prod(rows):
        raise RefusedError("its gates are no product of each step's input")
    return made
