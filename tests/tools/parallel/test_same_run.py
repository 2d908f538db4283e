"""Several ranks compute what one process does: the same batches and random numbers, losses and weights."""

import itertools
from functools import partial

import numpy as np
import pytest
from core.solver.test_every_layer import TYPES, WITHOUT_MOMENTUM
from core.solver.twins import Quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.parallel.in_threads import on_ranks

from minicaffe import MinicaffeError, Solver, parse
from minicaffe.backends import cpu
from minicaffe.tools.parallel.ranks import Rounded
from minicaffe.tools.training import folder as run_folder

NET = """
layers:
  - {{name: data, type: Data, top: [x, label], source: digits, batch_size: {batch}, transform: {{scale: 0.004, crop_size: 20, mirror: true}}}}
  - {{name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 5, stride: 2}}
  - {{name: pool, type: Pooling, pool: {pool}, kernel_size: 2, stride: 2}}
  - {{name: ip, type: InnerProduct, num_output: 12, param: [{{lr_mult: 1}}, {{lr_mult: 2, decay_mult: 0}}]}}
  - {{name: relu, type: ReLU, top: ip}}
  - {{name: drop, type: Dropout, top: ip}}
  - {{name: left, type: InnerProduct, num_output: 10}}
  - {{name: right, type: InnerProduct, bottom: ip, num_output: 10, param: [{{name: shared}}, {{}}]}}
  - {{name: also, type: InnerProduct, bottom: ip, num_output: 10, param: [{{name: shared}}, {{}}]}}
  - {{name: sum, type: Eltwise, bottom: [left, right, also]}}
  - {{name: acc, type: Accuracy, bottom: [sum, label], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [sum, label], ignore_label: 3}}
  - {{name: more, type: {loss}, bottom: [right, label], loss_weight: 0.3}}
solver: {{base_lr: 0.01, momentum: 0.9, weight_decay: 0.001, max_iter: 1000, test_iter: 5, test_interval: 4, average_loss: 3{more}}}
"""


@pytest.fixture(autouse=True)
def shared(monkeypatch, fifty_digits):
    """Small nets share the update as large ones do."""
    monkeypatch.setattr("minicaffe.tools.parallel.ranks.WORTH", 0)


def text(more="", batch=7, pool="MAX", loss="SoftmaxWithLoss"):
    return NET.format(more=more, batch=batch, pool=pool, loss=loss)


def text_with(layer, before, **how):
    """The net with a layer more, before another or before `solver`."""
    mark = "solver:" if before == "solver" else f"  - {{name: {before},"
    assert mark in NET.replace("{{", "{")
    return text(**how).replace(mark, f"  - {{{layer}}}\n{mark}", 1)


def trained(model, iterations, communicator=None, meanwhile=None, **given):
    """The losses of each iteration, the last scores and the weights; `meanwhile` is told each iteration."""
    given = {"device": "cpu", "dtype": "float64", "deterministic": True} | given
    solver = Solver(parse(model), report=Quiet(), communicator=communicator, **given)
    losses = []
    for iteration in range(iterations):
        if meanwhile is not None:
            meanwhile(solver, iteration)
        solver.step(1)
        losses.append(solver.loss())
        solver.ranks.before_snapshot()
        assert iterations < 4 or meanwhile or solver.iterations.recordings.keys() == {"iteration"}
    found = {"losses": np.array(losses), **solver.net.weights()}
    found |= {name: np.array(score) for name, score in solver.scores.items()}
    return found | {f"history {i}": np.array(one) for i, one in enumerate(solver.rule.history)}


