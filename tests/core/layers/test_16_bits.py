"""Every row in float32 and in 16 bits against float64 on the CPU; labels, losses and places in 16 bits."""

import kit
import numpy as np
import pytest
from core.layers.rows import ROWS
from half_nets import BFLOAT16, TYPES

from minicaffe import Net, parse
from minicaffe.core.layers.blob import float_type

X = (3, 4, 6, 5)
EPS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 1e-5}  # of a rounding, relative

MORE = {
    "Convolution": [({"num_output": 5, "kernel_size": 1, "engine": "implicit"}, [X])],
    "BatchNorm": [({"scale_bias": True}, [(3, 70)])],
    "RNN": [({"num_output": 3}, [(5, 4, 6), (5, 4), (4, 2)])],
}
OF_REGIONS = {"PSROIPooling", "ROIAlign", "ROIPooling", "ROIWarping"}
ROUNDINGS = {"Deconvolution": 3, "LSTM": 4, "Lstm": 4, "RNN": 8}  # of the largest number; else 1.6


def rounded(array, dtype):
    """Numbers that the type can hold, in float64."""
    return array.astype(float_type(dtype)).astype(np.float64)


def near(got, wanted, tolerance):
    assert got.shape == wanted.shape and np.isfinite(got).all()
    assert np.abs(got - wanted).max(initial=0) <= tolerance * np.abs(wanted).max(initial=1e-30)


def agree(half, exact, roundings, dtype):
    """Every blob, every gradient of it."""
    for key, blob in exact.blobs.items():
        for part in ("data", "diff"):
            got = half.device.to_host(getattr(half.blobs[key], part)).astype(np.float64)
            near(got, getattr(blob, part), roundings * EPS[dtype])


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *[("cpu", "float32"), ("cuda", "float32"), ("cuda", "float16")],
        pytest.param("cuda", "bfloat16", marks=BFLOAT16.marks),
    ],
    indirect=["device"],
)
@pytest.mark.parametrize(
    ("name", "keys", "bottoms"),
    [(name, *row) for name in ROWS for row in ROWS[name] + MORE.get(name, [])],
)
def test_a_layer_against_float64(device, dtype, name, keys, bottoms):
    """Tops and gradients are rounded once or so; labels, losses and places are float32."""
    rng = np.random.default_rng(1)
    exact = kit.net_of({"type": name, **keys}, *bottoms)
    half = kit.net_of({"type": name, **keys}, *bottoms, device=device, dtype=dtype)
    types = {key: blob.data.dtype.name for key, blob in half.blobs.items()}
    inputs = {key: rounded(one, types[key]) for key, one in kit.arrays_for(bottoms, rng).items()}
    it, tops = exact.layers["it"], exact.steps[-1].spec.top
    weights = [rounded(rng.normal(size=one.shape) * 0.3, dtype) for one in exact.learnable]
    if name == "BatchNorm":
        weights[:3] = map(np.abs, weights[:3])  # its variance and its count
    pulls = {top: rounded(rng.normal(size=exact.blobs[top].shape), types[top]) for top in tops}
    for net in (exact, half):
        for param, values in zip(net.learnable, weights, strict=True):
            param.load(values)
        net.forward(**inputs)
        if it.runs_backward:
            net.clear_param_diffs()
            net.backward(**pulls)
    if "it" in types:
        assert types["it"] == ("float32" if it.traits.is_loss or name == "ArgMax" else dtype)
    flows = [f"b{i}" for i, needs in enumerate(it.needs_gradient) if needs]
    assert {types[key] for key in flows} <= {dtype}
    if name in OF_REGIONS:  # 16 bits do not tell all pixels from each other
        assert types["b1"] == "float32"
    pairs = [(half.blobs[key].data, exact.blobs[key].data, types[key]) for key in (*inputs, *tops)]
    pairs += [(half.blobs[key].diff, exact.blobs[key].diff, dtype) for key in flows]
    pairs += [
        (one.diff, other.diff, dtype)
        for one, other in zip(half.learnable, exact.learnable, strict=True)
    ]
    for got, wanted, kind in pairs:
        least = ROUNDINGS.get(name, 1.6) * EPS[kind]
        near(device.to_host(got).astype(np.float64), np.asarray(wanted, np.float64), least)


LOSS = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 3000]}, {dim: [4]}]}
  - {name: scaled, type: Eltwise, bottom: [x, x], coeff: [0.5, 0.5]}
  - {name: flat, type: Flatten, bottom: label, axis: 0}
  - {name: loss, type: SoftmaxWithLoss, bottom: [scaled, flat], ignore_label: 2999}
  - {name: accuracy, type: Accuracy, bottom: [scaled, label], top: [accuracy, each], top_k: 2}
