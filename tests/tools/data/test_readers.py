"""Data sets of every kind by one interface: their entries against what was written, and what is told of mistakes."""

import os
import re
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import kit
import numpy as np
import pytest
from reading_files import COUNT, EXAMPLES, pictures

from minicaffe.errors import DataError, pip_install
from minicaffe.tools.data import datum, fetch, idx, readers
from minicaffe.tools.data.reader.cifar10_set import FILES


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch, here):
    """An empty current folder, no network."""
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    return tmp_path


def refusal(source, split="train", **options):
    """The one line with which a source is refused, on opening it or reading it all."""

    def read():
        found = readers.open(source, split, **options)
        for i in range(len(found)):
            found[i]

    line = kit.refusal(read, error=DataError)
    assert line.isprintable()
    return line


def agree(found, images, labels):
    """A reader gives these pictures and labels."""
    assert len(found) == len(images) == len(labels)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        pixels, given = found[i]
        np.testing.assert_array_equal(pixels, image)
        assert pixels.dtype == image.dtype
        assert given == found.label(i) == label
        assert found.shape in (None, pixels.shape)
    inside = found.arrays()
    if inside is not None:
        np.testing.assert_array_equal(inside[0], images)
        np.testing.assert_array_equal(inside[1], labels)


@pytest.fixture
def planes():
    """The pictures of the examples, (n, 3, h, w), blue first."""
    return pictures()[:, :, :, ::-1].transpose(0, 3, 1, 2)


def classes(home, names, written):
    """A folder for each class, with the pictures whose numbers are given."""
    from PIL import Image

    for name, numbers in zip(names, written, strict=True):
        (home / name).mkdir(parents=True)
        for i in numbers:
            Image.fromarray(pictures()[i]).save(home / name / f"{i}.png")


def test_idx_files(alone):
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 7), np.uint8)
    for name, array in zip(fetch.FILES, (images, np.arange(4, dtype=np.uint8)) * 2, strict=True):
        (alone / "set").mkdir(exist_ok=True)
        idx.write(alone / "set" / name, array)
    agree(readers.open("set", "test"), images[:, None], range(4))
    assert readers.open("set", "train").place(2) == "set: entry 2"


def test_an_lmdb(planes):
    found = readers.open(str(EXAMPLES / "lmdb"), "train")
    agree(found, planes, range(COUNT))
    assert found.blue_first and found.place(1).endswith("data.mdb: entry 1")
    assert "for encoded images" in refusal(str(EXAMPLES / "lmdb"), colour="grey")


def test_a_list(planes):
    pytest.importorskip("PIL")
    found = readers.open(str(EXAMPLES / "images.txt"), "test")
    agree(found, planes, [0, 1, 2, 0, 1])
    assert found.place(3) == str(EXAMPLES / "3.png")
    grey = readers.open(str(EXAMPLES / "images.txt"), "test", colour="grey", size=(4, 5))
    assert grey.shape == grey[0][0].shape == (1, 4, 5)


def test_a_folder_of_classes(alone, planes):
    pytest.importorskip("PIL")
    classes(alone / "set", ["b", "a", "c"], [[0, 2], [1], []])
    (alone / "set" / ".hidden").mkdir()
    np.save(alone / "set" / "mean.npy", np.zeros(3))
    (alone / "set" / "round").symlink_to("round")
    (alone / "set" / "c" / "up").symlink_to("..")
    found = readers.open("set", "test")
    assert found.classes == ("a", "b", "c")
    agree(found, planes[[1, 0, 2]], [0, 1, 1])
    assert found.place(0) == os.path.join("set", "a", "1.png")
    assert "only pictures" not in found.origin


