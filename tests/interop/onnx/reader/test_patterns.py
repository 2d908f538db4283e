"""Several nodes that one layer says: it says them where they mean it, and only there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import model_of, normal
from interop.onnx.reader.test_import import imported, kinds, node, saved
from interop.onnx.writer import test_detection as detection

from minicaffe import Net, SpecError, parse
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.writer import to_onnx

F = np.float32
SHAPE = (2, 6, 4, 5)


def model(nodes, shape=SHAPE, **numbers):
    """Nodes from x to y, given as (kind, inputs, output, attributes...)."""
    made = [node(kind, inputs.split(), [top], **how) for kind, inputs, top, how in nodes]
    arrays = {name: np.asarray(array) for name, array in numbers.items()}
    return model_of(made, {"x": shape}, ["y"], arrays, 17)


def standard(x, last, axes, eps=1e-5, square="Pow"):
    """(x - mean) / sqrt(variance + eps), as PyTorch writes it at opsets that have no operator for it."""
    times = ("Pow", "d two", "q", {}) if square == "Pow" else ("Mul", "d d", "q", {})
    nodes = [
        ("ReduceMean", x, "m", {"axes": axes}),
        ("Sub", f"{x} m", "d", {}),
        times,
        ("ReduceMean", "q", "v", {"axes": axes}),
        ("Add", "v eps", "e", {}),
        ("Sqrt", "e", "s", {}),
        ("Div", "d s", last, {}),
    ]
    return nodes, {"two": F(2), "eps": F(eps)}


def test_layer_norm_by_its_parts(tmp_path):
    nodes, numbers = standard("x", "n", [-1])
    nodes += [("Mul", "n scale", "t", {}), ("Add", "t bias", "y", {})]
    own = {"scale": normal(5), "bias": normal(5)}
    assert kinds(imported(saved(model(nodes, **numbers, **own), tmp_path))) == ["LayerNorm"]


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_group_norm_by_its_parts(square, tmp_path):
    nodes, numbers = standard("r", "n", [2], square=square)
    nodes = [("Reshape", "x rows", "r", {}), *nodes, ("Reshape", "n whole", "b", {})]
    nodes += [("Mul", "scale b", "t", {}), ("Add", "bias t", "y", {})]
    own = {"scale": normal(6, 1, 1), "bias": normal(6, 1, 1)}
    numbers |= own | {"rows": np.array([0, 3, -1]), "whole": np.array(SHAPE)}
    assert kinds(imported(saved(model(nodes, **numbers), tmp_path))) == ["GroupNorm"]


def test_group_norm_by_an_instance_norm(tmp_path):
    """As torch.nn.GroupNorm is exported."""
    nodes = [
        ("Reshape", "x rows", "r", {}),
        ("InstanceNormalization", "r ones zeros", "n", {"epsilon": 0.01}),
        ("Reshape", "n whole", "b", {}),
        ("Mul", "b scale", "t", {}),
        ("Add", "t bias", "y", {}),
    ]
    numbers = {"ones": np.ones(2, F), "zeros": np.zeros(2, F), "whole": np.array(SHAPE)}
    numbers |= {"rows": np.array([0, 2, -1]), "scale": normal(6, 1, 1), "bias": normal(6, 1, 1)}
    assert kinds(imported(saved(model(nodes, **numbers), tmp_path))) == ["GroupNorm"]
    numbers["ones"] = np.full(2, 2, F)  # a scale of groups is another formula
    assert "GroupNorm" not in kinds(imported(saved(model(nodes, **numbers), tmp_path)))


def normed(rows, scale, shape=SHAPE):
    """Rows that are standardised, times a scale and plus a bias that the whole has."""
    nodes, numbers = standard("r", "n", [2])
    nodes = [("Reshape", "x rows", "r", {}), *nodes, ("Reshape", "n whole", "b", {})]
    numbers |= {"rows": np.array(rows), "whole": np.array(shape), "scale": normal(*scale)}
    nodes += [("Mul", "b scale", "t", {}), ("Add", "t scale", "y", {})]
    return model(nodes, shape, **numbers)


def less_mean(rows, axis):
    """Rows less their mean."""
    nodes = [
        ("Reshape", "x rows", "r", {}),
        ("ReduceMean", "r", "m", {"axes": [axis]}),
        ("Sub", "r m", "d", {}),
        ("Reshape", "d whole", "y", {}),
    ]
    return model(nodes, rows=np.array(rows), whole=np.array(SHAPE))


def by_length(axes, scale, **how):
    """x over the root of a sum of squares, times a scale."""
    nodes = [("Mul", "x x", "q", {}), ("ReduceSum", "q axes", "s", how), ("Add", "s eps", "e", {})]
    nodes += [("Sqrt", "e", "l", {}), ("Div", "x l", "u", {}), ("Mul", "u scale", "y", {})]
    return model(nodes, axes=np.array(axes), eps=F(0.01), scale=normal(*scale))


def within(**how):
    """x (1 + alpha mean of squares in a window)^-beta."""
    nodes = [("Mul", "x x", "q", {}), ("AveragePool", "q", "a", how), ("Mul", "a alpha", "k", {})]
    nodes += [("Add", "k one", "b", {}), ("Pow", "b beta", "p", {}), ("Mul", "x p", "y", {})]
    return model(nodes, alpha=F(0.1), one=F(1), beta=F(-0.75))


def product(shape, rows, columns):
    """Rows times a matrix, in the shape of what they were."""
    nodes = [("Reshape", "x rows", "r", {}), ("Gemm", "r w", "g", {}), ("Reshape", "g to", "y", {})]
    whole = np.array([2, 3, columns])
    return model(nodes, shape, rows=np.array(rows), w=normal(rows[1], columns), to=whole)


def layer_normed(scale):
    nodes, numbers = standard("x", "n", [-1])
    nodes += [("Mul", "n scale", "t", {}), ("Add", "t scale", "y", {})]
    return model(nodes, **numbers, scale=normal(*scale))


NEAR = {
    "a scale of more axes": (layer_normed((1, 5)), "LayerNorm", False),
    "groups across samples": (normed([1, 4, -1], (6, 1, 1)), "GroupNorm", False),
    "groups that cut channels": (normed([2, 4, -1], (6, 1, 1)), "GroupNorm", False),
    "a scale of columns": (normed([0, 3, -1], (5,)), "GroupNorm Scale", True),
    "as many columns": (normed([0, 3, -1], (6,), (2, 6, 4, 6)), "GroupNorm Scale", True),
    "rows of channels": (less_mean([2, 6, 20], -1), "MVN", True),
    "rows of all samples": (less_mean([1, 12, 20], -1), "MVN", False),
    "means of columns": (less_mean([2, 6, 20], 1), "MVN", False),
    "lengths of channels": (by_length([1], (6, 1, 1)), "Normalize", True),
    "lengths of rows": (by_length([2], (6, 1, 1)), "Normalize", False),
    "lengths without their axis": (by_length([0], (6, 1, 1), keepdims=0), "Normalize", False),
    "a scale along columns": (by_length([1], (5,)), "Normalize", False),
    "a window": (within(kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1), "LRN", True),
    "pads that do not count": (within(kernel_shape=[3, 3], pads=[1] * 4), "LRN", False),
    "an even window": (within(kernel_shape=[2, 2], pads=[0, 0, 1, 1]), "LRN", False),
    "rows of a matrix": (product((2, 3, 4), [6, 4], 8), "InnerProduct", True),
    "single numbers": (product((2, 3), [6, 1], 8), "Reshape InnerProduct Reshape", True),
}


@pytest.mark.parametrize("case", NEAR)
def test_what_is_nearly_a_pattern(case, tmp_path):
    """Its numbers are those of onnxruntime, with the one layer or without it."""
    made, wanted, whole = NEAR[case]
    types = kinds(imported(saved(made, tmp_path)))
    assert (types == wanted.split()) == whole and len(types) > (wanted not in types)


@settings(max_examples=12)
@given(axes=st.sets(st.integers(1, 3), min_size=1), eps=st.sampled_from([1e-5, 0.5]))
def test_any_axes_are_right_and_the_last_are_a_layer_norm(axes, eps, tmp_path_factory):
    nodes, numbers = standard("x", "y", sorted(axes), eps)
    result = imported(saved(model(nodes, **numbers), tmp_path_factory.mktemp("onnx")))
    last = sorted(axes) == list(range(min(axes), 4))
    assert (kinds(result) == ["LayerNorm"]) == last


def gelus():
    """x / 2 (1 + tanh(...)), whichever way the product is put."""
    inner = [
        ("Pow", "x three", "c", {}),
        ("Mul", "c small", "k", {}),
        ("Add", "x k", "i", {}),
        ("Mul", "i root", "r", {}),
        ("Tanh", "r", "h", {}),
        ("Add", "h one", "g", {}),
    ]
    yield [*inner, ("Mul", "x g", "p", {}), ("Mul", "p half", "y", {})]
    yield [*inner, ("Mul", "half x", "p", {}), ("Mul", "p g", "y", {})]
    yield [*inner, ("Mul", "half g", "p", {}), ("Mul", "p x", "y", {})]


@pytest.mark.parametrize("nodes", list(gelus()))
def test_gelu_by_tanh(nodes, tmp_path):
    numbers = {"three": F(3), "small": F(0.044715), "root": F(math.sqrt(2 / math.pi))}
    numbers |= {"one": F(1), "half": F(0.5)}
    result = imported(saved(model(nodes, **numbers), tmp_path))
    assert kinds(result) == ["GELU"]
    assert result.spec.layers[-1].options["approximate"] == "tanh"
    numbers["small"] = F(0.05)
    assert "GELU" not in kinds(imported(saved(model(nodes, **numbers), tmp_path)))


def test_what_is_read_elsewhere_stays(tmp_path):
    """The parts of a pattern whose numbers something else reads are layers beside it."""
    nodes = [
        ("ReduceSum", "x", "s", {"keepdims": 0}),
        ("Mul", "s two", "t", {}),
        ("Add", "s t", "y", {}),
    ]
    assert kinds(imported(saved(model(nodes, two=F(2)), tmp_path))).count("Reduction") == 1


@pytest.mark.parametrize("factor", [1e-4, 0.4343, 3.0, 1000.0, -2.0])
@pytest.mark.parametrize("kind", ["Log", "Exp"])
def test_a_factor_behind(kind, factor, tmp_path):
    """It is a key of the layer where that holds it to the last digit; else a layer of its own."""
    nodes = [("Abs", "x", "a", {}), ("Add", "a one", "b", {})]
    nodes += [(kind, "b", "l", {}), ("Mul", "l f", "y", {})]
    result = imported(saved(model(nodes, one=F(1), f=F(factor)), tmp_path))
    alone = factor > 0 and (kind == "Exp" or 0.1 < factor < 4)
    assert (kinds(result)[-1] == kind) == alone


def test_numbers_of_more_axes_make_no_pattern(tmp_path):
    """A number of five axes makes five of a blob's four, which a pattern's layer does not."""
    wide = np.full((1,) * 5, 0.5, F)
    nodes = [("Mul", "x beta", "b", {}), ("Sigmoid", "b", "s", {}), ("Mul", "x s", "y", {})]
    result = imported(saved(model(nodes, beta=wide), tmp_path))
    assert result.spec.layers[-1].type != "Swish"
    nodes, numbers = standard("x", "y", [-1])
    for word in ("two", "eps"):
        more = numbers | {word: np.full((1,) * 5, numbers[word])}
        assert "LayerNorm" not in kinds(imported(saved(model(nodes, **more), tmp_path)))


@pytest.mark.parametrize("kind", ["Greater", "Less"])
@pytest.mark.parametrize("operands", ["x level", "level x"])
@pytest.mark.parametrize("axes", [0, 5])
def test_a_comparison_with_a_number_is_a_threshold(kind, operands, axes, tmp_path):
    nodes = [(kind, operands, "b", {}), ("Cast", "b", "y", {"to": 1})]
    level = np.full((1,) * axes, 0.3, F)
    made = kinds(imported(saved(model(nodes, level=level), tmp_path)))
    turned = (kind == "Less") == operands.startswith("x")
    assert made == ["Reshape"] * (axes > 4) + ["Power"] * turned + ["Threshold"]


@pytest.mark.parametrize("rows", [[6, 1, 1], [6, 1]])
def test_vectors_as_rows_are_no_groups(rows, tmp_path):
    """GroupNorm and MVN need samples and channels."""
    nodes, numbers = standard("r", "n", [-1], eps=0.5)
    nodes = [("Reshape", "x rows", "r", {}), *nodes, ("Reshape", "n whole", "y", {})]
    numbers |= {"rows": np.array(rows), "whole": np.array([6])}
    made = kinds(imported(saved(model(nodes, (6,), **numbers), tmp_path)))
    assert made == ["Reshape", "LayerNorm", "Reshape"]
    nodes = [
        ("Reshape", "x rows", "r", {}),
        ("ReduceMean", "r", "m", {"axes": [-1]}),
        ("Sub", "r m", "d", {}),
        ("Reshape", "d whole", "y", {}),
    ]
    del numbers["eps"], numbers["two"]
    assert "MVN" not in kinds(imported(saved(model(nodes, (6,), **numbers), tmp_path)))


@pytest.mark.parametrize("factor", [1e-3, 0.01, 0.3, 2, 1e6])
def test_a_factor_behind_a_log_is_its_base_where_float32_holds_it(factor, tmp_path):
    nodes = [
        ("Abs", "x", "a", {}),
        ("Add", "a one", "b", {}),
        ("Log", "b", "l", {}),
        ("Mul", "l factor", "y", {}),
    ]
    made = kinds(imported(saved(model(nodes, one=F(1), factor=F(factor)), tmp_path)))
    assert made == ["AbsVal", "Log"] + ["Power"] * (factor not in (0.3, 2))


DETECTION = """
layers:
  - {{name: loc, type: Input, shape: {{dim: [{n}, {loc}]}}}}
  - {{name: conf, type: Input, shape: {{dim: [{n}, {conf}]}}}}
  - {{name: prior, type: Parameter, shape: {{dim: [1, 2, {prior}]}}}}
  - {{name: found, type: DetectionOutput, bottom: [loc, conf, prior], num_classes: {classes}, {keys}}}
