"""LSTM: ONNX's of one direction or two, in Caffe's, whose gates stand in another order; and what we export.

An export of ours says Caffe's LSTM as a Scan, since ONNX's LSTM has no `cont`: that Scan is read too.
"""

from __future__ import annotations

import numpy as np

from minicaffe.bridges.draft import Blob, Draft, Node
from minicaffe.bridges.table import RefusedError, reads

ORDER = (0, 2, 1, 3)  # Caffe's i, f, o, g of ONNX's i, o, f, c


@reads("LSTM")
def lstm(draft: Draft, node: Node) -> list[Blob]:
    """LSTM with a ContinuationIndicator, one for each direction; its first states must be zeros."""
    x = draft.blob(node.inputs[0])
    w, r = node.needs_const(1, "W"), node.needs_const(2, "R")
    bias = node.needs_const(3, "B") if node.input(3) is not None else None
    _check(node)
    steps, batch, _ = x.shape
    hidden, direction = node.get("hidden_size", r.shape[-1]), node.get("direction", "forward")
    keys = {"time_step": steps, "batch_size": batch}
    cont = draft.layer("ContinuationIndicator", shape=(steps, batch), **keys)  # of no bottom
    tops = []
    for d in range(len(w)):
        back = direction == "reverse" or d == 1
        turned = draft.take(x, 0, range(steps)[::-1]) if back else x
        arrays = [
            _gates(w[d]),
            _gates(_both(bias[d]) if bias is not None else np.zeros(4 * hidden)),
        ]
        arrays.append(_gates(r[d]))
        h = draft.layer(
            "LSTM", turned, cont, shape=(steps, batch, hidden), arrays=arrays, num_output=hidden
        )
        tops.append(draft.take(h, 0, range(steps)[::-1]) if back else h)
    ys = draft.concat([draft.reshape(h, (steps, 1, batch, hidden)) for h in tops], 1)
    if len(node.outputs) == 1 or not node.outputs[1].readers:
        return [ys]
    last = [
        draft.part(h, 0, 0, 1)
        if direction == "reverse" or d == 1
        else draft.part(h, 0, steps - 1, steps)
        for d, h in enumerate(tops)
    ]
    return [ys, draft.concat(last, 0)]


def _check(node: Node) -> None:
    """Raise RefusedError for what Caffe's LSTM does not do."""
    if node.get("layout", 0):
        raise RefusedError("layout 1 has the samples first, a Caffe LSTM the steps")
    usual = ["Sigmoid", "Tanh", "Tanh"]
    activations = node.get("activations", usual)
    if activations[:3] != usual or activations[3:] not in ([], usual):
        raise RefusedError(f"its activations are {activations}; a Caffe LSTM's are {usual}")
    if node.get("clip") is not None or node.get("input_forget", 0):
        raise RefusedError("clip and input_forget are no keys of a Caffe LSTM")
    for index, what in ((4, "sequence_lens"), (5, "initial_h"), (6, "initial_c"), (7, "P")):
        if node.input(index) is None:
            continue
        array = node.const(index)
        usual_value = node.inputs[0].shape[0] if index == 4 and node.inputs[0] else 0  # type: ignore[index]
        if array is None or (array != usual_value).any():
            raise RefusedError(
                f"its {what} is set; a Caffe LSTM starts from zeros, and has no peepholes"
            )
    if len(node.outputs) > 2 and node.outputs[2].readers:
        raise RefusedError("its last cell is read; export h alone")


def _gates(array: np.ndarray) -> np.ndarray:
    """Rows by i, f, o, g."""
    parts = np.split(np.asarray(array, np.float32), 4)
    return np.concatenate([parts[i] for i in ORDER])


def _both(bias: np.ndarray) -> np.ndarray:
    """ONNX has a bias of the inputs and one of the states: their sum."""
    first, second = np.split(np.asarray(bias, np.float64), 2)
    return first + second


# The operators of a step, as export/writers/recurrent.py writes them.
LSTM_STEP = ["Gemm", "Mul", "Add", "Split", "Sigmoid", "Sigmoid", "Sigmoid", "Mul", "Mul"]
LSTM_STEP += ["Tanh", "Mul", "Add", "Tanh", "Mul", "Identity"]


@reads("Scan")
def scan(draft: Draft, node: Node) -> list[Blob]:
    """LSTM, where it is that of an export of ours; whatever else a Scan does is refused."""
    steps, states = [one.op_type for one in node.attributes["body"].node], 2
    if steps != LSTM_STEP or len(node.inputs) != states + 2 or node.get("num_scan_inputs") != 2:
        raise RefusedError(
            "a net of Caffe's is the same for all inputs: unroll it before the export"
        )
    gemm = node.attributes["body"].node[0]
    recurrent = node.outer.get(gemm.input[1])
    z, cont = (draft.blob(one) for one in node.inputs[states:])
    if recurrent is None or recurrent.data is None or len(z.shape) != 3:
        raise RefusedError("its weight is not a constant")
    if any(one is None or one.data is None or one.data.any() for one in node.inputs[:states]):
        raise RefusedError("its first states are not zeros")
    if any(one.readers for one in node.outputs[:states]):
        raise RefusedError(
            "its last states are read; a Caffe LSTM returns them with expose_hidden alone"
        )
    made = z.layer
    if made is None or made.type != "InnerProduct":
        raise RefusedError(
            f"its gates are a {made.type if made else 'blob'}, expected a product with a matrix"
        )
    x, hidden = made.bottoms[0], recurrent.data.shape[1]
    bottoms = [x, draft.reshape(cont, cont.shape[:2])]
    bias = made.arrays[1] if len(made.arrays) > 1 else np.zeros(4 * hidden)
    shape, arrays = (*z.shape[:2], hidden), [made.arrays[0], bias, recurrent.data]
    h = draft.layer("LSTM", *bottoms, shape=shape, arrays=arrays, num_output=hidden)
    last = [
        Blob(one.shape or (), refused=("its last states are read",))
        for one in node.outputs[:states]
    ]
    return [*last, h]
