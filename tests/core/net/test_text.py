"""The text of a net: in snapshots, in weight files, wherever it is written the same model."""

import ntpath
import os
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import caffe_nets
import numpy as np
import pytest
from kit import refusal
from test_fuzz import texts

from minicaffe import CheckpointError, Classifier, Net, Solver, SpecError, parse, read
from minicaffe.core.config.tree import MAX_BYTES
from minicaffe.core.net import model
from minicaffe.core.net.model import text
from minicaffe.core.solver.report import Mute
from minicaffe.storage import checkpoint

MODEL = """
name: small
blocks:
  pair: {defaults: {n: 2}, layers: [{name: <name>, type: InnerProduct, num_output: <n>}]}
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 2}
  - {block: pair, name: ip, n: 3}
  - {name: scale, type: Power, scale: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [scale, label]}
solver: {base_lr: 0.1, max_iter: 3, display: 0, snapshot: 0}
"""
pytestmark = pytest.mark.usefixtures("here")


def trained(**settings) -> Solver:
    """A solver that has gone two steps with a model in there/, whose data lies beside it."""
    from minicaffe.tools.data import idx

    chance = np.random.default_rng(0)
    os.makedirs("there/tiny", exist_ok=True)
    for split in ("train", "t10k"):
        pictures = chance.integers(0, 256, (6, 4, 4), np.uint8)
        idx.write(Path(f"there/tiny/{split}-images-idx3-ubyte"), pictures)
        labels = chance.integers(0, 3, 6).astype(np.uint8)
        idx.write(Path(f"there/tiny/{split}-labels-idx1-ubyte"), labels)
    Path("there/small.yaml").write_text(MODEL)
    solver = Solver("there/small.yaml", device="cpu", report=Mute(), **settings)
    solver.step(2)
    return solver


@pytest.mark.parametrize("name", texts())
def test_it_is_the_same_model(name):
    """Of the models of models/, and of those that hold every layer."""
    spec = parse(texts()[name])
    assert caffe_nets.resolved(parse(text(spec, "."))) == caffe_nets.resolved(spec)


def test_a_snapshot_is_a_model_whose_paths_mean_what_they_did(tmp_path, monkeypatch):
    solver = trained(base_lr=0.25, snapshot_prefix="runs/a/small")
    os.makedirs("runs/a")
    path = solver.snapshot()
    monkeypatch.chdir(tmp_path / "runs")  # from where the data is found beside the model alone
    spec = read("a/small_iter_2.npz", "solver.max_iter=9")
    assert spec.folder == "../../there" and spec.beside == Path("a/../../there")
    assert [layer.name for layer in spec.layers] == ["data", "ip", "scale", "loss"]
    assert (spec.solver.base_lr, spec.solver.max_iter) == (0.25, 9)
    assert spec.solver.snapshot_prefix is None  # where that run's files went
    again = Solver("a/small_iter_2.npz", device="cpu", report=Mute())
    again.restore(tmp_path / path)
    for one in (solver, again):
        one.step(1)
    for mine, theirs in zip(solver.net.learnable, again.net.learnable, strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)
    classifier = Classifier("a/small_iter_2.npz", device="cpu")
    np.testing.assert_array_equal(
        classifier.net.params["ip"][1].data, checkpoint.Reader(tmp_path / path)["ip__1"]
    )
    assert classifier.predict(np.zeros((5, 4, 4))).shape == (5, 3)


def test_a_weight_file_may_be_moved_on():
    """A net built from a snapshot has its weights, and saved elsewhere it names the first model's folder."""
    solver = trained()
    solver.net.save("there/a.npz")
    assert read("there/a.npz").folder == "."
    os.makedirs("b/c")
    Net("there/a.npz", device="cpu").save("b/c/d.npz")
    assert read("b/c/d.npz").folder == "../../there"
    weight = Net("b/c/d.npz", "TEST", device="cpu").weights()["ip__0"]
    np.testing.assert_array_equal(weight, solver.net.weights()["ip__0"])
    untrained = Net("b/c/d.npz", device="cpu", weights=False).weights()["ip__0"]
    assert not np.array_equal(weight, untrained)
    assert Net("b/c/d.npz", shapes_only=True).blobs == {}


