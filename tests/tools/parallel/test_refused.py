"""What several ranks refuse before they train, and how they end together; each told once, by its rank."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from core.solver.twins import Quiet
from tools.parallel.in_threads import on_ranks
from tools.parallel.test_same_run import few, text  # noqa: F401

from minicaffe import (
    CheckpointError,
    DataError,
    Layer,
    Solver,
    SpecError,
    TrainingError,
    Traits,
    parse,
    register,
)
from minicaffe.core.communicator import together
from minicaffe.core.interrupt import Signals
from minicaffe.core.layers import REGISTRY
from minicaffe.tools.parallel import ranks as alike

SPOILT = [
    ("BatchReindex, bottom: [x, label]", "takes samples of a batch together"),
    ("Permute, bottom: x, order: [1, 0, 2, 3]", "takes samples of a batch together"),
    ("Filter, bottom: [x, label]", "the size of a top varies"),
]


@pytest.fixture(autouse=True)
def small_nets_share_the_update(monkeypatch):
    """As large ones do."""
    monkeypatch.setattr("minicaffe.tools.parallel.ranks.WORTH", 0)


def made(ranks, model=None, **settings):
    given = {"device": "cpu", "deterministic": True, "report": Said()} | settings
    return Solver(parse(model or text()), communicator=ranks, **given)


class Said(Quiet):
    """Remembers the lines."""

    def __init__(self):
        self.lines = []

    def line(self, told):
        self.lines.append(told)


@pytest.mark.parametrize(("layer", "why"), SPOILT)
def test_a_net_that_cannot_be_in_parts(layer, why):
    spoilt = f"  - {{name: it, top: t, type: {layer}}}\n  - {{name: conv,"
    model = text().replace("  - {name: conv,", spoilt, 1)
    with pytest.raises(SpecError, match=f"layer 'it' .*: {why}"):
        on_ranks(2, lambda ranks: made(ranks, model))


def test_another_model_or_seed():
    def other(ranks, what):
        model, settings = text(), {}
        if ranks.rank == 1 and what == "model":
            model = model.replace("num_output: 12", "num_output: 13")
        if ranks.rank == 1 and what == "seed":
            settings["random_seed"] = 5
        return made(ranks, model, **settings)

    with pytest.raises(SpecError, match="rank 1 has another model than rank 0"):
        on_ranks(3, lambda ranks: other(ranks, "model"))
    with pytest.raises(SpecError, match="rank 1 has another .* than rank 0"):
        on_ranks(3, lambda ranks: other(ranks, "seed"))


def test_another_version(monkeypatch):
    facts = alike.facts

    def older(solver):
        found = facts(solver)
        if solver.communicator.rank == 1:
            found["version of minicaffe"] = "0.0.9"
        return found

    monkeypatch.setattr(alike, "facts", older)
    told = "rank 1 has another version of minicaffe than rank 0: 0.0.9, not "
    with pytest.raises(SpecError, match=told):
        on_ranks(2, made)


def test_other_data(monkeypatch):
    """One label among fifty is another on one rank."""
    of_data = alike.of_data

    def spoilt(layer):
        if layer.context.share.rank == 1:
            layer.dataset = dataclasses.replace(layer.dataset, labels=layer.dataset.labels.copy())
            layer.dataset.labels[7] += 1
        return of_data(layer)

    monkeypatch.setattr(alike, "of_data", spoilt)
    told = "rank 1 has another data set for layer 'data' of TRAIN than rank 0"
    with pytest.raises(SpecError, match=told):
        on_ranks(2, made)


def fails_at(solver, iteration, rank, error):
    """Have a rank's data layer raise as an iteration begins."""
    layer = solver.net.layers["data"]
    prepare = layer.prepare

    def prepared():
        if solver.iteration == iteration and solver.communicator.rank == rank:
            raise error
        prepare()

    layer.prepare = prepared


@pytest.mark.parametrize("iteration", [0, 1, 5])
def test_data_that_cannot_be_read_on_one_rank(iteration):
    """All end after the same iteration, with a snapshot from which any number of ranks goes on."""
    model = text().replace("ignore_label: 3", "loss_weight: 1")

    def work(ranks):
        solver = made(ranks, model, max_iter=9, test_interval=0)
        fails_at(solver, iteration, 1, DataError("a.png: cannot be read"))
        with pytest.raises(DataError) as told:
            solver.solve()
        return str(told.value), solver.iteration, solver.report

    found = on_ranks(3, work)
    assert {one[:2] for one in found} == {
        (f"rank 1: {found[0][0].partition('rank 1: ')[2]}", iteration)
    }
    assert f"cannot be read; stopped at iteration {iteration}, with a snapshot" in found[0][0]
    alone = Solver(
        parse(model), device="cpu", deterministic=True, report=Quiet(), max_iter=9, test_interval=0
    )
    alone.restore(f"net_iter_{iteration}.npz")
    alone.step(1)


