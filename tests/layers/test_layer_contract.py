"""The contract of a layer: its keys, its parameters, what it may return."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

from minicaffe import Layer, Net, ShapeError, SpecError, parse, register
from minicaffe.layers import REGISTRY
from minicaffe.layers.base import bottom_counts, check_keys


@pytest.fixture
def clean_register(monkeypatch):
    monkeypatch.setattr("minicaffe.layers.base.REGISTRY", REGISTRY)
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def double(clean_register):
    @register
    class Double(Layer):
        """y = factor x, into arrays of its own."""

        factor: Annotated[float, "the factor"] = 2.0

        def setup(self, x):
            return x

        def forward(self, x):
            self.x = x
            return self.factor * x

        def backward(self, dy):
            return self.factor * dy

    return Double


def test_fields_are_keys(double):
    net = Net(
        parse(
            "layers: [{name: d, type: Input, shape: {dim: 3}}, {name: y, type: Double, factor: 4}]"
        ),
        device="cpu",
    )
    np.testing.assert_array_equal(net.forward(d=np.ones(3))["y"], 4)
    with pytest.raises(
        SpecError, match=r"1:75: layer 'y' \(Double\): unknown key 'faktor'; did you mean 'factor'"
    ):
        parse(
            "layers: [{name: d, type: Input, shape: {dim: 3}}, {name: y, type: Double, faktor: 4}]"
        )


def test_a_key_of_every_layer_is_refused(clean_register):
    with pytest.raises(SpecError, match="layer Bad: the key 'top' is taken by every layer"):

        @register
        class Bad(Layer):
            top: int = 3


def test_a_custom_layer_in_place_is_safe(double):
    """It keeps its bottom; in place by name, it gets memory of its own."""
    net = Net(
        parse("""
force_backward: true
layers:
  - {name: d, type: Input, shape: {dim: 3}}
  - {name: double, type: Double, bottom: d, top: d}
