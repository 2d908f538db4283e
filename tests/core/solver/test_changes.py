"""What may change where a snapshot is gone on from, and is told; what may not, refused in one line."""

import numpy as np
import pytest
from kit import Heard, arrays, few_digits, refusal

from minicaffe import CheckpointError, Solver, parse

MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 4, transform: {scale: 0.004}, include: TRAIN}
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 4, include: TEST}
  - {name: drop, type: Dropout, dropout_ratio: 0.25, bottom: x, top: y}
  - {name: ip, type: InnerProduct, num_output: 10, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver:
  base_lr: 0.1
  momentum: 0.5
  max_iter: 12
  random_seed: 3
  test_iter: 1
  test_interval: 4
"""


class Events(Heard):
    """Keeps events apart, as their texts."""

    def event(self, text):
        self.events.append(text)


def made(*changes, dtype=None, **settings):
    text = MODEL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return Solver(parse(text), device="cpu", report=Events(), dtype=dtype, **settings)


@pytest.fixture(scope="module", autouse=True)
def few():
    """The drawn digits, but few."""
    with pytest.MonkeyPatch.context() as patch:
        few_digits(patch)
        yield


@pytest.fixture(scope="module")
def snapshot(few, tmp_path_factory):
    """Of iteration 5."""
    solver = made(snapshot_prefix=str(tmp_path_factory.mktemp("taken") / "small"))
    solver.step(5)
    return solver.snapshot()


def told(snapshot, *changes, **settings):
    solver = made(*changes, **settings)
    solver.restore(snapshot)
    assert solver.iteration == 5
    solver.step(1)
    return [text.removeprefix("changed on resume: ") for text in solver.report.events]


def refused(snapshot, *changes, **settings):
    solver = made(*changes, **settings)
    before = {name: param.data.copy() for name, param in solver.net.named_params.items()}
    text = refusal(solver.restore, snapshot, error=CheckpointError)
    for name, param in solver.net.named_params.items():
        np.testing.assert_array_equal(param.data, before[name])
    assert solver.iteration == 0 and not solver.report.events
    lead = f"{snapshot}: cannot be gone on from, for it is of another run: "
    end = "; to begin anew with its weights: --weights"
    assert text.startswith(lead) and text.endswith(end)
    return text.removeprefix(lead).removesuffix(end)


def test_nothing_is_told_where_nothing_changed(snapshot):
    assert told(snapshot) == []
    assert told(snapshot, ("xavier", "msra"), snapshot_prefix="elsewhere") == []


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (("max_iter: 12", "max_iter: 20"), ["solver.max_iter: 12 -> 20", "lr is 0.1 at iteration 5"]),
        (("base_lr: 0.1", "base_lr: 0.01"), ["solver.base_lr: 0.1 -> 0.01", "lr is 0.01 at iteration 5"]),
        (("base_lr: 0.1", "base_lr: 0.1\n  lr_policy: step\n  gamma: 0.5\n  stepsize: 5"),
         ["solver.lr_policy: fixed -> step", "solver.gamma: none -> 0.5", "solver.stepsize: none -> 5",
          "lr is 0.05 at iteration 5"]),
        (("max_iter", "best: {output: loss, min_delta: 0.5}\n  max_iter"), ["solver.best: none -> loss (min_delta 0.5)"]),
        (("max_iter", "type: Nesterov\n  max_iter"), ["solver.type: SGD -> Nesterov"]),
        (("test_interval: 4", "test_interval: 3\n  display: 2"), ["solver.test_interval: 4 -> 3", "solver.display: 0 -> 2"]),
        (("max_iter", "iter_size: 2\n  max_iter"), ["solver.iter_size: 1 -> 2; the data goes on where 5 iterations of so many would be"]),
        (("batch_size: 4, transform", "batch_size: 8, transform"),
         ["layers.data.batch_size: 4 -> 8; the data goes on where 5 iterations of so many would be: epoch 0.80, which was 0.40"]),
        (("scale: 0.004", "scale: 0.005"), ["layers.data.transform.scale: 0.004 -> 0.005"]),
        (("batch_size: 4, include: TEST", "batch_size: 5, include: TEST"), ["what is tested: the snapshot's -> the model's"]),
        (("num_output: 10", "num_output: 10, param: [{lr_mult: 2}]"), ["layers.ip.param[0].lr_mult: none -> 2"]),
    ],
)  # fmt: skip
def test_what_may_change_is_told(snapshot, change, lines):
    assert told(snapshot, change) == lines


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ([("momentum: 0.5", "type: AdaGrad")], ["solver.type: SGD -> AdaGrad"]),
        ([("random_seed: 3", "random_seed: 4")], ["solver.random_seed: 3 -> 4"]),
        ([("dropout_ratio: 0.25", "dropout_ratio: 0.5")], ["layers.drop.dropout_ratio: 0.25 -> 0.5"]),
        ([("num_output: 10", "num_output: 11")], ["layers.ip.num_output: 10 -> 11"]),
        ([("type: Dropout, dropout_ratio: 0.25", "type: ReLU")], ["layers.drop.type: Dropout -> ReLU"]),
        ([("name: drop", "name: dropped")], ["layers.drop: Dropout -> none", "layers.dropped: none -> Dropout"]),
        ([("num_output: 10", "num_output: 10, param: {name: w}")], ["layers.ip.param[0].name: none -> w"]),
        ([("bottom: [ip, label]", "bottom: [ip, label], loss_weight: 2")], ["layers.loss.loss_weight: none -> [2]"]),
        ([("momentum: 0.5", "train_state: {level: 1}")], ["solver.train_state.level: none -> 1"]),
    ],
)  # fmt: skip
def test_what_may_not_is_refused(snapshot, changes, lines):
    assert refused(snapshot, *changes).split("; ") == lines


def test_all_that_may_not_is_listed_in_one_line_and_nothing_else(snapshot):
    changes = [("momentum: 0.5", "type: RMSProp"), ("random_seed: 3", "random_seed: 4")]
    found = refused(snapshot, *changes, ("max_iter: 12", "max_iter: 20"), dtype="float64")
    assert found.split("; ") == [
        "solver.type: SGD -> RMSProp",
        "dtype: float32 -> float64",
        "solver.random_seed: 3 -> 4",
    ]


def test_a_seed_that_the_model_does_not_name_is_the_snapshots(snapshot):
    solver = made(("  random_seed: 3\n", ""), random_seed=9)
    solver.restore(snapshot)
    assert solver.net.context.seed == 3 and not solver.report.events


def test_layers_in_another_order_are_refused(snapshot, tmp_path):
    """Here of two that do not read each other: their random numbers are by name, but not their parameters."""
    first, second = (
        f"  - {{name: {name}, type: Silence, bottom: label}}\n" for name in ("one", "other")
    )
    at, prefix = "  - {name: drop,", str(tmp_path / "small")
    solver = made((at, f"{first}{second}{at}"), snapshot_prefix=prefix)
    solver.step(5)
    line = refused(solver.snapshot(), (at, f"{second}{first}{at}"))
    names = "data, {}, {}, drop, ip, loss"
    orders = names.format("one", "other"), names.format("other", "one")
    assert line == f"the order of the layers: {orders[0]} -> {orders[1]}"


def test_of_a_snapshots_text_without_a_solver_only_the_layers_are_compared(snapshot, tmp_path):
    held = arrays(snapshot)
    text = held["@model"].tobytes()
    layers = np.frombuffer(text[: text.index(b"\nsolver:") + 1], np.uint8)
    np.savez(tmp_path / "layers.npz", **{**held, "@model": layers})
    assert told(tmp_path / "layers.npz", ("base_lr: 0.1", "base_lr: 0.01")) == []
    assert refused(tmp_path / "layers.npz", ("num_output: 10", "num_output: 11")) == (
        "layers.ip.num_output: 10 -> 11"
    )


def test_a_snapshot_without_its_models_text_is_gone_on_from(snapshot, tmp_path):
    held = arrays(snapshot)
    del held["@model"]
    np.savez(tmp_path / "old.npz", **held)
    assert told(tmp_path / "old.npz", ("dropout_ratio: 0.25", "dropout_ratio: 0.5")) == []


def test_a_text_that_cannot_be_read_is_told(snapshot, tmp_path):
    held = arrays(snapshot)
    text = held["@model"].tobytes().replace(b"dropout_ratio", b"dropout_ration")
    np.savez(tmp_path / "later.npz", **{**held, "@model": np.frombuffer(text, np.uint8)})
    (line,) = told(tmp_path / "later.npz")
    assert line.startswith(
        "what changed since the snapshot is not known, for its model cannot be read: "
    )
    assert "unknown key 'dropout_ration'; did you mean 'dropout_ratio'?" in line
