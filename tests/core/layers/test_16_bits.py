"""Layers in nets of 16 bits, on CUDA, against the same layer in float64 on the CPU."""

from __future__ import annotations

import ast

import kit
import numpy as np
import pytest
from half_nets import TYPES

from minicaffe import Net, parse
from minicaffe.core.layers.blob import float_type

X = (3, 4, 6, 5)
EPS = {"float16": 2**-11, "bfloat16": 2**-8}  # of a rounding, relative

# what is tested, the layer's YAML, the shapes of its bottoms, roundings allowed of the largest entry
ROWS = kit.rows("""
Convolution | Convolution, num_output: 6, kernel_size: 3, pad: 1, group: 2 | X | 4
strided | Convolution, num_output: 5, kernel_size: [3, 2], stride: 2 | X | 4
1 x 1 | Convolution, num_output: 5, kernel_size: 1, engine: implicit | X | 4
MAX | Pooling, kernel_size: 3, stride: 2, pad: 1 | X | 1
AVE | Pooling, pool: AVE, kernel_size: 3, stride: 2, pad: 1 | X | 1
ReLU | ReLU | X | 1
leaky | ReLU, negative_slope: 0.1 | X | 2
BNLL | BNLL | X | 2
Clip | Clip, min: -0.5, max: 1.5 | X | 1
ELU | ELU, alpha: 0.5 | X | 2
GELU | GELU | X | 2
GELU tanh | GELU, approximate: tanh | X | 3
Power | Power, power: 2, scale: 0.5, shift: -1 | X | 2
Sigmoid | Sigmoid | X | 4
Swish | Swish, beta: 0.5 | X | 3
TanH | TanH | X | 4
PReLU | PReLU | X | 2
Scale | Scale, bias_term: true | X | 3
given scale | Scale, axis: 0 | X, (3, 4) | 3
Bias | Bias, axis: 1, num_axes: 2 | X | 2
Axpy | Axpy | (3, 4), X, X | 3
InnerProduct | InnerProduct, num_output: 7 | X | 2
transposed | InnerProduct, num_output: 7, transpose: true | X | 2
Dropout | Dropout, dropout_ratio: 0.3 | X | 2
Softmax | Softmax | X | 1
SUM | Eltwise, coeff: [0.5, -2, 1] | X, X, X | 4
PROD | Eltwise, operation: PROD | X, X, X | 3
EMAX | Eltwise, operation: MAX | X, X, X | 1
Concat | Concat, axis: 2 | X, (3, 4, 1, 5) | 1
Flatten | Flatten | X | 1
Reshape | Reshape, shape: {dim: [0, -1]} | X | 1
Permute | Permute, order: [0, 3, 1, 2] | X | 1
Shuffle | ShuffleChannel, group: 2 | X | 1
Crop | Crop, offset: 1 | X, (3, 4, 2, 3) | 1
Tile | Tile, axis: 2, tiles: 3 | X | 1
Split | Split | X | 1
SUM of rows | Reduction, axis: 2, coeff: 0.5 | X | 1
ASUM | Reduction, operation: ASUM, axis: 1 | X | 2
SUMSQ | Reduction, operation: SUMSQ, axis: 2 | X | 3
MEAN | Reduction, operation: MEAN | X | 2
SPP | SPP, pyramid_height: 2 | X | 2
SPP of means | SPP, pyramid_height: 2, pool: AVE | X | 3
Interp | Interp, zoom_factor: 3 | X | 1
Upsample | Upsample, scale_h: 2, scale_w: 3 | X | 2
Flip | Flip, flip_height: true | X | 1
InnerDistance | InnerDistance, num_output: 7 | X | 2
magnitudes | InnerDistance, num_output: 7, distance_type: L1 | X | 2
DilatedPooling | DilatedPooling, kernel_size: 3, dilation: 2, pool: AVE | X | 2
ImResize | ImResize, factor: 1.5, scale_gap: 0.3 | X | 2
drawn | Pooling, pool: STOCHASTIC, kernel_size: 3, stride: 2 | X | 1
LSTM | LSTM, num_output: 3 | (5, 4, 6), (5, 4), (4, 2) | 20
RNN | RNN, num_output: 3 | (5, 4, 6), (5, 4), (4, 2) | 40
BatchNorm | BatchNorm | X | 3
scaled | BatchNorm, scale_bias: true | (3, 70) | 4
past | BatchNorm, use_global_stats: true, eps: 60 | X | 3
MVN | MVN, across_channels: true | X | 3
LayerNorm | LayerNorm, axis: 2 | X | 4
GroupNorm | GroupNorm, num_groups: 2 | X | 4
Normalize | Normalize, across_spatial: false, channel_shared: false | X | 4
across | LRN, local_size: 3, alpha: 0.5 | X | 3
BilinearInterpolation | BilinearInterpolation, interpolation_factor: 2 | X | 2
CompactBilinear | CompactBilinear, num_output: 6 | X, X | 3
Correlation | Correlation, kernel_size: 1, max_displacement: 1, pad: 1 | X, X | 3
DeformableConvolution | DeformableConvolution, num_output: 3, kernel_size: 3, pad: 1 | X, (3, 18, 6, 5) | 4
FlowWarp | FlowWarp | X, (3, 2, 6, 5) | 3
Reorg | Reorg, stride: 2, reverse: true | X | 1
MaskPooling | MaskPooling | X, (3, 1, 6, 5) | 3
MaskResize | MaskResize, output_height: 4, output_width: 7 | X | 2
L2Norm | L2Norm | X | 3
Lstm | Lstm, num_output: 3, batch_size: 4 | (20, 6) | 20
Reverse | Reverse, axis: 1 | X | 1
Transpose | Transpose, dim: [3, 0, 2, 1] | X | 1
within | LRN, norm_region: WITHIN_CHANNEL | X | 3
""")


