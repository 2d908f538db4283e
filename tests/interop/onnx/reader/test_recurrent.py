"""LSTM and RNN: ONNX's operators, and the Scans that our exports write, as layers that compute the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.onnx.reader.test_import import chain, imported, kinds, saved
from interop.onnx.writer.test_onnx import net_with
from kit import refusal

from minicaffe import Net, SpecError
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.writer import check, to_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import model_of, normal  # noqa: E402

node = onnx.helper.make_node
T, N, K, D = 4, 2, 3, 5
GATES = {"LSTM": 4, "RNN": 1}


def weights(kind, directions=1):
    """W, R and B."""
    rows = GATES[kind] * D
    shapes = {"W": (directions, rows, K), "R": (directions, rows, D), "B": (directions, 2 * rows)}
    return {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}


def model(kind, outputs=("Y",), inputs=(), more=(), arrays=None, ends=None, **how):
    """A model of one operator; `inputs` are those behind B, `more` the nodes behind it."""
    directions = 2 if how.get("direction") == "bidirectional" else 1
    made = node(kind, ["x", "W", "R", "B", *inputs], list(outputs), name="it", hidden_size=D, **how)
    numbers = weights(kind, directions) | (arrays or {})
    sizes = {name: (directions, N, D) for name in inputs if name and name not in numbers}
    ends = ends or [name for name in outputs if name]
    return model_of([made, *more], {"x": (T, N, K), **sizes}, ends, numbers)


STATES = st.sampled_from(["", "zeros", "numbers", "input"])


@settings(max_examples=30)
@given(data=st.data())
def test_directions_states_and_outputs(data, tmp_path_factory):
    """With first states that are constants or computed, and the last ones read or not."""
    kind = data.draw(st.sampled_from(["LSTM", "RNN"]), "kind")
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]), "direction")
    count = 2 if kind == "LSTM" else 1
    arrays, inputs = {}, [""]
    for name in ("h0", "c0")[:count]:
        state = data.draw(STATES, name)
        inputs.append(name if state else "")
        size = (1 + (direction == "bidirectional"), N, D)
        if state in ("zeros", "numbers"):
            arrays[name] = np.zeros(size, np.float32) if state == "zeros" else normal(*size, seed=9)
    outputs = ["Y", "Yh", "Yc"][: 1 + count]
    if kind == "RNN":
        outputs[0] = ""
    for i in range(count):
        if kind == "LSTM" and not data.draw(st.booleans(), outputs[1 + i]):
            outputs[1 + i] = ""
    made = model(kind, outputs, inputs, arrays=arrays, direction=direction)
    result = imported(saved(made, tmp_path_factory.getbasetemp()), most=1e-4)
    assert kinds(result).count(kind) == 1 + (direction == "bidirectional")


def test_a_sequence_that_starts_from_zeros_has_no_states(tmp_path):
    """As chips' compilers know the layer; an output that is left out is not read."""
    result = imported(saved(model("LSTM", ["Y", "", ""], ["", "", ""]), tmp_path), target="caffe")
    assert "expose_hidden" not in (tmp_path / "net.prototxt").read_text()
    assert kinds(result).count("LSTM") == 1
    imported(saved(model("RNN", ["", "Yh"], **of_lengths(T, T)), tmp_path))


def test_the_tanh_of_a_product_of_states_is_a_layers_top(tmp_path):
    """Of an RNN's in one direction; a second one would be of states that are no top."""
    head = [node("Squeeze", ["Y", "one"], ["h"]), node("MatMul", ["h", "O"], ["z"])]
    head += [node("Add", ["z", "o"], ["a"]), node("Tanh", ["a"], ["y"])]
    arrays = {"one": np.array([1]), "O": normal(D, D, seed=5), "o": normal(D, seed=6)}
    for outputs, ends in ((["Y"], ["y"]), (["Y", "Yh"], ["y", "Yh"])):
        made = model("RNN", outputs, more=head, arrays=arrays, ends=ends)
        result = imported(saved(made, tmp_path))
        assert "TanH" not in kinds(result) and kinds(result).count("RNN") == 1
    for more, numbers, ends, how in (
        ([*head, node("Tanh", ["z"], ["w"])], arrays, ["y", "w"], {}),
        (head, arrays, ["y"], {"direction": "reverse"}),
        (head, arrays | {"O": normal(D, 4), "o": normal(4)}, ["y"], {}),
        (head[:1], {"one": np.array([1])}, ["h"], {}),
    ):
        path = saved(model("RNN", more=more, arrays=numbers, ends=ends, **how), tmp_path)
        told = "its states are read; the top of a Caffe RNN is tanh"
        assert told in refusal(from_onnx, path, error=SpecError)


