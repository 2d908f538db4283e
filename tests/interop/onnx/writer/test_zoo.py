"""The nets of models/ through onnxruntime, those that are small or can be made so; the others by examples/."""

from pathlib import Path

import caffe_nets
import numpy as np
import pytest
from kit import onnx_runs

from minicaffe import Net
from minicaffe.core.net import read
from minicaffe.interop import caffe
from minicaffe.interop.onnx.table import WRITERS
from minicaffe.interop.onnx.writer import to_onnx
from minicaffe.tools.inference import inference

MODELS = sorted((Path(__file__).parents[4] / "models").glob("*.yaml"))
MODELS = [path for path in MODELS if path.stem != "ssd_small"]  # its data make it: examples/ssd
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_layer_of_the_zoo_can_be_said(path):
    spec, _ = inference(read(path))
    assert {layer.type for layer in spec.layers} <= {"Input", *WRITERS}


SMALL = {"squeezenet": (1, 3, 47, 63), "cifar10_full": (2, 3, 32, 32), "lstm": (4, 2)}


@pytest.mark.parametrize("name", SMALL)
def test_onnxruntime_computes_a_net_of_the_zoo(name, tmp_path):
    """Written at one size, and at another with the axes free."""
    model = next(path for path in MODELS if path.stem == name)
    net = Net(model, "TEST", device="cpu", deterministic=True)
    inputs = [value.name for step in net.steps if not step.bottoms for value in step.tops]
    net.reshape(**dict.fromkeys(inputs, SMALL[name]))
    dynamic = {"squeezenet": ["batch", "height", "width"], "lstm": ["batch"]}.get(name, [])
    to_onnx(net, tmp_path / "net.onnx", dynamic=dynamic)
    larger = (3, 3, 70, 61) if "height" in dynamic else (7, *SMALL[name][1:])
    shape = larger if dynamic else SMALL[name]
    random = np.random.default_rng(0)
    arrays = {blob: np.float32(random.integers(0, 2, shape)) for blob in inputs}
    net.reshape(**dict.fromkeys(inputs, shape))
    wanted = net.forward(**arrays)
    (found,) = onnx_runs(tmp_path / "net.onnx", **arrays).values()
    np.testing.assert_allclose(found, wanted["prob"], atol=1e-5 * wanted["prob"].max())


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick"])
def test_caffes_own_files_go_straight_to_onnx(name, tmp_path):
    """A deploy net and its weights, both by their paths."""
    deploy, random = caffe_nets.NETS / f"{name}.prototxt", np.random.default_rng(0)
    net = Net(caffe.read(deploy), "TEST", device="cpu", deterministic=True)
    for param in net.learnable:
        param.load(0.1 * random.normal(size=param.shape))
    net.save(tmp_path / "net.caffemodel")
    to_onnx(deploy, tmp_path / "net.onnx", tmp_path / "net.caffemodel")
    x = random.random(net.blobs["data"].shape, np.float32)
    found = onnx_runs(tmp_path / "net.onnx", data=x)["prob"]
    np.testing.assert_allclose(found, net.forward(data=x)["prob"], atol=1e-5)