def test_a_folder_of_classes_for_each_split(alone, planes, capsys):
    pytest.importorskip("PIL")
    classes(alone / "set" / "train", ["cat", "dog"], [[0], [1]])
    classes(alone / "set" / "val", ["dog"], [[2]])
    (alone / "set" / "val" / "dog" / "notes.txt").touch()
    (alone / "set" / "val" / "dog" / ".x.png").touch()
    agree(readers.open("set", "train"), planes[:2], [0, 1])
    assert capsys.readouterr().err == ""
    agree(readers.open("set", "test"), planes[2:3], [1])
    told = "set/val: 1 file passed over, no pictures of a class: set/val/dog/notes.txt\n"
    assert capsys.readouterr().err.removeprefix("minicaffe: ") == told
    classes(alone / "set" / "test", ["dgo"], [[2]])
    told = "set/test/dgo: there is no such class in set/train; did you mean 'dog'?"
    assert refusal("set", "test") == told


def test_mistakes(alone):
    assert "data set 'mnits' not found, looked in mnits, data/mnits" in refusal("mnits")
    assert refusal("mnits").endswith("did you mean 'mnist'?")
    Path("empty").mkdir()
    assert refusal("empty").startswith("empty: holds no data set: expected a folder of pictures")
    Path("data/empty").mkdir(parents=True)  # further on the way
    np.save("data/empty/images.npy", np.zeros((2, 3, 4), np.uint8))
    np.save("data/empty/labels.npy", np.zeros(2, np.int64))
    assert readers.open("empty", "train").origin == "data/empty"
    os.unlink("data/empty/labels.npy")
    os.mkfifo("data/empty/labels.npy")
    assert refusal("data/empty").endswith("it is a folder, a pipe or a device")
    assert refusal("/dev/null") == "/dev/null: expected a file or a folder, found a device or pipe"
    Path("list.txt").write_text("no.png 1\n")
    assert refusal("list.txt").startswith("list.txt: no such file; looked for 'no.png'")
    Path("list.txt").write_text("no.png 1\n\nno.png one\n")
    assert refusal("list.txt") == "list.txt:3: expected a label, found 'one'"
    assert refusal("digits", size=(1, 2)).startswith("digits: only pictures")
    assert refusal(str(EXAMPLES / "lmdb" / "data.mdb")).endswith("data set: give the folder")
    assert "root_folder is for lists" in refusal("digits", root_folder="x")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["npz", "packed", "npy"])
def test_arrays(alone, kind, last):
    rng, shape = np.random.default_rng(0), (3, 5, 7)
    counts = ("train", 4), ("test", 3)
    images = {split: rng.integers(0, 256, (n, *shape), np.uint8) for split, n in counts}
    arrays = {}
    for split, given in images.items():
        arrays[f"X_{split}"] = np.moveaxis(given, 1, -1) if last else given
        arrays[f"y_{split}"] = np.arange(len(given))[:, None]
    if kind == "npy":
        Path("set").mkdir()
        for name, array in arrays.items():
            np.save(f"set/{name}.npy", array)
    else:
        (np.savez if kind == "npz" else np.savez_compressed)("set", **arrays)
    source = "set" if kind == "npy" else "set.npz"
    for split, given in images.items():
        found = readers.open(source, split)
        agree(found, given, range(len(given)))
        assert found.shape == (3, 5, 7) and not found.blue_first
        assert (found.arrays() is None) == (kind == "npy")


@pytest.mark.parametrize(
    ("shape", "wanted"), [((4, 6), (6, 1, 1)), ((4, 6, 5), (1, 6, 5)), ((4, 3, 2, 3), (3, 2, 3))]
)
@pytest.mark.parametrize("dtype", [">f8", "f2", "u1"])
def test_the_axes_and_the_type_of_arrays(shape, wanted, dtype):
    given = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.savez("a", images=given, labels=np.arange(4.0))
    found = readers.open("a.npz", "train")
    pixels = given.astype(np.uint8 if dtype == "u1" else np.float32).reshape(4, *wanted)
    agree(found, pixels, range(4))


NAMED = "x_train and y_train, or images and labels, or data and label"


