"""A test without test_iter: the whole set once, the last batch smaller, the mean exact."""

from pathlib import Path

import numpy as np
import pytest
from kit import Heard, same_numbers
from tools.parallel.in_threads import on_ranks

from minicaffe import Net, ShapeError, Solver, SpecError, parse
from minicaffe.core.solver import mean_outputs

COUNT = 23
MODEL = """
layers:
  - {{name: data, type: Data, top: [data, label], source: {source}, batch_size: {batch}, transform: {{scale: 0.01}}}}
  - {{name: ip, type: InnerProduct, bottom: data, num_output: 3, weight_filler: xavier}}
  {more}
  - {{name: prob, type: Softmax, bottom: ip, include: TEST}}
  - {{name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
solver: {{base_lr: 0.01, max_iter: 4, snapshot_after_train: false, {solver}}}
"""


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(5)
    arrays = {
        "x_test": rng.integers(0, 256, (COUNT, 1, 4, 4), np.uint8),
        "y_test": np.arange(COUNT) % 3,
    }
    arrays |= {
        "x_train": rng.integers(0, 256, (40, 1, 4, 4), np.uint8),
        "y_train": np.arange(40) % 3,
    }
    np.savez(tmp_path / "set.npz", **arrays)

    def made(batch, solver="test_interval: 2", more="", source="set.npz"):
        given = {"source": tmp_path / source, "batch": batch, "solver": solver, "more": more}
        return parse(MODEL.format(**given))

    made.arrays = arrays
    return made


def reference(model, net):
    """The scores of all test entries in float64, one by one."""
    weight, bias = (param.to_host().astype(np.float64) for param in net.params["ip"])
    x = model.arrays["x_test"].reshape(COUNT, -1) * 0.01
    scores, labels = x @ weight.T + bias, model.arrays["y_test"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    prob = powers / powers.sum(axis=1, keepdims=True)
    return {
        "prob": prob.mean(axis=0),
        "accuracy": (scores.argmax(axis=1) == labels).mean(),
        "loss": -np.log(prob[np.arange(COUNT), labels]).mean(),
    }


@pytest.mark.parametrize("batch", [1, 5, 7, 22, 23, 64])
def test_each_entry_counts_once(model, batch, device):
    net = Net(model(batch), "TEST", device=device)
    expected = reference(model, net)
    for _ in range(2):
        found = mean_outputs(net)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=2e-6, err_msg=name)
        assert net.blobs["data"].shape[0] == batch  # as it was


def test_given_batches_begin_again_behind_the_last_entry(model):
    net = Net(model(20), "TEST", device="cpu")
    labels = np.concatenate([np.array(net.forward()["loss"]).reshape(1) for _ in range(2)])
    assert mean_outputs(net, 2)["loss"] == pytest.approx(labels.mean(), rel=1e-6)
    assert mean_outputs(net, 2)["loss"] != pytest.approx(mean_outputs(net)["loss"], rel=1e-3)


@pytest.mark.parametrize("interval, tested", [(2, [0, 2, 4]), (0, [4])])
def test_training_tests_on_the_whole_set(model, interval, tested):
    heard = Heard()
    solver = Solver(model(7, f"test_interval: {interval}"), device="cpu", report=heard)
    scores = solver.solve()
    assert [iteration for what, iteration in heard.events if what == "test"] == tested
    for name, value in reference(model, solver.net).items():
        np.testing.assert_allclose(scores[name], value, rtol=2e-6, err_msg=name)


def test_the_tests_of_training_change_nothing_of_it(model):
    weights = []
    for tests in ("test_interval: 1", "test_iter: 3, test_interval: 1", "display: 0"):
        solver = Solver(model(7, tests), device="cpu", report=Heard())
        solver.solve()
        weights.append(solver.net.weights())
    for other in weights[1:]:
        same_numbers(weights[0], other)


def test_without_test_interval_there_is_no_test(model):
    solver = Solver(model(7, "display: 0"), device="cpu", report=Heard())
    assert solver.test_nets == [] and solver.solve() == {}
    with pytest.raises(SpecError, match="no 'test_interval': nothing to test"):
        solver.test()


def test_several_states_are_each_tested_on_the_whole_set(model):
    spec = model(7, "test_interval: 2, test_state: [{stage: a}, {stage: b}]")
    scores = Solver(spec, device="cpu", report=Heard()).test()
    assert scores["0/loss"] == scores["1/loss"]


