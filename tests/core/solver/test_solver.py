"""The loop, its rules and policies, against a slow float64 solver written out here; stops and resumes."""

import errno
import itertools
import math
import os
import signal
import tempfile

import numpy as np
import pytest
from core.solver.twins import differences, numbers
from kit import Heard, arrays, digits_for_mnist, full_disk, model_of, refusal

from minicaffe import CheckpointError, DataError, Net, Solver, parse
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.interop import pycaffe

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
pytestmark = pytest.mark.usefixtures("fifty_digits")


def solver(more="", **options):
    return Solver(parse(MODEL.format(more=more)), **{"device": "cpu", "report": Heard()} | options)


def same(a, b):
    return all(np.array_equal(x, b.net.weights()[name]) for name, x in a.net.weights().items())


def test_things_happen_in_caffes_order():
    s = solver(", snapshot: 6")
    fewer = solver(", test_initialization: false, snapshot_after_train: false")
    assert set(s.solve()) == {"acc", "loss"} and not s.stopped
    assert s.report.events == [
        ("test", 0), ("display", 0), ("test", 4), ("display", 5), ("save", "blobs_iter_6.npz"),
        ("test", 8), ("display", 10), ("save", "blobs_iter_12.npz"), ("test", 12),
    ]  # fmt: skip
    fewer.solve()
    assert fewer.report.events == [one for one in s.report.events[1:] if one[0] != "save"]


def test_iter_size_is_one_large_batch():
    """Two halves make the gradient of the whole, for a net without random layers."""
    text = MODEL.format(more="").replace("  - {name: drop, type: Dropout, top: conv}\n", "")
    text = text.replace(", crop_size: 20, mirror: true", "")
    texts = text.replace("batch_size: 6", "batch_size: 12"), text
    given = {"device": "cpu", "report": Heard(), "dtype": "float64"}
    whole, halves = (Solver(parse(one), iter_size=i, **given) for i, one in enumerate(texts, 1))
    for s in (whole, halves):
        s.step(3)
    for name, array in whole.net.weights().items():
        np.testing.assert_allclose(halves.net.weights()[name], array, rtol=1e-10, atol=1e-13)
    assert halves.loss() == pytest.approx(whole.loss(), rel=1e-10)


def test_two_runs_with_one_seed_are_the_same_bits(device):
    one, two, other = (solver(device=device, random_seed=seed) for seed in (1, 1, 5))
    for s in (one, two, other):
        s.step(12)
    assert same(one, two)
    assert not same(one, other)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_resuming_continues_with_the_same_bits(iter_size):
    """Whatever the solver was of that goes on: of another seed, and further on."""
    more = f", snapshot: 5, iter_size: {iter_size}, average_loss: 3"
    straight, resumed = solver(more, random_seed=3), solver(more, random_seed=77)
    resumed.step(7)
    straight.solve()
    resumed.restore("blobs_iter_5.npz")
    assert resumed.iteration == 5
    resumed.solve()
    assert same(straight, resumed)
    assert resumed.loss() == straight.loss()
    for a, b in zip(straight.rule.history, resumed.rule.history, strict=True):
        np.testing.assert_array_equal(a, b)
    assert str(solver().latest_snapshot()) == "blobs_iter_12.npz"


class Interrupting(Heard):
    """A signal comes in an iteration."""

    def __init__(self, number, iteration):
        super().__init__()
        self.number, self.iteration = number, iteration

    def iterated(self, solver):
        if solver.iteration == self.iteration:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_iteration_stops_nothing(number):
    s = solver(report=Interrupting(number, 12))
    assert s.solve() == s.scores != {}
    assert (s.stopped, s.iteration) == (False, 12)
    assert s.report.events[-2:] == [("save", "blobs_iter_12.npz"), ("test", 12)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_iteration_with_a_snapshot(number):
    s = solver(report=Interrupting(number, 3))
    assert s.solve() == {}
    assert (s.stopped, s.iteration) == (True, 3)
    resumed, straight = solver(), solver()
    resumed.restore("blobs_iter_3.npz")
    resumed.solve()
    straight.solve()
    assert same(straight, resumed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


NO_FOLDER = "'gone' cannot be made: File exists"
PLAIN = model_of({"x": [2, 3]}, "ip InnerProduct num_output: 4")
SETTINGS = "solver: {base_lr: 0.1, max_iter: 3}"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: Solver(parse(PLAIN, "m.yaml")), "m.yaml: has no 'solver'; training needs one"),
        (lambda: Solver(parse(PLAIN + SETTINGS, "m.yaml")),
         "m.yaml: nothing to learn from: no layer of the phase TRAIN is a loss of a weight above 0;"
         " add one, such as SoftmaxWithLoss, or give a top a loss_weight"),
        (lambda: solver(max_iters=3), "solver: unknown key 'max_iters'; did you mean 'max_iter'?"),
        (lambda: solver(test_iter=0, test_interval=0).test(),
         "the solver has no 'test_interval': nothing to test"),
        (lambda: solver(snapshot=3, snapshot_prefix="gone/x"), f"snapshot_prefix 'gone/x': {NO_FOLDER}"),
        (lambda: pycaffe.get_solver("net.yaml"), f"snapshot_prefix 'gone/x': {NO_FOLDER}"),
        (lambda: solver(snapshot_prefix="gone/").solve(), f"snapshot_prefix 'gone/': {NO_FOLDER}"),
        (lambda: solver(snapshot_prefix="x/blobs").latest_snapshot(),
         "there is no snapshot x/blobs_iter_*.npz to resume from"),
    ],
)  # fmt: skip
def test_what_no_solver_can_do_is_refused(work, said, tmp_path):
    (tmp_path / "net.yaml").write_text(MODEL.format(more=", snapshot: 3, snapshot_prefix: gone/x"))
    (tmp_path / "gone").touch()
    assert refusal(work) == said


