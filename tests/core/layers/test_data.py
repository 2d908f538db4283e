"""The Data layer: order, shuffling, transform, and files that are not what they should be."""

import shutil
import zipfile
from pathlib import Path

import kit
import numpy as np
import pytest
from reading_files import EXAMPLES, pictures, places

from minicaffe import DataError, Net, parse
from minicaffe.tools.data import idx
from minicaffe.tools.data.reader.cifar10_set import FILES

N = 10


@pytest.fixture(autouse=True)
def folder(tmp_path, here):
    """Ten training images whose pixels are their number, of 4 x 5, and three test images."""
    (tmp_path / "set").mkdir()
    for name, count in (("train", N), ("t10k", 3)):
        images = 10 * np.arange(count, dtype=np.uint8)[:, None, None]
        images = images + np.arange(20, dtype=np.uint8).reshape(4, 5) // 4
        idx.write(tmp_path / "set" / f"{name}-images-idx3-ubyte", images)
        idx.write(tmp_path / "set" / f"{name}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8))
    return tmp_path


def net(keys="", phase="TRAIN", batch=4, source="set", **options):
    text = f"name: d, type: Data, top: [data, label], source: {source}, batch_size: {batch}{keys}"
    options.setdefault("device", "cpu")
    return Net(parse(f"layers: [{{{text}}}]"), phase, **options)


def test_what_is_too_large_for_a_gpu_stays_with_the_host(cuda, monkeypatch):
    """Which makes the same batches of it, over more than one epoch."""
    keys = ", transform: {crop_size: 3, mirror: true, scale: 0.5, mean_value: 2}"
    held = net(keys, device=cuda)
    monkeypatch.setattr(type(cuda), "memory", lambda self: 4 * 20 * N - 1)
    fed = net(keys, device=cuda)
    assert held.layers["d"].images is not None and fed.layers["d"].images is None
    for _ in range(6):
        for mine, other in zip(held.forward().values(), fed.forward().values(), strict=True):
            assert cuda.to_host(mine).tobytes() == cuda.to_host(other).tobytes()


def labels(data, batches):
    host = data.device.to_host
    return [int(k) for _ in range(batches) for k in np.array(host(data.forward()["label"]))]


def test_caffes_order_wraps_around(device):
    assert labels(net(", shuffle: false", device=device), 3) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert labels(net(phase="TEST", batch=2), 2) == [0, 1, 2, 0]


def test_each_epoch_is_a_permutation_of_its_own(device):
    order = labels(net(batch=5, device=device), 8)
    epochs = [order[i : i + N] for i in range(0, 40, N)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert order == labels(net(batch=5), 8)
    assert order != labels(net(batch=5, seed=2), 8)


def test_crops_are_central_in_test_and_all_about_in_train():
    central = net(", transform: {crop_size: 2}", phase="TEST").forward()["data"]
    np.testing.assert_array_equal(central, net(phase="TEST").forward()["data"][:, :, 1:3, 1:3])
    data = net(", shuffle: false, transform: {crop_size: 2, mirror: true}", batch=N)
    raw = net(", shuffle: false", batch=N).forward()["data"]
    seen = set()
    for _ in range(30):
        for i, crop in enumerate(data.forward()["data"][:, 0]):
            where = places(crop, raw[i, 0])
            assert where
            seen |= set(where)
    assert len({place[:2] for place in seen}) == 12
    assert {place[2] for place in seen} == {False, True}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (", transform: {crop_size: 5}", "crop_size 5 is larger than the images of 4 x 5"),
        (", transform: {mean_value: [1, 2]}", "mean_value: expected 1 or 1 numbers, got 2"),
        (", transform: {mean_value: 1, mean_file: m.npy}", "either mean_value or mean_file"),
        (", transform: {mean_file: two.npy}", "two.npy: expected the shape (1, 4, 5), got (2,)"),
        (", transform: {mean_file: no.npy}", "mean_file: no such file; looked for 'no.npy'"),
    ],
)
def test_mistakes_are_named(keys, message):
    np.save("two.npy", np.ones(2))
    said = kit.error_line(net, keys)
    assert "layer 'd' (Data): " in said and message in said


