"""What is said beside an exported net: following it gives what the Classifier gives; nothing is guessed."""

import json

import numpy as np
import pytest
from kit import onnx_runs

from minicaffe import CheckpointError, Classifier, Net, parse
from minicaffe.interop.onnx.writer import to_onnx
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.deploy import preparation

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

NET = """
name: Shades
layers:
  - {name: pictures, type: Data, top: [data, label], source: shades, batch_size: 2, KEYS}
  - {name: conv, type: Convolution, bottom: data, num_output: 3, kernel_size: 3, stride: 2, weight_filler: {type: msra}}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: {type: msra}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""
DEPLOY = """
name: Deploy
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 6, 8]}}
  - {name: ip, type: InnerProduct, num_output: 3}
  - {name: prob, type: Softmax}
"""


@pytest.fixture
def shades(tmp_path, here):
    """Pictures of several sizes in three classes, and a mean image of 12 x 16."""
    from PIL import Image

    random = np.random.default_rng(5)
    for split, least in (("train", 16), ("val", 20)):
        for k, name in enumerate(("dark", "grey", "light")):
            (tmp_path / "shades" / split / name).mkdir(parents=True)
            for i in range(3):
                pixels = random.integers(60 * k, 60 * k + 120, (least + 3 * i, 24 - 2 * i, 3))
                path = tmp_path / "shades" / split / name / f"{i}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    np.save("mean.npy", random.integers(80, 120, (3, 12, 16)).astype(np.float32))
    return tmp_path / "shades"


def exported(keys, more=""):
    """A net of such a data layer, exported: its Classifier, and what its JSON says."""
    spec = parse(NET.replace("KEYS", keys) + more, file="shades.yaml")
    classifier = Classifier(spec, device="cpu")
    to_onnx(spec, "net.onnx", classifier.net.weights())
    with open("net.json", encoding="utf-8") as file:
        return classifier, json.load(file)


def followed(how, path):
    """A picture made ready as the JSON says, by Pillow and NumPy."""
    from PIL import Image, ImageOps

    image, (height, width) = Image.open(path).convert("RGB"), how["size"]
    if how["channels"] == "grey":
        image = image.convert("L")
    if how["fit"] == "stretch":
        assert how["filter"] == "opencv linear"
        pixels = np.asarray(image)
        channels = 1 if pixels.ndim == 2 else 3
        pixels = bilinear(pixels.reshape(*pixels.shape[:2], channels), height, width)
    elif how["fit"] == "cover":
        assert how["filter"] == "pillow bilinear"
        w, h = image.size
        scaled = (max(1, height * w // h), height) if h <= w else (width, max(1, width * h // w))
        image = image.resize(scaled, Image.Resampling.BILINEAR)
        left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
        pixels = np.asarray(image.crop((left, top, left + width, top + height)))
    else:
        assert (how["fit"], how["filter"]) == ("contain", "pillow lanczos")
        image = ImageOps.pad(image, (width, height), Image.Resampling.LANCZOS)
        pixels = np.asarray(image)
    x = pixels.reshape(height, width, -1).transpose(2, 0, 1).astype(np.float64)
    if how["channels"] == "bgr":
        x = x[::-1]
    mean = np.load(how["mean_image"]) if how["mean_image"] else np.array(how["mean"])[:, None, None]
    rows, columns = how["crop"]
    top, left = (height - rows) // 2, (width - columns) // 2
    return ((x - mean) * how["scale"])[:, top : top + rows, left : left + columns]


MEANS = "transform: {mean_value: [104, 117, 123], scale: 0.0078125"
CASES = {
    "stretch": f"new_height: 12, new_width: 16, {MEANS}}}",
    "stretch and crop": f"new_height: 12, new_width: 16, {MEANS}, crop_size: 9}}",
    "cover": f"{MEANS}, resize: 14, crop_size: 12}}",
    "mean image": "new_height: 12, new_width: 16, transform: {mean_file: mean.npy, crop_size: 11}",
    "one mean": "new_height: 12, new_width: 16, transform: {mean_value: [100]}",
}


@pytest.mark.parametrize("case", CASES)
def test_who_follows_it_gets_what_the_classifier_gives(shades, case):
    classifier, told = exported(CASES[case])
    assert told["classes"] == ["dark", "grey", "light"]
    how = told["preprocessing"]
    assert (how["fit"], how["channels"]) == ("cover" if case == "cover" else "stretch", "bgr")
    for path in sorted(shades.rglob("*.png")):
        x = followed(how, path)[None].astype(np.float32)
        assert list(x.shape) == told["inputs"][how["input"]]
        (prob,) = (onnx_runs("net.onnx", **{how["input"]: x})[name] for name in told["outputs"])
        np.testing.assert_allclose(prob[0], classifier.predict(str(path)), atol=2e-5)


def test_pictures_are_covered_as_the_net_is_tested(shades):
    """What predict makes of a file is what the data layer of TEST does."""
    classifier, _ = exported(CASES["cover"])
    net = Net(parse(NET.replace("KEYS", CASES["cover"]), file="shades.yaml"), "TEST", device="cpu")
    paths = sorted((shades / "val").rglob("*.png"))
    for first in range(0, 8, 2):
        net.forward()
        batch, _ = classifier._prepared(list(map(str, paths[first : first + 2])))
        np.testing.assert_allclose(batch, net.blobs["data"].data, atol=1e-5)


def test_pictures_of_one_size_are_contained(tmp_path, here):
    from PIL import Image

    random = np.random.default_rng(2)
    images = random.integers(0, 256, (9, 3, 12, 16), np.uint8)
    np.savez("shades.npz", images=images, labels=np.arange(9) % 3)
    text = NET.replace("source: shades", "source: shades.npz").replace("KEYS", MEANS + "}")
    spec = parse(text, file="shades.yaml")
    classifier = Classifier(spec, device="cpu")
    to_onnx(spec, "net.onnx", classifier.net.weights())
    told = json.loads((tmp_path / "net.json").read_text())
    assert (told["classes"], told["preprocessing"]["channels"]) == (None, "rgb")
    Image.fromarray(random.integers(0, 256, (30, 20, 3), np.uint8)).save("p.png")
    (prob,) = onnx_runs("net.onnx", data=followed(told["preprocessing"], "p.png")[None]).values()
    np.testing.assert_allclose(prob[0], classifier.predict("p.png"), atol=2e-5)


def test_the_file_holds_the_same(shades):
    _, told = exported(CASES["mean image"], "classes: [night, dusk, noon]\n")
    props = {prop.key: json.loads(prop.value) for prop in onnx.load("net.onnx").metadata_props}
    assert props == {"classes": told["classes"], "preprocessing": told["preprocessing"]}
    assert props["classes"] == ["night", "dusk", "noon"]
    assert props["preprocessing"]["mean_image"] == "net.mean.npy"
    assert props["preprocessing"]["mean"] is None
    assert np.array_equal(np.load("net.mean.npy"), np.load("mean.npy"))


def test_of_a_deploy_net_only_the_size_is_known(tmp_path):
    to_onnx(Net(parse(DEPLOY), "TEST", device="cpu"), tmp_path / "net.onnx", dynamic=["batch"])
    told = json.loads((tmp_path / "net.json").read_text())
    assert told["inputs"] == {"data": ["batch", 3, 6, 8]}
    assert told["outputs"] == {"prob": ["batch", 3]}
    assert told["classes"] is None
    how = told["preprocessing"]
    assert (how.pop("input"), how.pop("size"), how.pop("crop")) == ("data", [6, 8], [6, 8])
    assert how.pop("invert_light_border") is False
    assert set(how.values()) == {None}


def test_a_net_of_other_numbers_has_no_preprocessing(tmp_path):
    to_onnx(Net(parse(DEPLOY.replace("3, 6, 8", "9")), "TEST", device="cpu"), tmp_path / "net.onnx")
    assert json.loads((tmp_path / "net.json").read_text())["preprocessing"] is None
    assert not onnx.load(tmp_path / "net.onnx").metadata_props


def test_a_digit_is_looked_for_and_light_paper_inverted():
    text = "layers: [{name: d, type: Data, top: [data, label], source: digits, batch_size: 1},"
    text += "{name: ip, type: InnerProduct, bottom: data, num_output: 2}]"
    how = preparation(parse(text)).preprocessing("")
    assert (how["fit"], how["channels"], how["invert_light_border"]) == ("digit", "grey", True)


def test_a_name_that_is_the_json_files_own_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"net\.json: expected a name that ends in \.onnx"):
        to_onnx(Net(parse(DEPLOY), "TEST", device="cpu"), tmp_path / "net.json")
    assert list(tmp_path.iterdir()) == []
