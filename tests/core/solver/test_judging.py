"""What tests lead to: best snapshot, falls of the rate, an early end; and all of it after a resume."""

import os
import re

import numpy as np
import pytest
from kit import Heard, arrays, refusal

from minicaffe import CheckpointError, Net, Solver, SpecError, parse
from minicaffe.core.solver.scores import Trend

MODEL = """
name: small
layers:
  - {{name: data, type: DummyData, top: [x, label], shape: [{{dim: [4, 3]}}, {{dim: [4]}}],
     data_filler: [{{type: gaussian}}, {{type: constant, value: 1}}]}}
  - {{name: ip, type: InnerProduct, bottom: x, num_output: 2, weight_filler: xavier}}
  - {{name: norm, type: BatchNorm, top: ip}}
  - {{name: drop, type: Dropout, include: TRAIN, top: ip}}
  - {{name: accuracy, type: Accuracy, bottom: [ip, label], top: [accuracy, each], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver:
  {{base_lr: 0.1, momentum: 0.9, max_iter: 12, test_iter: 1, test_interval: 2{more}}}
"""
PLATEAU = ", lr_policy: plateau, gamma: 0.5, patience: 2, min_lr: 0.02, plateau: loss"
ALL = f"{PLATEAU}, best: accuracy, early_stopping: 4, ema_decay: 0.8, warmup_iter: 3, snapshot: 4"
pytestmark = pytest.mark.usefixtures("here")