def test_a_net_that_takes_no_smaller_batch_says_so_before_it_is_tested(model):
    fixed = "- {name: fixed, type: Reshape, bottom: ip, top: ip, shape: {dim: [7, 3]}}".replace(
        "top: ip", "top: o"
    )
    net = Net(model(7, more=fixed), "TEST", device="cpu")
    message = r"a test of all 23 entries ends with a batch of 2, which this net does not take: give test_iter"
    with pytest.raises(ShapeError, match=message):
        mean_outputs(net)
    assert net.context.passes == 0 and net.forward()["loss"].shape == ()
    assert np.isfinite(mean_outputs(net, 3)["loss"])


def test_rows_of_hdf5_and_a_batch_that_is_read_ahead_are_seen_once(model, tmp_path):
    h5py = pytest.importorskip("h5py")
    net = Net(model(7), "TEST", device="cpu")
    arrays = model.arrays["x_test"].astype(np.float32), model.arrays["y_test"].astype(np.float32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data"], file["label"] = arrays[0] * np.float32(0.01), arrays[1]
    (tmp_path / "rows.txt").write_text(str(tmp_path / "rows.h5"))
    np.savez(tmp_path / "floats.npz", images=arrays[0], labels=arrays[1].astype(np.int64))

    rows = f"layers: [{{name: data, type: HDF5Data, top: [data, label], source: {tmp_path / 'rows.txt'}, batch_size: 7}}"
    rows += ", {name: ip, type: InnerProduct, bottom: data, num_output: 3}"
    rows += ", {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}]"
    read_ahead = MODEL.format(source=tmp_path / "floats.npz", batch=7, solver="display: 0", more="")
    for spec in (parse(rows), parse(read_ahead.replace("top: [data", "split: 0, top: [data"))):
        other = Net(spec, "TEST", device="cpu")
        other.load(net.weights())
        assert mean_outputs(other)["loss"] == pytest.approx(reference(model, net)["loss"], rel=2e-6)


@pytest.mark.parametrize("size, batch", [(2, 7), (3, 7), (3, 20), (2, 64)])
def test_ranks_share_the_batches_of_a_test(model, size, batch):
    nets = [Net(model(batch), "TEST", device="cpu") for _ in range(size)]
    for scores in on_ranks(size, lambda rank: mean_outputs(nets[rank.rank], communicator=rank)):
        for name, value in reference(model, nets[0]).items():
            np.testing.assert_allclose(scores[name], value, rtol=2e-6, err_msg=name)


WINDOWS = (
    "- {{name: crops, type: WindowData, top: [crop, kind], source: %s, batch_size: {}, "
    "transform: {{crop_size: 8}}}}\n  - {{name: sum, type: Reduction, bottom: crop, operation: MEAN}}"
    % (Path(__file__).parents[2] / "fixtures" / "examples" / "windows.txt")
)


def test_windows_are_drawn_in_whole_batches(model):
    """As many as hold all 20, or, beside a longer set, with a batch as small as its last."""
    alone = MODEL.partition("  - {{name: ip")[0].format(source="", batch=3)
    text = alone.partition("  - {name: data")[0] + "  " + WINDOWS.format(3)
    net = Net(parse(text), "TEST", device="cpu")
    assert len(net.layers["crops"].dataset) == 20
    means = [float(net.forward()["sum"]) for _ in range(7)]
    net.context.passes = 0
    assert mean_outputs(net)["sum"] == pytest.approx(np.mean(means), rel=1e-6)


def test_a_set_beside_one_that_is_drawn_is_seen_once(model):
    net = Net(model(7, more=WINDOWS.format(7)), "TEST", device="cpu")
    assert mean_outputs(net)["loss"] == pytest.approx(reference(model, net)["loss"], rel=2e-6)
    net = Net(model(7, more=WINDOWS.format(5)), "TEST", device="cpu")
    said = (
        "its data layers have several batch sizes; a test of all 23 entries ends with a batch of 2"
    )
    with pytest.raises(ShapeError, match=said):
        mean_outputs(net)


def test_the_mean_of_no_batch_is_refused(model):
    net = Net(model(7), "TEST", device="cpu")
    with pytest.raises(SpecError, match="^expected at least 1 batch to take the mean of$"):
        mean_outputs(net, 0)
    assert net.context.passes == 0
