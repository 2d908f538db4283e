"""Training that began in the real Caffe goes on here as it went on there."""

import os

import caffe_cases as cases
import numpy as np
import pytest
from kit import refusal

from minicaffe import CheckpointError, Solver
from minicaffe.interop.caffe import state, weights

NAMES = [
    name
    for name in cases.names("Solver")
    if any(key.startswith("solverstate_iter") for key in cases.load(name))
]


@pytest.fixture
def case_of(tmp_path, here):
    """Of a solver's case by name: the solver, made as Caffe's was, and Caffe's files, in a folder of their own."""

    def made(name):
        case = cases.load(name)
        keys = (k for k in case if k.startswith("solverstate_iter") and case[k].ndim == 1)
        at = min(int(key.removeprefix("solverstate_iter")) for key in keys)
        (tmp_path / "s.solverstate").write_bytes(case[f"solverstate_iter{at}"].tobytes())
        learned = state.read("s.solverstate").learned_net.rpartition("/")[2]
        (tmp_path / learned).write_bytes(case[f"caffemodel_iter{at}"].tobytes())
        return case, at, cases.solver_of(case)

    return made


def test_a_state_of_another_type_of_solver_or_without_weights_is_refused(case_of, tmp_path):
    _, _, solver = case_of("Solver_SGD_momentum")
    before = solver.net.weights()
    given = state.read("s.solverstate")
    for wrong, told in (
        ((5, given.learned_net, 0, given.history * 2), "holds 8 arrays of history; this net and type of solver have 4"),
        ((5, "no/where.caffemodel", 0, given.history), "its weights are not there; looked for no/where"),
        ((5, "", 0, given.history), "names no weights (learned_net); load them with --weights"),
        ((-5, "x"), "iteration -5, step 0: expected 0 to 2^31 - 1"),
    ):  # fmt: skip
        state.write("wrong.solverstate", state.SolverState(*wrong))
        assert told in refusal(solver.restore, "wrong.solverstate", error=CheckpointError)
    assert all((solver.net.weights()[n] == a).all() for n, a in before.items())


@pytest.mark.parametrize(
    ("name", "gap", "message"),
    [
        ("w.caffemodel", "history/2", "'/history' does not hold 0, 1, ... without a gap"),
        ("a\nb", "history/1", "'learned_net' is no printable text"),
    ],
)
def test_a_state_in_hdf5_that_is_not_whole(name, gap, message, tmp_path):
    h5py = pytest.importorskip("h5py")
    state.write(tmp_path / "s.h5", state.SolverState(5, name, 0, [np.ones(2)] * 2))
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file.move("history/1", "history/3")
        file.move("history/3", gap)
    with pytest.raises(CheckpointError, match=f"s.h5: is not a whole HDF5 file: {message}"):
        state.read(tmp_path / "s.h5")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "s.h5")
    with pytest.raises(CheckpointError, match="is not a whole HDF5 file: found no regular file"):
        state.read(tmp_path / "s.h5")


def test_what_is_saved_goes_on_the_same(case_of):
    """Our parameters and history in Caffe's files, read again: the same to the bit."""
    _, _, one = case_of("Solver_Adam_basic")
    _, _, other = case_of("Solver_Adam_basic")
    one.restore("s.solverstate")
    one.step(3)
    one.net.save("here.caffemodel")
    history = [np.array(array) for array in one.rule.history]
    state.write("here.solverstate", state.SolverState(one.iteration, "here.caffemodel", 0, history))
    assert weights.is_caffes("here.caffemodel")
    other.restore("here.solverstate")
    for solver in (one, other):
        solver.step(3)
    for name, array in one.net.weights().items():
        assert other.net.weights()[name].tobytes() == array.tobytes()


SMALL = {
    "layers": [
        {"name": "x", "type": "DummyData", "shape": {"dim": [2, 3]}, "data_filler": "uniform"},
        {"name": "a/ip", "type": "InnerProduct", "bottom": "x", "top": "y", "num_output": 2},
        {"name": "loss", "type": "EuclideanLoss", "bottom": ["y", "y"]},
    ],
    "solver": {"type": "SGD", "base_lr": 0.1, "max_iter": 2, "snapshot_prefix": "s"},
}


def test_a_history_beyond_the_nets_type_is_refused_before_any_change(here):
    solver = Solver(SMALL, device="cpu", snapshot_format="BINARYPROTO")
    file = solver.snapshot()
    found = state.read(file)
    found.history[0] = np.full(found.history[0].shape, 1e300)
    state.write(file, found)
    weight = solver.net.params["a/ip"][0].data
    weight += 1
    before = weight.copy()
    with pytest.raises(CheckpointError, match=r"s_iter_0\.solverstate: .* too large for float32"):
        solver.restore(file)
    np.testing.assert_array_equal(weight, before)


def test_the_weights_lie_beside_a_state_in_a_folder_of_any_name(tmp_path, here):
    (tmp_path / "my.solverstates").mkdir()
    settings = {"snapshot_format": "BINARYPROTO", "snapshot_prefix": "my.solverstates/s"}
    solver = Solver(SMALL, device="cpu", **settings)
    file = solver.snapshot()
    assert file.with_name("s_iter_0.caffemodel").is_file()
    solver.restore(file)


def test_layers_that_hdf5_has_no_place_for_are_told_before_training(here):
    solver = Solver(SMALL, device="cpu", snapshot_format="HDF5")
    with pytest.raises(CheckpointError, match="HDF5 has no place for a layer named 'a/ip'"):
        solver.solve()
    assert solver.iteration == 0
