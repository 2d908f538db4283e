"""Layers said in those of a target: the same numbers, no other types, and what has no exact form is refused."""

import itertools
import re

import numpy as np
import pytest

from minicaffe import MinicaffeError, Net
from minicaffe.cli import main
from minicaffe.interop.chips.chips import CHIPS
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.table import LOWERS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper


def model(path, nodes, arrays, shape=(2, 6, 7, 5), opset=20):
    """A file of nodes of x, whose last output is the model's."""
    infos = [helper.make_tensor_value_info("x", 1, list(shape))]
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    graph = helper.make_graph(nodes, "net", infos, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    made = onnx.shape_inference.infer_shapes(made)
    if not made.graph.output[0].type.HasField("tensor_type"):  # of an operator that is a function
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, list(shape)))
    path.write_bytes(made.SerializeToString())
    return path


RANDOM = np.random.default_rng(0)


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def node(kind, *inputs, out="y", **attributes):
    return helper.make_node(kind, ["x", *inputs], [out], name=kind, **attributes)


def text(nodes, **arrays):
    """Nodes as onnx.parser reads them, and their arrays."""
    graph = onnx.parser.parse_graph(f"g (float[2,6,7,5] x) => (float y) {{ {nodes} }}")
    return list(graph.node), {name: np.asarray(array) for name, array in arrays.items()}


