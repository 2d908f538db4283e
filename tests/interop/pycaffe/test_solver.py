"""caffe.SGDSolver and the others: what scripts do with them."""

import gc

import numpy as np
import pytest
from kit import refusal

import minicaffe.interop.pycaffe as caffe
from minicaffe.errors import CheckpointError, ShapeError, SpecError, TrainingError

NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 5 dim: 3 } shape { dim: 5 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "gaussian" std: 0.5 } } param { lr_mult: 1 } param { lr_mult: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
MAKER = """
input: "z" input_shape { dim: 5 dim: 2 }
layer { name: "made" type: "InnerProduct" bottom: "z" top: "made" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
"""
JUDGE = """
force_backward: true
input: "data" input_shape { dim: 5 dim: 3 } input: "label" input_shape { dim: 5 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = {
    "test_iter": 2, "test_interval": 5, "base_lr": 0.1, "momentum": 0.9, "lr_policy": '"step"',
    "gamma": 0.5, "stepsize": 10, "weight_decay": 0.01, "display": 10, "max_iter": 20,
}  # fmt: skip


@pytest.fixture
def solver_file(text_file, tmp_path):
    """A function that writes a solver's text with some fields replaced, left out (None) or added."""

    def write(**fields):
        names = {"net": f'"{text_file(NET)}"', "snapshot_prefix": f'"{tmp_path / "model"}"'}
        given = SOLVER | names | fields
        lines = [f"{key}: {value}" for key, value in given.items() if value is not None]
        return text_file("\n".join(lines), "solver")

    return write


def with_labels(solver):
    for net in (solver.net, *solver.test_nets):
        net.blobs["label"].data[...] = [0, 1, 2, 3, 0]
    return solver


def test_training(solver_file, placed, capsys):
    solver = with_labels(caffe.SGDSolver(solver_file()))
    assert (solver.iter, solver.lr, len(solver.test_nets)) == (0, 0.1, 1)
    assert solver.param.max_iter == 20 and solver.param.test_iter == (2,)
    before = solver.net.params["ip"][0].data.copy()
    assert solver.solve() is None
    assert (solver.iter, solver.lr) == (20, 0.025)
    assert np.abs(solver.net.params["ip"][0].data - before).max() > 0.01
    assert solver.net.blobs["label"].data.tolist() == [0, 1, 2, 3, 0]
    tested, trained = (net.params["ip"][0].data for net in (solver.test_nets[0], solver.net))
    np.testing.assert_array_equal(tested, trained)
    said = capsys.readouterr().err
    assert "iteration 10: loss = " in said and said.count(": test loss = ") == 5


def test_the_class_is_the_type_and_get_solver_asks_the_file(solver_file):
    for kind in ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"]:
        assert getattr(caffe, f"{kind}Solver")(solver_file()).param.type == kind
        momentum = {"momentum": None} if kind in ("AdaGrad", "RMSProp") else {}
        found = caffe.get_solver(solver_file(type=f'"{kind}"', **momentum))
        assert type(found).__name__ == f"{kind}Solver" and found.param.type == kind
    found = caffe.get_solver(solver_file(minicaffe_param='{ type: "AdamW" }'))
    assert found.param.type == "AdamW"
    with open(solver_file()) as file:
        assert isinstance(caffe.get_solver_from_string(file.read()), caffe.SGDSolver)


def test_a_class_reads_the_keys_of_its_type_whatever_the_file_says(solver_file, caplog):
    keys = {"momentum": None, "delta": 0.01, "rms_decay": 0.5, "momentum2": 0.6}
    for kind, more in (("RMSProp", "rms_decay"), ("AdaGrad", None), ("Adam", "momentum2")):
        own = {key: value for key, value in keys.items() if key in (more, "momentum", "delta")}
        for said in ({}, {"type": '"Adam"'}, {"solver_type": "ADADELTA"}):
            param = getattr(caffe, f"{kind}Solver")(solver_file(**own, **said)).param
            assert param.type == kind and param.delta == 0.01
            assert more is None or getattr(param, more) == keys[more]
    assert not caplog.messages
    assert caffe.SGDSolver(solver_file(type='"Adam"', delta=0.01)).param.type == "SGD"
    assert "delta has no effect" in caplog.text


def test_adam_needs_no_momentum_and_steps_need_no_end(solver_file):
    assert caffe.AdamSolver(solver_file(momentum=None)).param.momentum == 0
    solver = caffe.SGDSolver(solver_file(max_iter=None))
    solver.step(3), solver.step(2)
    assert solver.iter == 5


def test_what_is_no_solver(text_file):
    for build, net in ((caffe.SGDSolver, text_file(NET)), (caffe.get_solver_from_string, NET)):
        assert "has no 'solver'" in refusal(build, net, error=SpecError)


def test_an_update_by_ones_own_gradient(solver_file, placed):
    """As Caffe's own test: weights of 0, gradients of 1, no decay of 0, so -rate each time."""
    solver = caffe.SGDSolver(solver_file())
    weight, bias = solver.net.layers[1].blobs
    weight.data[...], weight.diff[...] = 0, 1
    bias.data[...], bias.diff[...] = 0, 1
    solver.apply_update()
    np.testing.assert_allclose(weight.data, -0.1, rtol=1e-6)
    np.testing.assert_allclose(bias.data, -0.2, rtol=1e-6)
    assert solver.iter == 0


def test_the_gradient_of_a_loop_of_ones_own(solver_file, placed):
    """What notebooks write: forward, backward, update; it is what `step` does."""
    own, theirs = (with_labels(caffe.SGDSolver(solver_file(test_interval=0))) for _ in "12")
    own.net.clear_param_diffs()
    own.net.forward()
    own.net.backward()
    own.apply_update()
    theirs.step(1)
    for one, two in zip(own.net.params["ip"], theirs.net.params["ip"], strict=True):
        np.testing.assert_allclose(one.data, two.data, rtol=1e-6)


def test_a_net_without_a_loss_learns_from_another(solver_file, text_file, placed):
    """As the generator of a GAN: what it is told is the gradient of another net's input."""
    judge = caffe.Net(text_file(JUDGE, "judge"), caffe.TRAIN)
    keys = {"net": f'"{text_file(MAKER, "maker")}"', "momentum": None, "weight_decay": None}
    solver = caffe.SGDSolver(solver_file(test_iter=None, test_interval=None, **keys))
    net, losses = solver.net, []
    for _ in range(9):
        net.blobs["z"].data[...] = np.arange(10).reshape(5, 2) / 10
        made = net.forward()["made"]
        losses.append(float(judge.forward(data=made, label=np.arange(5) % 4)["loss"]))
        judge.backward()
        net.clear_param_diffs()
        net.backward(made=judge.blobs["data"].diff)
        solver.apply_update()
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_callbacks_come_in_caffes_order(solver_file, placed):
    solver = with_labels(caffe.SGDSolver(solver_file(iter_size=2)))
    seen = []

    def ready():
        gradient = np.abs(solver.net.params["ip"][0].diff).sum()
        seen.append(("ready", solver.iter, bool(gradient > 0)))
        solver.net.params["ip"][0].diff[...] = 0  # no update but momentum's and decay's

    solver.add_callback(lambda: seen.append(("start", solver.iter)), ready)
    solver.add_callback(lambda: None, lambda: seen.append("second"))
    solver.net.before_forward(lambda i: seen.append("forward") if i == 0 else None)
    solver.test_nets[0].before_forward(lambda i: seen.append("test") if i == 0 else None)
    before = solver.net.params["ip"][0].data.copy()
    solver.step(1)
    first, last = ["test", "test", ("start", 0)], [("ready", 0, True), "second"]
    assert seen == [*first, "forward", "forward", *last]
    after = solver.net.params["ip"][0].data
    np.testing.assert_allclose(after, before * (1 - 0.1 * 0.01), rtol=1e-5)


def test_snapshots_are_caffes_and_training_goes_on_from_them(solver_file, tmp_path, placed):
    solver = with_labels(caffe.SGDSolver(solver_file(snapshot=4)))
    solver.step(8)
    names = {path.name for path in tmp_path.glob("model*")}
    endings = ("caffemodel", "solverstate")
    assert names == {f"model_iter_{n}.{end}" for n in (4, 8) for end in endings}
    again = with_labels(caffe.SGDSolver(solver_file()))
    again.restore(str(tmp_path / "model_iter_4.solverstate"))
    assert again.iter == 4
    again.step(4)
    for one, two in zip(solver.net.params["ip"], again.net.params["ip"], strict=True):
        np.testing.assert_array_equal(one.data, two.data)
    resumed = with_labels(caffe.SGDSolver(solver_file(max_iter=8, snapshot_after_train="false")))
    resumed.solve(str(tmp_path / "model_iter_4.solverstate"))
    np.testing.assert_array_equal(resumed.net.params["ip"][0].data, solver.net.params["ip"][0].data)
    solver.snapshot()
    gone = str(tmp_path / "model_iter_5.solverstate")
    assert "model_iter_5" in refusal(solver.restore, gone, error=CheckpointError)


def test_a_state_is_no_weights_and_weights_are_no_state(solver_file, tmp_path):
    solver = caffe.SGDSolver(solver_file())
    solver.snapshot()
    for form in ("", ".h5"):
        state = tmp_path / f"model_iter_0.solverstate{form}"
        state.touch()
        told = refusal(solver.net.copy_from, str(state), error=CheckpointError)
        assert "is a solver's state; weights are the .caffemodel" in told
    with pytest.raises(CheckpointError, match="is weights .*reads a solver's state in .npz and .s"):
        solver.restore(str(tmp_path / "model_iter_0.caffemodel"))


def test_weights_shared_with_a_net(solver_file, text_file, placed):
    solver = with_labels(caffe.SGDSolver(solver_file()))
    net = caffe.Net(text_file(NET), caffe.TRAIN)
    net.params["ip"][0].data[...] = 3
    solver.share_weights(net)
    assert (solver.test_nets[0].params["ip"][0].data == 3).all()
    solver.step(2)
    for other in (net, solver.test_nets[0]):
        np.testing.assert_array_equal(other.params["ip"][0].data, solver.net.params["ip"][0].data)
    assert (net.params["ip"][0].data != 3).any()
    wider = text_file(NET.replace("num_output: 4", "num_output: 5"), "wider")
    refusal(solver.share_weights, caffe.Net(wider, caffe.TRAIN), error=ShapeError)


def test_blobs_outlive_their_nets_and_solver(solver_file):
    solver = caffe.SGDSolver(solver_file())
    nets = [solver.net, *solver.test_nets]
    blobs = [blob for net in nets for blob in [*net.blobs.values(), *net.params["ip"]]]
    del solver, nets
    gc.collect()
    assert np.isfinite(sum(float(blob.data.sum() + blob.diff.sum()) for blob in blobs))


def test_what_a_pass_left_is_what_a_script_sees(solver_file, placed):
    """After a step the blobs are those of its last pass, the weights the updated ones."""
    solver = with_labels(caffe.SGDSolver(solver_file(test_interval=0, momentum=0, weight_decay=0)))
    before = [blob.data.copy() for blob in solver.net.params["ip"]]
    solver.step(1)
    data, out = solver.net.blobs["data"].data, solver.net.blobs["ip"].data
    np.testing.assert_allclose(out, data @ before[0].T + before[1], rtol=1e-4, atol=1e-5)
    gradient = solver.net.blobs["ip"].diff.T @ data
    update = solver.net.params["ip"][0].diff  # as in Caffe, no longer the gradient
    np.testing.assert_allclose(update, 0.1 * gradient, rtol=1e-4, atol=1e-6)
    after = solver.net.params["ip"][0].data
    np.testing.assert_allclose(after, before[0] - 0.1 * gradient, rtol=1e-4, atol=1e-5)


def test_the_seed(solver_file):
    def weights():
        return caffe.SGDSolver(solver_file()).net.params["ip"][0].data

    first = weights()
    np.testing.assert_array_equal(weights(), first)
    caffe.set_random_seed(7)
    assert (weights() != first).any()
    given = caffe.SGDSolver(solver_file(random_seed=1)).net.params["ip"][0].data
    np.testing.assert_array_equal(given, first)


def test_a_loss_that_diverges_is_told(solver_file):
    solver = with_labels(caffe.SGDSolver(solver_file(test_interval=0)))
    solver.net.params["ip"][0].data[...] = np.nan
    assert "diverged" in refusal(solver.step, 1, error=TrainingError)


def test_a_net_that_has_not_run_shows_what_was_written(text_file, placed):
    """An input that is worked on in place, which here takes an array of its own."""
    text = """
    input: "x" input_shape { dim: 2 dim: 3 }
    layer { name: "add" type: "Power" bottom: "x" top: "x" power_param { shift: 1 } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 1 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    rule = "base_lr: 0.1 max_iter: 9 test_iter: 1 test_interval: 5 test_initialization: false"
    text = f'net: "{text_file(text)}" {rule} snapshot_after_train: false'
    solver = caffe.get_solver(text_file(text, "solver"))
    tested = solver.test_nets[0]
    solver.net.blobs["x"].data[...] = 1
    tested.blobs["x"].data[...] = 7
    solver.step(0)
    assert solver.net.blobs["x"].data.tolist() == [[1, 1, 1]] * 2
    solver.net.forward()  # a pass, as many as a step is
    solver.net.blobs["x"].data[...] = 1
    solver.step(1)
    assert solver.net.blobs["x"].data.tolist() == [[2, 2, 2]] * 2
    assert solver.net.blobs["x"].diff.tolist() == [[0, 0, 0]] * 2  # nothing below learns
    assert tested.blobs["x"].data.tolist() == [[7, 7, 7]] * 2
    tested.forward()
    assert tested.blobs["x"].data.tolist() == [[8, 8, 8]] * 2
