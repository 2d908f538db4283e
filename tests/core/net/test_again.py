"""Passes and iterations are replayed once they repeat, and compute what the layers one by one do: of every layer."""

import numpy as np
import pytest
from core.layers.rows import ROWS, net_of
from core.solver.twins import Quiet, Twins, calls, graphs, nodes, replays
from kit import numbers_of

from minicaffe import Net, Solver, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import DataError

EVERY = [(name, keys, bottoms) for name, rows in ROWS.items() for keys, bottoms in rows]
TRAINED = [row for row in EVERY if row[1].get("top") != []]
SOLVER = "\nsolver: {base_lr: 0.001, max_iter: 99}"
LABELS = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 5]}, {dim: 4}]}
  - {name: acc, type: Accuracy, bottom: [x, label]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [x, label]}
"""


def on_other_numbers(make, bottoms, turns=6):
    """The twins of a layer, after passes or iterations on other numbers each time."""
    both, random = Twins(make), np.random.default_rng(3)
    for turn in range(turns):
        for i, given in enumerate(numbers_of(bottoms, turn, random)):
            for one in both.both:
                net = getattr(one, "net", one)
                net.device.copy_from_host(net.blobs[f"b{i}"].data, given)
        both.step()
    steps = getattr(both.plain, "net", both.plain).steps
    varies = any(step.layer.traits.sizes_vary for step in steps)
    assert not replays(both.plain) and not (varies and both.replays)
    return both, varies


@pytest.mark.parametrize(("name", "keys", "bottoms"), EVERY)
def test_a_layer_replayed_on_other_numbers(form, name, keys, bottoms):
    model = parse(net_of(name, keys, bottoms))
    both, varies = on_other_numbers(lambda: Net(model, "TEST", device="cpu"), bottoms)
    recordable = both.plain.layers["it"].traits.recordable and name != "Silence"
    assert varies or both.replays or not recordable


@pytest.mark.parametrize(("name", "keys", "bottoms"), TRAINED)
def test_a_layer_trained_in_a_replay(form, name, keys, bottoms):
    """What is recordable lies in rows alone."""
    model = parse(net_of(name, keys, bottoms) + SOLVER)
    make = lambda: Solver(model, device="cpu", report=Quiet(), keep=None)  # noqa: E731
    both, varies = on_other_numbers(make, bottoms)
    of_numpy = form == "numpy" or not both.plain.net.layers["it"].traits.recordable
    assert varies or of_numpy or both.replays, "two recordings in a row differ"
    told = {why for what, why in calls(both.replaying).items() if what.startswith("it ")}
    assert of_numpy or told <= {"mask by NumPy", "pixels are drawn"}


@pytest.mark.parametrize(("name", "keys", "bottoms"), EVERY[::3])
def test_a_layer_in_a_graph_on_other_numbers(cuda, name, keys, bottoms):
    """On CUDA the whole pass is one graph, but for what reads files or is Python's."""
    model = parse(net_of(name, keys, bottoms))
    make = lambda: Net(model, "TEST", device=cuda, engine="implicit")  # noqa: E731
    both, varies = on_other_numbers(make, bottoms, 5)
    assert all(graph.why == "" for graph in graphs(both.replaying))
    of_fork = REGISTRY[name].__module__.startswith("minicaffe.interop.caffe.forks")
    assert graphs(both.replaying) or varies or of_fork


def test_who_watches_or_debugs_sees_every_layer(form):
    one, seen = Net(parse(LABELS), "TEST", device="cpu"), []
    for _ in range(4):
        one.forward()
    one.steps[2].watchers["after_forward"] = [lambda: seen.append(one.blobs["loss"].data.mean())]
    one.forward()
    assert len(seen) == 1
    one.steps[2].watchers.clear()
    one.debug = seen.append
    one.forward()
    assert len(seen) > 3


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_a_pass_that_was_refused_is_none_of_those_that_are_compared(form, phase):
    """And one in training is taken as it is."""
    net = Net(parse(LABELS), phase, device="cpu")
    for number in range(9):
        label = [0, 1, 2, 9 if number in (0, 2, 4) else 3]
        if label[3] == 9:
            with pytest.raises(DataError):
                net.forward(x=np.ones((4, 5)), label=label)
        else:
            net.forward(x=np.ones((4, 5)), label=label)
        assert bool(nodes(net)) is (number >= 5 and phase == "TEST")  # after 1, 3 and 5


DIGITS = """
layers:
  - {name: data, type: Data, top: [data, label], source: digits, batch_size: 4, transform: {crop_size: 12}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 10}
  - {name: right, type: Accuracy, bottom: [ip, label]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {test_iter: 3, test_interval: 5, max_iter: 5, base_lr: 0.1}
"""


def test_tests_of_a_solver_are_graphs_unless_they_are_switched_off(cuda, few_digits):
    model, scores = parse(DIGITS), []
    for graph in (True, False):
        solver = Solver(model, device=cuda, report=Quiet(), graph=graph, engine="implicit")
        scores.append([solver.test() for _ in range(4)])
        assert replays(solver.test_nets[0]) is graph
    assert scores[0] == scores[1]