"""


def detector(n, p, classes, share, keys, seed):
    sizes = {"loc": 4 * p * (1 if share else classes), "conf": p * classes, "prior": 4 * p}
    keys = f"{keys}, share_location: {str(share).lower()}"
    net = Net(
        parse(DETECTION.format(n=n, classes=classes, keys=keys, **sizes)), "TEST", device="cpu"
    )
    arrays = detection.numbers(net, seed)
    net.load({"prior__0": arrays.pop("prior")})
    return net, arrays


NEARLY_EQUAL = (  # of which numbers far apart leave another count of boxes than onnxruntime has
    "background_label_id: 0, code_type: CENTER_SIZE, variance_encoded_in_target: false, clip: false,"
    " keep_top_k: -1, nms_param: {nms_threshold: 0.0, eta: 1.0, top_k: -1}, confidence_threshold: null"
)


@settings(max_examples=15, derandomize=True)  # overlaps near the threshold may be counted otherwise
@given(detection.cases())
@example(((1, 4, 2, False, NEARLY_EQUAL), 0, 1))
def test_a_detection_output_comes_back(tmp_path_factory, case):
    """With each of its keys; only one that returns nothing at all is said in other words."""
    sizes, _, seed = case
    net, arrays = detector(*sizes, seed)
    folder = tmp_path_factory.mktemp("onnx")
    to_onnx(net, folder / "it.onnx")
    result = from_onnx(folder / "it.onnx", folder / "net")
    nothing = "top_k: 0" in sizes[-1] or not len(net.steps[-1].layer.classes)
    assert kinds(result) == ["Parameter"] if nothing else ["Parameter", "DetectionOutput"]
    wanted = np.array(net.forward(**arrays)["found"])
    assert np.array_equal(result.net().forward(**arrays)["found"], wanted)


@pytest.mark.parametrize("left_out", [None, 2, 3])  # the most boxes, the overlap
def test_nodes_of_another_detector_are_refused(left_out, tmp_path):
    """One number that is not DetectionOutput's is enough, or one that is not set."""
    import onnx

    keys = "nms_param: {nms_threshold: 0.4, top_k: 20}, keep_top_k: 5, code_type: CENTER_SIZE"
    net, _ = detector(1, 8, 3, True, keys, 0)
    to_onnx(net, tmp_path / "it.onnx")
    other = onnx.load(tmp_path / "it.onnx")
    half = next(
        one
        for one in other.graph.initializer
        if onnx.numpy_helper.to_array(one).shape == () and onnx.numpy_helper.to_array(one) == 0.5
    )
    if left_out is None:
        half.CopyFrom(onnx.numpy_helper.from_array(F(0.25), half.name))
    else:
        (most,) = (one for one in other.graph.node if one.op_type == "NonMaxSuppression")
        most.input[left_out] = ""
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    with pytest.raises(SpecError, match=r"\(\w+\).*nothing was written"):
        from_onnx(tmp_path / "other.onnx", tmp_path / "net")
    assert {one.name for one in tmp_path.iterdir()} == {"it.onnx", "it.json", "other.onnx"}