def made(more="", scores=None, **options):
    """A solver whose tests give `scores`, one after the other by the iteration, if they are given."""
    solver = Solver(
        parse(MODEL.format(more=more), "m.yaml"), device="cpu", report=Heard(), **options
    )
    if scores is not None:
        true = solver.test

        def test():
            true()
            for name, values in scores.items():
                solver.scores[name] = values[solver.iteration // 2]
            return solver.scores

        solver.test = test
    return solver


def state(solver):
    """All that decides how training goes on, as bytes."""
    found = {name: param.data for name, param in solver.net.named_params.items()}
    found |= {f"history {i}": array for i, array in enumerate(solver.rule.history)}
    found |= {name: trend.state() for name, trend in solver.judge.trends.items()}
    if solver.average is not None:
        found |= {f"mean {i}": array for i, array in enumerate(solver.average.means)}
    return {name: array.tobytes() for name, array in found.items()} | {"rate": solver.rate}


SCORES = {
    "accuracy": [0.5, 0.6, 0.6, 0.7, 0.6, 0.6, 0.6],
    "loss": [1.0, 0.9, 0.9, 0.95, 0.9, 0.9, 0.9],
}


def test_the_best_test_is_kept_and_the_rate_falls():
    solver = made(PLATEAU + ", best: accuracy", SCORES)
    rates = []
    true = solver.update
    solver.update = lambda: (rates.append(solver.rate), true())
    solver.solve()
    assert rates == pytest.approx([0.1] * 6 + [0.05] * 4 + [0.025] * 2)
    assert [line for line in solver.report.lines if "lr falls" in line or "best" in line] == [
        *["best snapshot: small_best.npz"] * 3,  # the third of a loss as low as the second's
        "iteration 6: lr falls to 0.05: no better loss than 0.9 (iteration 2) in 2 tests",
        "best snapshot: small_best.npz",
        "iteration 10: lr falls to 0.025: no better loss than 0.9 (iteration 2) in 2 tests",
    ]
    with np.load("small_best.npz") as best:
        assert best["@iteration"] == 6
    assert solver.ended is None


def test_of_equal_scores_the_lower_loss_is_kept_of_equal_losses_the_last():
    almost = 1 - 1e-8  # as means of float32 may differ
    scores = {"accuracy": [0.5, 1, almost, 1, 1, almost, 1]}
    scores["loss"] = [3.0, 0.4, 0.5, 0.2, 0.2, 0.3, 0.4]
    solver = made(", best: accuracy", scores)
    solver.solve()
    saved = arrays("small_best.npz")
    assert saved["@iteration"] == 8 and saved["@best/max/accuracy"][[1, 5]].tolist() == [8, 0.2]
    saved["@best/max/accuracy"] = saved["@best/max/accuracy"][:5]  # as it was before
    np.savez("small_old.npz", **saved)
    solver.restore("small_old.npz")
    assert solver.judge.trends["best"].loss == np.inf
    ended = made(", best: accuracy, early_stopping: 3", scores)
    ended.solve()  # a lower loss is no reason to go on
    assert ended.iteration == 8


@pytest.mark.parametrize(
    ("more", "falls"),
    [
        (PLATEAU.replace("patience: 2", "patience: 1"),  # no further than min_lr
         ["iteration 2: lr falls to 0.05", "iteration 4: lr falls to 0.025", "iteration 6: lr falls to 0.02"]),
        (f"{PLATEAU}, warmup_iter: 9", ["iteration 12: lr falls to 0.05"]),  # not by tests of the warm-up
    ],
)  # fmt: skip
def test_the_rate_falls_when_it_may(more, falls):
    solver = made(more, {"loss": [1.0] * 7})
    solver.solve()
    lines = [line.partition(": no better")[0] for line in solver.report.lines if "lr falls" in line]
    assert lines == falls


def test_training_ends_early_and_stays_ended_until_it_may_wait_longer():
    more = ", best: {output: loss, min_delta: 0.05}, early_stopping: 3"
    solver = made(more, {"loss": [1.0, 0.97, 0.99, 0.96, 2.0, 0.1, 0.1]})
    scores = solver.solve()
    assert (solver.iteration, solver.stopped, scores["loss"]) == (6, False, 0.96)
    assert solver.ended == "no better loss than 1 (iteration 0) in 3 tests"
    assert f"stopped early at iteration 6: {solver.ended}" in solver.report.lines
    assert os.path.exists("small_iter_6.npz")
    again = made(more, {"loss": [0.0] * 3 + [0.5] * 4})
    again.restore("small_iter_6.npz")
    again.solve()
    assert (again.iteration, again.ended) == (6, solver.ended)
    longer = made(more, {"loss": [2.0] * 7}, early_stopping=5)
    longer.restore("small_iter_6.npz")
    longer.solve()
    assert (longer.iteration, longer.judge.trends["best"].waited) == (10, 5)


def test_early_stopping_alone_goes_by_the_accuracy():
    solver = made(
        ", early_stopping: 2", {"loss": [3.0, 2.0, 1.0, 0.5], "accuracy": [0.5, 0.6, 0.6, 0.6]}
    )
    solver.solve()
    assert solver.ended == "no better accuracy than 0.6 (iteration 6) in 2 tests"


@pytest.mark.parametrize("at", ["small_iter_4.npz", "small_iter_8.npz", "small_best.npz"])
@pytest.mark.parametrize("more", [ALL, ALL + ", type: Adam"])
def test_a_resume_is_exact_with_everything_on(more, at):
    straight = made(more, SCORES)
    straight.step(9)
    with np.load(at) as found:
        first = int(found["@iteration"])
    again = made(more, SCORES)
    again.restore(at)
    assert again.iteration == first
    again.step(9 - first)
    assert state(again) == state(straight)
    for solver in (straight, again):
        solver.solve()
    assert again.iteration == 12
    assert state(again) == state(straight)


def test_tests_and_snapshots_take_the_average_and_training_does_not():
    solver = made(", ema_decay: 0.8")
    solver.step(7)
    weights = {name: param.data.copy() for name, param in solver.net.named_params.items()}
    plain = made()
    plain.step(7)
    for name, array in weights.items():
        np.testing.assert_array_equal(plain.net.named_params[name].data, array)
    slow = {name: param.data.astype(float) for name, param in made().net.named_params.items()}
    other = made()
    for i in range(7):
        other.step(1)
        d = min(0.8, (1 + i) / (10 + i))
        for name, param in other.net.named_params.items():
            if i == 0 and name.startswith("norm"):  # statistics begin with those of the first pass
                slow[name] = param.data.astype(float)
            slow[name] = d * slow[name] + (1 - d) * param.data.astype(float)
    path = solver.snapshot()
    with np.load(path) as found:
        for name, array in weights.items():
            np.testing.assert_array_equal(found[f"@training/{name}"], array)
            np.testing.assert_allclose(found[name], slow[name], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(solver.net.named_params[name].data, array)
    test_net = Net(parse(MODEL.format(more="")), "TEST", device="cpu")
    test_net.load(path)
    test_net.context.passes = 0
    assert float(test_net.forward()["loss"]) == pytest.approx(solver.test()["loss"], rel=1e-6)


def test_an_average_begins_where_a_snapshot_has_none_and_ends_where_it_is_not_wanted():
    plain = made()
    plain.step(5)
    path = plain.snapshot()
    averaging = made(", ema_decay: 0.8")
    averaging.restore(path)
    for param, mean in zip(plain.net.learnable, averaging.average.means, strict=True):
        np.testing.assert_array_equal(param.data, mean)
    averaging.step(3)
    path = averaging.snapshot()
    again = made()
    again.restore(path)
    for a, b in zip(again.net.learnable, averaging.net.learnable, strict=True):
        np.testing.assert_array_equal(a.data, b.data)


def test_before_the_first_iteration_the_average_is_the_weights_that_were_loaded():
    first = made(", ema_decay: 0.8", random_seed=7)
    first.net.save("begin.npz")
    solver = made(", ema_decay: 0.8")
    solver.net.load("begin.npz")
    with np.load(solver.snapshot()) as found:
        np.testing.assert_array_equal(found["ip__0"], found["@training/ip__0"])
    weights = [param.data.copy() for param in solver.net.learnable]
    solver.test()
    for param, *known in zip(solver.net.learnable, weights, first.net.learnable, strict=True):
        for before in (known[0], known[1].data):
            np.testing.assert_array_equal(param.data, before)


def test_a_best_snapshot_that_cannot_be_written_is_tried_at_the_next_better_test(monkeypatch):
    from minicaffe.storage import checkpoint

    solver, true = made(", best: accuracy", SCORES), checkpoint.write
    seen = []

    def fails(path, arrays):
        seen.append(solver.iteration)
        if str(path).endswith("best.npz") and len(seen) == 2:
            raise CheckpointError(f"{path}: cannot be written: No space left on device")
        true(path, arrays)

    monkeypatch.setattr(checkpoint, "write", fails)
    solver.step(7)
    assert seen == [0, 2, 4, 6]
    assert [line for line in solver.report.lines if line.startswith("no best")] == [
        "no best snapshot of iteration 2: small_best.npz: cannot be written: No space left on device"
    ]


def test_what_is_best_begins_anew_where_its_file_is_not():
    solver = made(", best: accuracy", SCORES)
    solver.step(7)
    path = solver.snapshot()
    moved = made(", best: accuracy", SCORES, snapshot_prefix="other")
    moved.restore(path)
    moved.step(2)
    assert moved.judge.trends["best"].at == 8 and os.path.exists("other_best.npz")
    another = made(", best: loss", SCORES)
    another.restore(path)
    assert another.judge.trends["best"].at == -1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (", best: acuracy", "no test has an output 'acuracy' (accuracy, each, loss); did you mean 'accuracy'?"),
        (", best: {output: total loss}", "no test has an output 'total loss' (accuracy, each, loss)"),
    ],
)  # fmt: skip
def test_an_unknown_output_is_refused(more, told):
    said = refusal(made, more, error=SpecError)
    assert re.match(r"m.yaml:\d+:\d+: solver: best: ", said) and said.endswith(told)


