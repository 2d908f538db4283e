"""Nets are copied and pickled, freed at once, shown as a table, and know the nearest name."""

import copy
import gc
import pickle
import re
import weakref

import numpy as np
import pytest
from kit import model_of, refusal, small_net

from minicaffe import Net, Solver, SpecError, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.core.solver import Report

TEXT = model_of(
    {"x": [2, 1, 8, 8], "label": 2},
    "conv1 Convolution bottom: x, num_output: 3, kernel_size: 3",
    "pool1 Pooling kernel_size: 2, stride: 2",
    "ip InnerProduct num_output: 4, param: {name: w}",
    "relu ReLU top: ip",
    "drop Dropout top: ip",
    "both Eltwise bottom: [ip, ip]",
    "loss SoftmaxWithLoss bottom: [both, label]",
    head="name: small\nsolver: {base_lr: 0.1, max_iter: 3, momentum: 0.9, snapshot_after_train: false}",
)
X = np.random.default_rng(0).normal(size=(5, 1, 8, 8))


def trained() -> Net:
    net = Net(parse(TEXT), device="cpu", dtype="float64", seed=3, deterministic=True)
    net.reshape(x=(5, 1, 8, 8), label=(5,))
    for param in net.learnable:
        param.data[...] += 1
    return net


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_computes_the_same_and_shares_nothing(again):
    net = trained()
    other = again(net)
    assert (other.phase, other.context.dtype, other.context.seed) == ("TRAIN", np.float64, 3)
    assert other.context.numerics.deterministic
    outputs = [n.forward(x=X, label=np.zeros(5))["loss"].item() for n in (net, other)]
    assert outputs[0] == outputs[1]
    other.params["ip"][0].data.fill(0)
    assert net.params["ip"][0].data.any()


def test_a_copy_has_what_was_learnt_and_set_however_bad():
    net = trained()
    net.params["ip"][1].data.fill(np.nan)  # diverged: what one copies to look at
    net.params["conv1"][0].lr_mult, net.params["conv1"][1].decay_mult = 0.0, 3.0
    net.forward(x=X, label=np.zeros(5))
    other = copy.deepcopy(net)
    assert np.isnan(other.params["ip"][1].data).all()
    assert (other.params["conv1"][0].lr_mult, other.params["conv1"][1].decay_mult) == (0, 3)
    assert other.context.passes == net.context.passes == 1


def test_a_net_of_shapes_alone_is_copied_as_one():
    other = copy.deepcopy(Net(parse(TEXT), device="cpu", shapes_only=True))
    assert not other.blobs and other.steps[1].tops[0].shape == (2, 3, 6, 6)


def test_a_spec_of_a_layer_that_is_not_known_here(monkeypatch):
    packed = pickle.dumps(trained())
    monkeypatch.delitem(REGISTRY, "Pooling")
    said = refusal(pickle.loads, packed, error=SpecError)
    assert "layer 'pool1' (Pooling): unknown type; import the file" in said


def test_a_dropped_net_and_solver_are_freed_at_once():
    """Without the cyclic collector: memory of many nets would pile up until it runs."""
    gc.collect()
    gc.disable()
    try:
        net = Net(parse(TEXT), device="cpu")
        net.forward(x=np.ones((2, 1, 8, 8)), label=[0, 1])
        net.backward()
        solver = Solver(parse(TEXT), device="cpu", report=Report())
        solver.step(5)  # of which the last replay what was recorded
        infers = Net(parse(TEXT), "TEST", device="cpu")
        for _ in range(5):
            infers.forward(x=np.ones((2, 1, 8, 8)), label=[0, 1])
        assert infers.passes.nodes
        kept = [net, infers, solver, solver.net, *net.steps, *net.layers.values(), *net.learnable]
        kept += net.blobs.values()
        gone = [weakref.ref(thing) for thing in kept]
        del net, infers, solver, kept
        assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_a_net_shows_itself_as_summary_does():
    text = repr(trained())
    assert text.startswith("small, phase TRAIN, float64\nlayer ")
    assert re.search(r"\nconv1  Convolution +conv1 5x3x6x6 +30 +", text)
    assert "parameters: 142 " in text


def test_a_solver_shows_where_it_is_and_what_is_not_as_always():
    solver = Solver(parse(TEXT), device="cpu", report=Report())
    solver.step(2)
    head, _, *rows = repr(solver).splitlines()
    assert head == "small, SGD at iteration 2 on cpu"
    shown = "base_lr 0.1, max_iter 3, momentum 0.9, snapshot_after_train False"
    assert [" ".join(row.split()) for row in rows] == shown.split(", ")


def test_a_blob_shows_its_shape_and_range_and_takes_no_memory_for_it():
    net = Net(parse(TEXT), device="cpu")
    net.forward(x=np.linspace(-2, 3, 128).reshape(2, 1, 8, 8), label=[0, 1])
    blob = net.blobs["x"]
    assert repr(blob) == "Blob(2, 1, 8, 8) float32 on cpu, data -2 to 3, diff not taken"
    assert blob._diff is None
    none = small_net({"x": [2, 3], "keep": 2}, "some Filter bottom: [x, keep]")
    none.forward(x=np.ones((2, 3)), keep=np.zeros(2))
    assert repr(none.blobs["some"]) == "Blob(0, 3) float32 on cpu, data empty, diff not taken"


def test_an_array_assigned_to_a_blob_is_copied_there(device):
    """And one assigned to itself, as in `blob.diff += 1`, stays as it is."""
    net = Net(parse(TEXT), device=device)
    for blob in (net.blobs["x"], net.params["ip"][0]):
        for name in ("data", "diff"):
            lies = getattr(blob, name)
            setattr(blob, name, device.asarray(np.full(blob.shape, 3, np.float32)))
            setattr(blob, name, getattr(blob, name) + 1)
            lies += 1
            setattr(blob, name, lies)
            assert getattr(blob, name) is lies
            np.testing.assert_array_equal(device.to_host(lies), 5)


def test_an_unknown_name_is_answered_with_the_nearest():
    net = Net(parse(TEXT), device="cpu")
    for mapping, wrong, kind, right in (
        (net.blobs, "con1", "blob", "conv1"),
        (net.first_blobs, "y", "blob", None),
        (net.params, "ip1", "layer with parameters", "ip"),
        (net.layers, "loss1", "layer", "loss"),
    ):
        told = f"there is no {kind} {wrong!r}" + (f"; did you mean {right!r}?" if right else "")
        assert refusal(mapping.__getitem__, wrong, error=KeyError) == told
        assert wrong not in mapping and mapping.get(wrong) is None
