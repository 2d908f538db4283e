"""Parameter and Embed: what is given out and learns, indices that are no rows."""

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


def test_a_parameter_that_learns_no_more_keeps_its_gradient(device):
    text = "layers: [{name: p, type: Parameter, shape: {dim: 3}, loss_weight: 2}]"
    net = Net(parse(text), device=device)
    (param,) = net.params["p"]
    for rate in (1.0, 0.0):
        param.lr_mult = rate
        net.forward()
        net.backward()
        np.testing.assert_array_equal(device.to_host(param.diff), 2)


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
