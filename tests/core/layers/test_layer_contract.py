"""The contract of a layer: its keys, its parameters, what it may return."""

import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar

import kit
import numpy as np
import pytest

from minicaffe import Layer, Net, SpecError, Traits, parse, register
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts, check_traits
from minicaffe.core.layers.registry import check_keys
from minicaffe.errors import LayerError


@pytest.fixture
def clean_register():
    with kit.registered():
        yield


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
    np.testing.assert_array_equal(
        kit.net_of("type: Double, factor: 4", (3,)).forward(b0=[1] * 3)["it"], 4
    )
    said = "layer 'it' (Double): unknown key 'faktor'; did you mean 'factor'"
    assert f"<text>:3:44: {said}" in kit.error_line(kit.net_of, "type: Double, faktor: 4", (3,))


@pytest.mark.parametrize("missing", ["setup", "forward", "backward"])
def test_what_a_layer_does_not_define_is_named(clean_register, double, missing):
    delattr(double, missing)
    said = {
        "setup": "layer Double must define setup",
        "forward": "layer Double must define forward",
        "backward": "layer Double has no gradient: it does not define backward",
    }
    with pytest.raises(LayerError, match=f"layer 'it' .*: TypeError: {said[missing]}$"):
        net = kit.net_of("type: Double", (3,))
        net.forward(b0=np.ones(3))
        net.backward(it=np.ones(3))


def test_a_custom_layer_in_place_is_safe(double):
    """It keeps its bottom; in place by name, it gets memory of its own."""
    net = kit.net_of("type: Double, top: b0", (3,))
    net.forward(b0=[1, 2, 3])
    np.testing.assert_array_equal(net.blobs["b0"].data, [2, 4, 6])
    np.testing.assert_array_equal(net.layers["it"].x, [1, 2, 3])
    net.backward(b0=[1, 1, 1])
    np.testing.assert_array_equal(net.steps[0].tops[0].blob.diff, 2)


def test_bottoms_are_counted_by_the_signature_of_setup():
    assert bottom_counts(REGISTRY["Pooling"]) == (1, 1)
    assert bottom_counts(REGISTRY["SoftmaxWithLoss"]) == (2, 2)
    assert bottom_counts(REGISTRY["Input"]) == (0, 0)
    assert bottom_counts(REGISTRY["Eltwise"])[0] == 2
    assert bottom_counts(REGISTRY["Eltwise"])[1] > 100
    said = "ShapeError: <text>:3:5: layer 'it' (SoftmaxWithLoss): takes 2 bottom(s), got 1"
    assert kit.error_line(kit.net_of, "type: SoftmaxWithLoss", (3, 2)) == said


def test_one_padded_axis_clips_the_last_window_of_both_as_in_caffe():
    pooling = REGISTRY["Pooling"](kernel_h=1, kernel_w=2, stride=(3,), pad_h=0, pad_w=1)
    assert pooling.setup((1, 1, 5, 5)) == (1, 1, 2, 2)
    assert REGISTRY["Pooling"](kernel_size=(1, 2), stride=(3,)).setup((1, 1, 5, 5)) == (1, 1, 3, 2)


@pytest.mark.parametrize("pool", ["AVE", "MAX"])
def test_a_huge_padded_window_takes_no_longer_than_the_image(pool):
    net = kit.net_of(
        f"type: Pooling, pool: {pool}, kernel_size: 1000000001, pad: 500000000", (1, 1, 28, 28)
    )
    found = net.forward(b0=np.ones((1, 1, 28, 28)))["it"]
    assert found.shape == (1, 1, 28, 28)
    np.testing.assert_allclose(found, 1 if pool == "MAX" else 28**2 / 1000000001**2, rtol=1e-5)


