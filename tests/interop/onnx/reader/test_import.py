"""Models of ONNX as nets: the files that are written compute what onnxruntime does, or there is a reason why not."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from core.layers.rows import ROWS, net_of
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.onnx.writer.test_onnx import (
    NOT_REFERRED,
    ONE_BATCH,
    UNSAYABLE,
    agree,
    net_with,
    refers,
    runs,
    started,
)
from kit import arrays_for, refusal

from minicaffe import CheckpointError, MinicaffeError, Net, SpecError
from minicaffe.core.layers import REGISTRY
from minicaffe.interop.onnx.patterns import rows
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.table import READERS, REFUSED
from minicaffe.interop.onnx.writer import check, to_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import image_net, model_of, normal, other_net, said  # noqa: E402
from interop.onnx.reader.test_hostile import nodes_of, of_graph, of_nodes  # noqa: E402

node = onnx.helper.make_node
MODELS = Path(__file__).parents[4] / "models"
ROUNDING = 1e-5  # of an output's largest number


def saved(model, folder):
    """The model in a file, without what an earlier one became."""
    for name in ("net.prototxt", "net.caffemodel"):
        (folder / name).unlink(missing_ok=True)
    (folder / "it.onnx").write_bytes(model.SerializeToString())
    return folder / "it.onnx"


def imported(path, out="net", most=ROUNDING, **more):
    """What a file becomes, once the files that were written are read and compute what onnxruntime does."""
    result = from_onnx(path, path.parent / out, **more)
    folder = path.parent
    yaml = out.endswith(".yaml")
    net = Net(folder / (out if yaml else f"{out}.prototxt"), "TEST", device="cpu", dtype="float32")
    weights = folder / ("net.npz" if yaml else f"{out}.caffemodel")
    assert weights.exists() == bool(result.arrays)
    if result.arrays:
        net.load(weights)
    random = np.random.default_rng(7)
    arrays = {name: random.normal(size=shape) for name, shape in result.source.inputs.items()}
    theirs = runs(path, **arrays)
    net.forward(**{result.tensors.get(name, name): a for name, a in arrays.items()})
    for name, wanted in theirs.items():
        ours = np.asarray(net.blobs[result.tensors[name]].data)
        assert ours.shape == wanted.shape
        assert check.difference(ours, np.asarray(wanted, np.float32)) < most, name
    return result


def kinds(result):
    """The types of a net's layers but for its inputs."""
    return [layer.type for layer in result.spec.layers if layer.type != "Input"]


def one(kind, shape, arrays=(), opset=17, outputs=1, **attributes):
    """A model of one node that reads x and numbers."""
    names = [f"a{i}" if a is not None else "" for i, a in enumerate(arrays)]
    numbers = {n: a for n, a in zip(names, arrays, strict=True) if n}
    tops = [f"y{i}" for i in range(outputs)]
    made = node(kind, ["x", *names], tops, name="it", **attributes)
    return model_of([made], {"x": shape}, tops, numbers, opset)


UNREAD = {
    ("Pooling", 4): "its second output, places in the whole tensor, is no layer's top",
    ("ROIPooling", 0): "onnxruntime cannot run it",  # of boxes drawn at random
    ("ROIPooling", 2): "onnxruntime cannot run it",
    ("DilatedPooling", 1): "its pads [1, 1, 1, 2] differ by no multiple of its dilation 2",
    **{(name, row): "it changes numbers; blobs are floating point" for name in ("BatchReindex", "Upsample") for row in range(2)},
    **{("ImResize", row): "its constant is a stack of matrices" for row in range(2)},
}  # fmt: skip
# What one layer exports and several say when it comes back, for its operators say no more than they.
SEVERAL = {
    "Convolution": (5, 6, 7),  # along other axes; twice, with one weight
    "Deconvolution": (2, 5),
    "Im2col": (3,),
    "Pooling": (3, 5, 6, 7),  # a window that starts in the pad, stochastic, over three axes
    "SPP": (0, 1, 2),
    "Eltwise": (1,),  # a product of three
    "Axpy": (0, 1, 2),
    "Bias": (5,),
    "Scale": (6, 7),
    "InnerDistance": (0, 1, 2, 3),
    "Flip": (1,),
    "L2Norm": (0, 1, 2),
    "Reorg": (0, 1),
    "MaskResize": (0, 1),
    "MaskPooling": (0,),
    "BatchNorm": (1, 3, 4),  # with a Scale of its own; of two axes
    "LSTM": (0, 2),  # of inputs of several axes
    "RNN": (0, 2),
    "Lstm": (0, 1),
    "LSTMUnit": (0,),
    "Crop": (0, 1),
    "ArgMax": (0,),
    "Interp": (1,),
}
ROUND = [
    (name, row)
    for name, rows in ROWS.items()
    if name not in UNSAYABLE | set(REFUSED) and REGISTRY[name].traits.inferred_as != "nothing"
    for row in range(len(rows))
]


