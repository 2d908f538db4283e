"""The loop, its rules and policies, against a slow float64 solver written out here; stops and resumes."""

from __future__ import annotations

import errno
import math
import os
import signal
import tempfile

import numpy as np
import pytest

from minicaffe import (
    CheckpointError,
    DataError,
    Net,
    ShapeError,
    Solver,
    SpecError,
    TrainingError,
    parse,
)
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.solver import Report
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.tools.data import datasets

MODEL = """
name: blobs
layers:
  - {{name: data, type: Data, top: [x, label], source: digits, batch_size: 6, transform: {{scale: 0.004, crop_size: 20, mirror: true}}}}
  - {{name: conv, type: Convolution, bottom: x, num_output: 2, kernel_size: 9, stride: 3}}
  - {{name: drop, type: Dropout, top: conv}}
  - {{name: ip, type: InnerProduct, num_output: 10}}
  - {{name: acc, type: Accuracy, bottom: [ip, label], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver: {{base_lr: 0.05, momentum: 0.9, weight_decay: 0.001, max_iter: 12, test_iter: 2, test_interval: 4, display: 5{more}}}
"""


class Events(Report):
    """Keeps what it is told."""

    def __init__(self):
        self.events, self.lines = [], []

    def line(self, text):
        self.lines.append(text)

    def displayed(self, iteration, loss, rate):
        self.events.append(("display", iteration))

    def tested(self, iteration, scores):
        self.events.append(("test", iteration))

    def saved(self, path):
        self.events.append(("save", os.path.basename(path)))


@pytest.fixture(autouse=True)
def few_digits(monkeypatch, tmp_path):
    """The drawn digits, but few."""
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 50, "test": 20})
    monkeypatch.setattr(datasets, "_DRAWING", "few-50")  # kept apart from the whole set
    monkeypatch.chdir(tmp_path)


def solver(more="", **options):
    options.setdefault("device", "cpu")
    return Solver(parse(MODEL.format(more=more)), report=Events(), **options)


def same(a, b):
    return all(
        np.array_equal(a.net.weights()[name], b.net.weights()[name]) for name in a.net.weights()
    )


def test_things_happen_in_caffes_order():
    s = solver(", snapshot: 6")
    scores = s.solve()
    assert s.report.events == [
        ("test", 0),
        ("display", 0),
        ("test", 4),
        ("display", 5),
        ("save", "blobs_iter_6.npz"),
        ("test", 8),
        ("display", 10),
        ("save", "blobs_iter_12.npz"),
        ("test", 12),
    ]
    assert set(scores) == {"acc", "loss"}
    assert not s.stopped


def test_no_test_before_training_unless_wanted():
    s = solver(", test_initialization: false, snapshot_after_train: false")
    s.solve()
    assert s.report.events == [
        ("display", 0),
        ("test", 4),
        ("display", 5),
        ("test", 8),
        ("display", 10),
        ("test", 12),
    ]


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"lr_policy": "fixed"}, [0.1] * 5),
        ({"lr_policy": "step", "gamma": 0.5, "stepsize": 2}, [0.1, 0.1, 0.05, 0.05, 0.025]),
        (
            {"lr_policy": "multistep", "gamma": 0.1, "stepvalue": (1, 3)},
            [0.1, 0.01, 0.01, 0.001, 0.001],
        ),
        ({"lr_policy": "exp", "gamma": 0.5}, [0.1, 0.05, 0.025, 0.0125, 0.00625]),
        (
            {"lr_policy": "inv", "gamma": 1.0, "power": 2.0},
            [0.1, 0.1 / 4, 0.1 / 9, 0.1 / 16, 0.1 / 25],
        ),
        (
            {"lr_policy": "poly", "power": 2.0},
            [0.1, 0.1 * 0.64, 0.1 * 0.36, 0.1 * 0.16, 0.1 * 0.04],
        ),
        (
            {"lr_policy": "sigmoid", "gamma": -1.0, "stepsize": 2},
            [0.1 / (1 + math.exp(i - 2)) for i in range(5)],
        ),
    ],
)
def test_policies(keys, wanted):
    spec = SolverSpec(base_lr=0.1, max_iter=5, **keys)
    np.testing.assert_allclose([learning_rate(spec, i) for i in range(5)], wanted, rtol=1e-12)


