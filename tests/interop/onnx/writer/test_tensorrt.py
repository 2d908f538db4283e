"""Exports that keep to what TensorRT 10 reads: nets and layers that do, and what the others are told."""

from pathlib import Path

import numpy as np
import pytest
from core.layers.rows import ROWS, net_of
from kit import refusal

from minicaffe import MinicaffeError, Net, SpecError, parse
from minicaffe.interop.onnx.table import WRITERS
from minicaffe.interop.onnx.writer import tensorrt, to_onnx
from minicaffe.interop.onnx.writer.model import Graph, dynamic_axes, trials, write
from minicaffe.interop.onnx.writer.onnx import inferring

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parents[4]
REFUSED = {"ROIPooling": "MaxRoiPool", "DilatedPooling": "MaxPool with dilations other than 1"}
SMALL = ("lenet", "cifar10_quick", "squeezenet", "googlenet", "mobilenet", "mnist_siamese", "lstm")


def graph_of(model, words=()):
    net, _ = inferring(model)
    return write(net, trials(net, dynamic_axes(net, words))), net


@pytest.mark.parametrize("name", SMALL)
def test_nets_of_the_zoo_are_read(name):
    tensorrt.check(*graph_of(name, [] if name == "lstm" else ["batch"]))


@pytest.mark.parametrize("name", sorted(set(ROWS) & set(WRITERS)))
def test_each_layer_is_read_or_refused_by_name(name):
    for keys, bottoms in ROWS[name]:
        lines = net_of(name, keys, bottoms).splitlines()
        text = "\n".join(line for line in lines if "twice" not in line)
        try:
            graph, net = graph_of(Net(parse(text), "TEST", device="cpu", deterministic=True))
        except MinicaffeError:
            continue  # ONNX has no such thing: another test's
        masked = len(keys.get("top", ())) == 2 and name == "Pooling"
        wanted = "a second output, the places of maxima" if masked else REFUSED.get(name)
        wanted = None if keys.get("pool") == "AVE" else wanted
        if wanted is None:
            tensorrt.check(graph, net)
            continue
        told = refusal(tensorrt.check, graph, net, error=SpecError)
        assert f"layer 'it' ({name}): TensorRT 10 does not read ONNX's " in told
        assert wanted in told and "have the net end before this layer" in told


def test_a_detector_is_read():
    tensorrt.check(*graph_of(ROOT / "examples" / "after_opencv_5" / "faces.prototxt", ["batch"]))


def begun():
    """The graph of a net of an input alone, and the net."""
    net, graph = (
        Net(parse("layers: [{name: x, type: Input, shape: {dim: [2]}}]"), device="cpu"),
        Graph([]),
    )
    graph.layer = net.steps[0].spec.name
    return graph, net


OPERATIONS = [
    (("TopK", "x", [5000]), "TopK with a K that may be 5000: it must be below 3840;"),
    (("TopK", "x", "k"), "TopK with a K that may be of any size"),
    (("Slice", "x", [0], [1], "axes"), "Slice with axes that are computed"),
    (("ReduceSum", "x", "axes"), "ReduceSum with axes that are computed"),
    (("Compress", "x", "y"), "ONNX's Compress;"),
    (("Squeeze", "x", [0]), None),
    (("ReduceMean", "x"), None),
    (("TopK", "x", [10]), None),
]


@pytest.mark.parametrize(("words", "told"), OPERATIONS)
def test_restrictions_of_operators(words, told):
    graph, net = begun()
    graph.op(*words)
    if told is None:
        tensorrt.check(graph, net)
    else:
        found = refusal(tensorrt.check, graph, net, error=SpecError)
        assert "layer 'x' " in found and told in found


@pytest.mark.parametrize(("most", "fits"), [(200, True), (5000, False)])
def test_a_k_may_be_computed_if_it_is_bounded(most, fits):
    graph, _ = begun()
    graph.op("TopK", "x", graph.op("Min", graph.size("x", 0), [most]))
    assert (tensorrt.RESTRICTED["TopK"](graph, graph.nodes[-1]) is None) == fits


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"coordinate_transformation_mode": "align_corners", "mode": "linear"}, None),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "coordinates tf_crop_and_resize"),
        ({"mode": "cubic"}, "the mode cubic"),
    ],
)  # fmt: skip
def test_resize(attributes, told):
    graph, _ = begun()
    graph.op("Resize", "x", **attributes)
    found = tensorrt.RESTRICTED["Resize"](graph, graph.nodes[0])
    assert (told is None and found is None) or told in found


def test_the_table_is_the_whole_one():
    assert len(tensorrt.READ) == 150
    assert {"Conv", "Gemm", "NonMaxSuppression", "Scan"} < tensorrt.READ
    assert not {"Compress", "MaxRoiPool", "MaxUnpool"} & tensorrt.READ
    assert set(tensorrt.RESTRICTED) < tensorrt.READ


def test_only_the_batch_may_vary_and_nothing_is_written(tmp_path):
    text = "layers:\n  - {name: x, type: Input, shape: {dim: [1, 2, 8, 8]}}\n"
    net = Net(parse(f"{text}  - {{name: p, type: Pooling, kernel_size: 2}}\n"), device="cpu")
    with pytest.raises(SpecError, match="dynamic height, width: for TensorRT only the batch"):
        to_onnx(net, tmp_path / "n.onnx", dynamic=["height", "batch", "width"], tensorrt_safe=True)
    masked = parse(f"{text}  - {{name: p, type: Pooling, kernel_size: 2, top: [y, mask]}}\n")
    with pytest.raises(SpecError, match="the places of maxima"):
        to_onnx(Net(masked, device="cpu"), tmp_path / "n.onnx", tensorrt_safe=True)
    assert list(tmp_path.iterdir()) == []
    to_onnx(net, tmp_path / "n.onnx", dynamic=["batch"], tensorrt_safe=True)
    assert (tmp_path / "n.onnx").stat().st_size > 0
    assert np.isfinite(net.forward(x=np.ones((1, 2, 8, 8)))["p"]).all()