force_backward: true
"""


@TYPES
def test_labels_and_losses_are_float32(cuda, dtype):
    """Neither type of 16 bits can tell 2049 from 2048, nor bfloat16 257 from 256."""
    rng = np.random.default_rng(2)
    x, label = rounded(rng.normal(size=(4, 3000)), dtype), np.array([257, 2049, 2999, 2051])
    x[[0, 1, 3], label[[0, 1, 3]]] = [9, 9, -9]
    exact = Net(parse(LOSS), device="cpu", dtype="float64")
    half = Net(parse(LOSS), device=cuda, dtype=dtype)
    for net in (exact, half):
        net.forward(x=x, label=label)
        net.backward()
    types = {name: blob.data.dtype.name for name, blob in half.blobs.items()}
    assert types.pop("x") == types.pop("scaled") == dtype
    assert set(types.values()) == {"float32"}  # label, flat, loss, accuracy, each
    assert cuda.to_host(half.blobs["label"].data).tolist() == label.tolist()
    assert half.loss == pytest.approx(exact.loss, rel=1e-5)
    for name in ("accuracy", "each"):
        np.testing.assert_array_equal(
            cuda.to_host(half.blobs[name].data), exact.blobs[name].data.astype(np.float32)
        )
    diff = cuda.to_host(half.blobs["x"].diff).astype(np.float64)
    near(diff, exact.blobs["x"].diff, 4 * EPS[dtype])


@TYPES
def test_labels_of_16_bits_are_taken_too(cuda, dtype):
    """A layer may compute labels: they are then of the net's type."""
    text = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 5]}, {dim: [4]}]}
  - {name: same, type: Eltwise, bottom: [label, label], coeff: [0.5, 0.5]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [x, same]}
  - {name: accuracy, type: Accuracy, bottom: [x, same]}
"""
    x = rounded(np.random.default_rng(3).normal(size=(4, 5)), dtype)
    exact, half = Net(parse(text), device="cpu"), Net(parse(text), device=cuda, dtype=dtype)
    for net in (exact, half):
        net.forward(x=x, label=[0, 3, 4, 1])
    assert half.blobs["same"].data.dtype.name == dtype
    assert half.loss == pytest.approx(exact.loss, rel=1e-5)
    assert float(half.blobs["accuracy"].data) == float(exact.blobs["accuracy"].data)


@TYPES
def test_data_of_a_data_set(cuda, dtype, monkeypatch, tmp_path):
    """The mean and the scale are not rounded before the pixel is; labels are float32."""
    kit.few_digits(monkeypatch, 40)
    text = """
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 7,
     transform: {scale: 0.00390625, mean_value: 33.3}}
"""
    nets = [Net(parse(text), device="cpu"), Net(parse(text), device=cuda, dtype=dtype)]
    (x, label), got = ([blob.data for blob in net.blobs.values() if net.forward()] for net in nets)
    np.testing.assert_array_equal(cuda.to_host(got[1]), label)
    assert (got[0].dtype.name, got[1].dtype.name) == (dtype, "float32")
    near(cuda.to_host(got[0]).astype(np.float64), rounded(x, dtype), EPS[dtype])


@TYPES
def test_places_are_float32_and_read_as_such(cuda, dtype):
    """A mask and an index reach past 2048, and bfloat16's 256."""
    text = """
force_backward: true
layers:
  - {name: data, type: Input, top: [x, index], shape: [{dim: [3, 1, 50, 52]}, {dim: [2]}]}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2, top: [most, mask]}
  - {name: up, type: Upsample, bottom: [most, mask]}
  - {name: some, type: BatchReindex, bottom: [up, index]}
  - {name: place, type: ArgMax, bottom: some}
"""
    rng = np.random.default_rng(4)
    x, index = rounded(rng.normal(size=(3, 1, 50, 52)), dtype), np.array([2, 0])
    x[..., -1] = np.array([7, 8, 9]).reshape(3, 1, 1)  # of equal ones the last is the largest
    exact = Net(parse(text), device="cpu", dtype="float64")
    half = Net(parse(text), device=cuda, dtype=dtype)
    for net in (exact, half):
        net.forward(x=x, index=index)
    types = {name: blob.data.dtype.name for name, blob in half.blobs.items()}
    assert types == {
        **dict.fromkeys(types, dtype),
        **dict.fromkeys(("index", "mask", "place"), "float32"),
    }
    for name, blob in exact.blobs.items():
        np.testing.assert_array_equal(cuda.to_host(half.blobs[name].data).astype(float), blob.data)
    assert exact.blobs["place"].data.max() > 2048


@TYPES
def test_what_drawing_gives_on_average(cuda, dtype):
    """In TEST; windows hold more than float16 does."""
    layer = "type: Pooling, pool: STOCHASTIC, kernel_size: 3, stride: 2"
    x = rounded(np.random.default_rng(1).uniform(10_000, 30_000, X), dtype)
    exact = kit.net_of(layer, X, phase="TEST")
    half = kit.net_of(layer, X, phase="TEST", device=cuda, dtype=dtype)
    for net in (exact, half):
        net.forward(b0=x)
        net.backward(it=np.ones(net.blobs["it"].shape))
    agree(half, exact, 4, dtype)