def test_iter_size_is_one_large_batch():
    """Two halves make the gradient of the whole, for a net without random layers."""
    text = MODEL.format(more="").replace("  - {name: drop, type: Dropout, top: conv}\n", "")
    text = text.replace(", crop_size: 20, mirror: true", "")
    whole = Solver(
        parse(text.replace("batch_size: 6", "batch_size: 12")),
        device="cpu",
        report=Events(),
        dtype="float64",
    )
    halves = Solver(parse(text), device="cpu", report=Events(), dtype="float64", iter_size=2)
    for s in (whole, halves):
        s.step(3)
    for name, array in whole.net.weights().items():
        np.testing.assert_allclose(halves.net.weights()[name], array, rtol=1e-10, atol=1e-13)
    assert halves.loss() == pytest.approx(whole.loss(), rel=1e-10)


def test_two_runs_with_one_seed_are_the_same_bits(device):
    one, two, other = (
        solver(device=device),
        solver(device=device),
        solver(device=device, random_seed=5),
    )
    for s in (one, two, other):
        s.step(12)
    assert same(one, two)
    assert not same(one, other)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_resuming_continues_with_the_same_bits(iter_size):
    more = f", snapshot: 5, iter_size: {iter_size}, average_loss: 3"
    straight = solver(more)
    straight.solve()
    resumed = solver(more, random_seed=77)
    resumed.restore("blobs_iter_5.npz")
    assert resumed.iteration == 5
    resumed.solve()
    assert same(straight, resumed)
    assert resumed.loss() == straight.loss()
    for a, b in zip(straight.rule.history, resumed.rule.history, strict=True):
        np.testing.assert_array_equal(a, b)
    assert str(solver().latest_snapshot()) == "blobs_iter_12.npz"


