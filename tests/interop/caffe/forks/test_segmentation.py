"""Layers of segmentation as prototxts have them; pictures with labels of each pixel."""

import numpy as np
import pytest
from kit import host, near, refusal, single

from minicaffe import DataError, Net, ShapeError, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.interop import caffe
from minicaffe.interop.caffe.model import parse_prototxt
from minicaffe.interop.caffe.prototxt import prototxt

SEGNETS = """
input: "x" input_shape {{ dim: 2 dim: 3 dim: 2 dim: 4 }}
input: "label" input_shape {{ dim: 2 dim: 1 dim: 2 dim: 4 }}
layer {{
  name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "loss" softmax_param {{ engine: CAFFE }}
  loss_param {{ weight_by_label_freqs: {} ignore_label: 255 class_weighting: 0.25 class_weighting: 1
    class_weighting: 7.5 }}
}}"""


def test_a_prototxt_as_segnets_users_write_it():
    spec = caffe.parse(SEGNETS.format("true"))
    weights = {"ignore_label": 255, "class_weighting": (0.25, 1.0, 7.5)}
    written = prototxt(spec, REGISTRY)
    assert 'type: "SoftmaxWithLoss"' in written and "weight_by_label_freqs: true" in written
    assert "minicaffe_param" not in written
    text = yaml_text(spec, REGISTRY)
    assert "type: WeightedSoftmaxWithLoss" in text
    for one in (spec, caffe.parse(written), parse(text)):
        assert one.layers[-1].type == "WeightedSoftmaxWithLoss"
        assert one.layers[-1].options == weights
    old = SEGNETS.format("true").replace("layer {", "layers {")
    old = caffe.parse(old.replace('"SoftmaxWithLoss"', "SOFTMAX_LOSS").replace("{{", "{"))
    assert old.layers[-1].options == weights


def test_weights_that_are_turned_off_have_no_effect(caplog):
    spec = caffe.parse(SEGNETS.format("false"))
    assert spec.layers[-1].type == "SoftmaxWithLoss"
    assert spec.layers[-1].options == {"ignore_label": 255}
    assert "class_weighting has no effect: SoftmaxWithLoss does not look at it" in caplog.text


def test_a_label_that_is_no_class_is_told(cuda):
    x, labels = np.ones((1, 2, 1, 2)), np.array([[[[0.0, 255]]]])
    told = "layer 'it' (SegAccuracy): label 255 is not one of the 2"
    assert told in refusal(single, "SegAccuracy", "ignore_label: 3", [x, labels], error=DataError)
    made = single("SegAccuracy", "ignore_label: 3", [x, labels], cuda)
    assert np.isnan(host(made, made.blobs["it"].data)).all()


def test_a_pooling_with_dilation_in_prototxt():
    text = """input: "x" input_shape { dim: 1 dim: 1 dim: 9 dim: 9 }
    layer { name: "p" type: "Pooling" bottom: "x" top: "p" pooling_param { pool: MAX kernel_size: 3 stride: 1
      dilation: 2 pad: 2 } }
    layer { name: "q" type: "Pooling" bottom: "p" top: "q" pooling_param { pool: AVE kernel_size: 2 dilation: 1 } }
    """
    spec = parse_prototxt(text, REGISTRY)
    p, q = spec.layers[1:]
    assert (p.type, p.options["dilation"], q.type) == ("DilatedPooling", (2,), "Pooling")
    assert Net(spec, "TEST", device="cpu").blobs["q"].shape == (1, 1, 8, 8)
    written = prototxt(spec, REGISTRY)
    assert "DilatedPooling" not in written and "dilation: 2" in written
    again = parse_prototxt(written, REGISTRY)
    assert [one.type for one in again.layers] == [one.type for one in spec.layers]


