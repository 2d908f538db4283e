"""Nets whose BatchNorms, Scales, Biases and Powers are folded compute the same, in fewer layers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import Net, parse
from minicaffe.tools.folding import folded

PRODUCT = "{name: product, type: Convolution, num_output: 6, kernel_size: 3}"
PRODUCTS = {
    "Convolution": "num_output: 6, kernel_size: 3, pad: 1, group: 2",
    "Deconvolution": "num_output: 6, kernel_size: 2, stride: 2, group: 2",
    "InnerProduct": "num_output: 6",
}
BEHIND = {
    "BatchNorm": "",
    "Scale": ", bias_term: true",
    "Bias": "",
    "Power": ", scale: -0.5, shift: 2",
    "Dropout": ", dropout_ratio: 0.4",
    "ReLU": "",
}


def built(layers, dtype="float64", bottom=(2, 4, 5, 6)):
    lines = [f"{{name: x, type: Input, shape: {{dim: {list(bottom)}}}}}", *layers]
    text = "\n".join(f"  - {line}" for line in lines)
    net = Net(parse(f"layers:\n{text}"), "TEST", device="cpu", dtype=dtype)
    random = np.random.default_rng(3)
    arrays = net.weights()
    sums = {f"{s.spec.name}__{i}" for s in net.steps for i in (1, 2) if s.spec.type == "BatchNorm"}
    for name, array in arrays.items():
        signs = 1 if name in sums else random.choice([-1, 1], array.shape)
        arrays[name] = random.uniform(0.5, 1.5, array.shape) * signs
    net.load(arrays)
    return net


def compare(net, result, limit):
    other = result.net(device="cpu", dtype=net.blobs["x"].data.dtype)
    assert set(other.outputs) == set(net.outputs)
    x = np.random.default_rng(4).normal(size=net.blobs["x"].shape)
    theirs, ours = net.forward(x=x), other.forward(x=x)
    for name, wanted in theirs.items():
        np.testing.assert_allclose(ours[name], wanted, rtol=0, atol=limit * abs(wanted).max())
    return other


@st.composite
def chains(draw):
    """A product and layers behind it, in place or not, some of whose tops something else reads too."""
    product = draw(st.sampled_from(sorted(PRODUCTS)))
    bias = f"bias_term: {str(draw(st.booleans())).lower()}"
    layers = [f"{{name: product, type: {product}, {PRODUCTS[product]}, {bias}}}"]
    top, read = "product", []
    for i, kind in enumerate(draw(st.lists(st.sampled_from(sorted(BEHIND)), max_size=5))):
        # Read before it changes in place: another value of the same name
        if draw(st.integers(0, 4)) == 0:
            layers.append(f"{{name: other{i}, type: AbsVal, bottom: {top}, top: other{i}}}")
            read.append(i)
        own = top if draw(st.booleans()) else f"{kind}{i}"
        layers.append(f"{{name: {kind}{i}, type: {kind}, bottom: {top}, top: {own}{BEHIND[kind]}}}")
        top = own
    return product, layers, read


@settings(max_examples=60)
@given(chains())
@pytest.mark.parametrize(("dtype", "limit"), [("float64", 1e-12), ("float32", 1e-5)])
def test_chains_compute_the_same(dtype, limit, case):
    """In float64 and float32; what is read elsewhere is still there."""
    _, layers, read = case
    net = built(layers, dtype)
    result = folded(net)
    compare(net, result, limit)
    until = [kind for kind in [layer.type for layer in result.spec.layers] if kind in BEHIND]
    if not read and "ReLU" not in until:
        assert not until


@pytest.mark.parametrize("kind", sorted(set(BEHIND) - {"ReLU"}))
@pytest.mark.parametrize("product", sorted(PRODUCTS))
def test_each_pair(product, kind):
    first = f"{{name: product, type: {product}, {PRODUCTS[product]}}}"
    net = built([first, f"{{name: behind, type: {kind}{BEHIND[kind]}}}"])
    other = compare(net, folded(net), 1e-12)
    assert len(other.steps) == 2 and list(other.outputs) == ["behind"]


KEPT = {
    "a sum of its own": "{name: n, type: BatchNorm, use_global_stats: false}",
    "other axes": "{name: s, type: Scale, axis: 2}",
    "two axes": "{name: s, type: Scale, num_axes: 2}",
    "a blob": "{name: s, type: Scale, bottom: [product, x], axis: 0}",
    "a square": "{name: p, type: Power, power: 2}",
}


@pytest.mark.parametrize("why", KEPT)
def test_what_stays(why):
    kernel = "kernel_size: 1" if why == "a blob" else "kernel_size: 3"
    net = built([f"{{name: product, type: Convolution, num_output: 4, {kernel}}}", KEPT[why]])
    result = folded(net)
    assert not result.notes
    compare(net, result, 1e-12)


def test_weights_of_two_layers_stay():
    """One of them would compute something else."""
    shared = "type: Convolution, bottom: x, num_output: 4, kernel_size: 1, param: {name: w}"
    layers = [f"{{name: {name}, {shared}}}" for name in "ab"]
    assert not folded(built([*layers, "{name: s, type: Scale, bottom: a}"])).notes


def test_axes_may_be_counted_from_the_end():
    net = built([PRODUCT, "{name: scale, type: Scale, axis: -3, bias_term: true}"])
    assert len(compare(net, folded(net), 1e-12).steps) == 2


def test_numbers_that_are_not_finite_stay():
    """They would make weights that cannot be loaded."""
    net = built([PRODUCT, "{name: norm, type: BatchNorm, eps: 0}"])
    net.load(net.weights() | {"norm__1": np.zeros(6)})
    result = folded(net)
    assert not result.notes
    result.net(device="cpu", dtype="float64")


def test_a_batch_norm_that_has_seen_nothing():
    """Its count is 0: a mean and a variance of 0, whatever their sums are."""
    net = built([PRODUCT, "{name: norm, type: BatchNorm, eps: 0.25}"])
    net.load(net.weights() | {"norm__2": np.zeros(1)})
    assert len(compare(net, folded(net), 1e-12).steps) == 2