class Interrupting(Events):
    """A signal comes in an iteration."""

    def __init__(self, number, iteration):
        super().__init__()
        self.number, self.iteration = number, iteration

    def iterated(self, solver):
        if solver.iteration == self.iteration:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_iteration_stops_nothing(number):
    report = Interrupting(number, 12)
    s = Solver(parse(MODEL.format(more="")), report=report, device="cpu")
    assert s.solve() == s.scores != {}
    assert (s.stopped, s.iteration) == (False, 12)
    assert report.events[-2:] == [("save", "blobs_iter_12.npz"), ("test", 12)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_iteration_with_a_snapshot(number):
    report = Interrupting(number, 3)
    s = Solver(parse(MODEL.format(more="")), report=report, device="cpu")
    assert s.solve() == {}
    assert (s.stopped, s.iteration) == (True, 3)
    resumed, straight = solver(), solver()
    resumed.restore("blobs_iter_3.npz")
    resumed.solve()
    straight.solve()
    assert same(straight, resumed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_snapshot_of_another_net_is_refused_before_any_change():
    solver().snapshot()
    text = MODEL.format(more="").replace("num_output: 2", "num_output: 3")
    other = Solver(parse(text), report=Events(), device="cpu")
    before = other.net.weights()["conv__0"].copy()
    with pytest.raises(CheckpointError, match="of another run: layers.conv.num_output: 2 -> 3;"):
        other.restore("blobs_iter_0.npz")
    np.testing.assert_array_equal(other.net.weights()["conv__0"], before)
    other.net.save("weights.npz")
    with pytest.raises(CheckpointError, match="has no history"):
        other.restore("weights.npz")
    with pytest.raises(
        CheckpointError, match=r"there is no snapshot x/blobs_iter_\*.npz to resume from"
    ):
        solver(snapshot_prefix="x/blobs").latest_snapshot()


def test_a_missing_folder_of_snapshots_is_told_before_training():
    s = solver(snapshot_prefix="nowhere/x")
    with pytest.raises(CheckpointError, match="there is no folder 'nowhere'"):
        s.solve()
    assert s.iteration == 0


def test_a_loss_that_is_no_number_stops_training_and_keeps_the_last_snapshot():
    s = solver(", snapshot: 2", base_lr=1e30)
    with (
        pytest.raises(
            TrainingError,
            match=r"iteration 1: .*the loss is nan, .*lower base_lr \(now 1e\+30\)",
        ),
    ):
        s.solve()
    assert [name for name in os.listdir() if name.endswith(".npz")] == ["blobs_diverged.npz"]


def test_a_model_without_a_solver_or_tests():
    with pytest.raises(SpecError, match="has no 'solver'"):
        Solver(parse("layers: [{name: x, type: Input, shape: {dim: 1}}]"))
    with pytest.raises(SpecError, match="unknown key 'max_iters'"):
        solver(max_iters=3)
    with pytest.raises(SpecError, match="nothing to test"):
        solver(test_iter=0, test_interval=0).test()


def test_the_stand_in_for_mnist_is_announced_at_the_start_and_beside_the_result(monkeypatch):
    text = MODEL.format(more="").replace("source: digits", "source: mnist")
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setattr(
        datasets, "shape", lambda source, split, beside: (datasets._COUNTS[split], 1, 28, 28)
    )
    s = Solver(parse(text), report=Events(), device="cpu")
    s.solve()
    loud = [
        line
        for line in s.report.lines
        if "BUILT-IN DRAWN DIGITS" in line and line.startswith("!!!!")
    ]
    assert len(loud) == 2
    assert "BUILT-IN DRAWN DIGITS" in s.report.lines[-1]


def test_settings_are_checked_like_the_models_keys():
    with pytest.raises(SpecError, match="solver: max_iter: expected at least 0, got -5"):
        solver(max_iter=-5)
    with pytest.raises(SpecError, match="solver: lr_policy 'step' needs the key 'gamma'"):
        solver(lr_policy="step")


def test_a_rate_beyond_all_numbers_is_infinite_and_none_is_needed_without_iterations():
    spec = SolverSpec(base_lr=1, max_iter=9, lr_policy="exp", gamma=10.0)
    assert learning_rate(spec, 400) == math.inf
    assert learning_rate(SolverSpec(base_lr=1, max_iter=0, lr_policy="poly", power=1.0), 0) == 1


def test_a_users_own_passes_do_not_shift_the_data():
    straight, nosy = solver(), solver()
    straight.step(4)
    nosy.step(2)
    nosy.net.forward()
    nosy.step(2)
    assert same(straight, nosy)


def test_a_snapshot_of_another_seed_goes_on_with_its_order():
    more = ", snapshot: 5"
    straight = solver(more, random_seed=3)
    straight.solve()
    used = solver(more)
    used.step(5)
    used.restore("blobs_iter_5.npz")
    straight.restore("blobs_iter_5.npz")
    for s in (straight, used):
        s.step(7)
    assert same(straight, used)


@pytest.mark.parametrize("prefix", ["out/", "a[1]", "out/x.y"])
def test_a_snapshot_is_found_again_whatever_its_prefix(prefix):
    os.mkdir("out")
    s = solver(snapshot_prefix=prefix)
    s.step(1)
    path = s.snapshot()
    assert path.exists()
    assert s.latest_snapshot() == path


def test_a_prefix_in_a_missing_folder_is_refused_at_the_start():
    with pytest.raises(CheckpointError, match="there is no folder"):
        solver(snapshot_prefix="none/").solve()


@pytest.mark.parametrize(
    ("entry", "value", "told"),
    [
        ("@iteration", None, "entry '@iteration' is missing or no count"),
        ("@iteration", np.array(-3), "entry '@iteration' is missing or no count"),
        ("@iteration", np.array(2.5), "entry '@iteration' holds float64"),
        ("@iteration", np.array([1, 2]), "entry '@iteration' is missing or no count"),
        ("@seed", None, "entry '@seed' is missing or no count"),
        ("@seed", np.array("x"), "entry '@seed' "),
        ("@losses", None, "entry '@losses' is missing or no list"),
        ("@losses", np.array(1.0), "blobs_iter_1.npz: "),
        ("@history/conv__0", np.full((2, 1, 9, 9), "x"), "blobs_iter_1.npz: "),
        ("@training/conv__0", np.ones(3), "has no training weights for conv__0 of shape "),
        ("@best/loss", np.full(5, np.nan), "entry '@best/loss' holds no test's numbers"),
        ("conv__0", np.full((2, 1, 9, 9), "x"), "entry 'conv__0' "),
        ("conv__0", None, "conv__0"),
    ],
)
def test_a_damaged_snapshot_is_refused_before_any_change(entry, value, told):
    s = solver()
    s.step(1)
    path = s.snapshot()
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays.pop(entry, None)
    if value is not None:
        arrays[entry] = value
    np.savez(path, **arrays)
    fresh = solver(random_seed=9)
    before = fresh.net.weights()
    with pytest.raises(CheckpointError, match="blobs_iter_1.npz|weights") as caught:
        fresh.restore(path)
    assert told in str(caught.value)
    assert fresh.iteration == 0
    for name, array in fresh.net.weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_lists_paths_and_numpy_numbers_are_settings_too(tmp_path):
    s = solver(
        lr_policy="multistep",
        gamma=np.float64(0.5),
        stepvalue=[np.int64(1), 2],
        snapshot_prefix=tmp_path / "x",
    )
    assert s.spec.stepvalue == (1, 2)
    assert s.saving.prefix == str(tmp_path / "x")


def test_divergence_is_told_even_if_nothing_is_displayed():
    s = solver(display=0, snapshot_after_train=False, base_lr=1e30)
    with pytest.raises(TrainingError, match="training has diverged"):
        s.solve()


def test_the_final_snapshot_is_written_however_the_end_was_reached():
    s = solver()
    s.step(12)
    s.solve()
    assert os.path.exists("blobs_iter_12.npz")
    before = os.stat("blobs_iter_12.npz").st_mtime_ns
    again = solver()
    again.restore("blobs_iter_12.npz")
    again.solve()
    assert os.stat("blobs_iter_12.npz").st_mtime_ns == before


@pytest.mark.parametrize(
    ("where", "keys", "kept"),
    [
        ("gradient", "", "blobs_iter_2.npz"),
        ("update", "", "blobs_iter_2.npz"),  # the passes of the iteration are undone
        ("gradient", ", snapshot_prefix: gone/blobs", None),
    ],
)
def test_data_that_cannot_be_read_leave_a_snapshot_of_whole_iterations(where, keys, kept):
    os.mkdir("gone")
    text = MODEL.replace(", test_iter: 2, test_interval: 4", "").format(
        more=f", iter_size: 2{keys}"
    )
    solver = Solver(parse(text), device="cpu", report=Events())
    work = getattr(solver, where)

    def fails():
        if solver.iteration == 2:
            os.rmdir("gone")
            raise DataError("a.png: cannot be read")
        work()

    setattr(solver, where, fails)
    with pytest.raises(DataError) as caught:
        solver.solve()
    end = "; stopped at iteration 2, with a snapshot" if kept else ""
    assert str(caught.value) == f"a.png: cannot be read{end}"
    assert os.listdir() == ([kept] if kept else [])


def test_a_folder_that_takes_no_file_is_refused_before_training(monkeypatch):
    def full(**kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    solver = Solver(parse(MODEL.format(more="")), device="cpu", report=Events())
    said = r"^snapshots cannot be written to '.': No space left on device; choose another folder"
    with pytest.raises(CheckpointError, match=said):
        solver.solve()
    assert solver.iteration == 0


def test_odd_files_beside_snapshots_do_not_matter():
    s = solver()
    s.step(1)
    path = s.snapshot()
    os.symlink("nowhere", "blobs_iter_9.npz")
    os.rename(path, "blobs_iter_0001.npz")
    assert str(s.latest_snapshot()) == "blobs_iter_0001.npz"


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    class Hanging(Events):
        def iterated(self, solver):
            os.kill(os.getpid(), signal.SIGHUP)

    try:
        s = Solver(parse(MODEL.format(more="")), report=Hanging(), device="cpu")
        s.solve()
        assert (s.stopped, s.iteration) == (False, 12)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_training_goes_on_when_nobody_reads_its_lines(monkeypatch):
    class Gone:
        def write(self, text):
            raise OSError(5, "Input/output error")

        def flush(self):
            pass

    s = Solver(parse(MODEL.format(more="")), device="cpu")
    monkeypatch.setattr("sys.stderr", Gone())
    s.solve()
    assert os.path.exists("blobs_iter_12.npz")


def full_disk(monkeypatch, iterations):
    """Snapshots of these iterations cannot be written."""
    from minicaffe.storage import checkpoint

    write = checkpoint.write

    def fails(path, arrays):
        if any(str(path).endswith(f"_iter_{i}.npz") for i in iterations):
            raise CheckpointError(f"{path}: cannot be written: No space left on device")
        write(path, arrays)

    monkeypatch.setattr(checkpoint, "write", fails)


def test_a_snapshot_that_cannot_be_written_on_the_way_does_not_end_training(monkeypatch):
    full_disk(monkeypatch, (2, 4))
    made = solver(max_iter=6, snapshot=2)
    made.solve()
    told = [line for line in made.report.lines if line.startswith("no snapshot")]
    assert [line.split(":")[0] for line in told] == [
        f"no snapshot of iteration {i}" for i in (2, 4)
    ]
    assert "No space left on device; training goes on, and the next one is tried" in told[0]
    assert made.saving.saved == 6 and made.unsaved is None and os.path.exists("blobs_iter_6.npz")


@pytest.mark.parametrize("after_train", [True, False])
def test_the_last_snapshot_must_succeed(monkeypatch, after_train):
    full_disk(monkeypatch, (4, 5))
    made = solver(max_iter=5, snapshot=2, snapshot_after_train=after_train)
    with pytest.raises(CheckpointError, match="iter_5.npz: cannot be written: No space left"):
        made.solve()
    assert made.iteration == 5 and os.path.exists("blobs_iter_2.npz")
    told = [line for line in made.report.lines if line.startswith("no snapshot of iteration 5")]
    assert len(told) == 1 and "goes on" not in told[0]
    assert made.report.events[-1] == ("test", 5)  # what was learnt is shown all the same


def test_nothing_to_learn_from_is_refused():
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: ip, type: InnerProduct, num_output: 4}
solver: {base_lr: 0.1, max_iter: 3}
"""
    with pytest.raises(
        SpecError,
        match="m.yaml: nothing to learn from: .*; add one, such as SoftmaxWithLoss, or give a top",
    ):
        Solver(parse(text, "m.yaml"), device="cpu")
    Solver(parse(text.replace("output: 4}", "output: 4, loss_weight: 1}")), device="cpu")


def test_a_snapshot_due_at_the_end_is_tried_once_and_told_once(monkeypatch):
    full_disk(monkeypatch, (4,))
    made = solver(max_iter=4, snapshot=2)
    with pytest.raises(CheckpointError):
        made.solve()
    (told,) = (line for line in made.report.lines if line.startswith("no snapshot"))
    assert told.endswith("No space left on device")
    assert made.scores["loss"] > 0


def test_an_old_failure_is_forgotten_by_who_goes_on_from_a_snapshot(monkeypatch):
    made = solver(max_iter=4, snapshot=2)
    with monkeypatch.context() as for_now, pytest.raises(CheckpointError):
        full_disk(for_now, (4,))
        made.solve()
    made.restore("blobs_iter_2.npz")
    made.solve()
    assert made.saving.saved == 4


TESTED = """
name: tested
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 6}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 10}
  - {name: acc, type: Accuracy, bottom: [ip, label], include: {phase: TEST, not_stage: plain}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], exclude: {phase: TEST, stage: plain}}