def test_a_loss_weight_is_enough_to_learn_and_the_folder_of_snapshots_is_made():
    text = PLAIN.replace("output: 4}", "output: 4, loss_weight: 1}") + SETTINGS
    Solver(parse(text), device="cpu", snapshot_prefix="new/deep/x").step(1)
    assert not os.path.exists("new")  # without snapshots none is needed
    Solver(parse(text), device="cpu", snapshot_prefix="new/deep/x", snapshot=1).step(1)
    assert os.path.exists("new/deep/x_iter_1.npz")


def test_the_stand_in_for_mnist_is_announced_at_the_start_and_beside_the_result(monkeypatch):
    text = MODEL.format(more="").replace("source: digits", "source: mnist")
    digits_for_mnist(monkeypatch)
    s = Solver(parse(text), report=Heard(), device="cpu")
    s.solve()
    loud = [line for line in s.report.lines if "BUILT-IN DRAWN DIGITS" in line]
    assert len(loud) == 2 and all(line.startswith("!!!!") for line in loud)
    assert loud[-1] == s.report.lines[-1]


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


@pytest.mark.parametrize("prefix", ["out/", "a[1]", "out/x.y"])
def test_a_snapshot_is_found_again_whatever_its_prefix(prefix):
    os.mkdir("out")
    s = solver(snapshot_prefix=prefix)
    s.step(1)
    path = s.snapshot()
    assert path.exists()
    assert s.latest_snapshot() == path


WORDS, MANY = np.full((2, 1, 9, 9), "x"), np.full((2, 1, 9, 9), np.nan, np.float32)
ALL = ", lr_policy: plateau, gamma: 0.5, patience: 2, plateau: loss, best: acc, ema_decay: 0.8"


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
        ("@history/conv__0", WORDS, "blobs_iter_1.npz: "),
        ("@training/conv__0", np.ones(3), "has no training weights for conv__0 of shape "),
        ("@best/loss", np.full(5, np.nan), "entry '@best/loss' holds no test's numbers"),
        ("conv__0", WORDS, "entry 'conv__0' "),
        ("conv__0", None, "conv__0"),
        (f"@training/conv__0{ALL}", None, "conv__0"),
        (f"@training/conv__0{ALL}", np.zeros((3, 2), np.float32), "conv__0"),
        (f"@training/conv__0{ALL}", MANY, "conv__0"),
        *((f"@best/max/acc{ALL}", one, "acc") for one in (np.zeros(4), np.array([np.nan, 0, 0, 0, 0]))),
        *((f"@plateau/min/loss{ALL}", np.array(one), "loss")
          for one in ([0.0, -2, 0, 0, 0], [0.0, 0, 0, 1e300, 0], [0.0, 0, 0, 2.0**62, 0])),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_a_damaged_snapshot_is_refused_before_any_change(entry, value, told):
    """Also of one that keeps an average and the best, and whose rate falls."""
    more = ALL if entry.endswith(ALL) else ""
    entry, s = entry.removesuffix(ALL), solver(more)
    s.step(1)
    path = s.snapshot()
    held = arrays(path)
    assert entry in held or (entry.startswith(("@training", "@best")) and not more)
    held.pop(entry, None)
    np.savez(path, **held, **({} if value is None else {entry: value}))
    fresh = solver(more, random_seed=9)
    before = numbers(fresh)
    said = refusal(fresh.restore, path, error=CheckpointError)
    assert told in said and ("blobs_iter_1.npz" in said or "weights" in said)
    assert not differences(numbers(fresh), before)


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
    s = solver(f", iter_size: 2{keys}", test_iter=0, test_interval=0)
    work = getattr(s, where)

    def fails():
        if s.iteration == 2:
            os.rmdir("gone")
            raise DataError("a.png: cannot be read")
        work()

    setattr(s, where, fails)
    end = "; stopped at iteration 2, with a snapshot" if kept else ""
    assert refusal(s.solve, error=DataError) == f"a.png: cannot be read{end}"
    assert os.listdir() == ([kept] if kept else [])


