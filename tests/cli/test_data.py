"""data, mean and convert-images: what they print and write, against NumPy; and what they leave behind when they fail."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from reading_files import EXAMPLES, pictures

from minicaffe.errors import pip_install
from minicaffe.storage import wire
from minicaffe.tools.data import convert, datum, lmdb_file, readers

LIST = str(EXAMPLES / "images.txt")
PLANES = pictures()[:, :, :, ::-1].transpose(0, 3, 1, 2)  # blue first


@pytest.fixture(autouse=True)
def alone(monkeypatch, here):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def refused(cli):
    """Run a command that is refused by lines with these words, one a line."""

    def run(words, *messages):
        ran = cli(*words.split())
        assert ran.code == 2
        assert len(ran.err.splitlines()) == len(messages), ran.err
        for message, line in zip(messages, ran.err.splitlines(), strict=True):
            assert message in line
        return ran

    return run


def spoilt():
    """A list of three pictures, of which the second is damaged."""
    from PIL import Image

    for i in range(3):
        Image.fromarray(pictures()[i]).save(f"{i}.png")
    Path("1.png").write_bytes(Path("1.png").read_bytes()[:60])
    Path("list.txt").write_text("0.png 0\n1.png 1\n2.png 2\n")


def test_data(cli):
    pytest.importorskip("PIL")
    ran = cli("data", LIST)
    mean = ", ".join(f"{m:.3f}" for m in PLANES.mean(axis=(0, 2, 3)))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"5 images of {LIST}, train: {LIST}",
        "no test entries of its own: where a model trains and tests on it, TRAIN reads 3, TEST the other 2"
        " (split: 0.2)",
        "shape: 3 x 6 x 7, uint8",
        f"values: {PLANES.min()} to {PLANES.max()}",
        f"mean of each channel: {mean} (blue, green, red)",
        "classes: 3, of 1 to 2 entries",
        "  0: 2",
        "  1: 2",
        "  2: 1",
    ]


def test_values_that_are_no_finite_numbers(cli, refused):
    images = np.float32([np.nan, -2, 3, np.inf, 0, 1]).reshape(1, 1, 2, 3)
    np.savez("a.npz", images=images, labels=[0])
    assert "values: -2 to 3, 2 no finite numbers" in cli("data", "a.npz").out
    refused("mean a.npz -o mean.npy", "a.npz: holds values that are no finite")
    assert not Path("mean.npy").exists()


def test_a_sample_stands_for_many(cli, monkeypatch):
    Path("set").mkdir()
    values = np.arange(2500, dtype=np.float32)
    np.save("set/x.npy", np.repeat(values[:, None], 4, axis=1).reshape(-1, 2, 2))
    np.save("set/y.npy", np.arange(2500) % 50)
    ran = cli("data", "set", "--split", "test")
    taken = values[np.arange(1000) * 2500 // 1000]
    assert ran.out.splitlines() == [
        "2500 images of set, test: set",
        "no test entries of its own: where a model trains and tests on it, TRAIN reads 2000, TEST the other 500"
        " (split: 0.2)",
        "of 1000 of them, evenly spread (--check reads all):",
        "shape: 1 x 2 x 2, float32",
        f"values: 0 to {taken.max():g}",
        f"mean of each channel: {taken.mean():.3f}",
        "classes: 50, of 50 to 50 entries",
    ]
    assert f"mean of each channel: {values.mean():.3f}" in cli("data", "set", "--check").out


def test_damaged_entries_are_named_and_counted(refused):
    pytest.importorskip("PIL")
    spoilt()
    damage = "1.png: is not a picture that can be read", "list.txt: 1 of 3 entries are damaged"
    assert "shape: 3 x 6 x 7" in refused("data list.txt --check -o sheet.png", *damage).out
    assert os.path.exists("sheet.png")


def test_the_sheet(cli, refused, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    drawn = np.repeat(np.repeat(pictures()[:3, :6, :6], 2, 1), 2, 2)
    for name, i in (("ant", 0), ("ant", 1), ("bee", 2)):
        Path("set", name).mkdir(parents=True, exist_ok=True)
        image.fromarray(drawn[i]).save(f"set/{name}/{i}.png")
    lines = cli("data", "set", "-o", "sheet.png").out.splitlines()
    assert lines[-3:] == ["  0 ant: 2", "  1 bee: 1", "sheet: sheet.png, 165 x 140 pixels"]
    seen = np.asarray(image.open("sheet.png"))
    assert seen.shape == (140, 165, 3)
    small = seen[4:68, 29:93]  # the first picture, 12 x 12, on 64 x 64
    at = (np.arange(12) * 64 // 12) + 2
    np.testing.assert_array_equal(small[at][:, at], drawn[0])
    refused("data set -o sheet.jpg", "expected a name that ends in .png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    np.savez("few.npz", images=np.zeros((2, 4, 4), np.uint8), labels=[0, 1])
    refused(
        "data few.npz -o sheet.png", f"a sheet needs the package Pillow: {pip_install('image')}"
    )
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("name", ["mean.npy", "mean.binaryproto"])
def test_mean(cli, name):
    pytest.importorskip("PIL")
    ran = cli("mean", LIST, "-o", name)
    wanted = PLANES.astype(np.float64).mean(axis=0)
    assert ran.out.splitlines()[0] == f"5 images of 3 x 6 x 7, train: {LIST}"
    assert ", ".join(f"{m:.3f}" for m in wanted.mean(axis=(1, 2))) in ran.out
    found = np.load(name) if name.endswith("npy") else wire.read_blob(name)
    assert found.shape == ((3, 6, 7) if name.endswith("npy") else (1, 3, 6, 7))
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted.astype(np.float32))


def test_a_mean_of_sizes_that_differ(cli, refused):
    pytest.importorskip("PIL.Image").new("RGB", (4, 5)).save("a.png")
    Path("list.txt").write_text(f"{EXAMPLES}/0.png 0\na.png 0\n")
    message = f"a.png: expected a picture of 3 x 6 x 7 as {EXAMPLES}/0.png, found 3 x 5 x 4"
    refused("mean list.txt -o m.npy", message)
    assert not os.path.exists("m.npy")
    ran = cli("mean", "list.txt", "--resize", "9x8", "--gray")
    assert ran.out.startswith("2 images of 1 x 8 x 9")
    refused("mean list.txt -o m.txt", "expected a name that ends in .npy or .binaryproto")
    size = "argument --resize: expected WxH such as 224x224, got '9x'"
    refused("mean list.txt --resize 9x", size)
    refused("mean no", "data set 'no' not found")


@pytest.mark.parametrize("at_once", [1, 300, 1 << 20])
def test_pictures_into_an_lmdb_as_caffes(cli, refused, monkeypatch, at_once):
    monkeypatch.setattr(convert, "_AT_ONCE", at_once)
    lmdb, _ = pytest.importorskip("lmdb"), pytest.importorskip("PIL")
    assert cli("convert-images", LIST, "db").out == "db: 5 images\n"
    assert os.listdir("db") == ["data.mdb"]
    with lmdb.open("db", readonly=True, lock=False) as env, env.begin() as view:
        entries = list(view.cursor())
    assert [key for key, _ in entries] == [b"%08d_%d.png" % (i, i) for i in range(5)]
    assert [value for _, value in entries] == [datum.write(PLANES[i], i % 3) for i in range(5)]
    refused(f"convert-images {LIST} db", "db: is there already")


def test_shuffled_scaled_grey_encoded(cli, refused):
    pytest.importorskip("PIL"), pytest.importorskip("lmdb")
    cli("convert-images", LIST, "a", "--shuffle", "--seed", "3")
    cli("convert-images", LIST, "b", "--encoded", "--shuffle", "--seed", "3")
    cli("convert-images", LIST, "c.npz", "--resize", "4x5", "--gray")
    order = np.random.default_rng(3).permutation(5)
    for name in "ab":
        found = readers.open(name, "train")
        for i, entry in enumerate(order):
            np.testing.assert_array_equal(found[i][0], PLANES[entry])
            assert found[i][1] == entry % 3
    raw = datum.read(lmdb_file.Lmdb("b")[0]).encoded
    assert bytes(raw) == (EXAMPLES / f"{order[0]}.png").read_bytes()
    found = readers.open("c.npz", "test")
    grey = readers.open(LIST, "test", colour="grey", size=(5, 4))
    for i in range(5):
        np.testing.assert_array_equal(found[i][0], grey[i][0])
    refused(f"convert-images {LIST} d --encoded --gray", "--encoded keeps files as they are")
    refused("convert-images a d --encoded", "only pictures in files of their own are kept")


def test_arrays_have_red_first_and_databases_blue(cli):
    pytest.importorskip("PIL"), pytest.importorskip("lmdb")
    cli("convert-images", LIST, "a.npz")
    cli("convert-images", "a.npz", "b")
    with np.load("a.npz") as arrays:
        np.testing.assert_array_equal(arrays["images"], PLANES[:, ::-1])
        np.testing.assert_array_equal(arrays["labels"], [0, 1, 2, 0, 1])
    found = readers.open("b", "test")
    np.testing.assert_array_equal([found[i][0] for i in range(5)], PLANES)


@pytest.mark.parametrize("out", ["out", "out.npz"])
def test_damage_is_fatal_or_left_out(cli, refused, out):
    pytest.importorskip("PIL"), pytest.importorskip("lmdb")
    spoilt()
    before = sorted(os.listdir())
    ran = refused(f"convert-images list.txt {out}", "1.png: is not a picture that can be read")
    assert ran.err.endswith("; --on-error skip leaves it out\n")
    assert sorted(os.listdir()) == before
    ran = cli("convert-images", "list.txt", out, "--on-error", "skip")
    assert (ran.code, ran.out) == (0, f"{out}: 2 images, 1 damaged left out\n")
    found = readers.open(out, "train")
    assert [found.label(i) for i in range(len(found))] == [0, 2]
    assert sorted(os.listdir()) == sorted([*before, out])


def test_without_the_package_lmdb(cli, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    np.savez("a.npz", x=np.zeros((2, 3, 3), np.uint8), y=[0, 1])
    refused("convert-images a.npz out", "out: writing an LMDB needs the package lmdb: ")
    assert cli("convert-images", "a.npz", "out.npz").code == 0


def test_nothing_is_left_where_nothing_can_be_written(refused):
    pytest.importorskip("lmdb")
    np.savez("a.npz", x=np.zeros((2, 3, 3), np.uint8), y=[0, 1])
    np.savez("b.npz", x=np.zeros((2, 0, 3), np.uint8), y=[0, 1])
    before = sorted(os.listdir())
    for out in ("no/out", "no/out.npz"):
        refused(f"convert-images a.npz {out}", f"{out}: cannot be written: No such file")
    refused("convert-images b.npz out", "b.npz: x: expected pictures")
    assert sorted(os.listdir()) == before