test_nets:
  - name: own
    layers:
      - {name: data, type: Data, top: [x, label], source: digits, batch_size: 2}
      - {name: ip, type: InnerProduct, bottom: x, num_output: 10}
      - {name: loss2, type: SoftmaxWithLoss, bottom: [ip, label], loss_weight: 2}
solver:
  base_lr: 0.05
  max_iter: 4
  test_iter: [3, 2, 1]
  test_interval: 4
  test_compute_loss: true
  test_state: [{level: 0}, {}, {stage: plain}]
  snapshot_after_train: false
"""


def test_several_test_nets_each_with_its_test_iter():
    report = Events()
    solver = Solver(parse(TESTED), device="cpu", report=report)
    assert [net.name for net in solver.test_nets] == ["own", "tested", "tested"]
    scores = solver.solve()
    assert set(scores) == {
        *("0/loss2", "0/total loss", "1/acc", "1/loss", "1/total loss", "2/ip", "2/label"),
        "2/total loss",
    }
    assert scores["0/total loss"] == pytest.approx(2 * scores["0/loss2"])
    assert scores["1/total loss"] == pytest.approx(scores["1/loss"])
    for net in solver.test_nets:
        np.testing.assert_array_equal(net.params["ip"][0].data, solver.net.params["ip"][0].data)
    by_hand = solver.test_nets[0]
    by_hand.context.passes = 0
    losses = [float(by_hand.forward()["loss2"]) for _ in range(3)]
    assert scores["0/loss2"] == pytest.approx(np.mean(losses))


def test_debug_info_shows_each_blob_and_gradient():
    report = Events()
    text = TESTED.replace("max_iter: 4", "max_iter: 1\n  debug_info: true")
    solver = Solver(parse(text), device="cpu", report=report)
    solver.step(1)
    lines = [line for line in report.lines if line.startswith("    [")]
    ip = solver.net.params["ip"][0]
    assert "    [Backward] Layer ip, param blob 0 diff: " in "\n".join(lines)
    assert lines.count(lines[-1]) == 1 and "All net params (data, diff): L1 norm" in lines[-1]
    x = np.abs(solver.net.blobs["x"].data.astype(float)).mean()
    assert f"    [Forward] Layer data, top blob x data: {x:.6g}" in lines
    assert ip.learns


def test_parameters_of_other_shapes_are_shared_if_permitted():
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 6]}}
  - {name: a, type: InnerProduct, bottom: x, num_output: 4, bias_term: false, param: {name: w}}
  - {name: y, type: Input, shape: {dim: [2, 3]}}
  - {name: b, type: InnerProduct, bottom: y, num_output: 8, bias_term: false, param: {name: w, MODE}}
"""
    with pytest.raises(
        ShapeError, match=r"param 'w' has shape \(8, 3\) here, \(4, 6\) in layer 'a'"
    ):
        Net(parse(text.replace(", MODE", "")), device="cpu")
    net = Net(parse(text.replace("MODE", "share_mode: PERMISSIVE")), device="cpu")
    a, b = (net.params[name][0] for name in "ab")
    assert np.shares_memory(a.data, b.data) and b.data.shape == (8, 3)
    np.testing.assert_array_equal(a.data.ravel(), b.data.ravel())


def test_a_solver_whose_snapshots_have_no_folder_is_refused_when_it_is_made(tmp_path):
    """As Caffe refuses it; without snapshots the folder does not matter."""
    text = MODEL.format(more=", snapshot: 3, snapshot_prefix: gone/x")
    said = "snapshot_prefix 'gone/x': there is no folder 'gone'; make it, or choose another"
    with pytest.raises(CheckpointError, match=said):
        Solver(parse(text), device="cpu")
    Solver(parse(text), device="cpu", snapshot=0).step(1)
    (tmp_path / "net.yaml").write_text(text)
    from minicaffe.interop import pycaffe

    with pytest.raises(CheckpointError, match=said):
        pycaffe.get_solver(str(tmp_path / "net.yaml"))
