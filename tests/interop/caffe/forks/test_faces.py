"""Layers of face recognition: labels that are no class, 16 bits, nets without the centers."""

import numpy as np
import pytest
from kit import near, refusal, single

from minicaffe import CheckpointError, Classifier, DataError, Net, Solver, parse


@pytest.mark.parametrize("kind", ["CenterLoss", "MarginInnerProduct"])
@pytest.mark.parametrize("label", [-1.0, 3.0, np.nan])
def test_a_label_that_is_no_class_is_refused(kind, label):
    with pytest.raises(DataError, match=rf"layer 'it' \({kind}\).*is not one of the 3|none"):
        single(kind, "num_output: 3", [np.ones((2, 2)), [0.0, label]])


TRAINED = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [6, 4]}, {dim: 6}]}
  - {name: f, type: InnerProduct, bottom: x, num_output: 3, weight_filler: xavier}
  - {name: near, type: CenterLoss, bottom: [f, label], num_output: 3, loss_weight: 0.1}
  - {name: y, type: MarginInnerProduct, bottom: [f, label], num_output: 3, margin_type: QUADRUPLE, base: 9}
  - {name: loss, type: SoftmaxWithLoss, bottom: [y, label]}
solver: {base_lr: 0.1, max_iter: 20}
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_centers_learn_in_16_bits_as_in_32(cuda, dtype):
    """Their rule does not ask for the loss's scale; the parameters are float32."""
    x, labels = np.random.default_rng(4).normal(size=(6, 4)), np.arange(6.0) % 3
    solvers = [
        Solver(parse(TRAINED), device=device, dtype=kind)
        for device, kind in (("cpu", "float32"), (cuda, dtype))
    ]
    start = solvers[0].net.weights()
    for solver in solvers:
        solver.net.load(start)
        solver.net.device.copy_from_host(solver.net.blobs["x"].data, x)
        solver.net.device.copy_from_host(solver.net.blobs["label"].data, labels)
        solver.step(8)
    for name, wanted in solvers[0].net.weights().items():
        near(solvers[1].net.weights()[name], wanted, dtype)


@pytest.mark.parametrize("include", ["", ", include: TRAIN"])
def test_a_net_is_tested_and_used_without_the_centers_it_learnt(include, tmp_path, few_digits):
    """They are in its snapshot; but other entries that are unused are an error."""
    text = f"""
layers:
  - {{name: data, type: Data, top: [data, label], source: digits, batch_size: 4}}
  - {{name: ip, type: InnerProduct, num_output: 3}}
  - {{name: center, type: CenterLoss, bottom: [ip, label], num_output: 10{include}}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
"""
    Net(parse(text), "TRAIN", device="cpu").save(tmp_path / "w.npz")
    found = Net(parse(text), "TEST", device="cpu").load(tmp_path / "w.npz")
    assert found.unused == (["center__0"] if include else [])
    pictures = np.zeros((2, 28, 28), np.uint8)
    scores = Classifier(parse(text), tmp_path / "w.npz", device="cpu").predict(pictures)
    assert scores.shape == (2, 3)
    for old, new, phase, told in (
        ("name: center", "name: o", "TRAIN", "center__0 unused"),
        ("ip", "iq", "TEST", "ip__0, ip__1 unused"),
    ):
        other = Net(parse(text.replace(old, new)), phase, device="cpu")
        assert told in refusal(other.load, tmp_path / "w.npz", error=CheckpointError)
