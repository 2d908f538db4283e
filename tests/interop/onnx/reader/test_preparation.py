"""A net of PyTorch's that takes pixels as Caffe reads them, and goes on training on one's own pictures."""

from pathlib import Path

import numpy as np
import pytest
from kit import refusal

from minicaffe import Classifier, Net, SpecError, adapt
from minicaffe.core.solver.report import Mute
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.reader.preparation import PRESETS, Prepares
from minicaffe.tools.data import png

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

TEXT = """<ir_version: 8, opset_import: ["": 17]>
small (float[n, CHANNELS, 12, 12] data) => (float[n, 10] score) {
    conv = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (data, body)
    relu = Relu (conv)
    mean = GlobalAveragePool (relu)
    flat = Flatten (mean)
    score = Gemm <transB = 1> (flat, head, bias)
}"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(channels: int = 3) -> None:
    """A classifier of pictures 12 x 12 that ends in logits, as net.onnx."""
    model, random = (
        onnx.parser.parse_model(TEXT.replace("CHANNELS", str(channels))),
        np.random.default_rng(0),
    )
    for name, shape in {"body": (8, channels, 3, 3), "head": (10, 8), "bias": (10,)}.items():
        array = random.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "net.onnx")


@pytest.mark.parametrize("out", ["net", "net.yaml"])
@pytest.mark.parametrize(("pictures", "channels"), [*((name, 3) for name in PRESETS), ("unit", 1)])
def test_pixels_blue_first_are_prepared_by_the_net(pictures, channels, out):
    write(channels)
    from_onnx("net.onnx", out, pictures=pictures)
    net = Net("net.yaml" if "." in out else "net.prototxt", "TEST", device="cpu")
    net.load("net.npz" if "." in out else "net.caffemodel")
    pixels = np.random.default_rng(1).integers(0, 256, (1, channels, 12, 12)).astype(np.float32)
    mean, scale = (
        np.reshape(one, (-1, 1, 1)) for one in (PRESETS[pictures].mean, PRESETS[pictures].scale)
    )
    red_first = pixels[:, ::-1] if channels == 3 else pixels
    plain = from_onnx("net.onnx").net().forward(data=(red_first - mean) * scale)["score"]
    np.testing.assert_allclose(net.forward(data=pixels)["score"], plain, rtol=1e-4, atol=1e-4)


def test_it_goes_on_training_as_it_was_and_is_fed_red_first(command):
    """Logits are an end, the mean is the net's own, and the prepared layer does not learn."""
    write()
    command("import", "net.onnx", "--out", "net", "--preset", "torchvision")
    for kind in ("cats", "dogs"):
        for i in range(5):
            Path("photos", kind).mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (12, 12, 3)).astype(np.uint8)
            Path(f"photos/{kind}/{i}.png").write_bytes(
                png.encode(pixels if kind == "cats" else pixels // 2)
            )
    adapted = adapt("net.prototxt", "photos", weights="net.caffemodel", epochs=2)
    assert "less a mean of 0, times 1" in adapted.lines[1]
    assert any("layer 'score' has 2, not 10; it begins anew" in line for line in adapted.lines)
    solver = adapted.solver(device="cpu", snapshot=0, report=Mute())
    before = solver.net.weights()
    solver.solve()
    after = solver.net.weights()
    assert [name for name in before if (before[name] == after[name]).all()] == [
        "preparation__0",
        "preparation__1",
    ]
    assert not set(before) - set(after)
    wanted = from_onnx("net.onnx").net()
    picture = "photos/cats/0.png"
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3)).transpose(2, 0, 1)[None]
    wanted.forward(
        data=(pixels - np.reshape(PRESETS["torchvision"].mean, (3, 1, 1)))
        * np.reshape(PRESETS["torchvision"].scale, (3, 1, 1))
    )
    trained = Classifier(solver.net.spec, before, device="cpu", keep=None)
    trained.predict(picture)
    np.testing.assert_allclose(
        trained.net.blobs["conv"].data, wanted.blobs["conv"].data, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--preset", "torchvisoin"], "argument --preset: invalid choice: 'torchvisoin'"),
        (["--preset", "unit", "--mean", "3"], "--mean: --preset unit says it"),
        (["--mean", "1,2"], "--mean 1,2: expected 1 or 3 numbers"),
    ],
)
def test_options_that_contradict(words, told, command):
    write()
    assert told in command("import", "net.onnx", "--out", "net", *words, code=2)
    assert not Path("net.prototxt").exists()


def test_what_is_not_known_is_said(command):
    write()
    told = command("import", "net.onnx", "--out", "net")
    assert "how pictures are made ready is not known: --preset torchvision" in told
    command(
        "import",
        "net.onnx",
        "--out",
        "bgr",
        "--mean",
        "1,2,3",
        "--scale",
        "0.5",
        "--channels",
        "bgr",
    )
    net = Net("bgr.prototxt", "TEST", device="cpu")
    net.load("bgr.caffemodel")
    np.testing.assert_array_equal(net.params["preparation"][0].data[:, :, 0, 0], np.eye(3) / 2)
    np.testing.assert_array_equal(net.params["preparation"][1].data, [-0.5, -1, -1.5])
    assert "expected 1 or 3 means" in refusal(
        from_onnx, "net.onnx", "net", pictures=Prepares((1.0, 2.0), (1.0,), True), error=SpecError
    )
    write(4)
    assert "expected one Input of pictures, of 1 or 3 channels" in refusal(
        from_onnx, "net.onnx", "net", pictures="unit", error=SpecError
    )
    assert "did you mean 'unit'?" in refusal(
        from_onnx, "net.onnx", "net", pictures="units", error=SpecError
    )


@pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_the_lines_of_the_docs_train_a_net_of_torchvision(name, command):
    pytest.importorskip("torchvision")
    page = (Path(__file__).parents[4] / "docs/onnx-to-caffe.md").read_text("utf-8")
    lines = page.partition("## Training goes on\n")[2].split("```")
    exec(lines[1].replace("resnet18", name).replace('"DEFAULT"', "None"), {})
    for kind, level in (("cats", 60), ("dogs", 190)):
        Path("photos", kind).mkdir(parents=True)
        for i in range(5):
            pixels = (
                np.random.default_rng(i)
                .integers(level - 50, level + 50, (224, 224, 3))
                .astype(np.uint8)
            )
            Path(f"photos/{kind}/{i}.png").write_bytes(png.encode(pixels))
    imports, train = (
        line.split()[3:] for line in lines[3].replace("resnet18", name).strip().splitlines()
    )
    command("import", *imports)
    told = command("train", *train, "--epochs", "1", "--device", "cpu")
    assert "less a mean of 0, times 1" in told
    assert "has 2, not 1000; it begins anew" in told
