"""Convolution, Deconvolution and Im2col as layers: their keys, their engines, and how they belong together."""

import numpy as np
import pytest

from minicaffe import Net, Numerics, ShapeError, SpecError, gradcheck, im2col, parse
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY, Context
from minicaffe.core.ops.conv import ENGINES

INPUT = "{name: x, type: Input, shape: {dim: [2, 4, 7, 6]}}"
KEYS = (
    "kernel_size: [3, 2], stride: [2, 1], pad: [1, 0], dilation: [1, 2], group: 2, bias_term: false"
)


def net(*layers, device="cpu", given=INPUT):
    lines = "\n".join(f"  - {layer}" for layer in (given, *layers))
    return Net(parse(f"force_backward: true\nlayers:\n{lines}"), device=device, dtype="float64")


def conv(keys, kind="Convolution"):
    return f"{{name: y, type: {kind}, {keys}}}"


def test_deconvolution_is_the_adjoint_of_convolution(device):
    """<conv(x), y> = <x, deconv(y)>, with one weight."""
    random = np.random.default_rng(1)
    there = net(conv(f"num_output: 6, {KEYS}"), device=device)
    weight = random.normal(size=(6, 2, 3, 2))
    x, y = random.normal(size=(2, 4, 7, 6)), random.normal(size=(2, 6, 4, 4))
    given = "{name: x, type: Input, shape: {dim: [2, 6, 4, 4]}}"
    back = net(conv(f"num_output: 4, {KEYS}", "Deconvolution"), device=device, given=given)
    for one in (there, back):
        one.device.copy_from_host(one.params["y"][0].data, weight)
    host = device.to_host
    image, columns = host(back.forward(x=y)["y"]), host(there.forward(x=x)["y"])
    assert columns.shape == y.shape
    assert image.shape == x.shape
    assert (columns * y).sum() == pytest.approx((x * image).sum(), rel=1e-12)


def test_a_convolution_is_im2col_and_a_product():
    both = net(
        "{name: columns, type: Im2col, bottom: x, kernel_size: 3, stride: 2, pad: 1}",
        "{name: y, type: Convolution, bottom: x, num_output: 5, kernel_size: 3, stride: 2, pad: 1}",
    )
    x = np.random.default_rng(2).normal(size=(2, 4, 7, 6))
    both.forward(x=x)
    columns, y = both.blobs["columns"].data, both.blobs["y"].data
    np.testing.assert_array_equal(columns.reshape(2, 36, -1), im2col(x, 3, 2, 1))
    product = both.params["y"][0].data.reshape(5, -1) @ columns.reshape(2, 36, -1)
    np.testing.assert_allclose(product.reshape(y.shape), y, rtol=1e-10, atol=1e-12)


def test_axes_before_the_channels_are_the_batch():
    x = np.random.default_rng(3).normal(size=(2, 3, 4, 5, 6))
    given = "{name: x, type: Input, shape: {dim: %s}}"
    for kind in ("Convolution", "Deconvolution", "Im2col"):
        keys = "kernel_size: 2" if kind == "Im2col" else "num_output: 2, kernel_size: 2"
        flat = net(conv(keys, kind), given=given % [6, 4, 5, 6])
        deep = net(conv(f"{keys}, axis: -3", kind), given=given % [2, 3, 4, 5, 6])
        one, other = flat.forward(x=x.reshape(6, 4, 5, 6))["y"], deep.forward(x=x)["y"]
        assert other.shape == (2, 3, *one.shape[1:])
        np.testing.assert_array_equal(one, other.reshape(one.shape))


def test_the_engines_of_the_key_are_those_there_are():
    for name in ("Convolution", "Deconvolution"):
        (among,) = keys_of(REGISTRY[name])["engine"].checks
        assert tuple(among.words()) == ("auto", *ENGINES)


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_gradient(kind, engine):
    """Of a shape that all can take, and of one with everything that not all can."""
    for kernel, pad, dilation in (((1, 1), 0, 1), ((3, 3), 1, 1), ((3, 2), 1, 2)):
        keys = {"num_output": 4, "group": 2, "kernel_size": kernel, "pad": (pad,)}
        keys["dilation"] = (dilation,)
        layer = REGISTRY[kind](engine=engine, **keys)
        try:
            assert gradcheck(layer, (2, 4, 6, 5)) < 1e-6
        except ShapeError as refusal:
            assert str(refusal).startswith(f"engine '{engine}' cannot take this convolution: ")
            assert engine not in str(refusal).partition("engines that can: ")[2].split(", ")
        else:
            assert set(layer.plan.names.values()) == {engine}


def test_the_layers_engine_wins_over_the_nets():
    for own, nets, taken in (("auto", "caffe", "caffe"), ("batched", "caffe", "batched")):
        layer = REGISTRY["Convolution"](num_output=1, kernel_size=(3,), engine=own)
        layer.context = Context(layer.context.device, Numerics(dtype=layer.dtype, engine=nets))
        layer.top_shapes((1, 1, 5, 5))
        layer.allocate()
        assert set(layer.plan.names.values()) == {taken}
        assert layer.context.workspace_size >= layer.plan.workspace


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ("num_output: 2, kernel_size: 1, engine: winograd", ShapeError,
         "4:5: layer 'y' (Convolution): engine 'winograd' cannot take this convolution: F(4x4) needs kernels of 2"),
        ("num_output: 2, kernel_size: 1, engine: winograd", ShapeError, "; engines that can: direct, caffe, "),
        ("num_output: 2, kernel_size: 3, engine: CAFFE", SpecError, "got 'CAFFE'; did you mean 'caffe'?"),
        ("num_output: 2, kernel_size: 3, engine: CUDNN", SpecError, "engine: expected one of auto, direct, caffe"),
    ],
)  # fmt: skip
def test_an_engine_that_cannot_is_refused(keys, error, words):
    with pytest.raises(error) as caught:
        net(conv(keys))
    assert words in str(caught.value)


def test_bilinear_upsampling_keeps_a_ramp():
    """Twice as large, a plane that rises evenly rises evenly, away from the edges."""
    keys = "num_output: 2, group: 2, kernel_size: 4, stride: 2, pad: 1, weight_filler: bilinear"
    given = "{name: x, type: Input, shape: {dim: [1, 2, 5, 6]}}"
    up = net(conv(f"{keys}, bias_term: false", "Deconvolution"), given=given)
    y, x = np.mgrid[0:5, 0:6].astype(float)
    large = up.forward(x=np.stack([y, 2 * x - y])[None])["y"]
    assert large.shape == (1, 2, 10, 12)
    rows, columns = (np.arange(2, size - 2) / 2 - 0.25 for size in (10, 12))
    np.testing.assert_allclose(large[0, 0, 2:-2, 2:-2], np.repeat(rows[:, None], 8, 1), atol=1e-12)
    np.testing.assert_allclose(large[0, 1, 2:-2, 2:-2], 2 * columns - rows[:, None], atol=1e-12)


def test_a_net_of_new_shapes_plans_anew(device):
    one = net(conv("num_output: 3, kernel_size: 3, stride: 2", "Deconvolution"), device=device)
    one.reshape(x=(1, 4, 3, 9))
    assert one.forward(x=np.ones((1, 4, 3, 9)))["y"].shape == (1, 3, 7, 19)
    one.backward(y=np.ones((1, 3, 7, 19)))
    np.testing.assert_array_equal(device.to_host(one.params["y"][1].diff), 7 * 19)