@pytest.mark.parametrize(("name", "row"), ROUND)
def test_each_layer_goes_out_and_comes_back(name, row, tmp_path):
    """onnxruntime computes it, with a batch of any size unless a parameter or another bottom depends on it.

    The net that comes back computes the same, or the import is refused for the reason that stands in the table.
    """
    keys, bottoms = ROWS[name][row]
    lines = net_of(name, keys, bottoms).splitlines()
    net = net_with("\n".join(line for line in lines if "twice" not in line), dtype="float32")
    path, arrays = tmp_path / "it.onnx", arrays_for(bottoms, np.random.default_rng(0))
    if "STOCHASTIC" in keys.values():
        arrays["b0"] = abs(arrays["b0"])  # its pixels are not below 0
    try:
        to_onnx(net, path, dynamic=["batch"])
    except MinicaffeError as error:
        assert name in ONE_BATCH or keys.get("axis") == 0, error  # the batch axis is none
        to_onnx(net, path)
    agree(path, net, **arrays)
    if name not in NOT_REFERRED and keys.get("group", 1) == 1:
        agree(path, started(net), runs=refers, **arrays)
    to_onnx(started(net), path)
    if (name, row) in UNREAD:
        assert UNREAD[name, row] in refusal(from_onnx, path, tmp_path / "net")
        assert {Path(file).stem for file in os.listdir(tmp_path)} == {"it"}
        return
    result = from_onnx(path, tmp_path / "net")
    left = [kind for kind in kinds(result) if kind not in ("Silence", "Split")]
    assert (len(left) > 1) == (row in SEVERAL.get(name, ())), left
    back = Net(tmp_path / "net.prototxt", "TEST", device="cpu", dtype="float32")
    if result.arrays:
        back.load(tmp_path / "net.caffemodel")
    wanted = started(net).forward(**arrays)
    back.forward(**{result.tensors.get(name, name): array for name, array in arrays.items()})
    for blob, array in wanted.items():
        assert check.difference(np.asarray(back.blobs[result.tensors[blob]].data), array) < ROUNDING


def test_the_table_of_refusals_is_of_rows_that_are_there():
    assert set(UNREAD) <= set(ROUND)


NETS = {"lenet": (2, 1, 28, 28), "squeezenet": (1, 3, 47, 63), "cifar10_full": (2, 3, 32, 32)}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one != "lenet")) for one in NETS]
)
def test_a_net_of_the_zoo_comes_back(name, tmp_path):
    """In layers of the same types."""
    net = Net(MODELS / f"{name}.yaml", "TEST", device="cpu", deterministic=True)
    net.reshape(**{net.steps[0].tops[0].name: NETS[name]})
    to_onnx(net, tmp_path / "it.onnx")
    result = imported(tmp_path / "it.onnx")
    assert set(kinds(result)) <= ({"Softmax"} | {step.spec.type for step in net.steps})


window = st.integers(1, 3)
AUTO = st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])


def windows(data, axes):
    """Kernel, strides, dilations and the group of a convolution, and these as attributes."""
    kernel, stride, dilation = (
        data.draw(st.lists(window, min_size=axes, max_size=axes), name)
        for name in ("kernel", "stride", "dilation")
    )
    group = data.draw(st.integers(1, 2), "group")
    return kernel, {"strides": stride, "dilations": dilation, "group": group}