def check(model, iterations, sizes, near=1e-12, overlaps=(False,), **given):
    """Each of so many ranks has what one process has, whether sums overlap or the update is shared."""
    alone = trained(model, iterations, **given)
    for size, beside in itertools.product(sizes, overlaps):
        work = partial(trained, model, iterations, **given)
        for mine in on_ranks(size, lambda ranks, work=work: work(communicator=ranks), beside):
            assert mine.keys() == alone.keys()
            for name, wanted in alone.items():
                scale = max(np.abs(wanted).max(), 1e-300)
                assert np.abs(mine[name] - wanted).max() <= near * scale, (size, name)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_solver(kind, request):
    """Of 7 samples in a batch, twice an iteration, clipped, with dropout, crops, and labels left out.

    With --long each of them with sums that overlap and with sums that do not, else by turns.
    """
    more = f", type: {kind}, iter_size: 2, clip_gradients: 0.2, ema_decay: 0.9"
    model = text(more, pool="STOCHASTIC")
    if kind in WITHOUT_MOMENTUM:
        model = model.replace("momentum: 0.9, ", "")
    both = request.config.getoption("--long")
    check(model, 6, (2, 3), overlaps=(False, True) if both else (TYPES.index(kind) % 2 == 0,))


WAYS = "BATCH_SIZE", "NONE", "FULL, ignore_label: 2"


@pytest.mark.parametrize(
    "loss", ["HingeLoss", *(f"SoftmaxWithLoss, normalization: {way}" for way in WAYS)]
)
def test_every_way_to_normalise(loss):
    check(text(loss=loss), 3, (4,))


OF_FORKS = """
  - {name: margin, type: MarginInnerProduct, bottom: [ip, label], num_output: 10, margin_type: DOUBLE, base: 9}
  - {name: far, type: InnerDistance, bottom: ip, num_output: 10}
  - {name: angles, type: SoftmaxWithLoss, bottom: [margin, label]}
  - {name: distances, type: SoftmaxWithLoss, bottom: [far, label]}
  - {name: one, type: L1Loss, bottom: [left, right], loss_weight: 0.1}
  - {name: two, type: DiceCoefLoss, bottom: [left, far]}
  - {name: three, type: WeightedEuclideanLoss, bottom: [left, right, far], propagate_down: [true, true, false]}
  - {name: each, type: SoftmaxWithLossOHEM, bottom: [ip, label], top: [mean of each, prob, each], ignore_label: 3}
  - {name: given, type: SoftmaxWithLossOHEM, bottom: [far, label], normalization: PRE_FIXED, pre_fixed_normalizer: 20}
  - {name: apart, type: SmoothL1LossOHEM, bottom: [left, right]}
  - {name: by weight, type: WeightedSoftmaxWithLoss, bottom: [ip, label], class_weighting: [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]}
  - {name: answer, type: Softmax, bottom: ip}
  - {name: sure, type: EntropyLoss, bottom: answer}
  - {name: four, type: SigmoidCrossEntropyBalanceLoss, bottom: [right, far], propagate_down: [true, false]}
solver:"""


def test_layers_of_forks():
    check(text().replace("\nsolver:", OF_FORKS), 3, (3,))


def test_without_compiled_loops(monkeypatch):
    monkeypatch.setattr(cpu, "available", lambda: False)
    check(text(), 3, (3,))


@settings(max_examples=10)
@given(st.integers(2, 4), st.integers(4, 9), st.integers(1, 3), st.booleans())
def test_any_batch_on_any_ranks(size, batch, iter_size, clip):
    more = f", iter_size: {iter_size}" + ", clip_gradients: 0.1" * clip
    check(text(more, max(batch, size)), 3, (size,))


def updates_apart(solver, iteration):
    """Once iterations are replayed, somebody wants a say in each update."""
    if iteration == 5:
        own = solver.update
        solver.update = lambda: own()


def moved(solver, iteration):
    """A parameter lies elsewhere as long as somebody watches the net, which replays know nothing of."""
    param, watchers = solver.net.layers["left"].params[0], solver.net.steps[0].watchers
    if iteration == 5:
        solver.before = param.data, param.diff
        param.lie_in(param.data.copy())
        param.lie_in(np.zeros_like(param.data), "diff")
        watchers["here"] = [lambda *told, **more: None]
    elif iteration == 7:
        data, diff = solver.before
        data[...] = param.data
        param.lie_in(data)
        param.lie_in(diff, "diff")
        watchers.clear()