F = np.float32
NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
CORNERS = 'mode = "linear", coordinate_transformation_mode = "align_corners"'
CASES = {
    "ReLU6": text("y = Clip(x, low, high)", low=F(0), high=F(6)),
    "Clip": text("y = Clip(x, low, high)", low=F(-0.5), high=F(0.7)),
    "HardSwish": text("y = HardSwish(x)"),
    "Swish": text("s = Sigmoid(x) y = Mul(x, s)"),
    "GELU": text('y = Gelu <approximate = "tanh"> (x)'),
    "Upsample": text(f"y = Resize <{NEAREST}> (x, , scales)", scales=F([1, 1, 2, 2])),
    "Interp": text(f"y = Resize <{CORNERS}> (x, , , sizes)", sizes=[2, 6, 11, 4]),
    "LayerNorm": text("y = LayerNormalization <axis = 2> (x, s, b)", s=numbers(7, 5), b=numbers(7, 5)),
    "Reverse": text("y = Slice(x, last, first, axis, last)", last=[-1], first=[-99], axis=[2]),
    "Normalize": text(
        "xx = Mul(x, x) sum = ReduceSum(xx, one) more = Add(sum, eps) length = Sqrt(more)"
        " unit = Div(x, length) y = Mul(unit, scale)",
        one=[1], eps=F(0.01), scale=numbers(6, 1, 1),
    ),
    "ShuffleChannel": text(
        "a = Reshape(x, apart) t = Transpose <perm = [0, 2, 1, 3, 4]> (a) y = Reshape(t, whole)",
        apart=[2, 3, 2, 7, 5], whole=[2, 6, 7, 5],
    ),
    "Pooling": text("y = MaxPool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 0]> (x)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_layer_in_those_of_caffe(kind, tmp_path):
    """Of BVLC's release alone, and proven by onnxruntime when it is written."""
    nodes, arrays = CASES[kind]
    path = model(tmp_path / "it.onnx", nodes, arrays)
    ours = from_onnx(path)
    assert kind in {layer.type for layer in ours.spec.layers}
    theirs = from_onnx(path, tmp_path / "net", target="caffe")
    assert {layer.type for layer in theirs.spec.layers} <= CHIPS["caffe"].layers
    assert any("round_mode" in layer.options for layer in theirs.spec.layers) is False
    x = numbers(2, 6, 7, 5) * 4
    net = Net(tmp_path / "net.prototxt", "TEST", device="cpu", dtype="float32")
    if theirs.arrays:
        net.load(tmp_path / "net.caffemodel")
    wanted, result = ours.net().forward(x=x)["y"], net.forward(x=x)["y"]
    np.testing.assert_allclose(result, wanted, atol=1e-5 * abs(wanted).max())


def test_group_norm_in_those_of_caffe(tmp_path):
    """Groups as rows, of opset 21, where a scale is one a channel."""
    nodes = [node("GroupNormalization", "s", "b", num_groups=3)]
    path = model(tmp_path / "it.onnx", nodes, {"s": numbers(6), "b": numbers(6)}, opset=21)
    ours, theirs = from_onnx(path), from_onnx(path, tmp_path / "net", target="caffe")
    assert {layer.type for layer in theirs.spec.layers} <= CHIPS["caffe"].layers
    x = numbers(2, 6, 7, 5)
    wanted = ours.net().forward(x=x)["y"]
    grouped = x.astype(np.float64).reshape(2, 3, -1)
    mean, variance = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
    reference = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(theirs.net().forward(x=x)["y"], wanted, atol=1e-5)
    scale, bias = ours.source.arrays["s"], ours.source.arrays["b"]
    reference = reference * scale[:, None, None] + bias[:, None, None]
    np.testing.assert_allclose(wanted, reference, atol=1e-5)


CONV = [node("Conv", "w", kernel_shape=[3, 3], pads=[1] * 4, out="c")]


def test_what_nvdla_does_not_read(tmp_path):
    """A slope of a ReLU is written by its parts, coefficients are Scales, and a bias is never left out."""
    nodes = [*CONV, helper.make_node("LeakyRelu", ["c"], ["y"], alpha=0.1)]
    path = model(tmp_path / "it.onnx", nodes, {"w": numbers(4, 6, 3, 3)})
    net = from_onnx(path, tmp_path / "net", target="nvdla")
    layers = {layer.type: layer for layer in net.spec.layers}
    assert set(layers) <= CHIPS["nvdla"].layers
    assert "coeff" not in layers["Eltwise"].options
    assert "bias_term" not in (tmp_path / "net.prototxt").read_text()
    assert "negative_slope" not in (tmp_path / "net.prototxt").read_text()
    assert net.arrays["c__1"].tolist() == [0, 0, 0, 0]


def chained(*steps, shape=(2, 6, 7, 5), **arrays):
    """Nodes by kind, inputs and output."""
    made = [helper.make_node(kind, ins.split(), outs.split(), outs) for kind, ins, outs in steps]
    return made, {name: np.asarray(array) for name, array in arrays.items()}, shape


def stepped(steps):
    """An LSTM of so many steps."""
    arrays = {"W": numbers(1, 20, 3), "R": numbers(1, 20, 5), "B": numbers(1, 40)}
    return [node("LSTM", *arrays, hidden_size=5)], arrays, (steps, 2, 3)


LENGTH = (("Mul", "x x", "q"), ("ReduceSum", "q axes", "s"), ("Add", "s eps", "e"))
LENGTH += (("Sqrt", "e", "l"), ("Div", "x l", "u"), ("Mul", "u scale", "y"))
IMAGE = {"axes": [1, 2, 3], "eps": np.float32(0.01), "scale": numbers(6, 1, 1)}
TWO = {"two": np.float32(2), "one": np.float32(1)}
BRANCHES = (("Relu", "x", "a"), ("Sigmoid", "x", "b"))
SAID = [
    ("nvdla", CASES["Upsample"], "Deconvolution"),  # of one group
    ("nvdla", chained(("Mul", "x two", "a"), ("Add", "a one", "y"), **TWO), "Scale"),
    ("nvdla", chained(("Add", "x b", "y"), b=numbers(6, 1, 1)), "Scale"),
    ("nvdla", chained(*BRANCHES, ("Sub", "a b", "y")), "ReLU Sigmoid Power Eltwise"),
    ("nvdla", chained(*BRANCHES, ("Sum", "a b x", "y")), "ReLU Sigmoid Eltwise Eltwise"),
    ("caffe", chained(*LENGTH, **IMAGE), "Reduction Power Scale Scale"),
    ("caffe", stepped(1), "DummyData LSTM Reshape"),
    ("caffe", stepped(4), "DummyData DummyData Concat LSTM Reshape"),
]


@pytest.mark.parametrize(("target", "case", "types"), SAID)
def test_what_a_target_is_said_in(target, case, types, tmp_path):
    """Proven by onnxruntime as it is written."""
    net = from_onnx(model(tmp_path / "it.onnx", *case), tmp_path / "net", target=target)
    made = [layer.type for layer in net.spec.layers if layer.type != "Input"]
    assert made == types.split() and set(made) <= CHIPS[target].layers
    if target == "nvdla":
        text = (tmp_path / "net.prototxt").read_text()
        assert "group" not in text and "coeff" not in text
    assert max(net.differences.values()) < 1e-5


OF_IMAGES = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
AXES = ([1], [2], [3], [2, 3], [1, 2], [1, 3], [1, 2, 3])
OF_ROWS = (*OF_IMAGES, "ReduceSumSquare")
REDUCED = [
    *((*one, (2, 5, 4, 3)) for one in itertools.product(("caffe", "nvdla"), OF_IMAGES, AXES)),
    *((*one, (2, 5, 4)) for one in itertools.product(["caffe"], OF_ROWS, ([0], [1], [2], [0, 2]))),
    *(("caffe", kind, [1], (2, 5, 4, 3)) for kind in ("ReduceL2", "LogSoftmax")),
]


@pytest.mark.parametrize(("target", "kind", "axes", "shape"), REDUCED)
def test_numbers_of_axes_become_one(target, kind, axes, shape, tmp_path):
    """Of channels, rows, columns, and several, in the layers of a target; as NumPy computes it in float64."""
    nodes, arrays = [node(kind, "axes")], {"axes": np.array(axes)}
    if kind == "LogSoftmax":
        nodes, arrays = [node(kind, axis=1)], {}
    path = model(tmp_path / "it.onnx", nodes, arrays, shape)
    net = from_onnx(path, tmp_path / "net", target=target)
    assert {layer.type for layer in net.spec.layers} <= CHIPS[target].layers | {"Input"}
    x, along = numbers(*shape), {"axis": tuple(axes), "keepdims": True}
    y = x.astype(np.float64)
    wanted = {
        "ReduceMean": lambda: y.mean(**along),
        "ReduceSum": lambda: y.sum(**along),
        "ReduceMax": lambda: y.max(**along),
        "ReduceMin": lambda: y.min(**along),
        "ReduceL1": lambda: abs(y).sum(**along),
        "ReduceL2": lambda: np.sqrt((y * y).sum(**along)),
        "ReduceSumSquare": lambda: (y * y).sum(**along),
        "LogSoftmax": lambda: y - np.log(np.exp(y).sum(**along)),
    }[kind]()
    np.testing.assert_allclose(net.net().forward(x=x)["y"], wanted, rtol=1e-5, atol=1e-6)


SMALL_NETS = {  # of PyTorch's usual exports, by the layers that they become
    "L2Norm": (
        "q = Pow(x, two) s = ReduceSum(q, one) r = Sqrt(s) n = Add(r, tiny) d = Div(x, n) y = Mul(weight, d)",
        "Power Convolution Power Power Tile Scale Scale",
    ),
    "normalize": (
        "s = ReduceL2(x, one) n = Clip(s, tiny) e = Expand(n, shape) y = Div(x, e)",
        "Power Convolution Power Power Eltwise Tile Power Eltwise",
    ),
    "CBAM, channels": (
        "a = ReduceMean(x, image) b = ReduceMax(x, image) c = Conv(a, to2) d = Conv(b, to2) e = Conv(c, to6)"
        "f = Conv(d, to6) s = Add(e, f) g = Sigmoid(s) y = Mul(x, g)",
        "Pooling Convolution Convolution Reshape Pooling Reshape Convolution Convolution Eltwise Sigmoid Reshape Scale",
    ),
    "CBAM, places": (
        "a = ReduceMean(x, one) b = ReduceMax(x, one) c = Concat <axis = 1> (a, b) "
        "d = Conv <pads = [1, 1, 1, 1]> (c, to1) g = Sigmoid(d) y = Mul(x, g)",
        "Convolution Reshape Pooling Reshape Concat Convolution Sigmoid Tile Scale",
    ),
    "strip pooling": (
        "a = ReduceMean(x, rows) b = ReduceMean(x, columns) c = Expand(a, shape) d = Expand(b, shape)"
        "s = Add(c, d) g = Sigmoid(s) y = Mul(x, g)",
        "Pooling Tile Reduction Reshape Tile Eltwise Sigmoid Eltwise",
    ),
    "mean": ("y = ReduceMean <keepdims = 0> (x, one)", "Convolution Reshape"),
}


@pytest.mark.parametrize("name", SMALL_NETS)
def test_attention_and_norms_in_those_of_caffe(name, tmp_path):
    """Proven by onnxruntime as they are written."""
    nodes, types = SMALL_NETS[name]
    arrays = {"one": np.array([1]), "rows": np.array([2]), "columns": np.array([3])}
    arrays |= {"image": np.array([2, 3]), "shape": np.array([2, 6, 7, 5]), "two": np.float32(2)}
    arrays |= {"tiny": np.float32(1e-10), "weight": numbers(1, 6, 1, 1), "to2": numbers(2, 6, 1, 1)}
    arrays |= {"to6": numbers(6, 2, 1, 1), "to1": numbers(1, 2, 3, 3)}
    path = model(tmp_path / "it.onnx", *text(nodes, **arrays))
    net = from_onnx(path, tmp_path / "net", target="caffe")
    assert " ".join(layer.type for layer in net.spec.layers[1:]) == types
    assert max(net.differences.values()) < 1e-5


def test_a_part_that_nothing_reads_is_an_output_where_nothing_silences(tmp_path):
    nodes, arrays, _ = chained(("Split", "x s", "a b"), ("Relu", "a", "y"), s=[2, 4])
    nodes[0].attribute.append(helper.make_attribute("axis", 1))
    net = from_onnx(model(tmp_path / "it.onnx", nodes, arrays), tmp_path / "net", target="ascend")
    assert [layer.type for layer in net.spec.layers] == ["Input", "Slice", "ReLU"]
    assert net.notes[0].endswith("has no Silence: outputs beside are b")
    assert {"b", "y"} == set(net.net().outputs)


def test_a_row_less_without_silence(tmp_path):
    """Where what is cut off could not be silenced, a convolution leaves it out."""
    nodes = [node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])]
    path = model(tmp_path / "it.onnx", nodes, {}, shape=(1, 3, 8, 6))
    net = from_onnx(path, tmp_path / "net", target="nvdla")
    assert [layer.type for layer in net.spec.layers] == ["Input", "Pooling", "Convolution"]
    assert net.net().blobs["y"].shape == (1, 3, 4, 3)


