"""Every registered layer through spec, setup, forward, backward and the gradient check; none may lack a row."""

from dataclasses import replace

import numpy as np
import pytest
from core.layers.rows import OWN_GRADIENT, ROWS, WITHOUT_GRADIENT, net_of
from kit import arrays_for

from minicaffe import GradientError, Layer, Net, gradcheck, parse
from minicaffe.core.config.declare import Filler, ParamSpec
from minicaffe.core.layers import REGISTRY

COPY = "  - {name: copy, type: Eltwise, bottom: [b0, b0], coeff: [0.5, 0.5], top: c}\n"
TRIPLE = "  - {{name: triple, type: Power, bottom: {}, scale: 3, top: {}}}\n"


EVERY = [(name, *row) for name, rows in ROWS.items() for row in rows]


def test_every_layer_has_a_row():
    assert set(ROWS) | WITHOUT_GRADIENT == set(REGISTRY)


@pytest.mark.parametrize(
    ("name", "keys", "bottoms"), [row for row in EVERY if row[0] not in OWN_GRADIENT]
)
def test_backward_is_the_gradient_of_forward(name, keys, bottoms, device):
    spec = parse(net_of(name, keys, bottoms)).layers[1]
    layer = REGISTRY[name](**spec.options)
    layer.top = spec.top
    assert gradcheck(layer, *bottoms, device=device) < 1e-6


