"""What several ranks refuse before they train, and how they end together; each told once, by its rank."""

import dataclasses
import re
import threading
from functools import partial

import numpy as np
import pytest
from kit import Heard, refusal
from tools.parallel.in_threads import on_ranks
from tools.parallel.test_same_run import shared, text, text_with  # noqa: F401

import minicaffe
from minicaffe import DataError, Solver, SpecError, parse, register
from minicaffe.core.communicator import together
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import CheckpointError, ShapeError, TrainingError
from minicaffe.tools.parallel import ranks as alike


@pytest.fixture(autouse=True)
def small_nets_share_the_update(monkeypatch):
    """As large ones do."""
    monkeypatch.setattr("minicaffe.tools.parallel.ranks.WORTH", 0)


def made(ranks, model=None, **settings):
    given = {"device": "cpu", "deterministic": True, "report": Heard()} | settings
    return Solver(parse(model or text()), communicator=ranks, **given)


def refused(model, size=2, error=SpecError):
    """The line with which so many ranks refuse a model."""
    return refusal(on_ranks, size, lambda ranks: made(ranks, model), error=error)


TOGETHER = "takes samples of a batch together"


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ("BatchReindex, bottom: [x, label]", TOGETHER),
        ("Permute, bottom: x, order: [1, 0, 2, 3]", TOGETHER),
        ("Softmax, bottom: ip, axis: 0, top: t", TOGETHER),
        ("Slice, bottom: ip, axis: 0, top: [t, u]", TOGETHER),
        ("Concat, bottom: [ip, ip], axis: 0, top: t", TOGETHER),
        ("Reshape, bottom: ip, top: t, shape: {dim: [1, -1]}", TOGETHER),
        ("Scale, bottom: ip, top: t, axis: 0", TOGETHER),
        ("Tile, bottom: ip, top: t, axis: 0, tiles: 2", TOGETHER),
        ("CenterLoss, bottom: [ip, label], num_output: 10", TOGETHER),
        ("BatchTripletLoss, bottom: [ip, label]", TOGETHER),
        ("Filter, bottom: [x, label]", "the size of a top varies"),
        (
            "Reduction, bottom: p, operation: SUMSQ, loss_weight: 1",
            "is a loss of no batch, which every rank would add",
        ),
        ("Parameter, top: t, shape: {dim: [3]}", ""),
        ("Reshape, bottom: ip, top: t, shape: {dim: [0, 3, 4]}", ""),
        ("Reduction, bottom: ip, top: t, axis: 0, loss_weight: 1", ""),
    ],
)
def test_layers_that_cannot_be_in_parts(layer, why):
    model = text_with(f"name: it, type: {layer}", "solver", batch=8)
    model = model.replace("layers:", "layers:\n  - {name: p, type: Parameter, shape: {dim: [4]}}")
    if why:
        assert re.search(f"layer 'it' .*: {why}", refused(model))
    else:
        on_ranks(2, lambda ranks: made(ranks, model))


def test_batches_too_small_and_of_two_sizes():
    assert "2 samples in a batch are too few for 3 ranks" in refused(text(batch=2), 3, ShapeError)
    other = text_with("name: other, type: DummyData, top: o, shape: {dim: [8, 3]}", "conv")
    assert "batches of 8 and, in another layer, of 7 samples" in refused(other, error=ShapeError)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"model": text().replace("num_output: 12", "num_output: 13")}, "model than rank 0"),
        ({"random_seed": 5}, "model than rank 0"),
        ({"dtype": "float64"}, "dtype than rank 0: float64, not float32"),
    ],
)
def test_another_model_or_settings(own, told):
    def work(ranks):
        made(ranks, **(own if ranks.rank == 1 else {}))

    with pytest.raises(SpecError, match=f"^rank 1 has another {told}$") as caught:
        on_ranks(3, work)
    assert caught.value.everywhere  # so that one rank tells it


def test_other_data(monkeypatch):
    """One label among fifty is another on one rank."""
    of_data = alike.of_data

    def spoilt(layer):
        if layer.context.share.rank == 1:
            layer.dataset = dataclasses.replace(layer.dataset, labels=layer.dataset.labels.copy())
            layer.dataset.labels[7] += 1
        return of_data(layer)

    monkeypatch.setattr(alike, "of_data", spoilt)
    assert "rank 1 has another data set for layer 'data' of TRAIN than rank 0" in refused(text())


def at(solver, iteration, rank, act):
    """Have a rank do something to its data layer as an iteration begins."""
    layer = solver.net.layers["data"]
    prepare = layer.prepare

    def prepared():
        if solver.iteration == iteration and solver.communicator.rank == rank:
            act(layer)
        prepare()

    layer.prepare = prepared


def cannot_be_read(_):
    raise DataError("a.png: cannot be read")


