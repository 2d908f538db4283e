"""Several nodes that one layer says: it says them where they mean it, and only there."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import normal, said
from interop.onnx.reader.test_import import imported, kinds, saved
from interop.onnx.writer import test_detection as detection

from minicaffe import Net, SpecError, parse
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.writer import to_onnx

F = np.float32
SHAPE = (2, 6, 4, 5)


def standard(x, last, axes, square="Pow(d, two)"):
    """(x - mean) / sqrt(variance + eps), as PyTorch writes it at opsets that have no operator for it."""
    mean = f"ReduceMean <axes = {axes}>"
    apart = f"m = {mean} ({x}) d = Sub({x}, m) q = {square} v = {mean} (q)"
    return f"{apart} e = Add(v, eps) s = Sqrt(e) {last} = Div(d, s)"


def whole(text, rows=(0, 3, -1), shape=SHAPE, **numbers):
    """What is computed of rows r, and is then n, in the shape of x."""
    text = f"r = Reshape(x, rows) {text} "
    numbers = {"eps": F(1e-5), "rows": np.array(rows), "whole": np.array(shape), **numbers}
    return said(text, shape, **numbers)


BACK = "b = Reshape(n, whole) t = Mul(b, scale) y = Add(t, bias)"
CHANNELS = {"scale": normal(6, 1, 1), "bias": normal(6, 1, 1)}


def test_layer_norm_by_its_parts(tmp_path):
    text = f"{standard('x', 'n', [-1])} t = Mul(n, scale) y = Add(t, bias)"
    model = said(text, SHAPE, eps=F(1e-5), scale=normal(5), bias=normal(5))
    assert kinds(imported(saved(model, tmp_path))) == ["LayerNorm"]


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
def test_group_norm_by_its_parts(square, tmp_path):
    back = "b = Reshape(n, whole) t = Mul(scale, b) y = Add(bias, t)"
    model = whole(f"{standard('r', 'n', [2], square)} {back}", **CHANNELS)
    assert kinds(imported(saved(model, tmp_path))) == ["GroupNorm"]


def test_group_norm_by_an_instance_norm(tmp_path):
    """As torch.nn.GroupNorm is exported; a scale of groups is another formula."""
    text = f"n = InstanceNormalization <epsilon = 0.01> (r, scales, zeros) {BACK}"
    for scale in (1, 2):
        numbers = {"scales": np.full(2, scale, F), "zeros": np.zeros(2, F), **CHANNELS}
        made = kinds(imported(saved(whole(text, (0, 2, -1), **numbers), tmp_path)))
        assert (made == ["GroupNorm"]) == (scale == 1) == ("GroupNorm" in made)


def normed(rows, scale, shape=SHAPE):
    """Rows that are standardised, times a scale and plus a bias that the whole has."""
    numbers = {"scale": normal(*scale), "bias": normal(*scale)}
    return whole(f"{standard('r', 'n', [2])} {BACK}", rows, shape, **numbers)


def less_mean(rows, axis):
    """Rows less their mean."""
    return whole(f"m = ReduceMean <axes = [{axis}]> (r) d = Sub(r, m) y = Reshape(d, whole)", rows)


def by_length(axes, scale, how=""):
    """x over the root of a sum of squares, times a scale."""
    text = f"q = Mul(x, x) s = ReduceSum {how} (q, axes) e = Add(s, eps) l = Sqrt(e) u = Div(x, l)"
    numbers = {"axes": np.array(axes), "eps": F(0.01), "scale": normal(*scale)}
    return said(f"{text} y = Mul(u, scale)", SHAPE, **numbers)


def within(size, pads, counts):
    """x (1 + alpha mean of squares in a window)^-beta."""
    how = f"<kernel_shape = {[size] * 2}, pads = {pads}, count_include_pad = {counts}>"
    text = f"q = Mul(x, x) a = AveragePool {how} (q) k = Mul(a, alpha) b = Add(k, one)"
    return said(f"{text} p = Pow(b, beta) y = Mul(x, p)", SHAPE, alpha=F(0.1), beta=F(-0.75))


def product(shape, rows, columns):
    """Rows times a matrix, in the shape of what they were."""
    text = "r = Reshape(x, rows) g = Gemm(r, w) y = Reshape(g, to)"
    numbers = {"rows": np.array(rows), "to": np.array([2, 3, columns])}
    return said(text, shape, w=normal(rows[1], columns), **numbers)


def layer_normed(scale):
    text = f"{standard('x', 'n', [-1])} t = Mul(n, scale) y = Add(t, scale)"
    return said(text, SHAPE, eps=F(1e-5), scale=normal(*scale))


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
    "lengths without their axis": (by_length([0], (6, 1, 1), "<keepdims = 0>"), "Normalize", False),
    "a scale along columns": (by_length([1], (5,)), "Normalize", False),
    "a window": (within(3, [1] * 4, 1), "LRN", True),
    "pads that do not count": (within(3, [1] * 4, 0), "LRN", False),
    "an even window": (within(2, [0, 0, 1, 1], 0), "LRN", False),
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
    model = said(standard("x", "y", sorted(axes)), SHAPE, eps=F(eps))
    result = imported(saved(model, tmp_path_factory.mktemp("onnx")))
    assert (kinds(result) == ["LayerNorm"]) == (sorted(axes) == list(range(min(axes), 4)))


@pytest.mark.parametrize(
    "product",
    ["Mul(x, g) y = Mul(p, half)", "Mul(half, x) y = Mul(p, g)", "Mul(half, g) y = Mul(p, x)"],
)
def test_gelu_by_tanh(product, tmp_path):
    """x / 2 (1 + tanh(...)), whichever way the product is put."""
    text = "c = Pow(x, three) k = Mul(c, small) i = Add(x, k) r = Mul(i, share) h = Tanh(r)"
    text += f" g = Add(h, one) p = {product}"
    numbers = {"small": F(0.044715), "share": F(math.sqrt(2 / math.pi))}
    result = imported(saved(said(text, SHAPE, **numbers), tmp_path))
    assert kinds(result) == ["GELU"]
    assert result.spec.layers[-1].options["approximate"] == "tanh"
    numbers["small"] = F(0.05)
    assert "GELU" not in kinds(imported(saved(said(text, SHAPE, **numbers), tmp_path)))


def test_what_is_read_elsewhere_stays(tmp_path):
    """The parts of a pattern whose numbers something else reads are layers beside it."""
    model = said("s = ReduceSum <keepdims = 0> (x) t = Mul(s, two) y = Add(s, t)", SHAPE)
    assert kinds(imported(saved(model, tmp_path))).count("Reduction") == 1


@pytest.mark.parametrize("factor", [1e-4, 1e-3, 0.01, 0.3, 0.4343, 2.0, 3.0, 1000.0, 1e6, -2.0])
@pytest.mark.parametrize("kind", ["Log", "Exp"])
def test_a_factor_behind(kind, factor, tmp_path):
    """It is a key of the layer where that holds it to the last digit; else a layer of its own."""
    text = f"a = Abs(x) b = Add(a, one) l = {kind}(b) y = Mul(l, f)"
    made = kinds(imported(saved(said(text, SHAPE, f=F(factor)), tmp_path)))
    alone = factor > 0 and (kind == "Exp" or 0.1 < factor < 4)
    assert (made[-1] == kind) == alone
    if kind == "Log":
        assert made == ["AbsVal", "Log"] + ["Power"] * (not alone)


def test_numbers_of_more_axes_make_no_pattern(tmp_path):
    """A number of five axes makes five of a blob's four, which a pattern's layer does not."""
    wide = np.full((1,) * 5, 0.5, F)
    model = said("b = Mul(x, beta) s = Sigmoid(b) y = Mul(x, s)", SHAPE, beta=wide)
    assert imported(saved(model, tmp_path)).spec.layers[-1].type != "Swish"
    for more in ({"two": 4 * wide, "eps": F(1e-5)}, {"eps": F(2e-5) * wide}):
        model = said(standard("x", "y", [-1]), SHAPE, **more)
        assert "LayerNorm" not in kinds(imported(saved(model, tmp_path)))


@pytest.mark.parametrize("kind", ["Greater", "Less"])
@pytest.mark.parametrize("operands", ["x, level", "level, x"])
@pytest.mark.parametrize("axes", [0, 5])
def test_a_comparison_with_a_number_is_a_threshold(kind, operands, axes, tmp_path):
    text, level = f"b = {kind}({operands}) y = Cast <to = 1> (b)", np.full((1,) * axes, 0.3, F)
    made = kinds(imported(saved(said(text, SHAPE, level=level), tmp_path)))
    turned = (kind == "Less") == operands.startswith("x")
    assert made == ["Reshape"] * (axes > 4) + ["Power"] * turned + ["Threshold"]


@pytest.mark.parametrize("rows", [[6, 1, 1], [6, 1]])
def test_vectors_as_rows_are_no_groups(rows, tmp_path):
    """GroupNorm and MVN need samples and channels."""
    model = whole(f"{standard('r', 'n', [-1])} y = Reshape(n, whole)", rows, (6,), eps=F(0.5))
    assert kinds(imported(saved(model, tmp_path))) == ["Reshape", "LayerNorm", "Reshape"]
    text = "m = ReduceMean <axes = [-1]> (r) d = Sub(r, m) y = Reshape(d, whole)"
    assert "MVN" not in kinds(imported(saved(whole(text, rows, (6,)), tmp_path)))


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
    text = DETECTION.format(n=n, classes=classes, keys=keys, **sizes)
    net = Net(parse(text), "TEST", device="cpu")
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
