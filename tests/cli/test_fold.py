"""convert and export with --fold: the same numbers in fewer layers."""

import numpy as np
import pytest

from minicaffe import Net, parse
from minicaffe.cli import convert

MODEL = """
name: normed
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 8, 8]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3, bias_term: false, weight_filler: xavier}
  - {name: norm, type: BatchNorm}
  - {name: scale, type: Scale, bias_term: true}
  - {name: relu, type: ReLU}
  - {name: score, type: InnerProduct, num_output: 5, weight_filler: xavier}
  - {name: prob, type: Softmax}
"""


@pytest.fixture
def normed(tmp_path, here):
    """normed.yaml and normed.npz in the current folder, of a net that has seen something."""
    (tmp_path / "normed.yaml").write_text(MODEL)
    net, random = Net(parse(MODEL), "TEST", device="cpu"), np.random.default_rng(0)
    net.load({name: random.uniform(0.5, 1.5, a.shape) for name, a in net.weights().items()})
    net.save("normed.npz")
    return net


@pytest.mark.parametrize(
    ("model", "weights"), [("prototxt", "caffemodel"), ("pbtxt", "caffemodel"), ("yaml", "npz")]
)
def test_convert_writes_a_model_and_its_weights(normed, model, weights, cli):
    words = ("convert", "normed.yaml", f"out.{model}", "--fold", "--weights", "normed.npz")
    ran = cli(*words)
    assert ran.code == 0, ran.err
    assert "layer 'norm' (BatchNorm): folded into 'conv'" in ran.err
    assert "outputs compared on random numbers: max. relative difference " in ran.err
    net = Net(f"out.{model}", "TEST", device="cpu", dtype="float32")
    net.load(f"out.{weights}")
    assert [step.spec.name for step in net.steps] == ["data", "conv", "relu", "score", "prob"]
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8))
    wanted = normed.forward(data=x)["prob"]
    np.testing.assert_allclose(net.forward(data=x)["prob"], wanted, atol=1e-5)
    again = cli(*words)
    assert again.code == 2 and "is there already; --force writes over it" in again.err


def test_what_goes_with_fold(normed, mistake):
    files = "normed.yaml a.prototxt"
    for words, told in (
        (f"{files} --weights x", "--weights goes with --fold"),
        ("normed.npz a.caffemodel --fold", "--fold writes a model"),
        (f"{files} --fold", "holds no weights"),
        (
            f"{files} --fold --weights normed.npz --model normed.yaml",
            "--model does not go with --fold",
        ),
    ):
        assert told in mistake("convert", *words.split())


def test_a_snapshots_files_are_still_found(normed, cli, tmp_path):
    """Its paths are from where it lies, not from where the folded net does."""
    (tmp_path / "nets").mkdir()
    for fold in ((), ("--fold",)):
        assert cli("convert", "normed.npz", f"nets/net{len(fold)}.yaml", *fold).code == 0
        assert 'folder: ".."' in (tmp_path / "nets" / f"net{len(fold)}.yaml").read_text()


def test_nothing_is_written_where_they_differ(normed, mistake, monkeypatch, tmp_path):
    monkeypatch.setattr(convert.check, "MOST", -1.0)
    words = ("convert", "normed.yaml", "a.prototxt", "--fold", "--weights", "normed.npz")
    assert "output 'prob' differs by" in mistake(*words)
    assert not list(tmp_path.glob("a.*"))


def test_export_writes_fewer_nodes(normed, cli):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    for i, fold in enumerate(("", "--fold")):
        words = f"export normed.yaml --weights normed.npz --onnx net{i}.onnx {fold}"
        assert cli(*words.split()).code == 0
    kinds = [[node.op_type for node in onnx.load(f"net{i}.onnx").graph.node] for i in (0, 1)]
    assert {"BatchNormalization", "Mul"} <= set(kinds[0])
    assert kinds[1] == ["Conv", "Relu", "Flatten", "Gemm", "Softmax"]
