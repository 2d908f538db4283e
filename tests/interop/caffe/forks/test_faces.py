"""Layers of face recognition against slow loops in float64, written from their authors' definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kit import check, host, near, refusal, single

from minicaffe import (
    CheckpointError,
    Classifier,
    DataError,
    Net,
    Numerics,
    Solver,
    gradcheck,
    parse,
)
from minicaffe.core.layers import REGISTRY, Context

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_center_loss_against_loops(device, weight):
    """The centers' rule asks neither for the loss weight nor for the number of samples."""
    x, labels = RNG.normal(size=(5, 3)), np.array([2.0, 0, 2, 2, 1])
    keys = f"num_output: 4, center_filler: gaussian, loss_weight: {weight}"
    made = single("CenterLoss", keys, [x, labels], device)
    (param,) = made.layers["it"].params
    centers = host(made, param.data)
    apart = np.array([x[i] - centers[int(labels[i])] for i in range(5)])
    check(made, it=sum((row**2).sum() for row in apart) / 10)
    made.clear_param_diffs()
    made.backward()
    check(made, b0=weight * apart / 5)
    wanted = np.zeros((4, 3))
    for k in range(4):
        rows = [apart[i] for i in range(5) if labels[i] == k]
        wanted[k] = -sum(rows, np.zeros(3)) / (1 + len(rows))
    near(host(made, param.diff), wanted)


def test_the_bottom_of_center_loss_has_the_derivative(device):
    """That of the centers is left out: they do not learn here."""
    layer = REGISTRY["CenterLoss"](num_output=4)
    made_device = Net(parse(LONE), device=device).device
    layer.context = Context(made_device, Numerics(dtype=np.dtype(float)))
    layer.top_shapes((5, 3), (5,))
    layer.params[0].lr_mult = 0.0
    labels = np.array([2.0, 0, 2, 2, 1])
    assert gradcheck(layer, (5, 3), labels, device=made_device) < 1e-6


LONE = "layers: [{name: x, type: Input, shape: {dim: 1}}]"


def psi(cos, m):
    """(-1)^k cos(m angle) - 2 k, as the paper writes it."""
    angle = math.acos(cos)
    k = int(m * angle / math.pi)
    return (-1) ** k * math.cos(m * angle) - 2 * k


def slope_of_psi(cos, m):
    """Its derivative by cos(angle)."""
    angle = math.acos(cos)
    k = int(m * angle / math.pi)
    return (-1) ** k * m * math.sin(m * angle) / math.sin(angle)


MARGINS = ["SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"]


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_margin_inner_product_against_loops(device, m, phase):
    labels, dy = np.arange(24.0) % 5, RNG.normal(size=(24, 5))
    x = RNG.normal(size=(24, 3))  # angles all over the range
    keys = f"num_output: 5, margin_type: {MARGINS[m - 1]}, base: 4, gamma: 0.5, power: 2"
    keys += ", iteration: 1, lambda_min: 0.1, weight_filler: gaussian"
    made = single("MarginInnerProduct", keys, [x, labels], device, phase, tops="[it, lambda]")
    (param,) = made.layers["it"].params
    w = host(made, param.data)
    if phase == "TEST":  # which leaves the parameter as it is
        assert abs(np.linalg.norm(w, axis=1) - 1).max() > 0.01
        w = w / np.linalg.norm(w, axis=1, keepdims=True)
    near(np.linalg.norm(w, axis=1), np.ones(5))
    decay = max(0.1, 4 * (1 + 0.5 * 2) ** -2.0)
    near(host(made, made.blobs["lambda"].data), [decay])
    wanted, dx = x @ w.T, dy @ w
    for i in range(24):
        j, length = int(labels[i]), np.linalg.norm(x[i])
        cos = wanted[i, j] / length
        by_weight = slope_of_psi(cos, m)
        by_x = (psi(cos, m) - cos * by_weight) / length
        size = math.hypot(by_weight, by_x)
        wanted[i, j] = (length * psi(cos, m) + decay * wanted[i, j]) / (1 + decay)
        own = (by_weight * w[j] + by_x * x[i]) / size
        dx[i] += dy[i, j] * ((own + decay * w[j]) / (1 + decay) - w[j])
    check(made, it=wanted)
    made.clear_param_diffs()
    made.backward(it=dy)
    check(made, b0=dx)
    near(host(made, param.diff), dy.T @ x)


