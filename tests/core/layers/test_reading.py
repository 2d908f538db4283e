"""Layers that read and write files: LMDB, image lists, windows, HDF5."""

import functools
import gc
import itertools
import shutil
from pathlib import Path

import caffe_cases as cases
import kit
import numpy as np
import pytest
from core.layers.references.points import between, nearest
from reading_files import COUNT, EXAMPLES, pictures, places, write_lmdb

from minicaffe import DataError, Net, ShapeError, parse
from minicaffe.storage import wire
from minicaffe.tools.data import datasets, datum, lmdb_file
from minicaffe.tools.data.augment import bilinear

RAW = pictures()[:, :, :, ::-1].transpose(0, 3, 1, 2)  # (n, c, h, w), blue before green before red


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The files of fixtures/examples, in a folder of one's own."""
    shutil.copytree(EXAMPLES, tmp_path / "r")
    monkeypatch.chdir(tmp_path / "r")
    return tmp_path / "r"


def net(kind, keys, phase="TEST", tops="[data, label]", **options):
    text = f"layers: [{{name: d, type: {kind}, top: {tops}, {keys}}}]"
    return Net(parse(text), phase, **{"device": "cpu", **options})


def batches(net, count=1, blob="data"):
    host = net.device.to_host
    return np.concatenate([np.array(host(net.forward()[blob])) for _ in range(count)])


# LMDB


def test_caffes_batches_of_an_lmdb(tmp_path, mnist_folder, device):
    pytest.importorskip("lmdb")
    found = datasets.load(str(mnist_folder / "mnist"), "test")
    pairs = zip(found.images, found.labels, strict=True)
    write_lmdb(tmp_path / "db", [datum.write(image, int(label)) for image, label in pairs])
    mean = found.images.mean(axis=0, dtype=np.float64).astype(np.float32)[None]
    (tmp_path / "mean.binaryproto").write_bytes(b"".join(map(bytes, wire.blob_parts(mean))))
    for name in ("scale", "mean_value_scale", "crop20_test_center", "crop21_mean_file_test_center"):
        case = cases.load(f"Data_mnist_{name}")
        model = cases.as_model(cases.from_json(case["net_json"]))
        layer = model["layers"][0]
        assert layer["backend"] == "LMDB"
        layer["source"] = str(tmp_path / "db")
        if "mean_file" in name:
            layer["transform"]["mean_file"] = str(tmp_path / "mean.binaryproto")
        ran = Net(model, str(case["phase"]), device=device)
        for k in range(2):
            cases.assert_close(batches(ran), case[f"data_{k}"], f"{name}: batch {k}")
            labels = device.to_host(ran.blobs["label"].data)
            cases.assert_close(labels, case[f"label_{k}"], f"{name}: labels {k}")
    case = cases.load("Data_mnist_wraparound_labels")
    keys = f"source: {tmp_path / 'db'}, batch_size: 3000, backend: LMDB"
    assert (batches(net("Data", keys), 5, "label") == case["labels"]).all()


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_the_order_is_caffes_unless_shuffled(here, phase, device):
    keys = "source: lmdb, batch_size: 2"
    labels = batches(net("Data", keys, phase, device=device), 5, "label")
    assert labels.tolist() == [*range(COUNT)] * 2
    shuffled = batches(net("Data", f"{keys}, shuffle: true", phase), 5, "label").astype(int)
    assert sorted(shuffled[:COUNT]) == sorted(shuffled[COUNT:]) == [*range(COUNT)]
    jump = net("Data", f"{keys}, shuffle: true", phase)
    jump.context.passes = 3
    assert batches(jump, 2, "label").tolist() == shuffled[6:].tolist()


def test_rand_skip_begins_at_a_random_entry(here):
    keys = "source: lmdb, batch_size: 1, rand_skip: 5"
    starts = {int(batches(net("Data", keys, seed=seed), 1, "label")[0]) for seed in range(40)}
    assert starts == {*range(COUNT)}
    labels = batches(net("Data", keys, seed=3), COUNT, "label")
    assert sorted(labels) == [*range(COUNT)] and (np.diff(labels) % COUNT == 1).all()


