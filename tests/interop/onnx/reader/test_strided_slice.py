"""Every other pixel of an image: the net that is written has the model's sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from minicaffe import Net
from minicaffe.interop.onnx.reader import from_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("size", [7, 8, 9])
def test_pixels_of_every_place_and_step(size, tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 2, size, size)).astype(np.float32)
    for step, start in itertools.product((2, 3), (0, 1)):
        helper = onnx.helper
        constants = {
            "starts": [start, 0],
            "ends": [2**31, size - 1],
            "axes": [2, 3],
            "steps": [step, 2],
        }
        graph = helper.make_graph(
            [helper.make_node("Slice", ["x", *constants], ["y"])],
            "focus",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * 4)],
            [
                onnx.numpy_helper.from_array(np.array(values), name)
                for name, values in constants.items()
            ],
        )
        opset = helper.make_opsetid("", 17)
        onnx.save(helper.make_model(graph, opset_imports=[opset]), tmp_path / "model.onnx")
        from_onnx(tmp_path / "model.onnx", tmp_path / "net")
        net = Net(tmp_path / "net.prototxt", "TEST", device="cpu")
        net.forward(x=x)
        wanted = x[:, :, start::step, : size - 1 : 2]
        np.testing.assert_array_equal(net.blobs["y"].data, wanted)