"""),
        device="cpu",
    )
    net.forward(d=[1, 2, 3])
    np.testing.assert_array_equal(net.blobs["d"].data, [2, 4, 6])
    np.testing.assert_array_equal(net.layers["double"].x, [1, 2, 3])
    net.backward(d=[1, 1, 1])
    np.testing.assert_array_equal(net.steps[0].tops[0].blob.diff, 2)


def test_a_layer_that_breaks_its_promise_is_named(clean_register):
    @register
    class Liar(Layer):
        """Promises one shape, gives another."""

        def setup(self, x):
            return (7,)

        def forward(self, x):
            return x

    net = Net(parse("layers: [{name: d, type: Input, shape: {dim: 3}}, {name: l, type: Liar}]"))
    with pytest.raises(
        ShapeError, match=r"layer 'l' \(Liar\): setup promised shape \(7,\), got an array of \(3,\)"
    ):
        net.forward()


def test_bottoms_are_counted_by_the_signature_of_setup():
    assert bottom_counts(REGISTRY["Pooling"]) == (1, 1)
    assert bottom_counts(REGISTRY["SoftmaxWithLoss"]) == (2, 2)
    assert bottom_counts(REGISTRY["Input"]) == (0, 0)
    assert bottom_counts(REGISTRY["Eltwise"])[0] == 2
    assert bottom_counts(REGISTRY["Eltwise"])[1] > 100
    with pytest.raises(
        ShapeError, match=r"layer 'loss' \(SoftmaxWithLoss\): takes 2 bottom\(s\), got 1"
    ):
        Net(
            parse(
                "layers: [{name: d, type: Input, shape: {dim: [3, 2]}}, {name: loss, type: SoftmaxWithLoss}]"
            )
        )


def test_one_padded_axis_clips_the_last_window_of_both_as_in_caffe():
    pooling = REGISTRY["Pooling"](kernel_h=1, kernel_w=2, stride=(3,), pad_h=0, pad_w=1)
    assert pooling.setup((1, 1, 5, 5)) == (1, 1, 2, 2)
    assert REGISTRY["Pooling"](kernel_size=(1, 2), stride=(3,)).setup((1, 1, 5, 5)) == (1, 1, 3, 2)


@pytest.mark.parametrize("pool", ["AVE", "MAX"])
def test_a_huge_padded_window_takes_no_longer_than_the_image(pool):
    net = Net(
        parse(
            "layers: [{name: x, type: Input, shape: {dim: [1, 1, 28, 28]}},"
            f" {{name: p, type: Pooling, pool: {pool}, kernel_size: 1000000001, pad: 500000000}}]"
        ),
        device="cpu",
    )
    found = net.forward(x=np.ones((1, 1, 28, 28)))["p"]
    assert found.shape == (1, 1, 28, 28)
    np.testing.assert_allclose(found, 1 if pool == "MAX" else 28**2 / 1000000001**2, rtol=1e-5)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "setup promised shape (3,), got NoneType"),
        (2.5, "setup promised shape (3,), got float"),
        ([np.ones(3), np.ones(3)], "expected an array for each of 1 tops, got 2"),
    ],
)
def test_what_forward_returns_is_checked(clean_register, returned, message):
    @register
    class Odd(Layer):
        """Returns what it should not."""

        def setup(self, x):
            return x

        def forward(self, x):
            return returned

    net = Net(
        parse("layers: [{name: d, type: Input, shape: {dim: 3}}, {name: l, type: Odd}]"),
        device="cpu",
    )
    with pytest.raises(ShapeError, match="layer 'l' .Odd.: ") as caught:
        net.forward()
    assert message in str(caught.value)


def test_names_and_types_of_a_custom_layer_are_checked(clean_register):
    with pytest.raises(
        SpecError, match="layer ReLU: minicaffe.layers.elementwise has a layer of that name"
    ):

        @register
        class ReLU(Layer):
            """Another."""

    with pytest.raises(
        SpecError, match="layer Listed: the key 'sizes' is of a type YAML cannot give"
    ):

        @register
        class Listed(Layer):
            sizes: list = ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "type: InnerProduct, num_output: 2, weight_filler: {type: xavier, value: 3}",
            "value goes with constant, not with xavier",
        ),
        (
            "type: InnerProduct, num_output: 2, weight_filler: {type: constant, std: 3}",
            "std goes with gaussian, not with constant",
        ),
    ],
)
def test_a_filler_key_that_would_do_nothing_is_refused(text, message):
    with pytest.raises(SpecError, match="layer 'l' .InnerProduct.: weight_filler") as caught:
        parse(f"layers: [{{name: d, type: Input, shape: {{dim: [1, 3]}}}}, {{name: l, {text}}}]")
    assert message in str(caught.value)


def test_global_pooling_takes_no_stride_and_no_pad():
    for key in ("stride", "pad"):
        with pytest.raises(ShapeError, match="with global_pooling there is no stride and no pad"):
            REGISTRY["Pooling"](global_pooling=True, **{key: (2,)}).setup((1, 1, 5, 5))


def test_the_keys_of_built_in_layers_are_such_as_users_may_have():
    for cls in REGISTRY.values():
        check_keys(cls)


def test_what_setup_returns_is_checked(clean_register):
    for returned in (None, (3, 2.5), "ab", 7):

        @register
        class Vague(Layer):
            """Gives no shape."""

            def setup(self, x, returned=returned):
                return returned

        with pytest.raises(ShapeError, match="layer 'v' .Vague.: setup gave .*, expected a shape"):
            Net(
                parse(
                    "layers: [{name: d, type: Input, shape: {dim: 3}}, {name: v, type: Vague, bottom: d}]"
                ),
                device="cpu",
            )


def test_a_layer_says_what_it_is():
    net = Net(
        parse(
            "layers: [{name: x, type: Input, shape: {dim: [2, 1, 8, 8]}},"
            " {name: conv1, type: Convolution, num_output: 3, kernel_size: 5}, {name: r, type: ReLU},"
            " {name: quiet, type: Silence}]"
        ),
        device="cpu",
    )
    assert list(map(repr, net.layers.values())) == [
        "<Input 'x': -> (2, 1, 8, 8)>",
        "<Convolution 'conv1': (2, 1, 8, 8) -> (2, 3, 4, 4); parameters (3, 1, 5, 5), (3,)>",
        "<ReLU 'r': (2, 3, 4, 4) -> (2, 3, 4, 4)>",
        "<Silence 'quiet': (2, 3, 4, 4) -> nothing>",
    ]
    assert repr(REGISTRY["ReLU"]()) == "<ReLU 'ReLU'>"
    net.reshape(x=(4, 1, 8, 8))
    assert repr(net.layers["r"]) == "<ReLU 'r': (4, 3, 4, 4) -> (4, 3, 4, 4)>"