def test_arrays_that_are_none():
    images, labels = np.zeros((4, 5, 6), np.uint8), np.arange(4)
    cases = [
        ({"pictures": images}, f"a.npz: holds pictures; expected {NAMED}"),
        ({"x": images, "y": labels[:3]}, "a.npz: y: expected 4 labels, one a picture, found (3,)"),
        ({"x": images, "y": labels / 2}, "a.npz: y: expected labels that are integers"),
        ({"x": images, "y": labels + 2**40}, "a.npz: y: expected labels that are integers"),
        ({"x": images.astype(int), "y": labels}, "uint8 or floating point, found int64"),
        ({"x": images[:0], "y": labels[:0]}, "a.npz: x: expected pictures (count, c, h, w)"),
        ({"x": np.array([object()] * 4), "y": labels}, "'x' promises 32 bytes, holds "),
    ]
    for arrays, message in cases:
        np.savez("a", **arrays)
        assert message in refusal("a.npz")
    np.savez_compressed("a", x=np.zeros((1, 2**20), np.uint8), y=labels[:1])
    assert len(readers.open("a.npz", "train")) == 1
    os.mkdir("two")
    np.savez("two/images.npy", x=images)
    os.rename("two/images.npy.npz", "two/images.npy")
    np.save("two/labels.npy", labels)
    assert refusal("two").endswith(
        "images.npy: is not a whole .npy file: it is arrays of NumPy's (.npz file)"
    )
    Path("a.npy").write_bytes(b"")
    said = "a.npy: expected the folder of two .npy files, of pictures and of labels"
    assert refusal("a.npy") == said


@pytest.mark.parametrize("listed", [False, True])
def test_hdf5_files(alone, listed):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (n, 3, 4, 5), np.uint8) for n in (3, 2)]
    for name, given in zip("ab", images, strict=True):
        with h5py.File(f"{name}.h5", "w") as file:
            file["data"], file["label"] = given, np.arange(len(given), dtype=np.float32)
    Path("list.txt").write_text("a.h5\nb.h5\n")
    found = readers.open("list.txt" if listed else "a.h5", "test")
    wanted = np.concatenate(images) if listed else images[0]
    agree(found, wanted, [0, 1, 2, 0, 1][: len(wanted)])
    assert found.place(len(wanted) - 1) == ("b.h5: entry 1" if listed else "a.h5: entry 2")


def test_hdf5_files_of_other_pictures(monkeypatch):
    h5py = pytest.importorskip("h5py")
    for name, rows in (("a.h5", 4), ("b.h5", 3)):
        with h5py.File(name, "w") as file:
            file["data"], file["label"] = np.zeros((2, 3, rows, 5), np.uint8), np.zeros(2)
    Path("list.txt").write_text("a.h5\nb.h5\n")
    assert refusal("list.txt") == "b.h5: expected pictures of (3, 4, 5) as in a.h5, found (3, 3, 5)"
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert refusal("a.h5") == f"HDF5 files need the package h5py: {pip_install('h5py')}"


def cifar(folder, count=3):
    """CIFAR-10's files with few records; (n, 3, 32, 32) and labels of the first and the last file."""
    folder.mkdir(parents=True)
    rng, found = np.random.default_rng(0), []
    for file in (*FILES["train"], *FILES["test"]):
        records = rng.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / file).write_bytes(records.tobytes())
        found.append((records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]))
    return found