@settings(max_examples=25)
@given(data=st.data())
def test_convolutions(data, tmp_path_factory):
    axes = data.draw(st.integers(1, 3), "axes")
    kernel, how = windows(data, axes)
    auto = data.draw(AUTO, "auto_pad")
    if auto == "NOTSET":
        how["pads"] = data.draw(st.lists(window, min_size=2 * axes, max_size=2 * axes), "pads")
    else:
        how["auto_pad"] = auto
        if auto != "VALID":
            how["dilations"] = [1] * axes  # onnxruntime refuses others
    arrays = [normal(4, 4 // how["group"], *kernel)]
    arrays += [normal(4)] * data.draw(st.booleans(), "bias")
    model = one("Conv", (2, 4, *[9, 8, 7][:axes]), arrays, **how)
    right_or_refused(model, tmp_path_factory, "differ by no multiple of its dilation")


@settings(max_examples=25)
@given(data=st.data())
def test_transposed_convolutions(data, tmp_path_factory):
    axes = data.draw(st.integers(1, 2), "axes")
    kernel, how = windows(data, axes)
    pads = [
        data.draw(st.integers(0, (k - 1) * d), "pad")
        for k, d in zip(kernel, how["dilations"], strict=True)
    ]
    more = [data.draw(st.integers(0, max(s - 1, 0)), "output_padding") for s in how["strides"]]
    how |= {"pads": pads + [p // 2 for p in pads], "output_padding": more}
    arrays = [normal(4, 3, *kernel)]
    arrays += [normal(3 * how["group"])] * data.draw(st.booleans(), "bias")
    model = one("ConvTranspose", (2, 4, *[5, 4][:axes]), arrays, **how)
    right_or_refused(model, tmp_path_factory, "")


@settings(max_examples=60)
@given(data=st.data())
def test_poolings(data, tmp_path_factory):
    axes = data.draw(st.integers(1, 3), "axes")
    kind = data.draw(st.sampled_from(["MaxPool", "AveragePool"]), "kind")
    opset = data.draw(st.sampled_from([11, 19]), "opset")
    kernel = data.draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes), "kernel")
    how = {"kernel_shape": kernel}
    how["strides"] = data.draw(st.lists(window, min_size=axes, max_size=axes), "stride")
    auto = data.draw(AUTO, "auto_pad")
    if auto == "NOTSET":
        how["pads"] = [data.draw(st.integers(0, k - 1), "pad") for k in kernel * 2]
        how["ceil_mode"] = data.draw(st.integers(0, 1), "ceil_mode")
        if kind == "MaxPool" or opset == 19:
            how["dilations"] = data.draw(st.lists(window, min_size=axes, max_size=axes), "gaps")
    else:
        how["auto_pad"] = auto
        # Where a stride is larger onnxruntime has pads below 0.
        how["strides"] = [min(s, k) for s, k in zip(how["strides"], kernel, strict=True)]
    if kind == "AveragePool":
        how["count_include_pad"] = data.draw(st.integers(0, 1), "count_include_pad")
    model = one(kind, (2, 3, *[9, 8, 7][:axes]), opset=opset, **how)
    reasons = "behind the image|too large for a Pooling|holds no pixel|holds no number"
    right_or_refused(model, tmp_path_factory, reasons)


def test_a_pad_of_the_least_number_is_a_poolings(tmp_path):
    """Of -inf too. One with other readers is a Bias around the image, which rounds nothing."""
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    for value, gaps, types in (
        (np.finfo(F).min, [1, 2], ["DilatedPooling"]),
        (F("-inf"), [1, 2], ["DilatedPooling"]),
        (F(-1e6), [1, 1], ["Convolution", "Bias", "Pooling"]),
    ):
        pool = f"MaxPool <kernel_shape = [3, 2], strides = [2, 1], dilations = {gaps}>"
        model = said(f"p = Pad(x, pads, value) y = {pool} (p)", pads=pads, value=value)
        assert kinds(imported(saved(model, tmp_path))) == types


def test_windows_in_gaps_of_which_there_is_no_pixel(tmp_path):
    how = {"kernel_shape": [3, 2], "dilations": [3, 1], "pads": [2, 0, 4, 0]}
    for kind in ("MaxPool", "AveragePool"):
        path = saved(one(kind, (1, 2, 1, 4), opset=19, **how), tmp_path)
        told = refusal(from_onnx, path, tmp_path / "net", error=SpecError)
        assert "one of its windows holds no pixel" in told


def unpooled(image=(2, 3, 6, 8), size=None, middle=(), pool=None, **how):
    """A model that pools, and moves the pixels back to where they were the largest."""
    how = {"kernel_shape": [2, 2], "strides": [2, 2]} | how
    graph = onnx.helper.make_graph(
        [
            node("MaxPool", ["x"], ["p", "places"], **how | (pool or {})),
            *middle,
            node("MaxUnpool", ["p", "places", *(["size"] if size else [])], ["y"], **how),
        ],
        "unpool",
        [onnx.helper.make_tensor_value_info("x", 1, image)],
        [onnx.helper.make_tensor_value_info("y", 1, [None] * 4)],
        [onnx.numpy_helper.from_array(np.array(size), "size")] if size else [],
    )
    return of_graph(graph)


def test_pixels_go_back_to_where_they_were_the_largest(tmp_path):
    """By the mask of the Pooling, as in SegNet; to the size that is said where windows leave a row."""
    for model in (
        unpooled(),
        unpooled((1, 2, 7, 9), [1, 2, 7, 9]),
        unpooled((1, 2, 7, 9), strides=[1, 1]),
        unpooled((1, 2, 8, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1], size=[1, 2, 8, 8]),
    ):
        assert kinds(imported(saved(model, tmp_path))) == ["Pooling", "Upsample"]


def test_places_that_are_not_a_masks(tmp_path):
    other = [node("Mul", ["places", "places"], ["q"]), node("Cast", ["q"], ["w"], to=1)]

    def refused(model, **more):
        return refusal(from_onnx, saved(model, tmp_path), tmp_path / "net", error=SpecError, **more)

    for model, reason in (
        (unpooled((1, 2, 7, 9)), "it makes (1, 2, 6, 8) of (1, 2, 3, 4); its places are of"),
        (unpooled(pool={"storage_order": 1}), "are counted by columns"),
        (unpooled(pool={"dilations": [2, 2], "strides": [1, 1]}), "no Pooling, which alone has a"),
    ):
        assert reason in refused(model)
    model = unpooled(middle=other)
    model.graph.output.append(onnx.helper.make_tensor_value_info("w", 1, [None] * 4))
    told = "a node MaxPool of 'p': its second output, places in"
    assert told in refused(model)
    model.graph.node[1].CopyFrom(node("Cast", ["places"], ["w"], to=1))
    del model.graph.node[2]
    assert told in refused(model)
    for target in ("caffe", "ascend"):
        assert "does not take its layer Upsample" in refused(unpooled(), target=target)


def right_or_refused(model, tmp_path_factory, reason):
    """Imported and right; where a reason is expected, that may be said instead."""
    path = saved(model, tmp_path_factory.getbasetemp())
    try:
        imported(path)
    except SpecError as error:
        assert reason and any(one in str(error) for one in reason.split("|")), error


RULES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
RESIZES = [
    *[{"mode": "nearest", "coordinate_transformation_mode": r, "nearest_mode": n} for r in RULES for n in ROUNDINGS],
    *[{"mode": m, "coordinate_transformation_mode": r} for m in ("linear", "cubic") for r in RULES],
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
]  # fmt: skip


@pytest.mark.parametrize("how", RESIZES, ids=lambda how: "-".join(map(str, how.values())))
def test_resizes(how, tmp_path):
    for sizes in ((10, 12), (3, 9), (7, 6)):
        arrays = [None, None, np.array([1, 2, *sizes])]
        imported(saved(one("Resize", (1, 2, 5, 6), arrays, **how), tmp_path))
    twice = [None, np.float32([1, 1, 2, 2])]
    result = imported(saved(one("Resize", (1, 2, 5, 6), twice, **how), tmp_path))
    plain = {"mode": "nearest", "nearest_mode": "floor"}
    plain |= {"coordinate_transformation_mode": "asymmetric"}
    assert how != plain or kinds(result) == ["Upsample"]


def chain(*nodes, shape=(1, 4, 5, 5), outputs=("y",), opset=17, **arrays):
    """A model of nodes from x to y."""
    return model_of(list(nodes), {"x": shape}, list(outputs), arrays, opset)


F = np.float32
CLIPPED = "a = Add(x, three) c = Clip(a, zero, six)"
PATTERNS = [
    ("Swish", "s = Sigmoid(x) y = Mul(x, s)"),
    ("Swish", "s = Sigmoid(x) y = Mul(s, x)"),
    ("Swish", "b = Mul(x, half) s = Sigmoid(b) y = Mul(x, s)"),
    ("HardSwish", "y = HardSwish(x)"),
    ("HardSwish", "s = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, s)"),
    ("HardSwish", f"{CLIPPED} m = Mul(x, c) y = Div(m, six)"),
    ("HardSwish", f"{CLIPPED} d = Div(c, six) y = Mul(x, d)"),
    ("GELU", "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)"),
    ("GELU", "a = Mul(x, r) b = Erf(a) c = Add(b, one) h = Mul(x, half) y = Mul(h, c)"),
    ("ShuffleChannel", "a = Reshape(x, p) b = Transpose <perm = [0, 2, 1, 3, 4]> (a) y = Reshape(b, q)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), PATTERNS)
def test_several_nodes_become_one_layer(kind, text, tmp_path):
    arrays = {"r": F(np.sqrt(0.5)), "p": np.array([1, 2, 2, 5, 5]), "q": np.array([1, 4, 5, 5])}
    assert kinds(imported(saved(said(text, **arrays), tmp_path))) == [kind]


ORDER = np.random.default_rng(0).permutation(20)
MOVED = np.array([0, -1, 1, -2, 0, 0, -1, 2])
ABOVE = "a = Abs(x) b = Add(a, one)"
SUMMED = {"a": normal(4, 1, 1), "b": normal(2, 1, 5, 5), "c": normal(5)}
MVN = "Reshape MVN Reshape"
SAYINGS = [
    ("ReLU", "r = Relu(x) y = Split <axis = 1> (r)", {}),
    ("Convolution", "y = Gather <axis = 1> (x, i)", {"shape": (2, 20, 3, 2), "i": ORDER}),
    ("AbsVal Power Exp", f"{ABOVE} r = Sqrt(b) y = Exp(r)", {}),
    ("ReLU", "y = PRelu(x, s)", {"shape": (5,), "s": F([0.3])}),
    ("AbsVal Power Power", f"{ABOVE} y = Div(two, b)", {}),
    ("AbsVal Power Tile Scale", f"{ABOVE} y = Div(w, b)", {"w": normal(2, 4, 5, 5)}),
    ("Parameter Reshape Bias Parameter Reshape Tile Tile Bias", "y = Sum(x, a, c)", SUMMED),
    ("Parameter Tile Parameter Reshape Bias Reshape Bias Power", "y = Mean(a, x, b)", SUMMED),
    ("Split", "y = Mean(x)", {}),
    ("Power Eltwise", "y = Max(x, half)", {}),
    ("Power Power Eltwise Power", "y = Min(half, x, k)", {"k": F([0.25])}),
    ("InnerProduct ReLU Power Eltwise", "r = Relu(x) y = Gemm <beta = 0.5> (x, w, r)", {"shape": (2, 4), "w": normal(4, 4)}),
    (MVN, "y = MeanVarianceNormalization <axes = [1, 2, 3]> (x)", {}),
    (MVN, "y = MeanVarianceNormalization <axes = [-1, -2]> (x)", {}),
    ("Sigmoid Reduction", "s = Sigmoid(x) y = ReduceSum <keepdims = 0> (s, at)", {"at": np.array([2, 3])}),
    ("AbsVal", "y = ReduceL1 <noop_with_empty_axes = 1> (x)", {"opset": 18}),
    ("Power Power", "y = ReduceL2 <noop_with_empty_axes = 1> (x)", {"opset": 18}),
    ("Split", "y = ReduceMax <noop_with_empty_axes = 1> (x)", {"opset": 18}),
    ("Split", 'y = Resize <mode = "linear"> (x, , s)', {"s": F([1, 1, 1.15, 1])}),
    ("Split", "y = Resize(x, , s)", {"shape": (1, 4, 5), "s": F([1, 1, 1.1])}),
    ("Split", "y = Pad(x, p)", {"p": np.zeros(8, int)}),
    ("Slice Slice Slice Convolution Bias Silence", "y = Pad(x, p, half)", {"p": MOVED}),
    ("Convolution Convolution", "r = Pad(x, p, , at) y = Conv(r, w)",  # the first of 1, that pads
     {"opset": 18, "p": np.array([1, 2, 0, 1]), "at": np.array([2, 3]), "w": normal(3, 4, 3, 3)}),
    ("Bias", "d = CastLike(c, x) y = Add(x, d)", {"c": np.arange(5)}),
    ("Bias", "d = NonZero(c) e = Cast <to = 1> (d) y = Add(x, e)", {"c": F([1, 0, 3, 4, 5, 2])}),
]  # fmt: skip


@pytest.mark.parametrize(("types", "text", "more"), SAYINGS)
def test_operators_in_layers(types, text, more, tmp_path):
    assert " ".join(kinds(imported(saved(said(text, **more), tmp_path)))) == types


FAR = F([[0.0, -50.0, -95.0, -150.0], [1e-3, -2e-5, -0.0, 1e4]])
LOW, HIGH = F(-1000), F(1000)
FAR_APART = [
    said("y = LogSoftmax(x)", (2, 4)),
    said("y = LogSoftmax <axis = 1> (x)", (1, 2, 4, 1)),
    said("y = LogSoftmax <axis = 1> (x)", (2, 2, 2), 12),
    said("y = Max(x, low)", (2, 4), low=LOW),
    said("y = Min(x, high)", (2, 4), high=HIGH),
    said("y = Clip(x, low)", (2, 4), low=LOW),
    said("y = Clip(x, , high)", (2, 4), high=HIGH),
    said("y = Clip(x, low, high)", (2, 4), low=LOW, high=HIGH),
    said("y = Clip(x, zero, six)", (2, 4)),
    said("y = Pad(x, p, c)", (2, 1, 4, 1), p=np.array([0, 0, 1, 2, 0, 0, 0, 1]), c=F(999)),
    said("m = Mul(x, c) y = LpNormalization(m)", (2, 4), c=F(1e-17)),
    said("y = Reciprocal(x)", (2, 4)),
    said("y = Div(c, x)", (2, 4), c=F(-2)),
    said("n = Neg(x) y = Div(two, n)", (2, 4)),
]


@pytest.mark.parametrize("target", ["minicaffe", "caffe"])
@pytest.mark.parametrize("model", FAR_APART)
def test_numbers_far_apart(model, target, tmp_path):
    """Each as onnxruntime has it, and the sign of an infinite one, which is 1 / -0.0."""
    path = saved(model, tmp_path)
    result = from_onnx(path, target=target)
    x = FAR.reshape(next(iter(result.source.inputs.values())))
    y = result.net().forward(x=x)["y"]
    np.testing.assert_allclose(y, runs(path, x=x)["y"], rtol=1e-6, atol=1e-37)


def raised(draft, node):
    """Max, by what is added and taken away again."""
    x, c = draft.blob(node.inputs[0]), float(node.inputs[1].data)
    return draft.linear(draft.layer("ReLU", draft.linear(x, shift=-c)), shift=c)


def unsigned(draft, node):
    """Reciprocal, of x + 0, which is never -0.0."""
    x = draft.blob(node.inputs[0])
    return draft.power(draft.layer("Eltwise", x, draft.linear(x, 0.0)), -1.0)


def logarithm(draft, node):
    """LogSoftmax, of probabilities that may be 0."""
    return draft.layer("Log", draft.layer("Softmax", draft.blob(node.inputs[0])))


def padded(draft, node):
    """Relu, of a tensor that has a small number added."""
    return draft.layer("ReLU", draft.linear(draft.blob(node.inputs[0]), shift=1e-7))


INEXACT = [
    (raised, node("Max", ["x", "c"], ["y"])),
    (unsigned, node("Reciprocal", ["x"], ["y"])),
    (logarithm, node("LogSoftmax", ["x"], ["y"])),
    (padded, node("Relu", ["x"], ["y"])),
]


@pytest.mark.parametrize(("reader", "made"), INEXACT)
def test_a_reader_that_loses_digits_is_found(reader, made, monkeypatch, tmp_path):
    """By numbers far apart: of normal ones it differs by less than 1e-4 of the largest."""
    monkeypatch.setitem(READERS, made.op_type, reader)
    arrays = {"c": F(-1000)} if "c" in made.input else {}
    path = saved(chain(made, shape=(2, 4), **arrays), tmp_path)
    told = refusal(from_onnx, path, tmp_path / "net", error=CheckpointError)
    assert "of numbers far apart; nothing was written" in told
    assert [one.name for one in tmp_path.iterdir()] == ["it.onnx"]


ROUNDED = [  # what onnxruntime rounds itself, or by another order
    "y = LRN <size = 3, alpha = 1.0> (x)",  # of running sums
    "y = Sigmoid(x)",  # 0 below -18
    "y = Elu(x)",  # exp(x) - 1
    "y = Gelu(x)",
    "s = Sub(c, x) y = InstanceNormalization(s, one, one)",
    "s = Sub(c, x) y = Add(c, s)",
    "p = Pow(x, four) q = Mul(p, p) y = Div(q, q)",
]


@pytest.mark.parametrize("text", ROUNDED)
def test_honest_rounding_is_no_difference(text, tmp_path):
    path = saved(said(text, opset=20, c=F(-1000), one=F([1] * 4)), tmp_path)
    assert max(from_onnx(path, tmp_path / "net").differences.values()) < 1e-4


WHOLE = [
    ("ReLU", lambda x: x, "c = Cast <to = 1> (x) y = Relu(c)"),
    ("Power", lambda x: x + 1.0,  # by 1.7, which is 1 as a whole number, and as a truth
     "h = CastLike(number, x) g = Cast <to = 1> (h) c = Cast <to = 1> (x) y = Add(c, g)"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize(("type_", "formula", "text"), WHOLE)
def test_inputs_of_whole_numbers(kind, type_, formula, text, tmp_path, monkeypatch):
    """Both nets are asked for the same whole numbers, some of them not 0."""
    asked, run = [], check.run

    def noted(data, arrays):
        asked.append(arrays["x"])
        return run(data, arrays)

    monkeypatch.setattr(check, "run", noted)
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    path = saved(of_nodes(*nodes_of(text), kind=code, number=F(1.7)), tmp_path)
    result = from_onnx(path, tmp_path / "net")
    assert kinds(result) == [type_] and len(asked) == 3
    assert all(one.dtype == kind and one.any() for one in asked)
    if kind != "bool":
        assert max(abs(one.astype(int)).max() for one in asked) > 1
    x = np.array([[0, 1, 1], [0, 0, 1]])
    np.testing.assert_array_equal(result.net().forward(x=x)["y"], np.maximum(formula(x), 0))


def test_rows_that_whole_numbers_choose(tmp_path):
    path = saved(of_nodes(node("Gather", ["w", "x"], ["y"]), kind=7, w=normal(5, 3)), tmp_path)
    result = from_onnx(path, tmp_path / "net")
    x = np.array([[0, 4, 2], [1, 1, 3]])
    np.testing.assert_array_equal(result.net().forward(x=x)["y"], normal(5, 3)[x])
    path = saved(of_nodes(node("Gather", ["w", "x"], ["y"]), kind=7, w=normal(5, 3, 2)), tmp_path)
    told = refusal(from_onnx, path, error=SpecError)
    assert "its indices are computed; Embed reads rows of a constant" in told


def test_an_input_that_is_an_array_or_an_output(tmp_path):
    """The older form of a weight is no input of the net; a model of no nodes has nothing to compare."""
    model = chain(node("Add", ["x", "b"], ["y"]), b=normal(5))
    model.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, (5,)))
    assert imported(saved(model, tmp_path)).source.inputs == {"x": (1, 4, 5, 5)}
    del model.graph.node[:]
    model.graph.output[0].name = "x"
    result = from_onnx(saved(model, tmp_path), tmp_path / "net")
    assert result.notes == ["output 'x' is called 'x_2'"] and kinds(result) == ["Split"]


def test_means_whose_pads_are_as_large_as_windows(tmp_path):
    """onnxruntime has none such: beside NumPy."""
    how = {"kernel_shape": [2, 1], "strides": [3, 1], "pads": [2, 0, 2, 0], "count_include_pad": 1}
    result = from_onnx(saved(one("AveragePool", (1, 2, 5, 3), **how), tmp_path))
    x = normal(1, 2, 5, 3)
    padded = np.pad(x, [(0, 0), (0, 0), (2, 2), (0, 0)])
    wanted = np.stack([padded[:, :, i : i + 2].mean(2) for i in (0, 3, 6)], 2)
    np.testing.assert_allclose(result.net().forward(x=x)["y0"], wanted, atol=1e-6)


def test_places_that_two_read(tmp_path):
    """The Pooling has one mask for both."""
    middle = [node("Relu", ["p"], ["q"])]
    middle.append(node("MaxUnpool", ["q", "places"], ["w"], kernel_shape=[2, 2], strides=[2, 2]))
    model = unpooled(middle=middle)
    model.graph.output.append(onnx.helper.make_tensor_value_info("w", 1, [None] * 4))
    result = imported(saved(model, tmp_path))
    assert sorted(kinds(result)) == ["Pooling", "ReLU", "Upsample", "Upsample"]
    assert [len(layer.tops) for layer in result.spec.layers if layer.type == "Pooling"] == [2]


FOLDED = [  # as one layer, and how many numbers it has
    ("Convolution", 2, ["w", "b"], "Add", (4, 1, 1), (1, 4, 5, 5)),
    ("Convolution", 1, ["w"], "Mul", (4, 1, 1), (1, 4, 5, 5)),
    ("InnerProduct", 1, ["w"], "Mul", (), (2, 4, 4)),
    ("InnerProduct Scale", 2, ["w"], "Mul", (4, 1), (2, 4, 4)),  # of rows, not of outputs
]


@pytest.mark.parametrize(("types", "count", "inputs", "kind", "size", "shape"), FOLDED)
def test_what_is_folded(types, count, inputs, kind, size, shape, tmp_path):
    product = "Conv" if len(shape) == 4 else "MatMul"
    nodes = [node(product, ["x", *inputs], ["c"]), node(kind, ["c", "d"], ["y"])]
    weights = {"w": normal(4, 4, 1, 1) if len(shape) == 4 else normal(4, 4)}
    weights |= {"b": normal(4, seed=2)} if "b" in inputs else {}
    model = chain(*nodes, shape=shape, d=normal(*size, seed=1), **weights)
    result = imported(saved(model, tmp_path), folded=True)
    assert " ".join(kinds(result)) == types and len(result.arrays) == count


def test_the_table_of_operators_without_docstrings(monkeypatch):
    """As `python -OO` has it."""
    monkeypatch.setattr(READERS["Flatten"], "__doc__", None)
    assert dict(rows())["Flatten"].startswith("Flatten, or Reshape where not only")


def test_numbers_close_to_a_patterns_are_another_function(tmp_path):
    model = said(f"{CLIPPED} m = Mul(x, c) y = Div(m, six)", three=F(2.5))
    assert "HardSwish" not in kinds(imported(saved(model, tmp_path)))


def convolved(**attributes):
    """Conv, BatchNormalization and Relu, then Gemm and a scale, as a trained net ends."""
    nodes = [
        node("Conv", ["x", "features.0.weight"], ["c"], **attributes),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("ConvTranspose", ["r", "up.weight"], ["u"], group=2, strides=[2, 2]),
        node("BatchNormalization", ["u", "s", "b", "m", "v"], ["w"]),
        node("Flatten", ["w"], ["f"]),
        node("Gemm", ["f", "classifier.weight", "classifier.bias"], ["g"], transB=1),
        node("Mul", ["g", "two"], ["logits"]),
    ]
    arrays = {
        "features.0.weight": normal(4, 3, 3, 3), "s": normal(4, seed=1), "b": normal(4, seed=2),
        "m": normal(4, seed=3), "v": abs(normal(4, seed=4)) + F(0.5), "up.weight": normal(4, 2, 2, 2),
        "classifier.weight": normal(5, 64), "classifier.bias": normal(5), "two": F(2),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 3, 4, 4)}, ["logits"], arrays)


def test_folding_leaves_fewer_layers_that_compute_the_same(tmp_path):
    path = saved(convolved(), tmp_path)
    assert kinds(imported(path)) == [
        *["Convolution", "BatchNorm", "Scale", "ReLU", "Deconvolution", "BatchNorm", "Scale"],
        *["InnerProduct", "Power"],
    ]
    result = imported(path, "folded", folded=True)
    assert kinds(result) == ["Convolution", "ReLU", "Deconvolution", "InnerProduct"]
    assert result.notes[0] == "5 layers folded into the one before"


def test_what_is_read_twice_is_not_folded(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Add", ["c", "n"], ["y"]),
    ]
    arrays = dict.fromkeys("sbm", normal(4)) | {"w": normal(4, 3, 1, 1), "v": F([1, 2, 3, 4])}
    path = saved(model_of(nodes, {"x": (1, 3, 4, 4)}, ["y"], arrays), tmp_path)
    assert kinds(imported(path, folded=True)) == ["Convolution", "BatchNorm", "Scale", "Eltwise"]


def test_layers_are_called_after_their_weights_and_outputs_keep_their_names(tmp_path):
    result = imported(saved(convolved(), tmp_path))
    names = [layer.name for layer in result.spec.layers]
    assert {"x", "features.0", "up", "classifier", "logits"} <= set(names)
    assert len(set(names)) == len(names)
    assert result.tensors["logits"] == "logits" and result.tensors["x"] == "x"


@pytest.mark.parametrize("out", ["net", "net.yaml"])
@pytest.mark.parametrize("model", [image_net, other_net])
def test_both_kinds_of_files(model, out, tmp_path):
    imported(saved(model(), tmp_path), out)
    endings = {".npz", ".yaml"} if out == "net.yaml" else {".caffemodel", ".prototxt"}
    assert {Path(name).suffix for name in os.listdir(tmp_path)} == {*endings, ".onnx"}


def test_a_model_of_16_bits(tmp_path):
    graph = onnx.helper.make_graph(
        [node("Conv", ["x", "w"], ["c"], name="conv"), node("Relu", ["c"], ["y"])],
        "half",
        [onnx.helper.make_tensor_value_info("x", 10, (1, 3, 5, 5))],
        [onnx.helper.make_tensor_value_info("y", 10, (1, 4, 3, 3))],
        [onnx.numpy_helper.from_array(normal(4, 3, 3, 3).astype(np.float16), "w")],
    )
    result = from_onnx(saved(of_graph(graph), tmp_path), tmp_path / "net")
    assert kinds(result) == ["Convolution", "ReLU"]
    (array,) = result.arrays.values()
    np.testing.assert_array_equal(array, normal(4, 3, 3, 3).astype(np.float16).astype(F))


def test_numbers_that_lie_beside_the_model(tmp_path):
    path = tmp_path / "it.onnx"
    onnx.save(convolved(), str(path), save_as_external_data=True, size_threshold=0)
    assert len(os.listdir(tmp_path)) > 1
    imported(path)


OPSETS = {  # by operator: its shape, until which opset, attributes before it, and arrays since
    "Squeeze": ((1, 3, 1, 5), 13, {"axes": [0, 2]}, [np.array([0, 2])]),
    "Unsqueeze": ((3, 4), 13, {"axes": [0, 3]}, [np.array([0, 3])]),
    "Clip": ((2, 3, 4), 11, {"min": -0.5, "max": 0.75}, [F(-0.5), F(0.75)]),
    "Pad": ((1, 2, 4, 5), 11, {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "value": 1.5},
            [np.array([0, 0, 1, 2, 0, 0, 0, 3]), F(1.5)]),
    "Resize": ((1, 2, 3, 4), 0, {}, [None, F([1, 1, 2, 3])]),
    "Slice": ((1, 3, 4, 7), 10, {"starts": [1, -3], "ends": [9, 2**31], "axes": [1, 3]},
              [np.array(n) for n in ([1, -3], [9, 2**31], [1, -1], [1, 2])]),
    "Split": ((2, 4, 3), 13, {"split": [1, 3]}, [np.array([1, 3])]),
    "ReduceSum": ((2, 4, 3), 13, {"axes": [1]}, [np.array([1])]),
    "Softmax": ((2, 3, 4, 5), 99, {"axis": 1}, []),
    "LogSoftmax": ((2, 3, 4, 5), 99, {"axis": 1}, []),
}  # fmt: skip


@pytest.mark.parametrize("opset", [9, 13, 17, 21])
@pytest.mark.parametrize("kind", OPSETS)
def test_operators_as_each_opset_has_them(kind, opset, tmp_path):
    shape, since, before, arrays = OPSETS[kind]
    how = dict(before) if opset < since else {}
    how |= {"axis": 1} if kind == "Split" else {"mode": "linear"} if kind == "Resize" else {}
    if kind == "Resize" and opset < 10:
        kind, arrays, how = "Upsample", arrays[1:], {"mode": "nearest"}
    arrays = [] if opset < since else arrays
    imported(saved(one(kind, shape, arrays, opset, 1 + (kind == "Split"), **how), tmp_path))


@pytest.mark.parametrize("start", range(3))
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_slices_with_steps(axis, start, step, tmp_path):
    for end, other in itertools.product((7, 8, 100), (1, 2)):
        second = 5 - axis if axis > 1 else 2
        rows = [start, 0], [end, 9], [axis, second], [step, other]
        imported(saved(one("Slice", (1, 9, 9, 8), list(map(np.array, rows))), tmp_path))


def test_a_refused_node_is_named(tmp_path):
    einsum = node("Einsum", ["r", "r"], ["y"], name="/att/Einsum", equation="abcd,abcd->abcd")
    path = saved(chain(node("Relu", ["x"], ["r"]), einsum), tmp_path)
    assert refusal(from_onnx, path, tmp_path / "net", error=SpecError) == (
        f"{path}: node '/att/Einsum' (Einsum): Caffe has no product of two blobs: attention "
        "cannot be said in its layers; nothing was written"
    )
    assert os.listdir(tmp_path) == ["it.onnx"]


def test_a_net_that_differs_is_not_written(tmp_path, monkeypatch):
    path = saved(chain(node("Sigmoid", ["x"], ["y"])), tmp_path)

    def wrong(draft, node):
        return draft.layer("TanH", draft.blob(node.inputs[0]))

    monkeypatch.setitem(READERS, "Sigmoid", wrong)
    told = r"it.onnx: layer 'y' \(TanH\) differs from 'y' in onnxruntime by .* of its largest number; nothing"
    with pytest.raises(CheckpointError, match=told):
        from_onnx(path, tmp_path / "net")
    assert os.listdir(tmp_path) == ["it.onnx"]


def test_files_that_are_there_stay_where_an_import_is_refused(tmp_path, monkeypatch):
    path = saved(convolved(), tmp_path)
    imported(path)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    monkeypatch.setattr(check, "MOST", -1.0)
    told = refusal(from_onnx, path, tmp_path / "net", error=CheckpointError)
    assert "nothing was written" in told
    assert before == {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}


def test_shapes_that_the_file_leaves_open(tmp_path):
    model = convolved()
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[2].dim_param = "n", "height"
    path = saved(model, tmp_path)
    for shapes, told in (
        (None, r"the size of its axis 2 \(height\) is not known.*--shape x=1x3x224x4"),
        ({"x": (1, 3, 4, 4), "xx": (1,)}, "has no input 'xx'; did you mean 'x'"),
        ({"x": (1, 3, 4, 5)}, r"expected a shape that fits \['n', 3, 'height', 4\], got"),
    ):
        with pytest.raises(SpecError, match=told):
            from_onnx(path, shapes=shapes)
    assert imported(path, shapes={"x": (1, 3, 4, 4)}).source.inputs == {"x": (1, 3, 4, 4)}


@pytest.mark.parametrize(
    ("name", "word"), [("input:0", "input:0"), ("my in", "'my in'"), ("a\nb", "'a\\nb'")]
)
def test_an_input_whose_shape_is_open_is_named_as_a_shell_takes_it(tmp_path, name, word):
    """In one line, too; so is the name of a size."""
    model = convolved()
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    path, shape = saved(model, tmp_path), model.graph.input[0].type.tensor_type.shape
    shape.dim[2].dim_param = "of\ntwo lines"
    told = refusal(from_onnx, saved(model, tmp_path), error=SpecError)
    assert told.isprintable() and told.endswith(
        rf"axis 2 ('of\ntwo lines') is not known; give all of them, such as --shape {word}=1x3x224x4"
    )
    model.graph.input[0].type.tensor_type.ClearField("shape")
    told = f"{path}: input {name!r}: its shape is not known; give it by --shape {word}=1x3x224x224"
    assert refusal(from_onnx, saved(model, tmp_path), error=SpecError) == told


def test_the_page_exports_from_pytorch(tmp_path):
    """Its lines, where PyTorch is installed, make a file that comes to be a net."""
    pytest.importorskip("torch")
    page = (MODELS.parent / "docs" / "onnx-to-caffe.md").read_text("utf-8")
    lines = page[page.index("import torch\n") :].partition("```")[0]
    subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, check=True, capture_output=True)
    result = from_onnx(tmp_path / "classifier.onnx", tmp_path / "classifier")
    assert kinds(result) == ["Convolution", "Swish", "Pooling", "InnerProduct"]