@pytest.mark.parametrize("meanwhile", [updates_apart, moved])
@pytest.mark.parametrize("worth", [0, 2**40])
def test_what_changes_once_iterations_are_replayed(monkeypatch, meanwhile, worth):
    """Whether the update is shared then or not."""
    monkeypatch.setattr("minicaffe.tools.parallel.ranks.WORTH", worth)
    check(text(), 11, (2,), meanwhile=meanwhile)


def test_what_a_parameter_has_left_behind_is_not_summed():
    """Nor measured, where it lies elsewhere from then on: sums of sums would grow."""

    def work(ranks):
        solver = Solver(parse(text()), device="cpu", report=Quiet(), communicator=ranks)
        for iteration in range(8):
            if iteration < 7:
                moved(solver, iteration)
            solver.step(1)
        return float(np.abs(solver.before[1]).max())

    assert on_ranks(2, work, False) == [0, 0]


DUMMY = """
layers:
  - {name: data, type: DummyData, top: [a, b], shape: [{dim: [5, 3]}, {dim: [5, 3]}], data_filler: [{type: gaussian}, {type: uniform}]}
  - {name: one, type: DummyData, top: ones, shape: {dim: [5]}, data_filler: {type: constant, value: 1}}
  - {name: ip, type: InnerProduct, bottom: a, num_output: 3}
  - {name: euclid, type: EuclideanLoss, bottom: [ip, b]}
  - {name: smooth, type: SmoothL1Loss, bottom: [ip, b]}
  - {name: pair, type: ContrastiveLoss, bottom: [ip, b, ones]}
  - {name: cross, type: SigmoidCrossEntropyLoss, bottom: [ip, b]}
  - {name: counted, type: SigmoidCrossEntropyLoss, bottom: [ip, b], normalization: VALID, ignore_label: 1}
  - {name: mean, type: Reduction, bottom: ip, operation: MEAN, loss_weight: 2}
  - {name: squares, type: Reduction, bottom: ip, operation: SUMSQ, loss_weight: 0.1}
solver: {base_lr: 0.01, max_iter: 9}
"""


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_parameter_that_no_loss_depends_on(monkeypatch, overlaps, compiled):
    """It decays, and no more: what lies in its gradient's place from the step before is not summed."""
    if not compiled:
        monkeypatch.setattr(cpu, "available", lambda: False)
    side = "name: side, type: Parameter, shape: {dim: [30]}, param: {lr_mult: 1}"
    check(text_with(side, "loss", more=", clip_gradients: 0.2"), 8, (2,), overlaps=(overlaps,))


def test_losses_of_pairs_and_of_what_is_reduced():
    check(DUMMY, 4, (2, 5))


def test_statistics_are_the_mean_of_the_ranks():
    """BatchNorm normalises by its rank's batch; what it remembers is the weighted mean, on all the same."""
    model = text_with("name: norm, type: BatchNorm", "pool")
    found = on_ranks(3, lambda ranks: trained(model, 4, ranks))
    for mine in found[1:]:
        for name, wanted in found[0].items():
            assert mine[name].tobytes() == wanted.tobytes(), name
    again = on_ranks(3, lambda ranks: trained(model, 4, ranks))[0]
    assert all(again[name].tobytes() == wanted.tobytes() for name, wanted in found[0].items())


@pytest.mark.parametrize("keys", ["", ", scale_bias: true"])
@pytest.mark.parametrize("compiled", [True, False])
def test_statistics_of_the_whole_batch(monkeypatch, keys, compiled):
    """With sync it is the run of one process, with what is remembered; also without samples of one channel."""
    if not compiled:
        monkeypatch.setattr(cpu, "available", lambda: False)
        monkeypatch.setattr(cpu, "loops", lambda *_: None)
    model = text_with(f"name: norm, type: BatchNorm, sync: true{keys}", "pool")
    check(
        model.replace("num_output: 4,", "num_output: 4, bias_term: false,"), 4, (2, 3), near=1e-11
    )


