"""Forward passes of the phase TEST are replayed once they repeat, and compute what the layers one by one do."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers.rows import ROWS, net_of
from kit import numbers_of

from minicaffe import Net, parse
from minicaffe.core.net import run
from minicaffe.errors import DataError

pytestmark = pytest.mark.usefixtures("form")
EVERY = [(name, keys, bottoms) for name, rows in ROWS.items() for keys, bottoms in rows]
TEXT = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 3, 8, 8]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3}
  - {name: norm, type: BatchNorm, top: conv}
  - {name: scale, type: Scale, top: conv, bias_term: true}
  - {name: relu, type: ReLU, top: conv, negative_slope: 0.5}
  - {name: ip, type: InnerProduct, num_output: 5}
"""


def net(**settings):
    return Net(parse(TEXT), "TEST", device="cpu", **settings)


def found(one):
    return {name: blob.data.copy() for name, blob in one.blobs.items()}


def one_by_one(one):
    """A pass that no replay has a part in."""
    for step in one.steps:
        run.forward(step, one.graph, one.memory)
    one.context.passes += 1


def same(one, other):
    mine, theirs = found(one), found(other)
    return all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


@pytest.mark.parametrize(("name", "keys", "bottoms"), EVERY)
def test_a_layer_replayed_on_other_numbers(name, keys, bottoms):
    both = [Net(parse(net_of(name, keys, bottoms)), "TEST", device="cpu") for _ in range(2)]
    random = np.random.default_rng(3)
    for turn in range(6):
        for i, given in enumerate(numbers_of(bottoms, turn, random)):
            for one in both:
                one.blobs[f"b{i}"].data[...] = given
        both[0].forward()
        one_by_one(both[1])
        assert same(*both), turn
    if any(step.layer.traits.sizes_vary for step in both[0].steps):
        assert not both[0].passes.nodes


def test_passes_are_replayed_once_they_repeat_and_read_what_is_there():
    """With inputs given, parameters changed in their place, and passes in pieces between."""
    one, other, random = net(), net(), np.random.default_rng(0)
    for turn in range(8):
        x = random.normal(size=(2, 3, 8, 8))
        one.params["conv"][0].data[...] = other.params["conv"][0].data[...] = random.normal()
        one.forward(x=x)
        other.blobs["x"].data[...] = x
        one_by_one(other)
        assert same(one, other)
        if turn < 2 or turn >= 3:  # the first may have taken memory that the others work in
            assert bool(one.passes.nodes) is (turn >= 3)
        if turn == 5:
            one.forward(end="norm")
            assert np.ptp(one.blobs["conv"].data) > 0


def test_what_a_user_changes_begins_anew():
    one, other, x = net(), net(), np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    for each in (one, other):
        each.blobs["x"].data[...] = x

    def change_slope(each):
        each.layers["relu"].negative_slope = 0.25

    def change_array(each):
        each.params["ip"][0].data = np.full((5, 144), 0.5, np.float32)

    def change_input(each):
        each.blobs["x"].data = 2 * each.blobs["x"].data

    def change_shape(each):
        each.reshape(x=(1, 3, 8, 8))
        each.blobs["x"].data[...] = x[:1]

    for change in (change_array, change_input, change_shape, change_slope):
        for _ in range(4):
            one.forward()
        assert one.passes.nodes
        for each in (one, other):
            change(each)
        one.forward()
        one_by_one(other)
        assert same(one, other)


def test_who_watches_or_debugs_sees_every_layer():
    one, seen = net(), []
    for _ in range(4):
        one.forward()
    one.steps[2].watchers["after_forward"] = [lambda: seen.append(one.blobs["conv"].data.mean())]
    one.forward()
    assert len(seen) == 1
    one.steps[2].watchers.clear()
    one.debug = seen.append
    one.forward()
    assert len(seen) > 5


def test_a_pass_in_training_is_taken_as_it_is():
    one = Net(parse(TEXT), "TRAIN", device="cpu")
    for _ in range(5):
        one.forward()
    assert not one.passes.nodes


def test_a_way_back_after_a_replay():
    """The layers hold what the gradient needs, as after passes one by one."""
    one, other, random = net(), net(), np.random.default_rng(2)
    for _ in range(5):
        x = random.normal(size=(2, 3, 8, 8))
        one.forward(x=x)
        other.blobs["x"].data[...] = x
        one_by_one(other)
    dy = random.normal(size=(2, 5))
    for each in (one, other):
        each.clear_param_diffs()
        each.backward(ip=dy)
    for name, param in one.named_params.items():
        assert param.diff.tobytes() == other.named_params[name].diff.tobytes(), name


def test_a_bad_label_is_refused_by_a_replay_too(form):
    model = (
        "layers:\n"
        "  - {name: x, type: Input, shape: {dim: [24, 5]}}\n"
        "  - {name: label, type: Input, shape: {dim: [24]}}\n"
        "  - {name: loss, type: SoftmaxWithLoss, bottom: [x, label]}\n"
    )
    net, rng = Net(parse(model), "TEST", device="cpu", keep=()), np.random.default_rng(0)
    refused = []
    for i in range(12):
        labels = rng.integers(0, 5, 24).astype(np.float32)
        labels[3] = 9 if i == 7 else labels[3]
        given = {"x": rng.normal(size=(24, 5)).astype(np.float32), "label": labels}
        try:
            assert np.isfinite(net.forward(**given)["loss"])
        except DataError as error:
            assert str(error).endswith("label 9 is not one of the 5 classes 0..4")
            refused.append(i)
    assert net.passes.nodes  # they were replayed
    assert refused == [7]
