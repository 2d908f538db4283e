"""Scale, Bias, PReLU, Axpy, Embed and Parameter: which gradients they leave alone."""

from __future__ import annotations

import kit
import numpy as np
import pytest

from minicaffe import DataError, Net, Solver, gradcheck, parse
from minicaffe.core.layers import REGISTRY


def test_a_parameter_is_given_out_and_learns(device):
    spec = parse("layers: [{name: p, type: Parameter, shape: {dim: [2, 3]}}]").layers[0]
    assert gradcheck(REGISTRY["Parameter"](**spec.options), device=device) < 1e-6
    text = """
layers:
  - {name: p, type: Parameter, shape: {dim: [2, 3]}}
  - {name: loss, type: Power, power: 2, shift: -1, loss_weight: 0.5}
solver: {base_lr: 0.5, max_iter: 40, snapshot_after_train: false}
"""
    solver = Solver(parse(text), device=device)
    assert solver.net.loss == 0 or solver.net.params["p"][0].shape == (2, 3)
    solver.step(40)  # down (p - 1)^2 / 2
    np.testing.assert_allclose(device.to_host(solver.net.params["p"][0].data), 1, atol=1e-6)


FROZEN = """
force_backward: FORCE
layers:
  - {name: x, type: Input, shape: {dim: [3, 2, 4]}}
  - {name: it, type: TYPE, bottom: x, param: [{lr_mult: 0}LAST]}
  - {name: y, type: Power, scale: 2, loss_weight: 1}
"""


@pytest.mark.parametrize("kind", ["Scale, bias_term: true", "Bias", "PReLU"])
def test_what_does_not_learn_gets_no_gradient(device, kind):
    for force in ("true", "false"):
        text = FROZEN.replace("FORCE", force).replace("TYPE", kind)
        last = ", {lr_mult: 1}" if "Scale" in kind else ""
        net = Net(parse(text.replace("LAST", last)), device=device)
        net.forward(x=np.linspace(-1, 1, 24).reshape(3, 2, 4))
        net.clear_param_diffs()
        net.backward()
        first, *rest = (device.to_host(param.diff) for param in net.params["it"])
        assert not first.any()
        assert all(diff.all() for diff in rest)
        if force == "true":
            assert device.to_host(net.blobs["x"].diff).any()


def test_a_parameter_that_learns_no_more_keeps_its_gradient(device):
    text = "layers: [{name: p, type: Parameter, shape: {dim: 3}, loss_weight: 2}]"
    net = Net(parse(text), device=device)
    (param,) = net.params["p"]
    for rate in (1.0, 0.0):
        param.lr_mult = rate
        net.forward()
        net.backward()
        np.testing.assert_array_equal(device.to_host(param.diff), 2)


def test_in_place_over_what_a_gradient_needs(device):
    """By name Scale and PReLU may be in place; they then get memory of their own."""
    apart, over = (
        Net(parse(f"""
force_backward: true
layers:
  - {{name: x, type: Input, shape: {{dim: [3, 2, 4]}}}}
  - {{name: ip, type: InnerProduct, num_output: 5}}
  - {{name: scale, type: Scale, top: {a}, filler: {{type: constant, value: -2}}}}
  - {{name: bias, type: Bias, top: {b}, filler: {{type: constant, value: 0.3}}}}
  - {{name: prelu, type: PReLU, top: {c}}}
"""), device=device, dtype="float64")
        for a, b, c in ("abc", ("ip", "ip", "ip"))
    )  # fmt: skip
    x, dy = np.random.default_rng(1).normal(size=(2, 3, 2, 4))[:, :, :, :4], None
    dy = np.random.default_rng(2).normal(size=(3, 5))
    for net in (apart, over):
        net.forward(x=x[0])
        net.clear_param_diffs()
        net.backward(**{net.steps[-1].tops[0].name: dy})
    for mine, other in zip(apart.learnable, over.learnable, strict=True):
        np.testing.assert_array_equal(device.to_host(mine.diff), device.to_host(other.diff))
    np.testing.assert_array_equal(*(device.to_host(n.blobs["x"].diff) for n in (apart, over)))


def test_an_index_that_is_no_row_is_named(device):
    net = kit.net_of("type: Embed, input_dim: 3, num_output: 2", (2, 2), device=device)
    told = r"index 3 is not one of the 3 rows 0\.\.2"
    if not device.is_cuda:
        with pytest.raises(DataError, match=rf"layer 'it' \(Embed\): {told}"):
            net.forward(b0=[[0, 1], [3, 2]])
        return
    net.forward(b0=[[0, 1], [3, 2]])
    with net.steps[-1], pytest.raises(DataError, match=told):
        net.layers["it"].check()


def test_indices_have_no_gradient_even_if_all_else_has():
    net = kit.net_of("type: Embed, input_dim: 3, num_output: 2", (4,))
    assert net.layers["it"].needs_gradient == [False]
