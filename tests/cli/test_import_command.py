"""minicaffe import: what it writes and prints, and what it refuses before anything is written."""

import os

import numpy as np
import pytest
from kit import onnx_runs

from minicaffe import Net
from minicaffe.interop.onnx.patterns import RECOGNISERS
from minicaffe.interop.onnx.table import READERS, UNREAD

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
PIL = pytest.importorskip("PIL.Image")


@pytest.fixture
def model(folder):
    """small.onnx: a convolution, BatchNorm, and a classifier of images (n, 3, 8, w)."""
    node, random = onnx.helper.make_node, np.random.default_rng(0)
    shapes = {"conv.weight": (4, 3, 3, 3), "s": 4, "b": 4, "m": 4, "v": 4, "fc.weight": (5, 4)}
    arrays = {n: abs(random.normal(size=s)).astype(np.float32) + 0.1 for n, s in shapes.items()}
    graph = onnx.helper.make_graph(
        [
            node("Conv", ["image", "conv.weight"], ["c"], name="conv"),
            node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("GlobalAveragePool", ["r"], ["p"]),
            node("Flatten", ["p"], ["f"]),
            node("Gemm", ["f", "fc.weight"], ["logits"], transB=1),
        ],
        "small",
        [onnx.helper.make_tensor_value_info("image", 1, ["n", 3, 8, "w"])],
        [onnx.helper.make_tensor_value_info("logits", 1, ["n", 5])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), "small.onnx")
    return "small.onnx"


SHAPE = ("--shape", "image=1x3x8x10")


def test_each_layers_difference_is_printed(cli, model):
    ran = cli("import", model, "--out", "net", "--layers", "--target", "caffe", *SHAPE)
    rows = [line.split() for line in ran.out.splitlines()[:-2]]
    rows = [row for row in rows if len(row) == 3]
    assert [row[1] for row in rows][:3] == ["Convolution", "ReLU", "Pooling"]
    assert all(float(row[2]) < 1e-5 for row in rows)


def test_a_model_becomes_a_net(cli, mistake, model):
    given = ("import", model, "--out", "net", *SHAPE)
    ran = cli(*given)
    assert ran.code == 0
    hint, first, last = ran.out.splitlines()
    assert hint.startswith("how pictures are made ready is not known: ")
    assert first.startswith("logits (1, 5): checked against onnxruntime: max. relative difference ")
    assert "blobs compared on 3 random inputs; the largest difference is " in last
    assert ran.err.splitlines() == ["net.prototxt and net.caffemodel: 7 layers of 6 nodes"]
    net = Net("net.prototxt", "TEST", device="cpu")
    net.load("net.caffemodel")
    image = np.random.default_rng(1).normal(size=(1, 3, 8, 10)).astype(np.float32)
    (wanted,) = onnx_runs(model, image=image).values()
    np.testing.assert_allclose(net.forward(image=image)["logits"], wanted, rtol=1e-5)
    assert mistake(*given) == "minicaffe: net.prototxt: is there already; --force writes over it"
    os.unlink("net.prototxt")
    assert mistake(*given) == "minicaffe: net.caffemodel: is there already; --force writes over it"
    assert cli(*given, "--force").code == 0


def test_a_model_becomes_a_yaml_file_with_fewer_layers(cli, model):
    ran = cli("import", model, "--out", "net.yaml", "--fold", *SHAPE)
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "2 layers folded into the one before"
    assert ran.err.splitlines() == ["net.yaml and net.npz: 5 layers of 6 nodes"]
    Net("net.yaml", "TEST", device="cpu").load("net.npz")


def test_pictures_are_compared_too(cli, mistake, model):
    os.makedirs("pictures/more")
    random = np.random.default_rng(0)
    for i in range(17):
        pixels = random.integers(0, 256, (9 + i, 12, 3), np.uint8)
        PIL.fromarray(pixels).save(f"pictures/{'more/' * (i % 2)}{i}.png")
    given = ("import", model, "--out", "net", *SHAPE, "--images")
    ran = cli(*given, "pictures")
    assert ran.code == 0
    assert "compared on 3 random inputs and 16 pictures; " in ran.out
    os.mkdir("empty")
    for ending in ("prototxt", "caffemodel"):
        os.unlink(f"net.{ending}")
    assert "empty: holds no pictures (.png, .jpg" in mistake(*given, "empty")
    assert "none: " in mistake(*given, "none")
    with open("pictures/0.png", "wb") as file:
        file.write(b"no picture")
    assert "0.png" in mistake(*given, "pictures")
    two = ("import", model, "--out", "net", "--shape", "image=2x3x8x10", "--images", "pictures")
    assert "(2, 3, 8, 10) takes no pictures: expected (1, 1 or 3, h, w)" in mistake(*two)
    assert not [name for name in os.listdir() if name.startswith(("net.", ".import"))]


def test_operators_are_listed(cli):
    ran = cli("import", "--operators")
    assert ran.code == 0
    lines = ran.out.splitlines()
    several = len({one for some in RECOGNISERS.values() for one in some})
    assert len(lines) == len(READERS) + several + len(UNREAD)
    assert "refused: a Caffe net has no GRU; an LSTM is read" in ran.out
    assert any(line.split() == ["Relu", "ReLU."] for line in lines)


OUT = "small.onnx --out net --shape"
OF_IMAGE = "small.onnx: input 'image': "
MISTAKES = [  # $ is SHAPE
    ("small.onnx", "expected MODEL.onnx and --out NET (see minicaffe import --help)"),
    ("--out net", "expected MODEL.onnx and --out NET (see minicaffe import --help)"),
    ("missing.onnx --out net", "missing.onnx: no such file"),
    ("tiny.yaml --out net", "tiny.yaml: is not a whole .onnx file"),
    ("models --out net", "models: "),
    ("small.onnx --out net",
     f"{OF_IMAGE}the size of its axis 3 (w) is not known; give all of them, such as --shape image=1x3x8x224"),
    ("small.onnx --out no/net $", "cannot be written: there is no folder 'no'"),
    (f"{OUT} image=1x3x9x10", f"{OF_IMAGE}expected a shape that fits ['n', 3, 8, 'w'], got [1, 3, 9, 10]"),
    ("small.onnx --out net $ --shape imag=1", "small.onnx: has no input 'imag'; did you mean 'image'?"),
    (f"{OUT} image=1x3x2x2", f"{OF_IMAGE}expected a shape that fits ['n', 3, 8, 'w']"),
    *[(f"{OUT} {text}", f"--shape: expected INPUT=1x3x224x224, got {text!r}")
      for text in ("image", "1x3x8x8", "image=", "image=1x", "image=0x3", "image=-1", "=1x3")],
    (f"{OUT} image=1x3x8x999999999", "is no shape of a blob"),
    ("small.onnx --out net $ --images models", "models: holds no pictures"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "reason"), MISTAKES)
def test_mistakes_are_said_in_a_line(words, reason, mistake, model, folder):
    assert reason in mistake("import", *words.replace("$", " ".join(SHAPE)).split())
    assert not [name for name in os.listdir() if name.startswith(("net.", ".import"))]


def test_a_node_that_is_refused_is_named(mistake, model):
    changed = onnx.load(model)
    changed.graph.node[2].op_type = "Erf"
    changed.graph.node[2].name = "/features/erf"
    onnx.save(changed, "changed.onnx")
    assert mistake("import", "changed.onnx", "--out", "net", *SHAPE) == (
        "minicaffe: changed.onnx: node '/features/erf' (Erf): no layer computes it, but for that of a GELU; "
        "nothing was written"
    )