def test_where_a_mean_file_was_looked_for():
    Path("there").mkdir()
    Path("there", "a.yaml").write_text(
        "layers: [{name: d, type: Data, source: ../set, batch_size: 1, transform: {mean_file: no.npy}}]"
    )
    with pytest.raises(DataError, match="no such file; looked for 'no.npy' and 'there/no.npy'$"):
        Net("there/a.yaml", device="cpu")


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8', (", b"x" * 100, "npz", "shape", "text"],
)  # fmt: skip
def test_a_mean_file_that_is_none(content):
    if content == "npz":
        with zipfile.ZipFile("m.npy", "w") as archive:
            archive.writestr("a", "b")
    elif content == "shape":
        np.save("m.npy", np.zeros((4, 5)))
    elif content == "text":
        np.save("m.npy", np.full((1, 4, 5), "a"))
    else:
        Path("m.npy").write_bytes(content)
    said = kit.error_line(net, ", transform: {mean_file: m.npy}")
    assert "m.npy" in said
    assert said.startswith("DataError: ") == (content in ("shape", "text"))


# sources of every kind

RAW = pictures()[:4, :, :, ::-1].transpose(0, 3, 1, 2)  # blue before green before red


def npz(folder, rng):
    images = rng.integers(0, 256, (4, 3, 5, 7), np.uint8)
    last = np.moveaxis(images, 1, -1)
    np.savez(folder / "set.npz", x_test=last, y_test=np.arange(4), x_train=images[:1], y_train=[0])
    return "set.npz", images


def floats(folder, rng):
    images = rng.normal(size=(4, 3, 5, 7)).astype(np.float32)
    np.savez(folder / "set.npz", images=images, labels=np.arange(4))
    return "set.npz", images


def npy(folder, rng):
    images = rng.normal(size=(4, 5, 7))
    (folder / "set").mkdir()
    np.save(folder / "set" / "images.npy", images)
    np.save(folder / "set" / "labels.npy", np.arange(4))
    return "set", images[:, None].astype(np.float32)


def hdf5(folder, rng):
    h5py = pytest.importorskip("h5py")
    images = rng.integers(0, 256, (4, 3, 5, 7), np.uint8)
    with h5py.File(folder / "set.h5", "w") as file:
        file["data"], file["label"] = images, np.arange(4)
    return "set.h5", images


def cifar10(folder, rng):
    records = rng.integers(0, 256, (4, 3073), np.uint8)
    records[:, 0] = np.arange(4)
    (folder / "set").mkdir()
    for name in (*FILES["train"], *FILES["test"]):
        (folder / "set" / name).write_bytes(records[:, ::1].tobytes())
    return "set", records[:, 1:].reshape(4, 3, 32, 32)


def classes(folder, rng):
    pytest.importorskip("PIL")
    for i in range(4):
        (folder / "set" / "val" / f"class {i}").mkdir(parents=True)
        (folder / "set" / "train" / f"class {i}").mkdir(parents=True)
        shutil.copy(EXAMPLES / f"{i}.png", folder / "set" / "val" / f"class {i}")
    return "set", RAW


def listed(folder, rng):
    pytest.importorskip("PIL")
    (folder / "set.txt").write_text("".join(f"{EXAMPLES}/{i}.png {i}\n" for i in range(4)))
    return "set.txt", RAW


@pytest.mark.parametrize("make", [npz, floats, npy, hdf5, cifar10, classes, listed])
def test_batches_are_the_entries(make, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    source, images = make(tmp_path / "home", np.random.default_rng(0))
    given = net(source=source, phase="TEST", batch=6)
    for k in range(2):
        found = given.forward()
        order = (np.arange(6) + 6 * k) % 4
        np.testing.assert_array_equal(found["label"], order)
        np.testing.assert_array_equal(found["data"], images[order].astype(np.float32))


def test_a_source_that_is_nowhere(tmp_path):
    (tmp_path / "pictures").mkdir()
    told = r"data set 'picturse' not found, looked in .*; did you mean 'pictures'\?"
    with pytest.raises(DataError, match=told):
        net(source="picturse")