@pytest.mark.parametrize("kind", ["png", "jpg", "grey"])
def test_encoded_pictures_have_the_channels_that_are_asked_for(tmp_path, kind):
    """As OpenCV decodes them: blue, green, red; grey stays grey unless it is forced."""
    pytest.importorskip("lmdb")
    cv2 = pytest.importorskip("cv2")
    given = pictures()[:, :, :, ::-1]
    given = given[..., 0] if kind == "grey" else given
    files = [cv2.imencode(".jpg" if kind == "jpg" else ".png", p)[1].tobytes() for p in given]
    write_lmdb(tmp_path / "db", [encoded(file, i) for i, file in enumerate(files)])
    keys = f"source: {tmp_path / 'db'}, batch_size: {COUNT}"
    for force, flag in (("", cv2.IMREAD_UNCHANGED), ("color", 1), ("gray", 0)):
        more = f", transform: {{force_{force}: true}}" if force else ""
        found = batches(net("Data", keys + more))
        for i, file in enumerate(files):
            wanted = cv2.imdecode(np.frombuffer(file, np.uint8), flag)
            wanted = wanted.reshape(*wanted.shape[:2], -1).transpose(2, 0, 1)
            assert np.abs(found[i] - wanted).max() <= (1 if force == "gray" else 0), (force, i)


def encoded(file, label):
    parts = [*wire.put(4, [file]), wire.put_integer(5, label), wire.put_integer(7, 1)]
    return b"".join(map(bytes, parts))


def test_pictures_of_floats_and_of_several_sizes(tmp_path, device):
    pytest.importorskip("lmdb")
    random = np.random.default_rng(3)
    floats = [random.random((2, 5 + i, 8 - i)).astype(np.float32) for i in range(3)]
    write_lmdb(tmp_path / "db", [datum.write(p, i) for i, p in enumerate(floats)])
    keys = f"source: {tmp_path / 'db'}, batch_size: 3, transform: {{crop_size: 4, scale: 2}}"
    found = batches(net("Data", keys, device=device))
    for i, picture in enumerate(floats):
        top, left = (picture.shape[1] - 4) // 2, (picture.shape[2] - 4) // 2
        wanted = picture[:, top : top + 4, left : left + 4] * 2
        np.testing.assert_allclose(found[i], wanted, rtol=1e-6)
    plain = net("Data", f"source: {tmp_path / 'db'}, batch_size: 3")
    with pytest.raises(DataError, match="entry 1: expected a picture of 2 channels and 5 x 8, got"):
        plain.forward()


def test_pictures_that_are_not_as_the_first(tmp_path):
    """The first is of bytes and its size that of the mean image."""
    small, large = (np.zeros((1, *size), np.uint8) for size in ((4, 4), (5, 4)))
    np.save(tmp_path / "mean.npy", np.ones((1, 4, 4)))
    keys = f"crop_size: 4, mean_file: {tmp_path / 'mean.npy'}"
    for transform, other, message in (
        ("", small.astype(float), "entry 1: expected bytes, as in the first picture, got float32"),
        (keys, large, r"entry 1: is of \(1, 5, 4\), the mean image of \(1, 4, 4\)"),
    ):
        folder = tmp_path / str(len(transform))
        write_lmdb(folder, [datum.write(one, 0) for one in (small, other)])
        with pytest.raises(DataError, match=message):
            net("Data", f"source: {folder}, batch_size: 2, transform: {{{transform}}}").forward()


@pytest.mark.parametrize("kind", ["Data", "ImageData"])
def test_crops_and_mirrors_in_train_are_all_about(here, kind, device):
    source = "lmdb" if kind == "Data" else "images.txt"
    keys = f"source: {source}, batch_size: {COUNT}, transform: {{crop_size: 4, mirror: true}}"
    given, seen = net(kind, keys, "TRAIN", device=device), set()
    for _ in range(60):
        for i, crop in enumerate(batches(given)):
            found = places(crop, RAW[i])
            assert found
            seen |= set(found)
    assert len(seen) == 3 * 4 * 2
    again = net(kind, keys, "TRAIN", device=device)
    again.context.passes = 59
    np.testing.assert_array_equal(batches(again), device.to_host(given.blobs["data"].data))


