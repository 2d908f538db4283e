"""Data sets of every kind by one interface: their entries against what was written, and what is told of mistakes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from reading_files import COUNT, EXAMPLES, pictures

from minicaffe.data import idx, known, readers
from minicaffe.errors import DataError


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """An empty current folder, no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    return tmp_path


def refusal(source, split="train", **options):
    """The one line with which a source is refused, on opening it or reading it all."""
    with pytest.raises(DataError) as caught:
        found = readers.open(source, split, **options)
        for i in range(len(found)):
            found[i]
    assert str(caught.value).isprintable()
    return str(caught.value)


def agree(found, images, labels):
    """A reader gives these pictures and labels, before and after it was pickled."""
    for reader in (found, pickle.loads(pickle.dumps(found))):
        assert len(reader) == len(images) == len(labels)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            pixels, given = reader[i]
            np.testing.assert_array_equal(pixels, image)
            assert pixels.dtype == image.dtype
            assert given == reader.label(i) == label
            assert found.shape in (None, pixels.shape)
            assert reader.place(i) == found.place(i)
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
    for name, array in zip(known.FILES, (images, np.arange(4, dtype=np.uint8)) * 2, strict=True):
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
    assert "set/val: 1 files passed over, no pictures of a class: set/val/dog/notes.txt\n" in (
        capsys.readouterr().err
    )
    classes(alone / "set" / "test", ["dgo"], [[2]])
    assert refusal("set", "test") == (
        "set/test/dgo: there is no such class in set/train; did you mean 'dog'?"
    )


def test_mistakes(alone):
    assert "data set 'mnits' not found, looked in mnits, data/mnits" in refusal("mnits")
    assert refusal("mnits").endswith("did you mean 'mnist'?")
    Path("empty").mkdir()
    assert "empty lacks train-images-idx3-ubyte" in refusal("empty")
    Path("list.txt").write_text("no.png 1\n")
    assert refusal("list.txt").startswith("list.txt: no such file; looked for 'no.png'")
    assert "only pictures" in refusal("digits", size=(1, 2))
    assert "root_folder is for lists" in refusal("digits", root_folder="x")
