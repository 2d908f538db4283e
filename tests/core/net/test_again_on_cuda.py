"""Passes of the phase TEST on CUDA are replayed as one graph: the bits of passes layer by layer."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers.rows import net_of
from core.net.test_again import EVERY, TEXT
from core.solver.twins import Quiet
from kit import numbers_of

from minicaffe import Net, Solver, parse
from minicaffe.backends.replay.replay import Graph
from minicaffe.core.layers import REGISTRY

DIGITS = """
layers:
  - {name: data, type: Data, top: [data, label], source: digits, batch_size: 4, transform: {crop_size: 12}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 10}
  - {name: right, type: Accuracy, bottom: [ip, label]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {test_iter: 3, test_interval: 5, max_iter: 5, base_lr: 0.1}
"""


@pytest.mark.parametrize(("name", "keys", "bottoms"), EVERY[::3])
def test_a_layer_in_a_graph_on_other_numbers(cuda, name, keys, bottoms):
    """On CUDA the whole pass is one graph, but for what reads files or is Python's."""
    both = [
        Net(parse(net_of(name, keys, bottoms)), "TEST", device=cuda, engine="implicit")
        for _ in range(2)
    ]
    both[1].passes.guard.never = "asked"
    random = np.random.default_rng(3)
    for turn in range(5):
        for i, given in enumerate(numbers_of(bottoms, turn, random)):
            for one in both:
                blob = one.blobs[f"b{i}"].data
                one.device.copy_from_host(blob, given)
        for one in both:
            one.forward()
        mine, theirs = (
            {key: one.device.to_host(blob.data).tobytes() for key, blob in one.blobs.items()}
            for one in both
        )
        assert mine == theirs, turn
    assert not both[1].passes.nodes
    graphs = [node for node in both[0].passes.nodes if isinstance(node, Graph)]
    assert all(graph.why == "" for graph in graphs)
    varies = any(step.layer.traits.sizes_vary for step in both[0].steps)
    assert graphs or varies or REGISTRY[name].__module__.startswith("minicaffe.interop.caffe.forks")


@pytest.mark.parametrize("engine", ["implicit", "batched"])
def test_what_a_user_changes_on_cuda_is_in_the_next_graph(cuda, engine):
    """Inputs, weights in their place and new ones, keys, shapes, passes in pieces; and nothing is allocated."""
    one, other = (Net(parse(TEXT), "TEST", device=cuda, engine=engine, keep=None) for _ in range(2))
    other.passes.guard.never = "asked"
    random = np.random.default_rng(1)

    def weights(each, value):
        each.params["conv"][0].data[...] = value

    def array(each, value):
        each.params["ip"][0].data = each.params["ip"][0].data * np.float32(value)

    def slope(each, value):
        each.layers["relu"].negative_slope = abs(value)

    def shape(each, value):
        each.reshape(x=(1 + int(10 * abs(value)) % 3, 3, 8, 8))

    def piece(each, value):
        each.forward(end="norm")

    for change in (weights, array, shape, piece, slope, weights, shape):
        value = random.normal()
        for each in (one, other):
            change(each, value)
        for _ in range(4):
            x = random.normal(size=one.blobs["x"].shape)
            scores = [
                each.device.to_host(each.forward(x=x)["ip"]).tobytes() for each in (one, other)
            ]
            assert scores[0] == scores[1]
        assert len([node for node in one.passes.nodes if isinstance(node, Graph)]) == 1


def test_tests_of_a_solver_are_graphs_unless_they_are_switched_off(cuda, few_digits):
    model = parse(DIGITS)
    scores = []
    for graph in (True, False):
        solver = Solver(model, device=cuda, report=Quiet(), graph=graph, engine="implicit")
        scores.append([solver.test() for _ in range(4)])
        assert bool(solver.test_nets[0].passes.nodes) is graph
    assert scores[0] == scores[1]