def of_lengths(*lengths):
    return {"inputs": ["lengths"], "arrays": {"lengths": np.array(lengths, np.int32)}}


REFUSED = [
    ("RNN", ["Y"], {"activations": ["Relu"]}, "its activations are ['Relu']; a Caffe RNN's are"),
    ("LSTM", ["Y"], {"clip": 3.0}, "clip and input_forget are no keys of a Caffe LSTM"),
    ("RNN", ["", "Yh"], {"clip": 3.0}, "no keys of a Caffe RNN"),
    ("LSTM", ["Y"], {"input_forget": 1}, "no keys of a Caffe LSTM"),
    ("RNN", ["", "Yh"], of_lengths(T, T - 1), "its sequences differ in length; a Caffe RNN's do not"),
    ("LSTM", ["Y"], {"inputs": ["", "", "", "P"], "arrays": {"P": normal(1, 3 * D)}},
     "its P is set; a Caffe LSTM has no peepholes"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "outputs", "how", "reason"), REFUSED)
def test_what_a_layer_does_not_do(kind, outputs, how, reason, tmp_path):
    path = saved(model(kind, outputs, **how), tmp_path)
    assert reason in refusal(from_onnx, path, error=SpecError)


EXPORTS = {
    "a static input": "{type: LSTM, num_output: 5, bottom: [x, cont, static]}",
    "a static input, one stream": "{type: LSTM, num_output: 5, bottom: [x, cont, static]}",
    "one step": "{type: LSTM, num_output: 5, bottom: [x, cont, static]}",
    "equal biases": "{type: LSTM, num_output: 5, bottom: [x, cont], bias_filler: {type: constant, value: 2}}",
    "states": "{type: LSTM, num_output: 5, bottom: [x, cont, h, c], top: [y, hl, cl], expose_hidden: true}",
    "all": "{type: LSTM, num_output: 5, bottom: [x, cont, static, h, c], top: [y, hl, cl], expose_hidden: true}",
    "states of an RNN": "{type: RNN, num_output: 5, bottom: [x, cont, h], top: [y, hl], expose_hidden: true}",
}  # fmt: skip


@pytest.mark.parametrize("case", EXPORTS)
def test_what_we_export_comes_back(case, tmp_path):
    """One layer of the same type, with its static input and its states, where streams begin anew."""
    steps, streams = (1 if case == "one step" else T), (1 if "one stream" in case else N)
    shapes = {"x": (steps, streams, K), "cont": (steps, streams), "static": (streams, 2)}
    shapes |= dict.fromkeys(("h", "c"), (1, streams, D))
    text = EXPORTS[case]
    layers = [
        f"  - {{name: {name}, type: Input, shape: {{dim: {list(shape)}}}}}"
        for name, shape in shapes.items()
        if name in text.partition("bottom: [")[2].partition("]")[0].split(", ")
    ]
    net = net_with("\n".join(["layers:", *layers, f"  - {{name: it, {text[1:]}"]), dtype="float32")
    if case == "equal biases":
        net.params["it"][1].load(np.full(4 * D, 2.0))
    to_onnx(net, tmp_path / "it.onnx")
    result = from_onnx(tmp_path / "it.onnx", tmp_path / "net")
    back = Net(tmp_path / "net.prototxt", "TEST", device="cpu", dtype="float32")
    back.load(tmp_path / "net.caffemodel")
    assert kinds(result).count("RNN" if "RNN" in text else "LSTM") == 1
    assert not {"InnerProduct", "TanH"} & set(kinds(result))
    arrays = {name: normal(*shapes[name], seed=4) for name in result.source.inputs}
    arrays["cont"] = np.random.default_rng(1).integers(2, size=shapes["cont"])
    wanted = net.forward(**arrays)
    back.forward(**arrays)
    for name, array in wanted.items():
        ours = np.asarray(back.blobs[result.tensors[name]].data).reshape(array.shape)
        assert check.difference(ours, array) < 1e-5


