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


pytestmark = pytest.mark.usefixtures("here")


def write(channels: int = 3) -> None:
    """A classifier of pictures 12 x 12 that ends in logits, as net.onnx."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(TEXT.replace("CHANNELS", str(channels)))
    for name, shape in {"body": (8, channels, 3, 3), "head": (10, 8), "bias": (10,)}.items():
        array = random.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "net.onnx")


def pixels(seed: int, side: int, channels: int = 3, low: int = 0, high: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, (side, side, channels)).astype(np.uint8)


def write_photos(cats, dogs) -> None:
    """Five pictures of each class, of the pixels that its function returns of a number."""
    for kind, drawn in (("cats", cats), ("dogs", dogs)):
        Path("photos", kind).mkdir(parents=True)
        for i in range(5):
            Path(f"photos/{kind}/{i}.png").write_bytes(png.encode(drawn(i)))


def prepared(pictures: np.ndarray, preset: str) -> np.ndarray:
    one = PRESETS[preset]
    return (pictures - np.reshape(one.mean, (-1, 1, 1))) * np.reshape(one.scale, (-1, 1, 1))


@pytest.mark.parametrize("out", ["net", "net.yaml"])
@pytest.mark.parametrize(("pictures", "channels"), [*((name, 3) for name in PRESETS), ("unit", 1)])
def test_pixels_blue_first_are_prepared_by_the_net(pictures, channels, out):
    write(channels)
    from_onnx("net.onnx", out, pictures=pictures)
    net = Net("net.yaml" if "." in out else "net.prototxt", "TEST", device="cpu")
    net.load("net.npz" if "." in out else "net.caffemodel")
    blue_first = pixels(1, 12, channels).transpose(2, 0, 1)[None]
    plain = from_onnx("net.onnx").net().forward(data=prepared(blue_first[:, ::-1], pictures))
    score = net.forward(data=blue_first)["score"]
    np.testing.assert_allclose(score, plain["score"], rtol=1e-4, atol=1e-4)


def test_it_goes_on_training_as_it_was_and_is_fed_red_first(command):
    """Logits are an end, the mean is the net's own, and the prepared layer does not learn."""
    write()
    command("import", "net.onnx", "--out", "net", "--preset", "torchvision")
    write_photos(lambda i: pixels(i, 12), lambda i: pixels(i, 12) // 2)
    adapted = adapt("net.prototxt", "photos", weights="net.caffemodel", epochs=2)
    assert "less a mean of 0, times 1" in adapted.lines[1]
    assert any("layer 'score' has 2, not 10; it begins anew" in line for line in adapted.lines)
    from_onnx("net.onnx", "bare")
    for weights in (None, "bare.caffemodel"):
        assert refusal(adapt, "net.prototxt", "photos", weights=weights, error=SpecError).endswith(
            "layer 'preparation' makes pictures ready by weights that do not learn;"
            " give those that were imported with it: --weights FILE"
        )
    solver = adapted.solver(device="cpu", snapshot=0, report=Mute())
    before = solver.net.weights()
    solver.solve()
    after = solver.net.weights()
    unchanged = [name for name in before if (before[name] == after[name]).all()]
    assert unchanged == ["preparation__0", "preparation__1"]
    wanted = from_onnx("net.onnx").net()
    wanted.forward(data=prepared(pixels(0, 12).transpose(2, 0, 1)[None], "torchvision"))
    trained = Classifier(solver.net.spec, before, device="cpu", keep=None)
    trained.predict("photos/cats/0.png")
    conv, wanted_conv = (net.blobs["conv"].data for net in (trained.net, wanted))
    np.testing.assert_allclose(conv, wanted_conv, rtol=1e-4, atol=1e-4)


def test_options_that_contradict(command):
    write()
    for words, told in (
        ("--preset torchvisoin", "argument --preset: invalid choice: 'torchvisoin'"),
        ("--preset unit --mean 3", "--mean: --preset unit says it"),
        ("--mean 1,2", "--mean 1,2: expected 1 or 3 numbers"),
    ):
        assert told in command("import", "net.onnx", "--out", "net", *words.split(), code=2)
    assert not Path("net.prototxt").exists()


def test_what_is_not_known_is_said(command):
    write()
    told = command("import", "net.onnx", "--out", "net")
    assert "how pictures are made ready is not known: --preset torchvision" in told
    words = ("--mean", "1,2,3", "--scale", "0.5", "--channels", "bgr")
    command("import", "net.onnx", "--out", "bgr", *words)
    net = Net("bgr.prototxt", "TEST", device="cpu")
    net.load("bgr.caffemodel")
    np.testing.assert_array_equal(net.params["preparation"][0].data[:, :, 0, 0], np.eye(3) / 2)
    np.testing.assert_array_equal(net.params["preparation"][1].data, [-0.5, -1, -1.5])
    two, as_many = Prepares((1.0, 2.0), (1.0,), True), "expected as many means and scales, or one"
    for channels, pictures, told in (
        (3, two, f"pictures of 3 channels: {as_many}"),
        (4, "unit", "expected one Input of pictures, of 1 or 3 channels"),
        (4, "units", "did you mean 'unit'?"),
    ):
        write(channels)
        assert told in refusal(from_onnx, "net.onnx", "net", pictures=pictures, error=SpecError)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's exporter
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_the_lines_of_the_docs_train_a_net_of_torchvision(name, command):
    pytest.importorskip("torchvision")
    page = (Path(__file__).parents[4] / "docs/onnx-to-caffe.md").read_text("utf-8")
    lines = page.partition("## Training goes on\n")[2].split("```")
    exec(lines[1].replace("resnet18", name).replace('"DEFAULT"', "None"), {})
    dark, light = {"low": 10, "high": 110}, {"low": 140, "high": 240}
    write_photos(lambda i: pixels(i, 224, **dark), lambda i: pixels(i, 224, **light))
    commands = lines[3].replace("resnet18", name).strip().splitlines()
    imports, train = (line.split()[3:] for line in commands)
    command("import", *imports)
    told = command("train", *train, "--epochs", "1", "--device", "cpu")
    assert "less a mean of 0, times 1" in told
    assert "has 2, not 1000; it begins anew" in told