@pytest.mark.parametrize("iteration", [0, 1, 5])
def test_data_that_cannot_be_read_on_one_rank(iteration):
    """All end after the same iteration, with a snapshot from which any number of ranks goes on."""
    model = text().replace("ignore_label: 3", "loss_weight: 1")

    def work(ranks):
        solver = made(ranks, model, max_iter=9, test_interval=0)
        at(solver, iteration, 1, cannot_be_read)
        return refusal(solver.solve, error=DataError), solver.iteration

    ((told, stopped),) = set(on_ranks(3, work))
    assert told.startswith("rank 1: ") and stopped == iteration
    assert f"cannot be read; stopped at iteration {iteration}, with a snapshot" in told
    alone = made(None, model, max_iter=9, test_interval=0)
    alone.restore(f"net_iter_{iteration}.npz")
    alone.step(1)


def test_a_number_that_is_none_on_one_rank():
    """The rank whose numbers they are tells, and writes the iteration."""

    def work(ranks):
        solver = made(ranks, max_iter=9, test_interval=0)
        at(solver, 4, 2, lambda layer: layer.mean_image.fill(np.nan))
        return refusal(solver.solve, error=TrainingError), solver.iteration

    found = on_ranks(3, work)
    assert len(set(found)) == 1 and found[0][1] == 4
    assert "iteration 4: rank 2: layer 'data' (Data) gives blob 'x'" in found[0][0]


def test_an_error_of_all_is_told_as_it_is():
    fails = partial(together, work=partial(cannot_be_read, None))
    assert refusal(on_ranks, 2, fails, error=DataError) == "a.png: cannot be read"


@pytest.mark.parametrize("iteration", [0, 3])
def test_an_error_where_others_wait_for_a_sum_ends_all(iteration):
    """A loss that counts the labels of all ranks: the others would wait for ever."""

    def work(ranks):
        solver = made(ranks, max_iter=9, test_interval=0)
        at(solver, iteration, 1, cannot_be_read)
        solver.solve()

    with pytest.raises((SystemExit, threading.BrokenBarrierError)):
        on_ranks(2, work)


def test_a_loss_of_ones_own_is_of_the_whole(request):
    class Own(minicaffe.Layer):
        """The mean of what is here."""

        traits = minicaffe.Traits(is_loss=True)

        def setup(self, x):
            return ()

        def forward(self, x):
            return np.mean(x, keepdims=False)

        def backward(self, dy):
            return np.zeros_like(dy)

    register(Own)
    request.addfinalizer(lambda: REGISTRY.pop("Own"))
    own = text_with("name: it, type: Own, bottom: right", "solver")
    assert re.search("'it' .*: a loss of one's own divides by the samples", refused(own))
    Own.traits = minicaffe.Traits(is_loss=True, of_whole=True)
    on_ranks(2, lambda ranks: made(ranks, own))


def test_what_no_longer_learns_is_not_summed_up():
    """Its gradient's memory is part of a message, and would double in each iteration."""

    def work(ranks):
        solver = made(ranks, text(batch=8), test_interval=0)
        solver.step(4)
        solver.net.layers["conv"].params[0].lr_mult = 0.0
        solver.step(12)
        return solver.loss(), solver.norms()

    (alone,) = on_ranks(1, work)
    for found in on_ranks(2, work):
        np.testing.assert_allclose(found[0], alone[0], rtol=1e-4)
        np.testing.assert_allclose(found[1], alone[1], rtol=1e-2)


def test_the_window_of_losses_is_as_before_what_failed():
    """A snapshot taken then is that of one process."""
    model = text(", iter_size: 2").replace("ignore_label: 3", "loss_weight: 1")

    def work(ranks):
        solver = made(ranks, model, max_iter=9, test_interval=0)
        if ranks.size > 1:
            at(solver, 5, 1, cannot_be_read)
            refusal(solver.solve, error=DataError)
        else:
            solver.step(5)
        return solver.iterations.recorded, solver.watch.losses.copy()

    (alone,) = on_ranks(1, work)
    for recorded, losses in on_ranks(3, work):
        assert recorded == alone[0]
        np.testing.assert_allclose(losses, alone[1], rtol=1e-5)


def test_rounding_is_forgotten_where_a_snapshot_is_restored():
    def work(ranks):
        solver = made(ranks, text(batch=8), test_interval=0, reduce_dtype="float16")
        solver.step(3)
        path = solver.snapshot()
        ranks.barrier()
        found = []
        for _ in range(2):
            solver.step(3)
            found.append(solver.net.weights()["ip__0"])
            solver.restore(path)
        return found

    for one, other in on_ranks(2, work):
        assert one.tobytes() == other.tobytes()


def test_ranks_that_go_on_from_unlike_snapshots():
    def work(ranks):
        solver = made(ranks, test_interval=0)
        paths = []
        for _ in range(2):
            solver.step(2)
            paths.append(solver.snapshot())
            ranks.barrier()
        solver.restore(paths[1 - ranks.rank])
        return refusal(solver.step, 1, error=CheckpointError)

    for told in on_ranks(2, work):
        assert "rank 1 goes on from iteration 2, rank 0 from 4" in told