@pytest.mark.parametrize("below", ["cifar10", "data/cifar10/cifar-10-batches-bin"])
def test_cifar10(alone, below):
    found = cifar(alone / below)
    test = readers.open("cifar10", "test")
    agree(test, *found[-1])
    assert test.origin == below and test.place(1) == f"{below}: entry 1"
    train = readers.open("cifar10", "train")
    agree(train, *(np.concatenate(part) for part in zip(*found[:-1], strict=True)))
    assert train.classes[3] == "cat" and train.shape == (3, 32, 32) and not train.blue_first
    (alone / below / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    assert readers.open("cifar10", "train").classes == tuple("abcdefghij")
    (alone / below / "data_batch_2.bin").write_bytes(bytes([10]) * 3073)
    assert refusal("cifar10") == (
        f"{below}/data_batch_2.bin: entry 0: expected a label from 0 to 9, found 10"
    )
    (alone / below / "data_batch_2.bin").write_bytes(b"")
    assert "data_batch_2.bin: expected records of 3073 bytes, found 0" in refusal("cifar10")


def test_cifar10_that_is_nowhere(monkeypatch):
    monkeypatch.setattr(fetch, "_failed", {})
    found = readers.open("cifar10", "test")
    assert len(found) == 10000 and found.shape == (3, 32, 32) and len(found.classes) == 10
    assert refusal("cifar10", "test") == (
        "cifar10 was not found and could not be fetched (MINICAFFE_OFFLINE is set); with a network:"
        " minicaffe fetch cifar10; or set MINICAFFE_DATA to the folder that holds it"
    )


def test_files_that_are_no_data_set():
    for name, content, message in [
        ("a.tar.gz", b"", "is an archive: unpack it"),
        ("a.png", b"", "is a picture; expected a folder of pictures"),
        ("a-idx1-ubyte", b"\0\0\x08\1", "expected a folder of four IDX files, found a file"),
        ("a.npz", b"", "is not a whole .npz file"),
        ("a.bin", b"\xff\xfe", "a.bin: is not a whole text"),
        ("a.txt", b"", "names no picture"),
        ("a.h5", b"", "a.h5: is not a whole HDF5 file"),
    ]:
        Path(name).write_bytes(content)
        assert message in refusal(name)


def test_pictures_that_promise_too_much(alone):
    """A header of 60,000 x 60,000 pixels; nothing is decoded."""
    pytest.importorskip("PIL")
    classes(alone / "set", ["a"], [[0]])
    file = alone / "set" / "a" / "0.png"
    data = bytearray(file.read_bytes())
    data[16:24] = struct.pack(">II", 60000, 60000)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    file.write_bytes(data)
    assert refusal("set") == "set/a/0.png: a picture of 60000 x 60000 pixels is not read"


def test_an_entry_that_promises_more_than_its_bytes_can_hold():
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_BZIP2) as packed:
        for name, array in (("x", np.zeros((1, 1 << 24), np.uint8)), ("y", np.zeros(1, np.uint8))):
            with packed.open(f"{name}.npy", "w") as file:
                np.save(file, array)
    said = r"a.npz: is not .*: 'x' promises 16777216 bytes, holds 16777216 \(\d+ in the file\)"
    assert re.fullmatch(said, refusal("a.npz"))


def test_what_changes_while_it_is_read(alone):
    np.savez("a.npz", x=np.zeros((3, 2, 2), np.uint8), y=[0, 1, 2])
    found = readers.open("a.npz", "train")
    np.savez("a.npz", x=np.zeros((2, 7), np.uint8), y=[0, 1])
    assert "changed while it was read" in kit.refusal(found.arrays, error=DataError)


@pytest.mark.parametrize("kind", ["npy", "LMDB"])
def test_a_file_that_is_cut_short_while_it_is_read_is_told(kind):
    """Mapped, it would end the process."""
    if kind == "LMDB":
        lmdb = pytest.importorskip("lmdb")
        path, value = "set/data.mdb", datum.write(np.zeros((3, 30, 40), np.uint8), 1)
        with lmdb.open("set") as made, made.begin(write=True) as writing:
            for i in range(9):
                writing.put(b"%d" % i, value)
    else:
        path = "set/images.npy"
        os.mkdir("set")
        np.save(path, np.zeros((9, 3, 30, 40), np.uint8))
        np.save("set/labels.npy", np.zeros(9, np.int64))
    found = readers.open("set", "train")
    assert found[8][0].shape == (3, 30, 40)
    os.truncate(path, 5000)
    told = kit.refusal(found.__getitem__, 8, error=DataError)
    assert re.search(f"{path}: .*: it was cut short while it was read", told)
