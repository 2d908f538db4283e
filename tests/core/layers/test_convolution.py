"""Convolution, Deconvolution and Im2col as layers: their keys, their engines, and how they belong together."""

import kit
import numpy as np
import pytest

from minicaffe import Net, ShapeError, gradcheck, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops.conv import ENGINES

INPUT = "{name: x, type: Input, shape: {dim: [2, 4, 7, 6]}}"


def net(*layers, device="cpu", given=INPUT):
    lines = "\n".join(f"  - {layer}" for layer in (given, *layers))
    return Net(parse(f"force_backward: true\nlayers:\n{lines}"), device=device, dtype="float64")


def conv(keys, kind="Convolution"):
    return f"{{name: y, type: {kind}, {keys}}}"


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_multiply_adds_are_those_of_every_bottom(kind):
    """A deformable convolution has as many as one that is not."""
    keys, x = f"num_output: 4, kernel_size: 3, stride: 2, type: {kind}", (2, 4, 7, 6)
    one = kit.net_of(keys, x).layers["it"].multiply_adds
    assert kit.net_of(f"{keys}, top: [a, b]", x, x).layers["it"].multiply_adds == 2 * one > 0
    if kind == "Convolution":
        keys = keys.replace(kind, f"Deformable{kind}")
        assert kit.net_of(keys, x, (2, 18, 3, 2)).layers["it"].multiply_adds == one


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