def test_lambda_falls_from_pass_to_pass():
    keys = "num_output: 2, base: 10, gamma: 1, lambda_min: 3, margin_type: DOUBLE"
    made = single("MarginInnerProduct", keys, [np.ones((1, 2)), [0.0]], tops="[it, lambda]")
    found = [float(made.blobs["lambda"].data[0])]
    for _ in range(3):
        made.forward()
        found.append(float(made.blobs["lambda"].data[0]))
    near(found, [5, 10 / 3, 3, 3])


def test_without_a_margin_the_gradient_of_x_is_the_derivative(device):
    x, labels = RNG.normal(size=(4, 3)), np.array([1.0, 0, 2, 2])
    made = single("MarginInnerProduct", "num_output: 3", [x, labels], device)
    dy = RNG.normal(size=(4, 3))
    made.backward(it=dy)
    check(made, b0=dy @ host(made, made.layers["it"].params[0].data))


@pytest.mark.parametrize("kind", ["L1", "L2"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("only", [False, True])
def test_inner_distance_against_loops(device, kind, given, only):
    x, w, labels = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3)), np.array([1.0, 4, 4, 0])
    keys = f"distance_type: {kind}, update_center_only: {str(only).lower()}"
    keys += "" if given else ", num_output: 5, weight_filler: gaussian"
    made = single("InnerDistance", keys, [x, *[w] * given, *[labels] * only], device)
    if not given:
        (param,) = made.layers["it"].params
        w = host(made, param.data)
    dy = RNG.normal(size=(4, 5))
    y, dx, dw = np.zeros((4, 5)), np.zeros((4, 3)), np.zeros((5, 3))
    for m in range(4):
        for n in range(5):
            apart = x[m] - w[n]
            y[m, n] = (abs(apart) if kind == "L1" else apart**2).sum()
            slope = dy[m, n] * (np.sign(apart) if kind == "L1" else 2 * apart)
            dx[m] += slope
            dw[n] -= slope * (not only or labels[m] == n)
    check(made, it=y)
    made.clear_param_diffs()
    made.backward(it=dy)
    check(made, b0=dx)
    near(host(made, made.blobs["b1"].diff if given else param.diff), dw)


def test_inner_distance_normalises_its_parameter(device):
    keys = "num_output: 5, weight_filler: gaussian, normalize: true"
    x = RNG.normal(size=(4, 3))
    made = single("InnerDistance", keys, [x], device)
    w = host(made, made.layers["it"].params[0].data)
    np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, rtol=1e-3)
    check(made, it=((x[:, None] - w) ** 2).sum(axis=2))


@pytest.mark.parametrize("keys", ["{}", "flip_height: true", "flip_width: false", "flip_height: 1"])
def test_flip_against_loops(device, keys):
    keys = keys.replace("{}", "flip_width: true").replace(": 1", ": true, flip_width: false")
    x, dy = RNG.normal(size=(2, 3, 4, 5)), RNG.normal(size=(2, 3, 4, 5))
    made = single("Flip", keys, [x], device)
    made.backward(it=dy)
    y, dx = np.zeros_like(x), np.zeros_like(x)
    for h in range(4):
        for w in range(5):
            i = 3 - h if "flip_height: true" in keys else h
            j = w if "flip_width: false" in keys else 4 - w
            y[:, :, h, w], dx[:, :, i, j] = x[:, :, i, j], dy[:, :, h, w]
    check(made, it=y, b0=dx)


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
    x, labels = RNG.normal(size=(6, 4)), np.arange(6.0) % 3
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
    net = Net(parse(text), "TRAIN", device="cpu")
    net.save(tmp_path / "w.npz")
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