def test_the_mean_is_subtracted_before_the_crop(here, device):
    mean = np.random.default_rng(5).random((3, 6, 7), np.float32) * 100
    np.save("mean.npy", mean)
    Path("mean.binaryproto").write_bytes(b"".join(map(bytes, wire.blob_parts(mean[None]))))
    for file in ("mean.npy", "mean.binaryproto"):
        keys = f"batch_size: 5, transform: {{crop_size: 4, mean_file: {file}, scale: 0.5}}"
        wanted = ((RAW - mean) * 0.5)[:, :, 1:5, 1:5]
        for kind, source in (("Data", "lmdb"), ("ImageData", "images.txt")):
            given = net(kind, f"source: {source}, {keys}", device=device)
            np.testing.assert_allclose(batches(given), wanted, rtol=1e-5)
            np.testing.assert_allclose(given.layers["d"].as_tested(RAW), wanted, rtol=1e-5)
    keys = "source: lmdb, batch_size: 5, transform: {mean_value: [1, 2, 3]}"
    wanted = RAW - np.reshape([1, 2, 3], (3, 1, 1))
    np.testing.assert_allclose(batches(net("Data", keys, device=device)), wanted)


def test_a_reshaped_batch(here):
    given = net("Data", "source: lmdb, batch_size: 5")
    given.reshape(data=(2, 3, 6, 7))
    assert batches(given, 1, "label").tolist() == [0, 1]
    with pytest.raises(ShapeError, match=r"data: expected \(n, 3, 6, 7\), the data set's but for"):
        given.reshape(data=(2, 3, 6, 8))


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    kit.rows("""
Data       | source: lmdb, backend: LEVELDB | LevelDB databases are not read; make an LMDB
Data       | source: no, backend: LMDB | there is no LMDB database; looked in no
Data       | source: level | LevelDB databases are not read
Data       | source: digits, transform: {force_gray: true} | are for encoded images
Data       | source: lmdb, transform: {force_gray: true} | entry 0: force_color and force_gray
Data       | source: lmdb, transform: {crop_size: 9} | larger than the images of 6 x 7
Data       | source: lmdb, transform: {force_gray: true, force_color: true} | not both
ImageData  | source: images.txt, new_width: 3 | given together, or neither
ImageData  | source: no.txt | source: no such file; looked for 'no.txt'
ImageData  | source: lone.txt | lone.txt:2: expected a path and a label, got 'b'
ImageData  | source: gone.txt | no such file; looked for 'gone.png'
ImageData  | source: self.txt | self.txt: is not a picture that can be read
ImageData  | source: images.txt, rand_skip: 9 | rand_skip 9 is more than 5 images
ImageData  | source: 0.png | 0.png: is not a whole text: it is a picture
ImageData  | source: large.txt | large.txt: is not a whole text: it has more than 0 MiB
ImageData  | source: images.txt, HUGE | a picture of 400000 x 500000 pixels is not made
ImageData  | source: images.txt, HUGE, transform: {crop_size: 3} | a picture of 400000 x 500000 pixels is not made
WindowData | source: windows.txt | needs transform: {crop_size: ...}
WindowData | source: images.txt, CROP | expected '# number path channels height width count', got '0.png 0
WindowData | source: windows.txt, transform: {crop_size: 4, resize: 9} | color_jitter: a window is scaled to crop_size as it is
WindowData | source: windows.txt, transform: {crop_size: 2, mean_file: wide.npy} | mean_file: a mean image must be as high as it is wide
WindowData | source: first.txt, CROP | expected picture 0, found number 1
WindowData | source: short.txt, CROP | picture 0 promises 2 windows, holds fewer
WindowData | source: grey.txt, CROP | expected pictures of 3 channels, found [1]
WindowData | source: windows.txt, fg_threshold: 2, CROP | windows.txt: holds no window on an object
WindowData | source: windows.txt, context_pad: 2, CROP | leaves nothing of crop_size
HDF5Data   | source: odd.txt | odd.txt: is not a list of files: found 'a\\x07'
HDF5Data   | source: empty.txt | empty.txt: names no file
"""),
)
def test_mistakes_are_named(here, kind, keys, message, monkeypatch):
    monkeypatch.setattr("minicaffe.storage.lists.LARGEST", 1000)
    for name, text in {
        "first": "# 1 0.png 3 6 7 0",
        "short": "# 0 0.png 3 6 7 2\n1 1 0 0 3 3",
        "grey": "# 0 0.png 1 6 7 0",
        "large": "0.png 1\n" * 200,
        "odd": "a\a",
        "empty": "",
        "lone": "a 1\nb\n",
        "gone": "gone.png 1\n",
        "self": "self.txt 1\n",
    }.items():
        (here / f"{name}.txt").write_text(text)
    np.save(here / "wide.npy", np.zeros((3, 2, 9)))
    (here / "level").mkdir()
    (here / "level" / "CURRENT").write_text("MANIFEST-000001\n")
    keys = keys.replace("CROP", "transform: {crop_size: 4}")
    keys = keys.replace("HUGE", "new_height: 400000, new_width: 500000")
    said = kit.error_line(net, kind, f"{keys}, batch_size: 4")
    assert message in said and f"layer 'd' ({kind}): " in said
    assert said.startswith("ShapeError: ") or "HUGE" not in keys


