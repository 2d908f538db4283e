"""What Net, Solver, Classifier and the commands take as a model: one function reads it, by its content."""

from pathlib import Path

import numpy as np
import pytest
from kit import few_digits, refusal

import minicaffe
from minicaffe.cli import main
from minicaffe.errors import MinicaffeError, SpecError

NET = """# a comment: {
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt"\nbase_lr: 0.1\nlr_policy: "fixed"\nmax_iter: 2\n'
YAML = """
name: small
layers:
  - {name: data, type: DummyData, top: [data, label], shape: [{dim: [2, 3]}, {dim: 2}]}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 4}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, max_iter: 2}
"""
PICTURES = """
layers:
  - {name: data, type: Data, top: [data, label], source: digits, batch_size: 4}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, max_iter: 2, test_iter: 1, test_interval: 1, best: loss}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, here):
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


@pytest.mark.parametrize("name", ["net.prototxt", "net.txt", "net.pt", "net", "some net.PROTOTXT"])
def test_a_net_of_caffes_is_one_whatever_it_is_called(name, folder, capsys):
    (folder / name).write_text(NET)
    assert minicaffe.Net(name, device="cpu").params["ip"][0].shape == (4, 3)
    assert minicaffe.read(name, "layers.ip.num_output=5").layers[1].options["num_output"] == 5
    assert main(["summary", name]) == 0
    assert "ip 2x4" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["solver.prototxt", "solver.txt", "solver"])
def test_so_is_a_solver(name, folder):
    (folder / name).write_text(SOLVER)
    solver = minicaffe.Solver(name, device="cpu", snapshot_after_train=False)
    solver.solve()
    assert solver.iteration == 2


@pytest.mark.parametrize("name", ["model.yaml", "model.txt", "model", "model.yml"])
def test_and_a_model_of_ours_and_of_json(name, folder):
    (folder / name).write_text(YAML)
    assert minicaffe.Net(name, device="cpu").params["ip"][0].shape == (4, 3)
    minicaffe.Solver(name, device="cpu", snapshot=0).step(1)
    layer = '{"name": "x", "type": "Input", "shape": {"dim": [1, 2]}}'
    (folder / name).write_text(f'{{"layers": [{layer}]}}')
    assert minicaffe.Net(name, device="cpu").blobs["x"].shape == (1, 2)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("net.pt", b"\x80\x02}q\x00.", "net.pt: is PyTorch's pickle; minicaffe reads models in .yaml"),
        ("net.onnx", b"\x08\x07\x12\x00", "net.onnx: is a net in the ONNX format; minicaffe reads"),
        ("picture", b"\x89PNG\x00\x00", "picture: is no model file: it is a picture"),
        ("gone.prototxt", None, "gone.prototxt: no such file"),
        ("model.yaml", NET.encode(), "model.yaml:3:"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused_in_one_line(name, data, told, folder, capsys):
    if data is not None:
        (folder / name).write_bytes(data)
    said = refusal(minicaffe.Net, name, device="cpu", error=SpecError)
    assert said.startswith(told)
    assert main(["summary", name]) == 2
    assert capsys.readouterr().err == f"minicaffe: {said}\n"


def test_a_classifier_takes_the_folder_of_a_run(monkeypatch):
    few_digits(monkeypatch)
    Path("mine.yaml").write_text(PICTURES)
    assert main(["train", "mine.yaml", "--run", "run", "--device", "cpu", "--quiet"]) == 0
    pixels = np.arange(784, dtype=np.uint8).reshape(1, 28, 28)
    best = minicaffe.Classifier("mine.yaml", "run/mine_best.npz", device="cpu").predict(pixels)
    for given in (("run",), ("run", "run"), ("mine.yaml", "run")):
        assert np.array_equal(minicaffe.Classifier(*given, device="cpu").predict(pixels), best)
    with pytest.raises(MinicaffeError, match="is no run's folder"):
        minicaffe.Classifier("mine.yaml", ".", device="cpu")