def test_a_pad_of_one_axis_drops_the_last_window_of_the_other(tmp_path):
    """Which begins behind the image: Caffe drops it on both axes if either is padded."""
    nodes = [node("MaxPool", kernel_shape=[1, 3], strides=[3, 2], pads=[0, 1, 0, 1])]
    path = model(tmp_path / "it.onnx", nodes, {}, shape=(1, 3, 9, 8))
    assert "round_mode" in from_onnx(path).spec.layers[1].options
    net = from_onnx(path, tmp_path / "net", target="caffe")
    assert [layer.type for layer in net.spec.layers] == ["Input", "Pooling", "Slice", "Silence"]


POOLED = ("GlobalAveragePool", "x", "p")
REFUSED = [
    ("nvdla", ([node("Transpose", perm=[0, 2, 3, 1])], {}), "Permute: it is not among its layers; axes of 1"),
    ("caffe", ([node("Gelu")], {}), "export it with approximate: tanh"),
    ("nvdla", ([node("ArgMax", axis=1)], {}), "take the largest score on the host"),
    (
        "nvdla",
        chained(POOLED, ("Sigmoid", "p", "s"), ("Mul", "x s", "y")),
        "does not take its layer Scale: its keys .* are not all read; nothing",
    ),
    ("nvdla", chained(POOLED, ("Add", "x p", "y")), "Bias: .*; a sum of a blob and another that is"),
    ("nvdla", chained(("Sqrt", "x", "y")), r"\['power'\] are not all read; only a Power that mult"),
    ("nvdla", chained(("Relu", "x", "a"), ("Mul", "x a", "y")), "a product of two blobs is not"),
    ("ascend", stepped(4), "ContinuationIndicator: .*; a sequence's start has no layer there"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "case", "reason"), REFUSED)
