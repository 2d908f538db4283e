"""A step computed again from a file is that step, bit by bit, with and without its data set."""

import re
import shutil
import zipfile

import numpy as np
import pytest
from kit import arrays

from minicaffe import Solver, parse
from minicaffe.cli import main
from minicaffe.core.net import Net, read
from minicaffe.core.solver.report import Mute
from minicaffe.errors import DivergedError, MinicaffeError
from minicaffe.tools.data import fetch, idx
from minicaffe.tools.training.divergence import Replay

NET = """
layers:
  - {name: data, type: Data, top: [x, label], source: things, batch_size: 5, transform: {scale: 0.01, mirror: true}}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 4}
  - {name: norm, type: BatchNorm}
  - {name: drop, type: Dropout, top: norm}
  - {name: relu, type: ReLU, top: norm}
  - {name: out, type: InnerProduct, num_output: 3}
  - {name: exp, type: Exp}
  - {name: loss, type: SoftmaxWithLoss, bottom: [exp, label]}
solver: {base_lr: RATE, momentum: 0.9, max_iter: 20, iter_size: 2, snapshot_after_train: false}
"""
LSTM = """
layers:
  - {name: x, type: DummyData, top: [x, cont], shape: [{dim: [3, 2, 4]}, {dim: [3, 2]}],
     data_filler: [{type: gaussian}, {type: constant, value: 1}]}
  - {name: lstm, type: LSTM, bottom: [x, cont], num_output: 3}
  - {name: loss, type: Reduction, bottom: lstm, loss_weight: 1.0e+30}
solver: {base_lr: 1.0e+9, max_iter: 20}
"""


@pytest.fixture(autouse=True)
def things(tmp_path, here):
    """A data set of 20 images in a folder, beside which the tests run."""
    folder = tmp_path / "things"
    folder.mkdir()
    random = np.random.default_rng(0)
    for place, file in enumerate(fetch.FILES):
        shape = (20, 4, 4) if place % 2 == 0 else (20,)
        drawn = random.integers(0, 3 if place % 2 else 256, shape).astype(np.uint8)
        idx.write(folder / file, drawn)
    return folder


def made(text, device="cpu", **settings):
    return Solver(parse(text), device=device, report=Mute(), **settings)


def diverged(text, device="cpu"):
    """The iteration at which a net diverges, and the file that is left."""
    solver = made(text, device, display=3)
    with np.errstate(all="ignore"), pytest.raises(DivergedError) as error:
        solver.step(20)
    return solver.iteration, error.value.path


def bits(solver):
    """What a pass has left in blobs and gradients."""
    host, net = solver.device.to_host, solver.net
    blobs = [value.blob.data for step in net.steps for value in step.tops]
    diffs = [param.diff for param in net.learnable if param.learns]
    return [np.array(host(array)).tobytes() for array in (*blobs, *diffs)]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
@pytest.mark.parametrize("text", [NET.replace("RATE", "1.0e+3"), LSTM], ids=["net", "lstm"])
def test_a_replay_is_the_step_bit_by_bit(text, where, request, things):
    device = request.getfixturevalue("cuda") if where == "cuda" else "cpu"
    iteration, path = diverged(text, device)
    step = made(text, device)
    with np.errstate(all="ignore"):
        step.step(iteration)
        step.gradient()
    shutil.rmtree(things)
    replay = Replay(path, device=device)
    replay.run()
    assert replay.solver.iteration == iteration > 0
    assert bits(replay.solver) == bits(step)


def test_a_snapshot_is_replayed_from_its_data(things):
    text = NET.replace("RATE", "0.1")
    solver = made(text)
    solver.step(3)
    path = solver.snapshot()
    solver.gradient()
    replay = Replay(path, device="cpu")
    replay.run()
    assert bits(replay.solver) == bits(solver)
    head, *_, text = replay.lines()
    assert re.fullmatch(r"\S+_iter_3.npz: iteration 3, lr 0.1, seed 1, batch 2 of 2", head)
    solver.update()
    says = r"all is finite; loss [\d.]+, gradient's norm ([\d.]+), weights' norm [\d.]+"
    gradient = re.fullmatch(says, text)[1]
    assert float(gradient) == pytest.approx(np.sqrt(solver.watch.gradient) / 2, rel=1e-5)
    things.rename("elsewhere")
    with pytest.raises(MinicaffeError, match="things"):
        Replay(path, device="cpu")


