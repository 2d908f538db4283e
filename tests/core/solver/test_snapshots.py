"""Snapshots in Caffe's files: those of the real Caffe gone on with, ours the same when read again."""

import caffe_cases as cases
import numpy as np
import pytest

from minicaffe import CheckpointError, Solver, parse
from minicaffe.core.config.declare import with_settings
from minicaffe.core.solver.report import Mute
from minicaffe.core.solver.update_rules import KINDS
from minicaffe.interop.caffe import state as caffes

NET = """
name: small
layers:
  - {{name: data, type: Input, top: [x, label], shape: [{{dim: [4, 3]}}, {{dim: [4]}}]}}
  - {{name: ip, type: InnerProduct, bottom: x, num_output: 2}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver:
  {{type: {kind}, base_lr: 0.1, max_iter: 6, average_loss: 3, snapshot_format: {form}, lr_policy: multistep,
   gamma: 0.5, stepvalue: [2, 5]{more}}}
"""
FORMS = {"NPZ": ".npz", "BINARYPROTO": ".solverstate", "HDF5": ".solverstate.h5"}
pytestmark = pytest.mark.usefixtures("here")


def made(kind="SGD", form="BINARYPROTO"):
    more = "" if kind in ("AdaGrad", "RMSProp") else ", momentum: 0.9"
    solver = Solver(parse(NET.format(kind=kind, form=form, more=more)), device="cpu", report=Mute())
    solver.net.blobs["x"].data = np.random.default_rng(0).normal(size=(4, 3))
    return solver


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_to_the_bit_from_each_kind_of_file(kind, form, tmp_path):
    if form == "HDF5":
        pytest.importorskip("h5py")
    straight, resumed = made(kind, form), made(kind, form)
    straight.step(3)
    path = straight.snapshot()
    assert path.name == f"small_iter_3{FORMS[form]}"
    assert resumed.latest_snapshot() == path
    resumed.restore(path)
    assert resumed.iteration == 3
    for solver in (straight, resumed):
        solver.step(3)
    for a, b in zip(straight.net.learnable, resumed.net.learnable, strict=True):
        np.testing.assert_array_equal(a.data, b.data)
    for a, b in zip(straight.rule.history, resumed.rule.history, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.any(a)
    if form != "NPZ":
        assert caffes.read(path).current_step == 1
        assert (
            tmp_path / f"small_iter_3{FORMS[form]}".replace("solverstate", "caffemodel")
        ).exists()


@pytest.mark.parametrize("form", ["NPZ", "BINARYPROTO"])
def test_the_last_few_snapshots_stay(form, tmp_path):
    solver = made(form=form)
    (tmp_path / f"small_iter_9{FORMS[form]}").touch()  # of another run, further on: not this one's
    (tmp_path / "small_iter_x.npz").touch()
    solver.spec = with_settings(solver.spec, {"snapshot_keep": 2, "snapshot": 1})
    solver.step(4)
    states = sorted(path.name for path in tmp_path.glob(f"small_iter_?{FORMS[form]}"))
    kept = [f"small_iter_{n}{FORMS[form]}" for n in (3, 4, 9)]
    assert states == kept if form != "NPZ" else states == [*kept, "small_iter_x.npz"]
    if form != "NPZ":
        weights = sorted(path.name for path in tmp_path.glob("*.caffemodel"))
        assert weights == ["small_iter_3.caffemodel", "small_iter_4.caffemodel"]


def test_what_a_killed_run_left_goes_when_nothing_remains_to_be_trained(tmp_path):
    """It was killed between its last snapshot and the removal of the one before."""
    first, again = made(form="NPZ"), made(form="NPZ")
    for solver in (first, again):
        solver.spec = with_settings(solver.spec, {"snapshot_keep": 1, "snapshot": 3})
    first.step(3)
    older = (tmp_path / "small_iter_3.npz").read_bytes()
    first.step(3)
    (tmp_path / "small_iter_3.npz").write_bytes(older)
    again.restore(tmp_path / "small_iter_6.npz")
    again.solve()
    assert [path.name for path in tmp_path.iterdir()] == ["small_iter_6.npz"]


def test_no_older_snapshot_goes_before_the_next_is_whole(monkeypatch, tmp_path):
    from minicaffe.storage import checkpoint

    solver = made(form="NPZ")
    solver.spec = with_settings(solver.spec, {"snapshot_keep": 1, "snapshot": 1})
    solver.step(1)

    def full(path, arrays):
        raise CheckpointError(f"{path}: cannot be written: No space left on device")

    with monkeypatch.context() as for_now:
        for_now.setattr(checkpoint, "write", full)
        solver.step(2)
    assert [path.name for path in tmp_path.iterdir()] == ["small_iter_1.npz"]
    solver.step(1)
    assert [path.name for path in tmp_path.iterdir()] == ["small_iter_4.npz"]


def test_a_state_of_another_type_or_without_weights_is_refused(tmp_path):
    sgd, adam = made("SGD"), made("Adam")
    sgd.step(1)
    path = sgd.snapshot()
    before = [param.data.copy() for param in adam.net.learnable]
    told = "small_iter_1.solverstate: holds 2 arrays of history"
    with pytest.raises(CheckpointError, match=told):
        adam.restore(path)
    (tmp_path / "small_iter_1.caffemodel").unlink()
    with pytest.raises(CheckpointError, match="its weights are not there; looked for"):
        sgd.restore(path)
    for param, values in zip(adam.net.learnable, before, strict=True):
        np.testing.assert_array_equal(param.data, values)


STATES = [
    (name, n)
    for name in cases.names("Solver")
    for n in (5, 10)
    if f"solverstate_iter{n}" in cases.load(name)
]


@pytest.mark.parametrize("rewritten", [False, True], ids=["theirs", "rewritten"])
@pytest.mark.parametrize(("name", "n"), STATES)
def test_a_state_of_real_caffe_goes_on_as_caffe_did(name, n, rewritten, tmp_path):
    case, path = cases.load(name), tmp_path / "theirs.solverstate"
    path.write_bytes(case[f"solverstate_iter{n}"].tobytes())
    state = caffes.read(path)
    state.learned_net = state.learned_net.rpartition("/")[2]
    (tmp_path / state.learned_net).write_bytes(case[f"caffemodel_iter{n}"].tobytes())
    if rewritten:
        caffes.write(path, state)
    solver = cases.solver_of(case, snapshot_format="BINARYPROTO")
    solver.restore(path)
    assert solver.iteration == n
    named = cases.params_of(solver.net, case)
    for one, param in named.items():
        np.testing.assert_array_equal(param.data, case[f"traj__{one}"][n])
    for i, mine in enumerate(solver.rule.history):
        wanted = case[f"history_iter{n}_{i}"]
        np.testing.assert_array_equal(mine.ravel(), wanted.ravel())
    cases.feed(solver.net, case, n)
    for i in range(n, int(case["steps"])):
        solver.step(1)
        for one, param in named.items():
            wanted = case[f"traj__{one}"][i + 1]
            cases.assert_close(param.data, wanted, f"{one} after step {i}", 2e-5)
    assert caffes.read(solver.snapshot()).iteration == int(case["steps"])