@pytest.mark.parametrize(
    "keys", ["", ", param: [{lr_mult: 0}, {lr_mult: 0}, {lr_mult: 0}, {}, {lr_mult: 0}]"]
)
def test_statistics_of_the_whole_batch_of_data(keys):
    """Of bottoms that no gradient flows into: only scale and bias have one."""
    norm = f"name: norm, bottom: x, type: BatchNorm, sync: true, scale_bias: true{keys}"
    model = text_with(norm, "conv").replace("Convolution, bottom: x", "Convolution, bottom: norm")
    check(model, 4, (2, 3), near=1e-11)


def test_gradients_in_16_bits():
    """Near the run in float32; from a snapshot on nothing is made up for, as for who goes on from there."""
    work = partial(trained, text(batch=8), 30, dtype="float32")
    alone, found = work(), on_ranks(2, partial(work, reduce_dtype="float16"))
    for name in [name for name in alone if "__" in name]:
        apart = np.abs(found[0][name] - alone[name]).max() / np.abs(alone[name]).max()
        assert 0 < apart < 0.05, name
        assert found[1][name].tobytes() == found[0][name].tobytes()


@given(st.integers(0, 1000))
def test_what_rounding_loses_is_made_up_for(seed):
    """What was sent, and what is still lost, are what was given."""
    rng, array = np.random.default_rng(seed), np.empty(9, np.float32)
    rounded, given_in_all, sent = Rounded(array, "float16", np), np.zeros(9), np.zeros(9)
    for _ in range(20):
        array[:] = rng.normal(size=9) * 10.0 ** rng.integers(-6, 2)
        given_in_all += array
        rounded.round()
        sent += rounded.sent
        rounded.take()
    np.testing.assert_allclose(sent + rounded.lost, given_in_all, rtol=1e-6, atol=1e-6)


def test_a_batch_a_rank_is_a_larger_batch():
    """As one process has it with the batch times the ranks."""
    alone = trained(text(batch=8), 4)
    for mine in on_ranks(2, lambda ranks: trained(text(batch=4), 4, ranks, batch_per_rank=True)):
        for name in [name for name in alone if "__" in name or name == "losses"]:
            np.testing.assert_allclose(mine[name], alone[name], rtol=1e-11, atol=1e-14)


def test_a_sum_begins_before_the_backward_pass_is_over(monkeypatch):
    """Buckets begin in the order of the layers, the last first; the second is no longer than what is left."""
    monkeypatch.setattr("minicaffe.tools.parallel.ranks.BUCKET", 800)

    def work(ranks):
        trained(text(), 4, ranks)
        return ranks.calls, ranks.under_way

    for calls, under_way in on_ranks(2, work):
        begun = [call for call in calls if call.startswith("begin")]
        assert len(set(begun[:3])) > 1 and len(begun) % 4 == 0 and not under_way


def test_the_first_rank_keeps_the_run_and_all_are_refused_another():
    def train(ranks):
        given = {"device": "cpu", "report": Quiet(), "communicator": ranks, "max_iter": 4}
        one = Solver(parse(text(", snapshot: 2, display: 2")), run="run", **given)
        one.solve()
        other = Solver(parse(text()), run="run", **given)
        with pytest.raises(MinicaffeError, match="run: holds another run"):
            other.step(1)
        return {name: column.tolist() for name, column in one.log.items()}

    first, second = on_ranks(2, train)
    assert first == second and first["iteration"] == [0, 2]
    record = run_folder.read("run")
    assert record.state == "finished" and record.about["ranks"] == 2
    assert [line["iteration"] for line in record.of("snapshot")] == [2, 4]
