"""LSTM and RNN: what they carry from pass to pass, where it begins anew, what they learn."""

import copy

import caffe_cases as cases
import kit
import numpy as np
import pytest
from test_caffe import run_layer

from minicaffe import Net, Solver, SpecError, parse
from minicaffe.core.layers.recurrent import LSTM
from minicaffe.core.layers.registry import REGISTRY


def text(kind, t, n, k, d):
    return f"""
force_backward: true
layers:
  - {{name: in, type: Input, top: [x, cont], shape: [{{dim: {[t, n, *k]}}}, {{dim: [{t}, {n}]}}]}}
  - {{name: rec, type: {kind}, num_output: {d}, bottom: [x, cont], top: y, bias_filler: {{type: uniform, min: -1}}}}
"""


def inputs(net, random):
    given = {v.name: random.normal(size=v.shape) for v in net.steps[0].tops}
    given["cont"] = np.ones(given["cont"].shape)
    return {name: array.astype(net.context.dtype) for name, array in given.items()}


def test_caffes_three_passes(device):
    """States go from pass to pass, gradients do not."""
    case = cases.load("LSTM_carry_state_3_forwards")
    net, step = run_layer({key.removeprefix("s0_"): value for key, value in case.items()}, device)
    for s in range(3):
        if s:
            net.forward(b0=case[f"s{s}_bottom_0"], b1=case[f"s{s}_bottom_1"])
        cases.assert_close(device.to_host(step.tops[0].blob.data), case[f"s{s}_top_0"], f"top {s}")
        net.clear_param_diffs()
        net.backward(**{step.tops[0].name: case[f"s{s}_top_diff_0"]})
        dx = device.to_host(step.bottoms[0].blob.diff)
        cases.assert_close(dx, case[f"s{s}_bottom_diff_0"], f"gradient of x {s}")
        for j, param in enumerate(step.layer.params):
            cases.assert_close(
                device.to_host(param.diff), case[f"s{s}_param_diff_{j}"], f"parameter {j}, pass {s}"
            )


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_states_begin_anew_after_a_reset_a_reshape_and_in_a_copy(kind, device):
    random = np.random.default_rng(4)
    net = Net(parse(text(kind, 2, 3, [2], 4)), device=device)
    given = inputs(net, random)

    def run(net, **given):
        return net.device.to_host(net.forward(**given)["y"]).copy()

    fresh, carried = run(net, **given), run(net, **given)
    assert np.abs(fresh - carried).max() > 1e-3
    net.layers["rec"].reset()
    np.testing.assert_array_equal(run(net, **given), fresh)
    np.testing.assert_array_equal(run(copy.deepcopy(net), **given), fresh)
    np.testing.assert_array_equal(run(net, **given), carried)  # the copy has states of its own
    net.reshape(x=(3, 1, 2), cont=(3, 1))
    shorter = {name: array[:, :1].repeat(2, axis=0)[:3] for name, array in given.items()}
    again = run(net, **shorter)
    net.reshape(x=(2, 3, 2), cont=(2, 3))
    np.testing.assert_array_equal(run(net, **given), fresh)
    other = Net(parse(text(kind, 3, 1, [2], 4)), device=device)
    other.share_with(net)
    np.testing.assert_array_equal(run(other, **shorter), again)


def test_a_layer_in_place_above_leaves_the_states_alone(device):
    plain = text("LSTM", 1, 2, [3], 4)
    above = plain + "  - {name: relu, type: ReLU, bottom: y, top: y}\n"
    nets = [Net(parse(model), device=device) for model in (plain, above)]
    nets[1].share_with(nets[0])
    given = inputs(nets[0], np.random.default_rng(5))
    for _ in range(3):
        tops = [device.to_host(net.forward(**given)["y"]).copy() for net in nets]
        np.testing.assert_array_equal(np.maximum(tops[0], 0), tops[1])


def test_an_lstm_learns_to_remember():
    """Whether a stream's first number was positive, told at its last step."""
    text = """
layers:
  - {name: in, type: Input, top: [x, cont, label], shape: [{dim: [8, 32, 1]}, {dim: [8, 32]}, {dim: [8, 32]}]}
  - {name: rec, type: LSTM, bottom: [x, cont], num_output: 8}
  - {name: ip, type: InnerProduct, num_output: 2, axis: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], axis: 2}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], axis: 2}
solver: {base_lr: 1.0, momentum: 0.9, clip_gradients: 1, max_iter: 300, snapshot_after_train: false}
"""
    solver = Solver(parse(text), device="cpu")
    random, right = np.random.default_rng(0), []
    for _ in range(150):
        x, cont = random.normal(size=(8, 32, 1)), np.ones((8, 32))
        cont[0] = 0
        label = np.broadcast_to(x[0, :, 0] > 0, (8, 32)).astype(np.float32)
        for name, array in {"x": x, "cont": cont, "label": label}.items():
            solver.net.blobs[name].data[...] = array
        solver.step(1)
        right.append(float(solver.net.blobs["accuracy"].data))
    assert np.mean(right[-25:]) > 0.95


def test_a_layer_that_limits_gradients_does_so_at_each_step(monkeypatch):
    """However many steps and streams there are: loops that pass through all steps ask no layer."""
    steps = []

    class Counting(LSTM):
        """An LSTM that counts its steps back."""

        def limit(self, dz):
            steps.append(dz.shape)

    monkeypatch.setitem(REGISTRY, "LSTM", Counting)
    net = kit.net_of("type: LSTM, num_output: 5", (20, 4, 6), (20, 4), dtype="float32")
    net.forward(b0=np.ones((20, 4, 6)), b1=np.ones((20, 4)))
    net.backward(it=np.ones((20, 4, 5)))
    assert steps == [(4, 20)] * 20


def test_where_a_sequence_begins_has_no_gradient_even_if_it_is_learnt():
    text = """
layers:
  - {name: in, type: Input, top: [c, x, y], shape: [{dim: [1, 2, 3]}, {dim: [1, 2, 12]}, {dim: [2, 5]}]}
  - {name: ip, type: InnerProduct, bottom: y, num_output: 1}
  - {name: go, type: Reshape, bottom: ip, top: go, shape: {dim: [1, 2]}}
  - {name: unit, type: LSTMUnit, bottom: [c, x, go], top: [a, b]}
  - {name: loss, type: Reduction, bottom: b, loss_weight: 1}
"""
    net = Net(parse("force_backward: true\n" + text), device="cpu")
    assert net.layers["unit"].needs_gradient == [True, True, False]
    asked = text.replace("[c, x, go],", "[c, x, go], propagate_down: [true, true, true],")
    with pytest.raises(SpecError, match="no gradient can flow into bottom 'go'; expected false"):
        Net(parse(asked), device="cpu")


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_multiply_adds_are_those_of_its_products(kind):
    """Of inputs and hidden states, once a step; an RNN's outputs are a product, too."""
    t, n, k, d = 5, 3, 7, 4
    net = Net(parse(text(kind, t, n, [k], d)), device="cpu", shapes_only=True)
    gates = 4 if kind == "LSTM" else 1
    wanted = t * n * (gates * d * (k + d) + (d * d if kind == "RNN" else 0))
    assert net.layers["rec"].multiply_adds == wanted