def test_a_value_that_is_no_picture_is_told(tmp_path):
    pytest.importorskip("lmdb")
    for value, told in (
        (b"hello", "is not a whole Datum"),
        (encoded(b"GIF", 1), "is not a picture that can be read"),
        (datum.write(np.zeros((1, 2, 3), np.uint8), 0)[:-9], "has no end|are left"),
    ):
        shutil.rmtree(tmp_path / "db", ignore_errors=True)
        write_lmdb(tmp_path / "db", [value])
        with pytest.raises(DataError, match=told) as caught:
            net("Data", f"source: {tmp_path / 'db'}, batch_size: 4")
        assert "data.mdb: entry 0" in str(caught.value)


def test_an_lmdb_of_every_size_of_value(tmp_path):
    """Values in leaves and in pages of their own, trees of several levels, as LMDB's own library wrote them."""
    pytest.importorskip("lmdb")
    random = np.random.default_rng(1)
    for count, most in ((0, 1), (1, 10), (4000, 30), (800, 900), (60, 30000)):
        shutil.rmtree(tmp_path / "db", ignore_errors=True)
        values = [random.bytes(int(random.integers(0, most + 1))) for _ in range(count)]
        write_lmdb(tmp_path / "db", values)
        found = lmdb_file.Lmdb(tmp_path / "db")
        assert [bytes(found[i]) for i in range(len(found))] == values


# ImageData and WindowData


def test_listed_pictures_are_read_in_order(here, device):
    given = net("ImageData", "source: images.txt, batch_size: 3", device=device)
    np.testing.assert_array_equal(batches(given, 2), RAW[[0, 1, 2, 3, 4, 0]])
    given.context.passes = 0
    assert batches(given, 2, "label").tolist() == [0, 1, 2, 0, 1, 0]
    grey = batches(net("ImageData", "source: images.txt, is_color: false", tops="data"))
    assert np.abs(grey[:, 0] - RAW[:1].transpose(0, 2, 3, 1) @ [0.114, 0.587, 0.299]).max() <= 1


def test_paths_are_root_and_line_and_may_hold_spaces(here, monkeypatch):
    (here / "sub dir").mkdir()
    shutil.copy("1.png", "sub dir/x1.png")
    (here / "l.txt").write_text("dir/x1.png 7\n\n")
    monkeypatch.chdir(here.parent)
    given = net("ImageData", "source: r/l.txt, root_folder: 'sub '")
    np.testing.assert_array_equal(batches(given)[0], RAW[1])
    assert batches(given, 1, "label") == [7]