@pytest.mark.parametrize("name", ["ReLU", "Dropout"])
def test_gradients_in_the_test_phase(name):
    assert gradcheck(REGISTRY[name](), (3, 4), phase="TEST") < 1e-6


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_layer_in_a_net_learns_nothing_wrong(name, device):
    """In a net, with buffers, fan-out and a loss, the gradient of the input is the numeric one."""
    keys, bottoms = ROWS[name][0]
    net = Net(parse(net_of(name, keys, bottoms)), device=device, dtype="float64")
    random = np.random.default_rng(3)
    arrays = arrays_for(bottoms, random)
    labels = net.layers["it"].traits.label_bottoms
    moved = [f"b{i}" for i in range(len(bottoms)) if i not in labels]

    def loss(**changed):
        net.context.passes = 0
        net.forward(**{**arrays, **changed})
        return net.loss

    loss()
    net.backward()
    diffs = {blob: net.device.to_host(net.blobs[blob].diff).copy() for blob in moved}
    for blob in moved:
        array = arrays[blob]
        u, h = random.normal(size=array.shape), 1e-6
        slope = (loss(**{blob: array + h * u}) - loss(**{blob: array - h * u})) / (2 * h)
        assert slope == pytest.approx(float((diffs[blob] * u).sum()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_wants_no_gradient_leaves_those_of_the_others(name, device):
    """Without one parameter or bottom the gradients of the rest are as they were, and its own is not taken."""
    keys, bottoms = ROWS[name][0]
    random, spec = np.random.default_rng(5), parse(net_of(name, keys, bottoms))
    given = arrays_for(bottoms, random)
    it = Net(spec, device="cpu").layers["it"]
    wanted = [*(param.learns for param in it.params), *it.needs_gradient]
    params, places = len(it.params), [i for i, wants in enumerate(wanted) if wants]

    def gradients(without=None):
        wants = [i != without and flag for i, flag in enumerate(wanted)]
        learns = tuple(ParamSpec(lr_mult=float(flag)) for flag in wants[:params])
        one = replace(spec.layers[1], param=learns, propagate_down=tuple(wants[params:]))
        layers = spec.layers[0], one, *spec.layers[2:]
        net = Net(
            replace(spec, layers=layers, force_backward=False), device=device, dtype="float64"
        )
        net.forward(**given)
        net.clear_param_diffs()
        net.backward()
        blobs = [*net.params.get("it", ()), *(bottom.blob for bottom in net.steps[1].bottoms)]
        return [device.to_host(blob.diff).copy() for blob in blobs]

    whole = gradients()
    for without in places:
        rest = gradients(without)
        for i in places:
            if i != without:
                np.testing.assert_allclose(rest[i], whole[i], rtol=1e-12, atol=1e-12)
        assert name == "Python" or not rest[without].any()  # one's own may take what nobody wants


@pytest.mark.parametrize("name", sorted(ROWS))
def test_work_in_place_changes_no_gradient(name, device):
    """The layer's own, or that of the next one: what its backward reads is there nevertheless."""
    for keys, bottoms in ROWS[name]:
        if len(keys.get("top", ["it"])) != 1 or not bottoms:
            continue
        passes = []
        for top, last in (("it", "last"), ("c", "last"), ("it", "it")):
            text = net_of(name, keys | {"top": [top]}, bottoms)
            data, it, twice = text.rsplit("  - {name: ", 2)
            it = it.replace("bottom: [b0", "bottom: [c")
            twice = twice.replace(f"[{top}, {top}]", f"[{last}, {last}]")
            text = "  - {name: ".join((data + COPY, it + TRIPLE.format(top, last), twice))
            net, random = Net(parse(text), device=device, dtype="float64"), np.random.default_rng(7)
            for param in net.learnable:
                param.load(random.uniform(0.5, 2, param.shape))
            net.forward(**arrays_for(bottoms, random))
            loss = net.loss
            net.clear_param_diffs()
            net.backward()
            blobs = [*net.learnable, *(value.blob for value in net.steps[2].bottoms)]
            passes.append([loss, *(device.to_host(blob.diff) for blob in blobs)])
        for apart, *over in zip(*passes, strict=True):
            np.testing.assert_allclose(over, [apart, apart], rtol=1e-12, atol=1e-12)


class Wrong(Layer):
    """Multiplies by 3; says 2."""

    def setup(self, x):
        return x

    def forward(self, x):
        return 3 * x

    def backward(self, dy):
        return 2 * dy


class Stretched(Layer):
    """y = x factor + shift, channel by channel; as a user would write it, with arrays of its own."""

    def setup(self, x):
        self.factor = self.param((x[1],), Filler(type="constant", value=1.0))
        self.shift = self.param((x[1],), Filler(type="constant"))
        self.axes = tuple(i for i in range(len(x)) if i != 1)
        self.wide = (1, -1) + (1,) * (len(x) - 2)
        return x

    def forward(self, x):
        self.x = x
        return x * self.factor.data.reshape(self.wide) + self.shift.data.reshape(self.wide)

    def backward(self, dy):
        self.factor.diff += (dy * self.x).sum(axis=self.axes)
        self.shift.diff += dy.sum(axis=self.axes)
        return dy * self.factor.data.reshape(self.wide)


class WrongBias(Stretched):
    """Forgets to accumulate: its gradient lacks the bias."""

    def backward(self, dy):
        self.factor.diff += (dy * self.x).sum(axis=self.axes)
        return dy * self.factor.data.reshape(self.wide)


class Overwriting(Stretched):
    """Writes its parameters' gradients instead of adding them."""

    def backward(self, dy):
        self.factor.diff[...] = (dy * self.x).sum(axis=self.axes)
        return dy * self.factor.data.reshape(self.wide)


class Faint(Wrong):
    """Right up to a factor, and very small."""

    def forward(self, x):
        return 1e-4 * x

    def backward(self, dy):
        return 5e-4 * dy


class Without(Wrong):
    """Returns nothing for its bottom."""

    def backward(self, dy):
        return None


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (Wrong, "the gradient of bottom 0 is wrong"),
        (WrongBias, "the gradient of parameter 1 is wrong"),
        (Overwriting, "the gradient of parameter 0 is wrong"),
        (Faint, "the gradient of bottom 0 is wrong: relative error .* along a random direction"),
        (Without, "backward returns no gradient for bottom 0"),
    ],
)
def test_the_checker_fails_on_a_wrong_gradient(layer, told):
    with pytest.raises(GradientError, match=f"layer {layer.__name__}: {told}"):
        gradcheck(layer(), (2, 3))


def test_the_checker_passes_custom_layers_on_each_device(device):
    assert gradcheck(Stretched(), (3, 4, 2), device=device) < 1e-6
