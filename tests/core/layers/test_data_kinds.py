"""The layer Data on a source of every kind: its batches are the entries of the files."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from reading_files import EXAMPLES, pictures

from minicaffe import DataError, Net, parse
from minicaffe.tools.data.reader.cifar10_set import FILES

BLUE_FIRST = pictures()[:4, :, :, ::-1].transpose(0, 3, 1, 2)


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
    return "set", BLUE_FIRST


def listed(folder, rng):
    pytest.importorskip("PIL")
    (folder / "set.txt").write_text("".join(f"{EXAMPLES}/{i}.png {i}\n" for i in range(4)))
    return "set.txt", BLUE_FIRST


@pytest.mark.parametrize("make", [npz, floats, npy, hdf5, cifar10, classes, listed])
def test_batches_are_the_entries(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, images = make(tmp_path, np.random.default_rng(0))
    text = f"layers: [{{name: d, type: Data, top: [data, label], source: {source}, batch_size: 6}}]"
    net = Net(parse(text), "TEST", device="cpu")
    for k in range(2):
        found = net.forward()
        order = (np.arange(6) + 6 * k) % 4
        np.testing.assert_array_equal(found["label"], order)
        np.testing.assert_array_equal(found["data"], images[order].astype(np.float32))


def test_a_source_that_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    text = "layers: [{name: d, type: Data, source: picturse, batch_size: 1}]"
    with pytest.raises(
        DataError, match=r"data set 'picturse' not found, looked in .*; did you mean 'pictures'\?"
    ):
        Net(parse(text), device="cpu")