def test_listed_pictures_are_shuffled_by_epoch(here):
    given = net("ImageData", "source: images.txt, batch_size: 5, shuffle: true")
    epochs = [batches(given) for _ in range(4)]
    orders = [
        [places(p, p) and int((p == RAW).all(axis=(1, 2, 3)).argmax()) for p in e] for e in epochs
    ]
    assert all(sorted(order) == [*range(COUNT)] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def slow_bilinear(picture, height, width):
    """The definition, pixel by pixel, in float64."""
    h, w, c = picture.shape
    out = np.empty((height, width, c))
    for y, x in np.ndindex(height, width):
        out[y, x] = between(picture, (y + 0.5) * h / height - 0.5, (x + 0.5) * w / width - 0.5)
    return out


def test_scaling_is_bilinear_and_opencvs_bit_for_bit():
    random = np.random.default_rng(2)
    try:
        import cv2
    except ImportError:
        cv2 = None
    for k in range(60):
        h, w, height, width = (int(n) for n in random.integers(1, 24, 4))
        if k % 6 == 0:
            h, w = 2 * height, 2 * width
        picture = random.integers(0, 256, (h, w, 1 + 2 * (k % 2)), dtype=np.uint8)
        found = bilinear(picture, height, width)
        assert np.abs(found - slow_bilinear(picture, height, width)).max() <= 1.01
        if cv2 is not None:
            wanted = cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR)
            np.testing.assert_array_equal(found, wanted.reshape(found.shape))


def test_listed_pictures_are_scaled(here):
    found = batches(net("ImageData", "source: images.txt, new_height: 9, new_width: 4"))
    wanted = slow_bilinear(RAW[0].transpose(1, 2, 0), 9, 4).transpose(2, 0, 1)
    assert found.shape == (1, 3, 9, 4) and np.abs(found[0] - wanted).max() <= 1.01


def slow_window(picture, box, side, pad, square, mirrored):
    """A window as Caffe's WindowDataLayer cuts it, in plain numbers: (3, side, side)."""
    x1, y1, x2, y2 = box
    rows, columns = picture.shape[1:]
    height = width = side
    top = left = 0
    if pad or square:
        scale = side / (side - 2 * pad)
        half_h, half_w = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2
        cx, cy = x1 + half_w, y1 + half_h
        if square:
            half_h = half_w = max(half_h, half_w)
        x1, x2 = nearest(cx - half_w * scale), nearest(cx + half_w * scale)
        y1, y2 = nearest(cy - half_h * scale), nearest(cy + half_h * scale)
        whole_h, whole_w = y2 - y1 + 1, x2 - x1 + 1
        px1, py1 = max(0, -x1), max(0, -y1)
        px2, py2 = max(0, x2 - columns + 1), max(0, y2 - rows + 1)
        x1, x2, y1, y2 = x1 + px1, x2 - px2, y1 + py1, y2 - py2
        sx, sy = side / whole_w, side / whole_h
        height, width = nearest((y2 - y1 + 1) * sy), nearest((x2 - x1 + 1) * sx)
        top, left = nearest(py1 * sy), nearest((px2 if mirrored else px1) * sx)
        height, width = min(height, side - top), min(width, side - left)
    part = picture[:, y1 : y2 + 1, x1 : x2 + 1].transpose(1, 2, 0)
    part = slow_bilinear(part, height, width)[:, :: -1 if mirrored else 1].transpose(2, 0, 1)
    out = np.full((3, side, side), np.nan)
    out[:, top : top + height, left : left + width] = part
    return out


BOXES = {1: [(1, 1, 4, 4)], 2: [(0, 0, 3, 5)], 0: [(2, 0, 6, 5), (3, 3, 5, 5)]}
MEAN = 10, 20, 30


@functools.cache
def windows_of(label, side, pad, square):
    """Every window of a label, mirrored or not, transformed as the test below asks for."""
    found = {}
    for number, box, mirrored in itertools.product(range(COUNT), BOXES[label], (False, True)):
        cut = slow_window(RAW[number], box, side, pad, square, mirrored)
        cut = (cut - np.reshape(MEAN, (3, 1, 1))) * 0.5
        found[number, box, mirrored] = np.nan_to_num(cut, nan=0.0)
    return found


@pytest.mark.parametrize(
    "keys", ["", ", context_pad: 1", ", crop_mode: square", ", context_pad: 2, crop_mode: square"]
)
def test_windows_are_caffes(here, keys, device):
    side, n = 8, 8
    pad, square = 2 * ("2" in keys) + ("1" in keys), "square" in keys
    text = f"source: windows.txt, batch_size: {n}{keys}, cache_images: true, transform: "
    text += f"{{crop_size: {side}, mirror: true, mean_value: {[*MEAN]}, scale: 0.5}}"
    given = net("WindowData", text, "TRAIN", device=device)
    seen = set()
    for k in range(25):
        images = batches(given)
        labels = device.to_host(given.blobs["label"].data).astype(int)
        assert (labels[: n - 2] == 0).all() and (labels[n - 2 :] > 0).all()  # fg_fraction 0.25
        for image, label in zip(images, labels, strict=True):
            if k > 2 and len(seen) == 40:
                continue
            fits = [
                which
                for which, wanted in windows_of(label, side, pad, square).items()
                if np.abs(image - wanted).max() <= 0.6
            ]
            assert fits, (label, keys)
            seen |= set(fits)
    assert len(seen) > 30  # of 40
    again = net("WindowData", text, "TRAIN", device=device)
    again.context.passes = 24
    np.testing.assert_array_equal(batches(again), images)