@pytest.fixture
def pairs(tmp_path, here):
    """Five pictures, red counting rows and green columns, with labels that a loop can tell from them."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "p").mkdir()
    lines = []
    for i in range(5):
        rows, columns = np.mgrid[:8, :9]
        picture = np.stack([10 * rows, 10 * columns, np.full((8, 9), i)], axis=2).astype(np.uint8)
        image.fromarray(picture).save(f"p/{i}.png")
        image.fromarray((20 * rows + 2 * columns + i).astype(np.uint8)).save(f"p/label{i}.png")
        lines.append(f"{i}.png label{i}.png")
    (tmp_path / "pairs.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def reader(kind, keys, phase="TRAIN", device="cpu", dtype="float64", seed=1):
    text = f"layers: [{{name: d, type: {kind}, top: [x, y], source: pairs.txt, root_folder: p/, {keys}}}]"
    return Net(parse(text), phase, device=device, dtype=dtype, seed=seed)


def passes(made, count=6):
    found = []
    for _ in range(count):
        made.forward()
        found.append([host(made, made.blobs[name].data) for name in "xy"])
    return found


HALF = "DenseImageData, label_divide_factor: 2, batch_size: 1"
CUT = {
    "DenseImageData": "crop_height: 4, crop_width: 5, mirror: true",
    "ImageLabelmapData": "transform: {crop_size: 5, mirror: true}",
}


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("workers", [0, 2])
def test_labels_are_cut_and_mirrored_with_their_pictures(pairs, device, phase, workers):
    """Each label tells the row, the column and the picture that it belongs to, as the pixel over it does."""
    keys = f"{CUT['DenseImageData']}, batch_size: 3, workers: {workers}"
    keys += ", transform: {mean_value: [1, 2, 3], scale: 0.5}"
    places, turned = set(), set()
    for x, y in passes(reader("DenseImageData", keys, phase, device)):
        assert (x.shape, y.shape) == ((3, 3, 4, 5), (3, 1, 4, 5))
        number, columns, rows = (x[:, c] * 2 + c + 1 for c in range(3))
        near(y[:, 0], 2 * rows + 0.2 * columns + number)
        places |= {(rows[i, 0, 0], columns[i].min()) for i in range(3)}
        turned |= {float(np.sign(columns[i, 0, 1] - columns[i, 0, 0])) for i in range(3)}
    assert turned == {-1.0, 1.0}
    assert (len(places) > 4) if phase == "TRAIN" else (places == {(20.0, 20.0)})


@pytest.mark.parametrize("kind", CUT)
def test_what_is_read_is_a_function_of_seed_and_pass(pairs, kind):
    keys = f"{CUT[kind]}, batch_size: 2, shuffle: true"
    one, other = (passes(reader(kind, f"{keys}, workers: {workers}")) for workers in (0, 2))
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    again = passes(reader(kind, keys, seed=2))
    assert any((a[0] != b[0]).any() for a, b in zip(one, again, strict=True))


def test_labels_are_scaled_to_the_nearest_and_edges_are_not(pairs):
    """And edges are 1 from 128 on, which OpenCV rounds value / 255 to."""
    from PIL import Image

    size = "new_height: 5, new_width: 4"
    labels = np.asarray(Image.open("p/label0.png"))
    (_, y), *_ = passes(reader("DenseImageData", size + ", batch_size: 1"), 1)
    few = labels[np.arange(5)[:, None] * 8 // 5, np.arange(4) * 9 // 4]
    np.testing.assert_array_equal(y[0, 0], few)
    half = "new_height: 6, new_width: 8, label_divide_factor: 2, batch_size: 1"
    (x, y), *_ = passes(reader("DenseImageData", half), 1)
    assert x.shape == (1, 3, 6, 8) and y.shape == (1, 1, 3, 4)
    few = labels[np.arange(3)[:, None] * 8 // 3, np.arange(4) * 9 // 4]  # as if scaled to 3 x 4
    np.testing.assert_array_equal(y[0, 0], few)
    (_, edges), *_ = passes(reader("ImageLabelmapData", ""), 1)
    np.testing.assert_array_equal(edges[0, 0], labels >= 128)
    assert 0 < edges.mean() < 1
    (_, edges), *_ = passes(reader("ImageLabelmapData", size), 1)
    assert set(edges.ravel()) <= {0, 1} and edges.shape == (1, 1, 5, 4)


def test_grey_pictures_and_16_bits(pairs, cuda):
    keys = "is_color: false, batch_size: 5, transform: {mean_value: 4, scale: 0.25}"
    exact = reader("DenseImageData", keys, "TEST")
    half = reader("DenseImageData", keys, "TEST", cuda, "float16")
    (x, y), (hx, hy) = (passes(one, 1)[0] for one in (exact, half))
    assert x.shape == (5, 1, 8, 9)
    near(hx, x, "float16")
    np.testing.assert_array_equal(hy, y)
    assert [half.blobs[name].data.dtype.name for name in "xy"] == ["float16", "float32"]


@pytest.mark.parametrize(
    ("kind", "keys", "told"),
    [
        ("DenseImageData", "batch_size: 1, crop_height: 3", "are given together, or neither"),
        ("DenseImageData", "batch_size: 1, crop_height: 9, crop_width: 3", "a crop of 9 x 3 is larger"),
        ("DenseImageData", "batch_size: 1, transform: {mirror: true}", "here mirror, crop_height"),
        ("DenseImageData", "batch_size: 1, transform: {resize: 4}", "take mirror, crop_size, mean_value"),
        ("ImageLabelmapData", "transform: {crop_size: 9}", "a crop of 9 x 9 is larger"),
        ("ImageLabelmapData", "transform: {rotation: 5}", "take mirror, crop_size, mean_value"),
        ("ImageLabelmapData", "transform: {mean_value: [1, 2]}", "expected 1 or 3 numbers, got 2"),
        ("ImageLabelmapData", "new_height: 3", "new_height and new_width are given together"),
        (HALF, "new_height: 4, new_width: 6, mirror: true", "without mirror, crop_height, crop_width"),
        (HALF, "crop_height: 4, crop_width: 6", "without mirror, crop_height, crop_width"),
        (HALF, "shuffle: true", "with new_height and new_width"),
        (HALF, "new_height: 4, new_width: 5", "2 does not divide new_height x new_width, 4 x 5"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit(pairs, kind, keys, told):
    """HALF is of labels of half the size."""
    assert told in refusal(reader, kind, keys, error=ShapeError)


def test_damaged_pairs_are_told_in_one_line(pairs):
    from PIL import Image

    Image.new("L", (3, 3)).save("p/label1.png")
    made = reader("DenseImageData", "batch_size: 1")
    made.forward()
    with pytest.raises(DataError, match=r"p/1.png: is of 8 x 9, its labels label1.png of 3 x 3"):
        made.forward()
    skipping = reader("DenseImageData", "batch_size: 1, on_error: skip")
    assert [x[0, 0, 0, 0] for x, _ in passes(skipping, 3)] == [0, 2, 2]
    (pairs / "pairs.txt").write_text("0.png label0.png 1.png\n")
    with pytest.raises(DataError, match="expected two paths in each line, found 3 words"):
        reader("DenseImageData", "batch_size: 1")