def test_the_folder_of_a_run_is_a_model():
    weight = trained(run="run").net.weights()["ip__0"]
    assert not np.array_equal(Net("run", device="cpu", weights=False).weights()["ip__0"], weight)
    with pytest.raises(CheckpointError, match="^run: this run has no snapshot$"):
        Net("run", device="cpu")
    trained(run="two", snapshot=2)
    np.testing.assert_array_equal(Net("two", device="cpu").weights()["ip__0"], weight)
    os.mkdir("none")
    with pytest.raises(SpecError, match="^none: is a folder without a model.yaml; expected a"):
        read("none")


def test_a_folder_far_away_is_named_whole():
    spec = replace(parse(MODEL), path=Path("/somewhere/m.yaml"))
    assert read_text(spec, "/elsewhere/a").folder == "/somewhere"
    assert read_text(spec, "/somewhere").folder == "."
    assert read_text(spec, "/somewhere/deep").folder == ".."


def read_text(spec, folder):
    return parse(text(spec, folder))


IP = "layers: [{name: ip, type: InnerProduct, bottom: x, num_output: 2}]\n"


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    ("entry", "error", "told"),
    [
        (None, CheckpointError, "a.npz: does not hold its net's text (@model): give the model file"),
        (np.ones(3), CheckpointError, "a.npz: entry '@model' holds float64, expected bytes"),
        (np.ones((2, 2), np.uint8), CheckpointError, "a.npz: entry '@model' of shape (2, 2) is no model's text"),
        (np.ones(MAX_BYTES + 1, np.uint8), CheckpointError, "a.npz: entry '@model' of shape (41943"),
        (np.full(2, 200, np.uint8), CheckpointError, "a.npz: entry '@model' is not UTF-8 text (byte 0)"),
        (as_bytes("layers: ["), SpecError, "a.npz: @model:1:10: expected a value, found the end of the text"),
        (as_bytes(""), SpecError, "a.npz: @model:1:1: is empty"),
        (as_bytes("layers: []"), SpecError, "a.npz: @model:1:9: layers: expected at least one"),
        (as_bytes(IP.replace("num_o", "nun_o")), SpecError, "a.npz: @model:1:52: layer 'ip' (InnerProduct): "),
        (as_bytes("a: &a [*a]"), SpecError, "a.npz: @model:1:4: an alias refers to what contains it"),
        (as_bytes("a: !!python/object/apply:os.system [ls]"), SpecError, "a.npz: @model:1:4: the tag "),
    ],
)  # fmt: skip
def test_a_text_is_as_untrusted_as_a_model_file(entry, error, told):
    arrays = {} if entry is None else {"@model": entry}
    checkpoint.write("a.npz", {"ip__0": np.ones((2, 3)), **arrays})
    for use in (read, lambda path: Net(path, device="cpu")):
        said = refusal(use, "a.npz", error=error)
        assert said.startswith(told) and said.isprintable()


def test_a_text_that_cannot_be_read_explains_no_unused_weights():
    """A net for tests does without those of losses and of TRAIN, if the text says which they are."""
    x = "{name: x, type: Input, shape: {dim: [1, 3]}}"
    ip, late = (
        "{name: ip, type: InnerProduct, num_output: 2}",
        "{name: late, type: Bias, include: TRAIN}",
    )
    net = Net(parse(f"layers: [{x}, {ip}]"), "TEST", device="cpu")
    text = f"layers: [{x}, {ip}, {late}]"
    arrays = {**net.weights(), "late__0": np.ones(2)}
    checkpoint.write("all.npz", {**arrays, "@model": as_bytes(text)})
    assert net.load("all.npz").unused == ["late__0"]
    checkpoint.write("odd.npz", {**arrays, "@model": as_bytes(text.replace("Bias", "Bais"))})
    with pytest.raises(CheckpointError, match="^odd.npz: does not fit net .*: late__0 unused$"):
        net.load("odd.npz")


def test_a_model_on_another_drive_is_named_whole(monkeypatch):
    monkeypatch.setattr("minicaffe.core.net.model.os", SimpleNamespace(path=ntpath))
    spec = replace(parse(MODEL), path=PureWindowsPath(r"C:\nets\m.yaml"))
    assert model.seen_from(spec, "D:\\runs").folder == r"C:\nets"
    assert model.seen_from(spec, "C:\\nets\\runs").folder == ".."