def test_the_command_shows_each_blob_and_marks_the_first_bad_one(tmp_path, capsys):
    iteration, path = diverged(NET.replace("RATE", "1.0e+3"))
    (run := tmp_path / "run").mkdir()
    path.rename(run / "diverged.npz")
    assert main(["replay", str(run), "--device", "cpu"]) == 0
    head, *table, said = capsys.readouterr().out.splitlines()
    begin = f"{run}/diverged.npz: iteration {iteration}, lr 1000, seed 1, batch 1 of 2"
    assert head.startswith(begin)
    names = [re.split(r"\s+", row)[2] for row in table[1:]]
    wanted = (
        "x label ip__0 ip__1 ip norm__0 norm__1 norm__2 norm norm norm out__0 out__1 out exp loss"
    )
    assert names == wanted.split()
    marked = [row for row in table if row.endswith("<- first")]
    assert len(marked) == 1
    assert marked[0].startswith(re.search(r"layer '(\w+)' \(\w+\) gives blob", said)[1])
    held = arrays(run / "diverged.npz")
    x, weight = held["@batch/0/x"], held["ip__0"]
    for row, array in ((table[1], x), (table[3], weight)):
        cells = row.split()[3:6]
        ends = array.min(), array.max(), array.astype(np.float64).mean()
        assert cells == [f"{float(end):.4g}" for end in ends]


def test_weights_that_are_no_numbers_are_replayed_as_they_are():
    solver = made(NET.replace("RATE", "0.1"), display=1)
    solver.step(1)
    solver.net.params["out"][0].data[0, 0] = np.nan
    with np.errstate(all="ignore"), pytest.raises(DivergedError) as error:
        solver.step(1)
    replay = Replay(error.value.path, device="cpu")
    replay.run()
    assert "has parameter 'out__0' 1 of 12 values" in replay.lines()[-1]
    with pytest.raises(MinicaffeError, match="numbers that are not finite"):
        made(NET.replace("RATE", "0.1")).restore(error.value.path)


def test_what_cannot_be_replayed(tmp_path, capsys):
    def said(path):
        assert main(["replay", str(path), "--device", "cpu", "--quiet"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "no such file" in said("nothing.npz").lower()
    assert "is no run's folder: there is no run.json in it" in said(tmp_path)
    made(NET.replace("RATE", "0.1")).net.save("weights.npz")
    assert "has no history" in said("weights.npz")
    np.savez("plain.npz", a=np.ones(3))
    assert "plain.npz" in said("plain.npz")
    zipped = zipfile.ZipFile("none.npz", "w")
    zipped.writestr("a.txt", "")
    zipped.close()
    assert "none.npz: is not a whole .npz file: it is a zip archive" in said("none.npz")
    Net(parse(NET.partition("solver:")[0]), device="cpu").save("bare.npz")
    assert "bare.npz: its net has no solver: there is no step to replay" in said("bare.npz")
    path = diverged(NET.replace("RATE", "1.0e+3"))[1]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert str(path) in said(path)


def test_a_rate_that_tests_have_lowered_is_replayed(tmp_path):
    """The net that is replayed has no tests: what they have led to was saved."""
    keys = "max_iter: 20, test_iter: 1, test_interval: 1, lr_policy: plateau, patience: 1"
    keys += ", gamma: 0.5, best: {output: loss, mode: max, min_delta: 1000}, early_stopping: 99"
    solver = made(NET.replace("RATE", "0.1").replace("max_iter: 20", keys))
    with np.errstate(all="ignore"):  # BatchNorm's sums are of few batches yet
        solver.step(4)
    replay = Replay(solver.snapshot(), device="cpu")
    assert replay.solver.rate == solver.rate == 0.1 * 0.5**3
    replay.run()
    solver.gradient()
    assert bits(replay.solver) == bits(solver)


def test_what_was_saved_is_a_snapshot_with_the_batch():
    """It can be gone on from, with a rate that is lower."""
    iteration, path = diverged(NET.replace("RATE", "1.0e+3"))
    held = arrays(path)
    assert {name.split("/")[1] for name in held if name.startswith("@batch/")} == {"0", "1"}
    spec = read(path)
    assert spec.solver.base_lr == 1e3
    small = {name: one / 1e3 if one.dtype.kind == "f" else one for name, one in held.items()}
    np.savez("small.npz", **small)
    solver = Solver(spec, device="cpu", report=Mute(), base_lr=0.1)
    solver.restore("small.npz")
    assert solver.iteration == iteration
    solver.step(1)
    solver.loss()