def exported(path, **more):
    """The file that an LSTM is exported to."""
    shapes = {"x": (4, 2, 3), "cont": (4, 2)} | more
    lines = [
        f"{{name: {name}, type: Input, shape: {{dim: {list(s)}}}}}" for name, s in shapes.items()
    ]
    lines.append(f"{{name: it, type: LSTM, num_output: 5, bottom: [{', '.join(shapes)}]}}")
    to_onnx(net_with(f"layers: [{', '.join(lines)}]", dtype="float32"), path)
    return onnx.load(path)


def test_a_scan_of_other_wires_is_refused(tmp_path):
    """The same operators, of which one reads another tensor."""
    made = exported(tmp_path / "it.onnx")
    (scan,) = (one for one in made.graph.node if one.op_type == "Scan")
    (body,) = (one.g for one in scan.attribute if one.name == "body")
    product = [one for one in body.node if one.op_type == "Mul"][-1]
    gates = [one.output[0] for one in body.node if one.op_type == "Sigmoid"]
    (place,) = (i for i, name in enumerate(product.input) if name in gates)
    product.input[place] = next(name for name in gates if name != product.input[place])
    told = refusal(from_onnx, saved(made, tmp_path), error=SpecError)
    assert "unroll it before the export" in told


def other_gates(made, nodes, arrays=(), inputs=(), last="z"):
    """The Scan of an export, whose gates are computed so."""
    (at,) = (i for i, one in enumerate(made.graph.node) if one.op_type == "Scan")
    made.graph.node[at].input[2] = last
    nodes = [*made.graph.node[:at], *nodes, made.graph.node[at]]
    made.graph.ClearField("node")
    made.graph.node.extend(nodes)
    tensors = [onnx.numpy_helper.from_array(a, name) for name, a in dict(arrays).items()]
    made.graph.initializer.extend(tensors)
    made.graph.input.extend([onnx.helper.make_tensor_value_info(*one) for one in inputs])


SUM = "it/Add_2"  # of the products with x and x_static
WIDE = {"W": normal(3, 8 * D), "to": np.array([T, N, 4 * D])}
MATRIX = [node("MatMul", ["u", "W"], ["p"]), node("Reshape", ["p", "to"], ["z"])]
GATES_OF = {
    "two biases": ([node("Add", [SUM, "b"], ["z"])], {"b": normal(4 * D)}, (), "gates are a Bias"),
    "a vector": ([node("Add", ["it/Add", "u"], ["z"])], (), [("u", 1, (4 * D,))], "are a Bias"),
    "a ReLU": ([node("Relu", [SUM], ["z"])], (), (), "gates are a ReLU, expected a product with a"),
    "an input": ([], (), [("z", 1, (T, N, 4 * D))], "its gates are a blob, expected a product"),
    "other rows": (MATRIX, WIDE, [("u", 1, (2, N, 3))], "are no product of each step's input"),
    "computed weights": (
        [node("Mul", ["raw", "u"], ["it__3"]), node("Identity", [SUM], ["z"])],
        {"raw": normal(4 * D, D)}, [("u", 1, (1,))], "its weight is not a constant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GATES_OF)
def test_gates_that_no_layer_has(case, tmp_path):
    """In one line, which names the Scan."""
    nodes, arrays, inputs, reason = GATES_OF[case]
    made = exported(tmp_path / "it.onnx", static=(2, 2))
    if case == "computed weights":
        (own,) = (one for one in made.graph.initializer if one.name == "it__3")
        made.graph.initializer.remove(own)
    other_gates(made, nodes, arrays, inputs)
    told = refusal(from_onnx, saved(made, tmp_path), tmp_path / "net", error=SpecError)
    assert reason in told and "node 'it/Scan' (Scan): " in told and "\n" not in told


def test_a_tanh_elsewhere_is_a_layer(tmp_path):
    nodes = node("MatMul", ["x", "w"], ["z"]), node("Tanh", ["z"], ["y"])
    made = chain(*nodes, w=normal(5, 5), shape=(1, 5))
    assert kinds(imported(saved(made, tmp_path))) == ["InnerProduct", "TanH"]