def test_of_a_larger_mean_image_the_centre_is_taken(here):
    mean = np.random.default_rng(5).random((3, 12, 12), np.float32)
    np.save("mean.npy", mean)
    text = "source: windows.txt, batch_size: 4, transform: {crop_size: 8"
    plain = batches(net("WindowData", text + "}"))
    found = batches(net("WindowData", text + ", mean_file: mean.npy}"))
    np.testing.assert_allclose(found, plain - mean[:, 2:10, 2:10], atol=1e-4)


def test_a_window_outside_its_picture_is_told(here):
    (here / "w.txt").write_text("# 0\n0.png\n3 6 7 2\n1 0.9 1 1 7 4\n0 0 0 0 2 2\n")
    given = net("WindowData", "source: w.txt, batch_size: 4, transform: {crop_size: 8}")
    with pytest.raises(DataError, match=r"0: window \[1, 1, 7, 4\] is not in its 6 x 7 pixels"):
        given.forward()


def test_a_picture_of_another_size_than_the_window_file_says_is_told_once(here, capsys):
    (here / "w.txt").write_text("# 0\n0.png\n3 12 14 2\n1 0.9 1 1 4 4\n0 0 0 0 2 2\n")
    given = net("WindowData", "source: w.txt, batch_size: 4, transform: {crop_size: 8}")
    given.forward()
    given.forward()
    told = [line for line in capsys.readouterr().err.splitlines() if "w.txt" in line]
    assert len(told) == 1 and told[0].endswith("0.png is of 6 x 7, not 12 x 14 as this says")


# HDF5


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py")


def test_caffes_rows_of_two_files(h5py, device):
    case = cases.load("HDF5Data_two_files")
    model = cases.as_model(cases.from_json(case["net_json"]))
    model["layers"][0]["source"] = str(cases.FIXTURES / "list.txt")
    given = Net(model, "TRAIN", device=device)
    for data, label in zip(case["data"], case["label"], strict=True):
        np.testing.assert_array_equal(batches(given), data)
        np.testing.assert_array_equal(device.to_host(given.blobs["label"].data), label)


@pytest.fixture
def rows(h5py, tmp_path, monkeypatch):
    """Three files of 4, 1 and 3 rows: a, float64; b, integers; each row its number."""
    monkeypatch.chdir(tmp_path)
    first = 0
    for name, count in (("x", 4), ("y", 1), ("z", 3)):
        numbers = np.arange(first, first + count)
        with h5py.File(f"{name}.h5", "w") as file:
            packed = {"compression": "gzip", "shuffle": True} if name == "x" else {}
            file.create_dataset("a", data=np.repeat(numbers, 6).reshape(-1, 2, 3) / 2, **packed)
            file.create_dataset("b", data=numbers.astype(np.int64))
        first += count
    Path("list.txt").write_text("x.h5\ny.h5\nz.h5\n")
    return tmp_path


def test_rows_run_on_and_are_shuffled_by_file(rows, device):
    keys = "source: list.txt, batch_size: 5"
    given = net("HDF5Data", keys, tops="[b, a]", device=device)
    wanted = np.arange(15) % 8
    assert batches(given, 3, "b").tolist() == wanted.tolist()
    given.context.passes = 0
    np.testing.assert_array_equal(batches(given, 3, "a")[:, 1, 2], wanted / 2)
    given = net("HDF5Data", f"{keys}, shuffle: true", tops="b", device=device)
    found = batches(given, 16, "b").astype(int).reshape(10, 8)
    of = np.array([0, 0, 0, 0, 1, 2, 2, 2])
    for epoch in found:
        assert sorted(epoch) == [*range(8)]
        assert (np.diff(of[epoch]) != 0).sum() == 2  # a file is read to its end
    assert len({tuple(epoch) for epoch in found}) > 5
    again = net("HDF5Data", f"{keys}, shuffle: true", tops="b")
    again.context.passes = 7
    assert batches(again, 1, "b").tolist() == found.ravel()[35:40].tolist()