def test_a_folder_that_takes_no_file_is_refused_before_training(monkeypatch):
    def full(**kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    s = solver()
    said = r"^snapshots cannot be written to '.': No space left on device; choose another folder"
    with pytest.raises(CheckpointError, match=said):
        s.solve()
    assert s.iteration == 0


def test_odd_files_beside_snapshots_do_not_matter():
    s = solver()
    s.step(1)
    path = s.snapshot()
    os.symlink("nowhere", "blobs_iter_9.npz")
    os.rename(path, "blobs_iter_0001.npz")
    assert str(s.latest_snapshot()) == "blobs_iter_0001.npz"


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        s = solver(report=Interrupting(signal.SIGHUP, 3))
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

    s = solver(report=None)
    monkeypatch.setattr("sys.stderr", Gone())
    s.solve()
    assert os.path.exists("blobs_iter_12.npz")


def test_a_snapshot_that_cannot_be_written_on_the_way_does_not_end_training(monkeypatch):
    full_disk(monkeypatch, "iter_2.npz", "iter_4.npz")
    made = solver(max_iter=6, snapshot=2)
    made.solve()
    first, second = (line for line in made.report.lines if line.startswith("no snapshot"))
    assert first.startswith("no snapshot of iteration 2: ")
    assert second.startswith("no snapshot of iteration 4: ")
    assert "No space left on device; training goes on, and the next one is tried" in first
    assert made.saving.saved == 6 and made.unsaved is None and os.path.exists("blobs_iter_6.npz")


@pytest.mark.parametrize(("last", "after_train"), [(5, True), (5, False), (4, True)])
def test_the_last_snapshot_must_succeed(monkeypatch, last, after_train):
    """Where it is due anyway it is tried once; and who goes on from an older one has it."""
    made = solver(max_iter=last, snapshot=2, snapshot_after_train=after_train)
    with monkeypatch.context() as for_now:
        full_disk(for_now, "iter_4.npz", "iter_5.npz")
        with pytest.raises(CheckpointError, match=f"iter_{last}.npz: cannot be written: No space"):
            made.solve()
    assert made.iteration == last and os.path.exists("blobs_iter_2.npz")
    (told,) = (line for line in made.report.lines if f"no snapshot of iteration {last}" in line)
    assert told.endswith("No space left on device")
    assert made.report.events[-1] == ("test", last)  # what was learnt is shown all the same
    made.restore("blobs_iter_2.npz")
    assert made.unsaved is None
    made.solve()
    assert made.saving.saved == (last if after_train else 4)


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
  {base_lr: 0.05, max_iter: 4, test_iter: [3, 2, 1], test_interval: 4, test_compute_loss: true,
   test_state: [{level: 0}, {}, {stage: plain}], snapshot_after_train: false}
"""


def test_several_test_nets_each_with_its_test_iter():
    solver = Solver(parse(TESTED), device="cpu", report=Heard())
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
    solver = Solver(parse(TESTED), device="cpu", report=Heard(), debug_info=True)
    solver.step(1)
    lines = [line for line in solver.report.lines if line.startswith("    [")]
    assert "    [Backward] Layer ip, param blob 0 diff: " in "\n".join(lines)
    assert lines.count(lines[-1]) == 1 and "All net params (data, diff): L1 norm" in lines[-1]
    x = np.abs(solver.net.blobs["x"].data.astype(float)).mean()
    assert f"    [Forward] Layer data, top blob x data: {x:.6g}" in lines
    assert solver.net.params["ip"][0].learns


def test_parameters_of_other_shapes_are_shared_if_permitted():
    text = model_of(
        {"x": [2, 6], "y": [2, 3]},
        "a InnerProduct bottom: x, num_output: 4, bias_term: false, param: {name: w}",
        "b InnerProduct bottom: y, num_output: 8, bias_term: false, param: {name: w, MODE}",
    )
    said = "param 'w' has shape (8, 3) here, (4, 6) in layer 'a' (InnerProduct) at line 3"
    assert said in refusal(Net, parse(text.replace(", MODE", "")), device="cpu")
    net = Net(parse(text.replace("MODE", "share_mode: PERMISSIVE")), device="cpu")
    a, b = (net.params[name][0] for name in "ab")
    assert np.shares_memory(a.data, b.data) and b.data.shape == (8, 3)
    np.testing.assert_array_equal(a.data.ravel(), b.data.ravel())