def test_a_number_that_is_none_on_one_rank():
    """The rank whose numbers they are tells, and writes the iteration."""

    def work(ranks):
        solver = made(ranks, max_iter=9, test_interval=0)
        layer = solver.net.layers["data"]
        prepare = layer.prepare

        def prepared():
            if solver.iteration == 4 and ranks.rank == 2:
                layer.mean_image[...] = np.nan
            prepare()

        layer.prepare = prepared
        with pytest.raises(TrainingError) as told:
            solver.solve()
        return str(told.value), solver.iteration

    found = on_ranks(3, work)
    assert len(set(found)) == 1 and found[0][1] == 4
    assert "iteration 4: rank 2: layer 'data' (Data) gives blob 'x'" in found[0][0]


def test_who_is_asked_to_stop_stops_all():
    """After the same iteration, and the first rank says who was asked."""

    def work(ranks):
        solver = made(ranks, max_iter=1000)
        signals = Signals(silent=True)
        own = solver.update

        def update():
            own()
            signals.asked = signals.asked or (ranks.rank == 1 and solver.iteration == 3)

        solver.update = update
        solver.step(50, signals)
        return solver.iteration, solver._asked_to_stop, getattr(solver.report, "lines", [])

    found = on_ranks(3, work)
    assert {one[:2] for one in found} == {(5, True)}
    assert "asked to stop: rank 1 of 3" in found[0][2]


def test_an_error_of_all_is_told_as_it_is():
    def fails(ranks):
        together(ranks, lambda: (_ for _ in ()).throw(DataError("the same")))

    with pytest.raises(DataError, match="^the same$"):
        on_ranks(2, fails)


@pytest.mark.parametrize("iteration", [0, 3])
def test_an_error_where_others_wait_for_a_sum_ends_all(iteration):
    """A loss that counts the labels of all ranks: the others would wait for ever."""

    def work(ranks):
        solver = made(ranks, max_iter=9, test_interval=0)
        fails_at(solver, iteration, 1, DataError("a.png: cannot be read"))
        solver.solve()

    with pytest.raises((SystemExit, threading.BrokenBarrierError)):
        on_ranks(2, work)


MIXED = [
    ("Softmax, bottom: ip, axis: 0, top: t", "takes samples of a batch together"),
    ("Slice, bottom: ip, axis: 0, top: [t, u]", "takes samples of a batch together"),
    ("Concat, bottom: [ip, ip], axis: 0, top: t", "takes samples of a batch together"),
    ("Reshape, bottom: ip, top: t, shape: {dim: [1, -1]}", "takes samples of a batch together"),
    ("Scale, bottom: ip, top: t, axis: 0", "takes samples of a batch together"),
    ("Tile, bottom: ip, top: t, axis: 0, tiles: 2", "takes samples of a batch together"),
    ("Parameter, top: t, shape: {dim: [3]}", ""),
    ("Reshape, bottom: ip, top: t, shape: {dim: [0, 3, 4]}", ""),
    ("Reduction, bottom: ip, top: t, axis: 0, loss_weight: 1", ""),
]


@pytest.mark.parametrize(("layer", "why"), MIXED)
def test_what_works_along_the_batch(layer, why):
    model = text(batch=8).replace(
        "  - {name: left,", f"  - {{name: it, type: {layer}}}\n  - {{name: left, bottom: ip,", 1
    )
    if not why:
        on_ranks(2, lambda ranks: made(ranks, model))
        return
    with pytest.raises(SpecError, match=f"layer 'it' .*: {why}"):
        on_ranks(2, lambda ranks: made(ranks, model))


def test_losses_that_are_no_sum_over_the_batch():
    regular = "  - {name: p, type: Parameter, top: p, shape: {dim: [4]}}\n  - {name: it, type: Reduction, bottom: p, operation: SUMSQ, loss_weight: 1}\n"
    with pytest.raises(
        SpecError, match="layer 'it' .*: is a loss of no batch, which every rank would add"
    ):
        on_ranks(
            2, lambda ranks: made(ranks, text(batch=8).replace("solver:", f"{regular}solver:", 1))
        )

    class Own(Layer):
        """The mean of what is here."""

        traits = Traits(is_loss=True)

        def setup(self, x):
            return ()

        def forward(self, x):
            return np.mean(x, keepdims=False)

        def backward(self, dy):
            return np.zeros_like(dy)

    before = dict(REGISTRY)
    try:
        register(Own)
        own = text().replace("solver:", "  - {name: it, type: Own, bottom: right}\nsolver:", 1)
        with pytest.raises(
            SpecError, match="layer 'it' .*: a loss of one's own divides by the samples"
        ):
            on_ranks(2, lambda ranks: made(ranks, own))
        Own.traits = Traits(is_loss=True, of_whole=True)
        on_ranks(2, lambda ranks: made(ranks, own))
    finally:
        REGISTRY.clear()
        REGISTRY.update(before)


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
            fails_at(solver, 5, 1, DataError("a.png: cannot be read"))
            with pytest.raises(DataError):
                solver.solve()
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
        with pytest.raises(CheckpointError) as error:
            solver.step(1)
        return str(error.value)

    for told in on_ranks(2, work):
        assert "rank 1 goes on from iteration 2, rank 0 from 4" in told