def rounded(array, dtype):
    """Numbers that the type can hold, in float64."""
    return array.astype(float_type(dtype)).astype(np.float64)


def near(got, wanted, tolerance):
    assert got.shape == wanted.shape and np.isfinite(got).all()
    assert np.abs(got - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-30)


def agree(half, exact, roundings, dtype):
    """Every blob, every gradient of it."""
    for key, blob in exact.blobs.items():
        for part in ("data", "diff"):
            got = half.device.to_host(getattr(half.blobs[key], part)).astype(np.float64)
            near(got, getattr(blob, part), roundings * EPS[dtype])


@TYPES
@pytest.mark.parametrize(("name", "layer", "shapes", "roundings"), ROWS)
def test_a_layer_against_float64(cuda, dtype, name, layer, shapes, roundings):
    shapes = ast.literal_eval(f"[{shapes.replace('X', str(X))}]")
    rng = np.random.default_rng(1)
    exact = kit.net_of(f"type: {layer}", *shapes)
    half = kit.net_of(f"type: {layer}", *shapes, device=cuda, dtype=dtype)
    weights = {
        key: rounded(rng.normal(size=value.shape), dtype) for key, value in exact.weights().items()
    }
    inputs = {f"b{i}": rounded(rng.normal(size=shape), dtype) for i, shape in enumerate(shapes)}
    dy = rounded(rng.normal(size=exact.blobs["it"].shape), dtype)
    for net in (exact, half):
        if weights:
            net.load(weights)
        net.forward(**inputs)
        net.backward(it=dy)
    assert {blob.data.dtype.name for blob in half.blobs.values()} == {dtype}
    agree(half, exact, int(roundings), dtype)
    for mine, other in zip(half.learnable, exact.learnable, strict=True):
        diff = cuda.to_host(mine.diff).astype(np.float64)
        near(diff, other.diff, int(roundings) * EPS[dtype])


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


@pytest.mark.parametrize("reader", ["SoftmaxWithLoss", "Accuracy"])
def test_an_input_that_is_read_as_labels_is_float32(reader):
    net = kit.net_of(f"type: {reader}", (4, 5), (4,), dtype="float16", shapes_only=True)
    types = [value.dtype.name for step in net.steps for value in step.tops]
    assert types == ["float16", "float32", "float32"]


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
    from minicaffe.tools.data import datasets

    monkeypatch.setattr(datasets, "_COUNTS", {"train": 40, "test": 20})
    monkeypatch.setattr(datasets, "_DRAWING", "few-40")  # kept apart from the whole set
    text = """
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 7,
     transform: {scale: 0.00390625, mean_value: 33.3}}
"""
    nets = [Net(parse(text), device="cpu"), Net(parse(text), device=cuda, dtype=dtype)]
    (x, label), got = ([blob.data for blob in net.blobs.values() if net.forward()] for net in nets)
    np.testing.assert_array_equal(cuda.to_host(got[1]), label)
    assert (got[0].dtype.name, got[1].dtype.name) == (dtype, "float32")
    wanted = rounded(x, dtype)
    near(cuda.to_host(got[0]).astype(np.float64), wanted, EPS[dtype])


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
