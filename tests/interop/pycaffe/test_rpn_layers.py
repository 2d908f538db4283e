"""Layers as Faster R-CNN's folder `rpn` has them: Python modules in a package, which import one another."""

import subprocess
import sys

import numpy as np
import pytest
from kit import layer_text, refusal

from minicaffe import Net, SpecError
from minicaffe.interop.caffe import parse as parse_prototxt

ANCHORS = """
import numpy as np

def generate_anchors(scales=2 ** np.arange(3, 6)):
    return np.array([[-s, -s, s, s] for s in scales], np.float32)
"""
LAYER = """
import minicaffe.interop.pycaffe as caffe
import numpy as np
import yaml
from generate_anchors import generate_anchors

class ProposalLayer(caffe.Layer):
    def setup(self, bottom, top):
        layer_params = yaml.safe_load(self.param_str)
        self._feat_stride = layer_params['feat_stride']
        self._anchors = generate_anchors(scales=np.array(layer_params.get('scales', (8, 16))))
        self._num_anchors = self._anchors.shape[0]
        top[0].reshape(1, 5)
        if len(top) > 1:
            top[1].reshape(1, 1, 1, 1)

    def forward(self, bottom, top):
        assert bottom[0].data.shape[0] == 1, 'Only single item batches are supported'
        scores = bottom[0].data[:, self._num_anchors:, :, :]
        height, width = scores.shape[-2:]
        shift_x, shift_y = np.meshgrid(
            np.arange(0, width) * self._feat_stride, np.arange(0, height) * self._feat_stride)
        shifts = np.vstack((shift_x.ravel(), shift_y.ravel(), shift_x.ravel(), shift_y.ravel())).transpose()
        boxes = (self._anchors[None] + shifts[:, None]).reshape(-1, 4)
        scores = scores.transpose((0, 2, 3, 1)).reshape((-1, 1))
        keep = np.where(scores.ravel() >= min(scores.max(), 0.5))[0]
        batch_inds = np.zeros((len(keep), 1), dtype=np.float32)
        blob = np.hstack((batch_inds, boxes[keep].astype(np.float32, copy=False)))
        top[0].reshape(*(blob.shape))
        top[0].data[...] = blob
        if len(top) > 1:
            top[1].reshape(*(scores[keep].shape))
            top[1].data[...] = scores[keep]

    def backward(self, top, propagate_down, bottom):
        pass

    def reshape(self, bottom, top):
        pass
"""
NET = """
input: "rpn_cls_prob_reshape" input_shape { dim: 1 dim: 4 dim: 2 dim: 3 }
layer {
  name: 'proposal' type: 'Python' bottom: 'rpn_cls_prob_reshape' top: 'rois' top: 'scores'
  python_param { module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: "'feat_stride': 16" }
}
layer { name: "twice" type: "Power" bottom: "rois" top: "twice" power_param { scale: 2 } }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, here):
    """Files as they lie in py-faster-rcnn/lib, and none of them imported."""
    (tmp_path / "rpn").mkdir()
    for name, text in (("generate_anchors", ANCHORS), ("proposal_layer", LAYER)):
        (tmp_path / "rpn" / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "test.prototxt").write_text(NET)
    yield tmp_path
    for name in ("generate_anchors", "proposal_layer"):
        sys.modules.pop(name, None)


IMPORTS = ["--import", "rpn/generate_anchors.py", "--import", "rpn/proposal_layer.py"]


def test_a_module_of_a_package_is_imported_by_its_path(folder, command):
    command("time", "test.prototxt", *IMPORTS, "--device", "cpu", "--iterations", "2")
    net = Net(folder / "test.prototxt", "TEST", device="cpu")
    scores = np.zeros((1, 4, 2, 3), np.float32)
    scores[0, 2, 1, 2] = scores[0, 3, 0, 1] = 0.75
    for count in (2, 1):
        scores[0, 3, 0, 1] *= count == 2
        found = net.forward(rpn_cls_prob_reshape=scores)
        wanted = [[0, 0, -16, 32, 16], [0, 24, 8, 40, 24]][-count:]
        np.testing.assert_array_equal(found["twice"], 2 * np.array(wanted))
        np.testing.assert_array_equal(found["scores"], np.full((count, 1), 0.75))


def test_what_is_not_imported_or_lies_elsewhere_is_told_with_its_path(folder, command):
    with pytest.raises(SpecError, match=r"'rpn.proposal_layer' is not .*: --import rpn/proposal_l"):
        Net(folder / "test.prototxt", "TEST", device="cpu")
    (folder / "rpn" / "proposal_layer.py").rename(folder / "proposal_layer.py")
    imports = ["--import", "rpn/generate_anchors.py", "--import", "proposal_layer.py"]
    command("summary", "test.prototxt", *imports, code=2)


@pytest.mark.parametrize("stride", ["'feat_stride': 16", "'stride': 16"])
def test_faster_rcnns_layer_has_one_that_stands_in(stride, capsys):
    """With the three bottoms that are published; a line says so, once the param_str is understood."""
    shapes = {"s": "dim: [1, 18, 2, 3]", "d": "dim: [1, 36, 2, 3]", "i": "dim: [1, 3]"}
    text = "".join(f'input: "{name}" input_shape {{ {dim} }}\n' for name, dim in shapes.items())
    param = f"module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: \"{stride}\""
    text += layer_text("Python", f"python_param {{ {param} }}", "p", "s d i", "rois")
    if "feat" not in stride:
        told = refusal(Net, parse_prototxt(text), "TEST", device="cpu", error=SpecError)
        assert "param_str: expected 'feat_stride': 16 and the like: " in told
        return
    Net(parse_prototxt(text), "TEST", device="cpu")
    said = "p: rpn.proposal_layer is not imported: Proposal does what ProposalLayer does, with the settings"
    assert said in capsys.readouterr().err


def test_a_module_may_import_the_base_class_before_all_else():
    code = "from minicaffe.interop.pycaffe.host_blob import PythonLayer; from minicaffe.core.layers import REGISTRY"
    subprocess.run([sys.executable, "-c", code], check=True)