@pytest.mark.parametrize(
    ("promised", "returned", "message"),
    [
        ((7,), np.ones(3), "setup promised shape (7,), got an array of (3,)"),
        ((3,), None, "setup promised shape (3,), got NoneType"),
        ((3,), 2.5, "setup promised shape (3,), got float"),
        ((3,), [np.ones(3), np.ones(3)], "expected an array for each of 1 tops, got 2"),
        *[(shape, None, "setup gave ") for shape in (None, (3, 2.5), "ab", 7)],
    ],
)
def test_what_setup_and_forward_return_is_checked(clean_register, promised, returned, message):
    @register
    class Odd(Layer):
        """Returns what it should not."""

        def setup(self, x):
            return promised

        def forward(self, x):
            return returned

    said = kit.error_line(lambda: kit.net_of("type: Odd", (3,)).forward())
    assert said.startswith("ShapeError: ") and f"layer 'it' (Odd): {message}" in said
    assert ("expected a shape" in said) == (message == "setup gave ")


def layer(name, **members):
    return type(name, (Layer,), {"__doc__": "A layer.", **members})


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        *[(one, f"register: {one.__name__} is no subclass of Layer") for one in (int, len, Net)],
        (layer("ReLU"), "layer ReLU: minicaffe.core.layers.elementwise has a layer of that name"),
        (layer("Listed", sizes=(), __annotations__={"sizes": list}),
         "layer Listed: the key 'sizes' is of a type YAML cannot give"),
        (layer("Bad", top=(), __annotations__={"top": int}), "layer Bad: the key 'top' is taken by every layer"),
        *[(layer("Odd", traits=one), "layer Odd: traits: expected a Traits, got") for one in ({"in_place": True}, Traits, None)],
    ],
)  # fmt: skip
def test_what_is_not_registered(clean_register, thing, message):
    before = dict(REGISTRY)
    assert kit.error_line(register, thing).startswith(f"SpecError: {message}")
    assert before == REGISTRY


@pytest.mark.parametrize(
    ("filler", "message"),
    [
        ("type: xavier, value: 3", "value goes with constant, not with xavier"),
        ("type: constant, std: 3", "std goes with gaussian, not with constant"),
    ],
)
def test_a_filler_key_that_would_do_nothing_is_refused(filler, message):
    keys = f"type: InnerProduct, num_output: 2, weight_filler: {{{filler}}}"
    said = kit.error_line(kit.net_of, keys, (1, 3))
    assert said.startswith("SpecError: ") and message in said
    assert "layer 'it' (InnerProduct): weight_filler" in said


def test_the_keys_of_built_in_layers_are_such_as_users_may_have():
    for cls in REGISTRY.values():
        check_keys(cls)


def test_every_layer_has_traits():
    for cls in REGISTRY.values():
        check_traits(cls)
        assert isinstance(cls.traits, Traits)
    true = dict.fromkeys(("is_loss", "recordable", "of_whole", "keeps_top"), True)
    labels = {"label_bottoms": (1,), "float32_bottoms": (1,)}
    assert REGISTRY["SoftmaxWithLoss"].traits == Traits(**true, **labels, inferred_as="Softmax")