def test_what_a_file_of_rows_may_not_be(rows, h5py, monkeypatch):
    def told(name, make):
        shutil.copy("x.h5", "bad.h5")
        with h5py.File("bad.h5", "r+") as file:
            del file[name]
            make(file)
        Path("bad.txt").write_text("y.h5\nbad.h5\n")
        given = "HDF5Data", "source: bad.txt, batch_size: 2"
        return kit.error_line(lambda: net(*given, tops="[a, b]").forward())

    outside, soft = h5py.ExternalLink("z.h5", "/b"), h5py.SoftLink("/a")
    elsewhere = {"dtype": "f8", "external": [("raw.bin", 0, 32)]}
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:3] = h5py.VirtualSource("z.h5", "b", (3,))
    bomb = {"shape": (4, 2**40), "dtype": "f4", "chunks": (1, 1024)}
    for wanted, name, make in (
        ("'/b' is a link elsewhere", "b", lambda f: f.update(b=outside)),
        ("'/b' is a link elsewhere", "b", lambda f: f.update(b=soft)),
        ("there is no '/b'", "b", lambda f: None),
        ("'/b' is a group, expected a dataset", "b", lambda f: f.create_group("b")),
        ("expected numbers", "b", lambda f: f.create_dataset("b", data=[b"x"] * 4)),
        ("as many rows", "b", lambda f: f.create_dataset("b", data=[1.0])),
        ("expected rows of shape", "a", lambda f: f.create_dataset("a", data=np.zeros((4, 3)))),
        (
            "'/b' is packed with filters [32000]; deflate, shuffle, fletcher32 are read, each once",
            "b",
            lambda f: f.create_dataset("b", data=np.zeros(4), compression="lzf"),
        ),
        ("lies in other files", "b", lambda f: f.create_dataset("b", (4,), **elsewhere)),
        ("lies in other files", "b", lambda f: f.create_virtual_dataset("b", layout)),
        ("promises", "a", lambda f: f.create_dataset("a", **bomb)),
    ):
        said = told(name, make)
        assert wanted in said and "bad.h5: " in said
    with h5py.File("none.h5", "w") as file:
        file.update(a=np.zeros((0, 2)), b=np.zeros(0))
    Path("none.txt").write_text("none.h5\n")
    with pytest.raises(DataError, match="none.txt: its files hold no rows"):
        net("HDF5Data", "source: none.txt, batch_size: 2", tops="[a, b]")
    monkeypatch.setattr("minicaffe.storage.hdf5._CHUNK", 16)
    said = told("b", lambda f: f.update(b=np.arange(4)))
    assert "'/a' has chunks of (4, 2, 3), above 0 MiB" in said


def writing(file, labels, **options):
    keys = f"type: HDF5Output, file_name: {file}, top: []"
    return kit.net_of(keys, (3, 2, 2), (labels,), phase="TEST", dtype="float32", **options)


def test_blobs_are_written_and_read_again(h5py, tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    given, random = writing("out.h5", 3, device=device), np.random.default_rng(1)
    xs, ys = random.random((4, 3, 2, 2), np.float32), random.random((4, 3), np.float32)
    for k in range(3):
        given.forward(b0=xs[k], b1=ys[k])
    assert not Path("out.h5").exists()  # it is beside it until it is whole
    given.layers["it"].finish()
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["data"], xs[:3].reshape(9, 2, 2))
        np.testing.assert_array_equal(file["label"], ys[:3].reshape(9))
    given.forward(b0=xs[3], b1=ys[3])
    del given
    gc.collect()
    Path("l.txt").write_text("out.h5")
    read = batches(net("HDF5Data", "source: l.txt, batch_size: 3", tops="data"))
    np.testing.assert_array_equal(read, xs[3])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.txt", "out.h5"]