def test_what_a_target_cannot_say(target, case, reason, tmp_path):
    """One line with the node, the target and the layer; nothing is written."""
    path = model(tmp_path / "it.onnx", *case)
    with pytest.raises(MinicaffeError, match=reason) as caught:
        from_onnx(path, tmp_path / "net", target=target)
    assert f"node {case[0][-1].name!r}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["it.onnx"]


@pytest.mark.parametrize(("target", "told"), [("ascent", "; did you mean 'ascend'"), ("nnie", "")])
def test_targets_have_names(target, told, capsys):
    """Those that are gone are unknown names."""
    names = "expected one of minicaffe, caffe, ascend, nvdla"
    with pytest.raises(MinicaffeError, match=f"^target '{target}': {names}{re.escape(told)}"):
        from_onnx("it.onnx", target=target)
    with pytest.raises(SystemExit) as ended:
        main(["import", "it.onnx", "--out", "net", "--target", target])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and f"invalid choice: '{target}' (choose from" in line


def test_every_lowering_is_of_a_layer_that_is_made():
    others = {"Power", "AbsVal", "Bias", "ReLU", "Eltwise", "ContinuationIndicator", "GroupNorm"}
    assert set(LOWERS) == set(CASES) | others


def test_opencv_reads_what_is_written(tmp_path):
    """A small net, as OpenCV's own importer of Caffe's files computes it; that knows no round_mode."""
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        pytest.skip("OpenCV 5 reads no Caffe nets")
    nodes = [
        *CONV,
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"]),
    ]
    arrays = {"w": numbers(4, 6, 3, 3), "s": numbers(4), "b": numbers(4), "m": numbers(4)}
    arrays |= {"v": abs(numbers(4)), "g": numbers(24, 5)}
    path = model(tmp_path / "it.onnx", nodes, arrays, shape=(1, 6, 7, 5))
    net = from_onnx(path, tmp_path / "net", target="caffe")
    files = [str(tmp_path / f"net.{end}") for end in ("prototxt", "caffemodel")]
    theirs, x = cv2.dnn.readNetFromCaffe(*files), numbers(1, 6, 7, 5)
    theirs.setInput(x)
    wanted = net.net().forward(x=x)["y"]
    np.testing.assert_allclose(theirs.forward("y"), wanted, atol=1e-4 * abs(wanted).max())