def test_the_page_of_ones_own_layers_has_every_trait_and_its_default():
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\S+)` \| ", page, re.M))
    assert rows == {field.name: repr(field.default) for field in fields(Traits)}


def test_the_defaults_of_traits_suit_a_layer_of_ones_own(double):
    assert double.traits is Layer.traits == Traits()
    assert {field.name for field in fields(Traits) if getattr(Traits(), field.name)} == {
        "has_tops",
        "inferred_as",
    }
    assert double.traits.capturable is None
    with pytest.raises(FrozenInstanceError):
        double.traits.in_place = True
    with pytest.raises(TypeError):
        Traits(True)


@pytest.mark.parametrize("name", [field.name for field in fields(Traits)])
def test_a_trait_that_is_an_attribute_of_its_own_is_refused(clean_register, name):
    """As a layer had them before there was `traits`: it would do nothing."""
    value = getattr(Traits(), name)

    class Parent(Layer):
        """Not registered itself."""

    class Own(Layer):
        """Says it in its class."""

    class Typed(Layer):
        """Says it with a type, which would make it a key."""

        __annotations__: ClassVar = {name: type(value)}

    class Heir(Parent):
        """Has it of its parent."""

    said = f"is a trait: write traits = Traits({name}=...)"
    for cls, where in ((Own, Own), (Typed, Typed), (Heir, Parent)):
        setattr(where, name, value)
        with pytest.raises(SpecError, match=f"^layer {cls.__name__}: {name} {re.escape(said)}$"):
            register(cls)
        assert cls.__name__ not in REGISTRY
    required = type("Required", (Layer,), {"__annotations__": {name: bool}})
    told = f"layer Required: the key '{name}' is taken by every layer"
    with pytest.raises(SpecError, match=told):
        register(required)


def test_a_trait_set_as_an_attribute_in_setup_is_refused(clean_register):
    @register
    class Late(Layer):
        """Its labels are its last bottom's."""

        def setup(self, x, *more):
            self.label_bottoms = (len(more),)
            return x

    said = "label_bottoms is a trait: write self.traits = replace(self.traits, label_bottoms=...)"
    told = kit.error_line(kit.net_of, "type: Late", (3,))
    assert told == f"SpecError: <text>:3:5: layer 'it' (Late): {said}"


def test_the_traits_of_one_layer_are_not_those_of_its_class(clean_register):
    """What depends on keys or the phase is the layer's own."""
    text = """
layers:
  - {name: d, type: Input, shape: {dim: [2, 3, 4, 4]}}
  - {name: leaky, type: ReLU, negative_slope: NUMBER}
  - {name: drawn, type: Pooling, pool: STOCHASTIC, kernel_size: 2}
"""
    for slope, in_place in ((0.1, True), (-0.1, False)):
        spec = parse(text.replace("NUMBER", str(slope)))
        train, test = Net(spec, "TRAIN", device="cpu"), Net(spec, "TEST", device="cpu", keep=())
        assert train.layers["leaky"].traits == replace(
            REGISTRY["ReLU"].traits, in_place=in_place, keeps_top=in_place
        )
        assert [net.layers["drawn"].traits.keeps_top for net in (train, test)] == [False, True]
    assert REGISTRY["ReLU"].traits == Traits(keeps_dtype=True, recordable=True)
    assert not REGISTRY["Pooling"].traits.keeps_top


def test_a_layer_that_keeps_its_bottom_is_in_place_where_nothing_runs_backward():
    text = "layers: [{name: d, type: Input, shape: {dim: [2, 3]}}, {name: act, type: GELU},"
    text += " {name: s, type: Scale, bottom: act, top: act, param: {lr_mult: LEARNS}}]"
    for learns in (0, 1):
        (value,) = Net(parse(text.replace("LEARNS", str(learns))), device="cpu").steps[-1].tops
        assert (value.reuses is None) == bool(learns)


def test_a_layer_says_what_it_is():
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 1, 8, 8]}}
  - {name: conv1, type: Convolution, num_output: 3, kernel_size: 5}
  - {name: r, type: ReLU}
  - {name: quiet, type: Silence}
"""
    net = Net(parse(text), device="cpu")
    assert list(map(repr, net.layers.values())) == [
        "<Input 'x': -> (2, 1, 8, 8)>",
        "<Convolution 'conv1': (2, 1, 8, 8) -> (2, 3, 4, 4); parameters (3, 1, 5, 5), (3,)>",
        "<ReLU 'r': (2, 3, 4, 4) -> (2, 3, 4, 4)>",
        "<Silence 'quiet': (2, 3, 4, 4) -> nothing>",
    ]
    assert repr(REGISTRY["ReLU"]()) == "<ReLU 'ReLU'>"
    net.reshape(x=(4, 1, 8, 8))
    assert repr(net.layers["r"]) == "<ReLU 'r': (4, 3, 4, 4) -> (4, 3, 4, 4)>"