def test_only_an_hdf5_file_is_replaced(h5py, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("mine")
    for file, told in (
        ("notes.txt", "is there, and is no HDF5 file"),
        ("/dev/null", "is there, and is no HDF5 file"),
        ("no/o.h5", "there is no folder 'no'"),
    ):
        with pytest.raises(DataError, match=told):
            writing(file, 3)
    with pytest.raises(ShapeError, match="as many rows of data as of labels"):
        writing("o.h5", 2)
    assert Path("notes.txt").read_text() == "mine"


# steps


CROP = "transform: {crop_size: 6, mirror: true, scale: 0.1}"
SOURCES = {
    "Data": f"source: {EXAMPLES}/lmdb, {CROP}",
    "ImageData": f"source: {EXAMPLES}/images.txt, {CROP}",
    "WindowData": f"source: {EXAMPLES}/windows.txt, {CROP}",
    "HDF5Data": f"source: {EXAMPLES}/rows.txt, shuffle: true",
}
SLOW = ("ImageData", "WindowData")


def reading(kind, batch, keys="", **options):
    tops = "t0" if kind == "HDF5Data" else "[a, b]"
    return net(kind, f"batch_size: {batch}, {SOURCES[kind]}{keys}", "TRAIN", tops, **options)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind in SLOW)) for kind in SOURCES]
)
def test_a_batch_takes_no_array_of_its_size(kind, tmp_path, monkeypatch):
    import tracemalloc

    if kind == "HDF5Data":  # of a file of some rows: it is read anew each time
        with pytest.importorskip("h5py").File(tmp_path / "rows.h5", "w") as file:
            file["t0"] = np.arange(400, dtype=np.float32).reshape(100, 4)
        (tmp_path / "rows.txt").write_text("rows.h5\n")
        monkeypatch.setitem(SOURCES, kind, f"source: {tmp_path}/rows.txt, shuffle: true")
    # Read by this thread: how much several have in hand at a time depends on how busy the machine is.
    given = reading(kind, 1500, ", workers: 0" if kind in ("Data", "ImageData") else "")
    smallest = given.steps[0].tops[0].blob.data.nbytes
    if kind in ("Data", "ImageData"):  # until nothing new is read ahead
        for _ in range(5):
            given.forward()
    tracemalloc.start()
    try:
        given.forward()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        given.forward()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        del given
        gc.collect()
        tracemalloc.stop()
    limit = smallest * 0.75 if kind == "HDF5Data" else smallest / 4  # its rows are small
    assert peak - before < limit and after - before < 20_000


@pytest.mark.parametrize("kind", SOURCES)
def test_a_batch_is_one_copy_a_top(cuda, kind):
    if not getattr(cuda.xp, "is_stand_in", False):
        pytest.skip("the counters are the stand-in's")
    import cupy

    given = reading(kind, 8, device=cuda)
    for _ in range(2):
        given.forward()
    before = (cupy.allocations, cupy.synchronizations, cupy.uploads)
    given.forward()
    count = len(given.steps[0].tops)
    assert (cupy.allocations, cupy.synchronizations, cupy.uploads - count) == before


def test_a_picture_of_ones_own_is_read_as_the_net_read_its_own(here, capsys):
    """`predict` gives a net of OpenCV's pictures blue before green before red."""
    from minicaffe.cli import main

    for kind, source in (("ImageData", "images.txt"), ("Data", "lmdb")):
        Path("m.yaml").write_text(f"""
layers:
  - {{name: d, type: {kind}, top: [data, label], source: {source}, batch_size: 1}}
  - {{name: ip, type: InnerProduct, bottom: data, num_output: 3, axis: 2,
     weight_filler: {{type: constant, value: 0.002}}}}
  - {{name: red, type: Pooling, bottom: data, global_pooling: true, pool: AVE}}
  - {{name: prob, type: Softmax, bottom: red}}
""")
        model = Net("m.yaml", "TEST", device="cpu")
        model.save("w.npz")
        model.forward()
        wanted = model.blobs["prob"].data.ravel()
        capsys.readouterr()
        assert main(["predict", "m.yaml", "0.png", "--weights", "w.npz", "--device", "cpu"]) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"0.png: {wanted.argmax()} ({100 * wanted.max():.2f} %)")
