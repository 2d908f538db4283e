"""Nets as ONNX: every layer's configurations through onnxruntime, what is refused, and that nothing wrong is written."""

import sys

import numpy as np
import pytest
import yaml
from core.layers.rows import ROWS, net_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import onnx_runs as runs
from kit import refusal
from test_random_nets import random_model

from minicaffe import CheckpointError, Layer, MinicaffeError, Net, SpecError, parse, register
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.recurrent import Recurrent
from minicaffe.interop.onnx.table import REFUSED, WRITERS
from minicaffe.interop.onnx.writer import to_onnx

onnx = pytest.importorskip("onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
pytest.importorskip("onnxruntime")

UNSAYABLE = {"Silence"} | {name for name, layer in REGISTRY.items() if layer.traits.is_loss}
NOT_REFERRED = {"LRN", "ROIPooling"}  # the reference has the one for two channels, the other not
# whose first bottom's samples are not the second's, or are one
ONE_BATCH = {"BatchReindex", "ImResize", "InnerDistance", "LSTMUnit"}


def agree(path, net, runs=runs, **arrays):
    """onnxruntime gives what the net does, all of the net's outputs and no others."""
    found = runs(path, **arrays)
    net.reshape(**{name: np.shape(array) for name, array in arrays.items()})
    wanted = net.forward(**arrays)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        scale = np.abs(array).max(initial=0) or 1
        np.testing.assert_allclose(found[name] / scale, array / scale, atol=1e-5, err_msg=name)


def refers(path, **arrays):
    """The same by onnx's own slow reference."""
    reference = ReferenceEvaluator(str(path))
    given = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    return dict(zip(reference.output_names, reference.run(None, given), strict=True))


def started(net):
    """The net, whose streams begin anew."""
    for layer in net.layers.values():
        if isinstance(layer, Recurrent):
            layer.reset()
    return net


def net_with(text, seed=3, **more):
    """A net whose parameters are random, and above 0 where it matters, since a variance is."""
    net = Net(parse(text), "TEST", device="cpu", deterministic=True, **more)
    random = np.random.default_rng(seed)
    for step in net.steps:
        for param in step.layer.params:
            values = 0.5 * random.normal(size=param.shape)
            param.load(np.abs(values) + 0.5 if step.spec.type == "BatchNorm" else values)
    return net


def test_each_type_is_written_or_there_is_a_reason():
    gone = {kind for kind in REGISTRY if REGISTRY[kind].traits.inferred_as in ("Input", "nothing")}
    kinds = [WRITERS, REFUSED, {"Input", *gone}]
    losses = {name for name, layer in REGISTRY.items() if layer.traits.is_loss}
    for name, layer in REGISTRY.items():
        if layer.__module__.startswith("minicaffe."):
            assert sum(name in kind for kind in [*kinds, losses]) == 1, name


ANY_IMAGE = """
ArgMax BatchNorm Bias Concat Convolution Crop Deconvolution Dropout Eltwise Flatten GroupNorm Im2col Interp LRN
MVN Normalize PReLU Permute Pooling Reduction Scale ShuffleChannel Slice Softmax Split Tile Upsample
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", ANY_IMAGE)
def test_layers_take_images_of_any_size(name, tmp_path):
    """Written at one size, run at another one."""
    keys, bottoms = next(
        row for row in ROWS[name] if all(isinstance(b, tuple) and len(b) == 4 for b in row[1])
    )
    lines = net_of(name, keys, bottoms).splitlines()
    net = net_with("\n".join(line for line in lines if "twice" not in line))
    to_onnx(net, tmp_path / "it.onnx", dynamic=["batch", "height", "width"])
    random = np.random.default_rng(1)
    larger = [(n + 1, c, h + 5, w + 3) for n, c, h, w in bottoms]
    arrays = {f"b{i}": random.normal(size=shape) for i, shape in enumerate(larger)}
    agree(tmp_path / "it.onnx", net, **arrays)


@pytest.mark.parametrize("seed", range(12))
def test_random_nets(seed, tmp_path):
    """Whatever the wiring: in place, fan-out, repeated bottoms, shared parameters, losses left out."""
    net = net_with(yaml.safe_dump(random_model(seed)))
    lines = to_onnx(net, tmp_path / "net.onnx", dynamic=["batch"])
    assert len(lines) > 2 * len(runs(tmp_path / "net.onnx", x=np.ones((3, 4, 5, 5)))) > 0


@settings(max_examples=25)
@given(data=st.data())
def test_poolings_of_images_of_any_size(data, tmp_path_factory):
    """Caffe's rounding and clipping hold at sizes other than that which the net had when it was written."""
    kernel, stride = (data.draw(st.tuples(*[st.integers(1, 4)] * 2), name) for name in "ks")
    pad = [data.draw(st.integers(0, k - 1), "pad") for k in kernel]
    kind = data.draw(st.sampled_from(["MAX", "AVE", "STOCHASTIC"]), "pool")
    layer = f"pool: {kind}, kernel_size: {list(kernel)}, stride: {list(stride)}"
    layer += "" if kind == "STOCHASTIC" else f", pad: {pad}"
    layer += data.draw(st.sampled_from(["", ", round_mode: FLOOR"]), "rounding")
    masked = kind == "MAX" and data.draw(st.booleans(), "masked")
    layer += ", top: [pool, mask]" * masked
    sizes = [data.draw(st.tuples(*[st.integers(4, 9)] * 2), "size") for _ in range(3)]
    net = Net(parse(IMAGE.format(2, *sizes[0], layer)), "TEST", device="cpu")
    path = tmp_path_factory.getbasetemp() / "pool.onnx"
    refused = masked and not any(pad) and any(s > k for k, s in zip(kernel, stride, strict=True))
    if refused and "FLOOR" not in layer:
        with pytest.raises(SpecError, match="dynamic height or width: its stride is more than"):
            to_onnx(net, path, dynamic=["height"])
    for dynamic in (["height", "width"] * (not refused), []):
        to_onnx(net, path, dynamic=dynamic)
        for h, w in sizes if dynamic else sizes[:1]:
            random = np.random.default_rng(h)
            agree(path, net, x=random.uniform(0.1, 1, (2, 3, h, w)) - (kind != "STOCHASTIC"))
        net.reshape(x=(2, 3, *sizes[0]))


IMAGE = """
layers:
  - {{name: x, type: Input, shape: {{dim: [{}, 3, {}, {}]}}}}
  - {{name: pool, type: Pooling, {}}}
"""
CHAIN = """
name: chain
dtype: float64
layers:
  - {name: x, type: Input, shape: {dim: [2, 3, 6, 6]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3}
  - {name: relu, type: ReLU, bottom: conv, top: conv}
  - {name: drop, type: Dropout, bottom: conv, top: conv}
  - {name: pool, type: Pooling, pool: AVE, kernel_size: 2}
  - {name: slope, type: PReLU, bottom: pool, top: pool}
"""


def test_blobs_and_parameters_keep_their_names(tmp_path):
    lines = to_onnx(net_with(CHAIN), tmp_path / "net.onnx", dynamic=["batch", "height"])
    graph = onnx.load(tmp_path / "net.onnx").graph
    nodes = ", ".join(f"{node.op_type} {node.output[0]}" for node in graph.node)
    # conv/conv is conv before it is written over
    assert nodes == "Conv conv/conv, Relu conv, AveragePool pool/pool, PRelu pool"
    assert [array.name for array in graph.initializer] == ["conv__0", "conv__1", "slope__0"]
    sizes = [dim.dim_param or dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch", 3, "height", 6]
    assert graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert lines[0].startswith("pool (2, 4, 3, 3): checked against onnxruntime: ")
    assert lines[1].startswith("pool (4, 4, 35, 3): checked against onnxruntime: ")


def test_names_that_would_meet_are_kept_apart(tmp_path):
    text = """
layers:
  - {name: x__0, type: Input, shape: {dim: [2, 3]}}
  - {name: ip, type: InnerProduct, num_output: 3, top: ip/Mul}
  - {name: x, type: Scale, bottom: ip/Mul, top: ip/Mul}
  - {name: more, type: Power, scale: 2, shift: 1, bottom: ip/Mul, top: more/Mul}
  - {name: ip/Mul, type: Power, scale: 3, shift: 1, bottom: more/Mul, top: ip/Mul/ip}
  - {name: last, type: ReLU, bottom: x__0, top: x__0}
"""
    to_onnx(net_with(text), tmp_path / "net.onnx")
    names = [output.name for output in onnx.load(tmp_path / "net.onnx").graph.output]
    assert names == ["ip/Mul/ip", "x__0/last"]  # an input keeps its name


def test_of_blobs_that_are_one_tensor_the_output_gives_the_name(tmp_path):
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: more, type: Power, scale: 2}
  - {name: split, type: Split, top: [a, b]}
  - {name: y, type: Power, scale: 3, bottom: a}
"""
    to_onnx(net_with(text), tmp_path / "net.onnx")
    assert [output.name for output in onnx.load(tmp_path / "net.onnx").graph.output] == ["b", "y"]


def test_a_word_promises_one_size(tmp_path):
    """Two images of other sizes, whose chains onnxruntime would else let share memory; 9 rows become 10."""
    net = net_with("""
layers:
  - {name: x, type: Input, shape: {dim: [1, 2, 4, 4]}}
  - {name: a, type: Sigmoid}
  - {name: b, type: TanH, top: x1}
  - {name: y, type: Input, shape: {dim: [1, 2, 8, 8]}}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}
  - {name: up, type: Upsample}
  - {name: c, type: TanH}
  - {name: d, type: Sigmoid, top: y1}