def test_modes_are_found_or_must_be_said():
    text = MODEL.format(more=", best: ip").replace(
        "  - {name: loss", "  - {name: loss, include: TRAIN"
    )
    text = re.sub("  - {name: accuracy.*\n", "", text)
    with pytest.raises(
        SpecError,
        match="whether more of 'ip', .* is better must be said: {output: ip, mode: max}, or min",
    ):
        Solver(parse(text), device="cpu")
    assert {
        name: made(f", best: {name}").judge.trends["best"].mode
        for name in ("accuracy", "each", "loss")
    } == {"accuracy": "max", "each": "max", "loss": "min"}
    assert made(", test_compute_loss: true, best: total loss").judge.trends["best"].mode == "min"


def test_an_array_counts_by_its_mean():
    trend = Trend("each", "max")
    assert trend.judge(0, {"each": np.array([0.2, 0.6])})
    assert not trend.judge(2, {"each": np.array([0.39, 0.4])})
    assert trend.value == pytest.approx(0.4)


def test_an_average_within_an_average_is_the_same_one():
    solver = made(", ema_decay: 0.8")
    solver.step(3)
    (param, *_), trained = solver.net.learnable, solver.net.learnable[0].data.copy()
    with solver.averaged():
        mean = param.data.copy()
        with solver.averaged():
            np.testing.assert_array_equal(param.data, mean)
        np.testing.assert_array_equal(param.data, mean)
    assert (mean != trained).any()
    np.testing.assert_array_equal(param.data, trained)


def test_trained_weights_that_are_not_finite_are_for_a_replay_alone():
    solver = made(", ema_decay: 0.8")
    solver.step(3)
    held = arrays(solver.snapshot())
    held["@training/ip__0"][1, 2] = np.nan
    np.savez("spoilt.npz", **held)
    with pytest.raises(CheckpointError, match="^spoilt.npz: entry '@training/ip__0'.* finite"):
        made(", ema_decay: 0.8").restore("spoilt.npz")
    again = made(", ema_decay: 0.8")
    again.restore("spoilt.npz", replay=True)
    assert np.isnan(again.net.params["ip"][0].data).sum() == 1