""")
    to_onnx(net, tmp_path / "net.onnx", dynamic=["height", "width"])
    graph = onnx.load(tmp_path / "net.onnx").graph
    shapes = {
        value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim[2:]]
        for value in (*graph.input, *graph.output)
    }
    free = ["height", "width"]
    assert shapes == {"x": free, "x1": free, "y": ["y_2", "y_3"], "y1": ["y1_2", "y1_3"]}
    random = np.random.default_rng(1)
    x, y = random.normal(size=(1, 2, 30, 7)), random.normal(size=(1, 2, 9, 5))
    agree(tmp_path / "net.onnx", net, x=x, y=y)


def test_what_differs_is_named_and_not_written(tmp_path, monkeypatch):
    def slip(graph, step, x):
        return graph.op("LeakyRelu", x, alpha=0.01)

    monkeypatch.setitem(WRITERS, "ReLU", slip)
    path = tmp_path / "net.onnx"
    path.write_bytes(b"as it was")
    told = r"layer 'relu' \(ReLU\): top 'conv' differs in onnxruntime, by .* nothing was written"
    with pytest.raises(CheckpointError, match=told):
        to_onnx(net_with(CHAIN), path)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_layer_of_ones_own_needs_a_writer(tmp_path, monkeypatch):
    class Softsign(Layer):
        """x / (1 + |x|)."""

        def setup(self, x):
            return x

        def forward(self, x):
            return x / (1 + abs(x))

    monkeypatch.setitem(REGISTRY, "Softsign", None)  # so that it is forgotten afterwards
    monkeypatch.delitem(WRITERS, "Softsign", raising=False)  # that of a page of docs
    register(Softsign)
    text = "layers: [{name: x, type: Input, shape: {dim: [2, 3]}}, {name: it, type: Softsign}]"
    net = net_with(text)
    told = refusal(to_onnx, net, tmp_path / "net.onnx", error=SpecError)
    assert "layer 'it' (Softsign): " in told and " needs a writer" in told
    monkeypatch.setitem(WRITERS, "Softsign", lambda graph, step, x: graph.op("Softsign", x))
    to_onnx(net, tmp_path / "net.onnx")
    agree(tmp_path / "net.onnx", net, x=[[-1.0, 0.0, 2.0], [5.0, -3.0, 1.0]])


def test_a_net_that_overflows_is_not_called_right(tmp_path):
    net = net_with(CHAIN)
    net.params["conv"][1].load(np.full(4, 3e38))
    with pytest.raises(CheckpointError, match="'pool' holds no finite number.* a trained net"):
        to_onnx(net, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_a_net_too_large_for_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("minicaffe.interop.onnx.writer.model.MOST", 400)
    with pytest.raises(CheckpointError, match="parameters; an .onnx file holds less than 2048 MiB"):
        to_onnx(net_with(CHAIN), tmp_path / "net.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_missing_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CheckpointError, match=f"needs .* {package}: .*pip install"):
        to_onnx(net_with(CHAIN), tmp_path / "net.onnx")


REFUSALS = [
    (
        "{name: own, type: Python, module: my_layers, layer: Scaled}",
        [],
        "cannot be exported to ONNX: ONNX knows nothing of Python",
    ),
    ("{name: ip, type: InnerProduct, num_output: 2}", ["height"], "dynamic height: .*layer 'ip'"),
    ("{name: relu, type: ReLU}", ["hight"], "dynamic: there is no axis 'hight'; did you mean 'height'"),
    ("{name: relu, type: ReLU}", ["x"], "no axis 'x'; expected batch, height, width"),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "dynamic", "told"), REFUSALS)
def test_what_cannot_be_said_is_refused(layer, dynamic, told, tmp_path):
    net = net_with(f"layers: [{{name: x, type: Input, shape: {{dim: [1, 2, 4, 4]}}}}, {layer}]")
    with pytest.raises(SpecError if "ip" not in told else MinicaffeError, match=told):
        to_onnx(net, tmp_path / "net.onnx", dynamic=dynamic)
    assert not list(tmp_path.iterdir())


def test_a_model_needs_its_weights(tmp_path):
    model, path = parse(CHAIN), tmp_path / "net.onnx"
    told = "net 'chain' has parameters: weights are needed"
    assert told in refusal(to_onnx, model, path, error=SpecError)
    net = net_with(CHAIN)
    net.save(tmp_path / "net.npz")
    to_onnx(model, path, tmp_path / "net.npz")
    agree(path, net, x=np.random.default_rng(1).normal(size=(2, 3, 6, 6)))
