"""Where data sets are looked for, what stands in for them, and what is said when there is none."""

import gzip
import os
import re
import sys
from pathlib import Path

import kit
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minicaffe.errors import DataError
from minicaffe.tools.data import datasets, digits, fetch, idx

NAMES = ("mnist", "fashion-mnist", "digits")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """An empty current folder and cache, no network, and small numbers of drawn digits."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 12, "test": 8})
    monkeypatch.setattr(fetch, "_failed", {})
    monkeypatch.setattr(datasets, "_warned", set())
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """Small drawings in the place of the real ones; the list of what was drawn."""
    calls = []

    def draw(count, seed):
        calls.append((count, seed))
        rng = np.random.default_rng(seed)
        return rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)

    monkeypatch.setattr(digits, "draw", draw)
    return calls


@pytest.fixture
def online(monkeypatch):
    """A network: fetch.fetch is replaced by the functions that a test puts in the list."""
    monkeypatch.delenv("MINICAFFE_OFFLINE")
    answers, calls = [], []

    def fake(name, folder, mirrors=None, progress=True):
        calls.append((name, folder))
        return answers.pop(0)(folder / name)

    monkeypatch.setattr(fetch, "fetch", fake)
    return answers, calls


def down(_):
    raise DataError("cannot fetch mnist: train-images-idx3-ubyte.gz: a: no such host; b: HTTP 404")


def fill(folder, value=0, counts=(6, 4), sizes=(5, 7), spelled="{}", skip=()):
    """Write a small data set into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(fetch.FILES):
        if name not in skip:
            shape = (counts[place // 2], *sizes) if place % 2 == 0 else (counts[place // 2],)
            idx.write(folder / spelled.format(name), np.full(shape, value, np.uint8))
    return folder


def refusal(source, *, both=True, **how):
    """The one line with which load refuses a source, and shape too."""
    line = kit.refusal(datasets.load, source, "train", **how, error=DataError)
    assert "\n" not in line
    if both:
        assert kit.refusal(datasets.shape, source, "train", **how, error=DataError) == line
    return line


@pytest.mark.parametrize("spelled", ["{}", "{}.gz"])
@pytest.mark.parametrize(
    ("images", "shape"), [("-idx3", (1, 5, 7)), ("-idx3", (3, 5, 7)), ("-idx4", (3, 5, 7))]
)
@pytest.mark.parametrize("dot", "-.")
def test_a_folder(alone, spelled, images, shape, dot):
    fill(Path("mine"), value=3, sizes=shape[shape[0] == 1 :], spelled=spelled)
    for path in Path("mine").iterdir():
        path.rename(path.with_name(path.name.replace("-idx3", images).replace("-idx", f"{dot}idx")))
    data = datasets.load("mine", "train")
    assert (data.name, data.origin, data.warning) == ("mine", "mine", None)
    assert data.images.shape == datasets.shape("mine", "train") == (6, *shape)
    assert data.labels.shape == (6,)
    assert data.images.dtype == data.labels.dtype == np.uint8
    assert data.images.min() == data.labels.max() == 3
    assert datasets.load("mine", "test").images.shape == datasets.shape("mine", "test")
    assert datasets.shape(str(alone / "here" / "mine"), "test") == (4, *shape)


LACKS = "(or the same with .gz, or as idx4 in colour)"
IMAGES, LABELS = fetch.FILES[:2]


@pytest.mark.parametrize(
    ("how", "file", "shape", "line"),
    [
        ({}, LABELS, (5,), f"mine/{LABELS}: expected 6 labels, one for each picture in {IMAGES}, found 5"),
        ({}, IMAGES, (6,), f"mine/{IMAGES}: expected 3 or 4 axes, found 1 (6)"),
        ({}, LABELS, (6, 2), f"mine/{LABELS}: expected 1 axes, found 2 (6x2)"),
        ({"skip": [IMAGES]}, "train-images-idx4-ubyte", (6, 5, 7),
         "mine/train-images-idx4-ubyte: expected 4 axes, found 3 (6x5x7)"),
        ({}, "train-images.idx4-ubyte.gz", (6, 3, 5, 7),
         f"mine holds {IMAGES} and train-images.idx4-ubyte.gz: expected one of them"),
        ({"counts": (0, 4)}, "", (), f"mine/{IMAGES}: holds no pictures"),
        ({"sizes": (0, 7)}, "", (), f"mine/{IMAGES}: holds no pictures"),
        ({"skip": fetch.FILES[2:3]}, "", (), f"mine lacks {fetch.FILES[2]} {LACKS}"),
        ({"skip": fetch.FILES}, "", (), f"mine lacks {', '.join(fetch.FILES)} {LACKS}"),
    ],
)  # fmt: skip
def test_folders_that_are_no_data_set(how, file, shape, line):
    fill(Path("mine"), **how)
    if file:
        idx.write(Path("mine", file), np.zeros(shape, np.uint8))
    assert refusal("mine") == line
    if not how:
        assert datasets.shape("mine", "test") == (4, 1, 5, 7)
    fill(Path("data/mine"))  # further on the way
    if "lacks" in line:
        assert datasets.load("mine", "train").origin == "data/mine"


def test_the_order_of_the_search(alone, monkeypatch):
    monkeypatch.setenv("MINICAFFE_DATA", str(alone / "sets"))
    beside = alone / "models"
    places = [Path("mnist"), beside / "mnist", alone / "sets" / "mnist", Path("data/mnist")]
    for value, place in reversed(list(enumerate(places))):
        fill(place, value)
        data = datasets.load("mnist", "train", beside)
        assert (data.origin, data.labels[0]) == (str(place), value)
    (places[0] / fetch.FILES[3]).unlink()  # incomplete for one split: passed over for both
    assert datasets.load("mnist", "train", beside).origin == str(places[1])
    assert datasets.shape("mnist", "train", beside) == (6, 1, 5, 7)


def test_home_is_expanded(alone, monkeypatch):
    monkeypatch.setenv("HOME", str(alone))
    fill(alone / "sets")
    assert datasets.shape("~/sets", "train") == (6, 1, 5, 7)


def test_unknown_sources(alone, monkeypatch):
    monkeypatch.setenv("MINICAFFE_DATA", "sets")
    assert refusal("mnits", beside=alone) == (
        f"data set 'mnits' not found, looked in mnits, {alone}/mnits, sets/mnits, data/mnits;"
        " known by name: mnist, fashion-mnist, cifar10, digits; did you mean 'mnist'?"
    )
    assert "did you mean" not in refusal("zebra")
    Path("my_pictures").mkdir()
    assert refusal("my_picture").endswith("; did you mean 'my_pictures'?")
    meant = "did you mean 'my_pictures/../my_pictures'?"
    assert refusal("./my_pictures/../my_pictres").endswith(meant)
    Path("my_pictures").rmdir()
    assert f"looked in {alone}/no; known" in refusal(f"{alone}/no", beside=alone)  # each place once
    assert "no data set named: expected a folder" in refusal("")
    Path("a.idx").touch()
    assert "a.idx: expected a folder of four IDX files, found a file" in refusal("a.idx")


@given(st.text(max_size=300).filter(lambda text: text not in NAMES))
@example("~nobody_of_that_name/x")
@example("two\nlines")
@example("a\0b")
@example("~\0")
@example("\ud800")
@example("x" * 5000)
def test_any_source_is_refused_in_one_line(source):
    assert len(kit.refusal(datasets.shape, source, "train", error=DataError).splitlines()) == 1


def test_damage_in_the_body():
    fill(Path("mine"), spelled="{}.gz")
    path = Path("mine") / f"{fetch.FILES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-6])
    assert "mine/train-images-idx3-ubyte.gz: damaged gzip file" in refusal("mine", both=False)


def test_a_known_name_is_fetched(online, capsys):
    answers, calls = online
    answers.append(fill)
    assert datasets.shape("mnist", "train") == (60000, 1, 28, 28)
    assert calls == []  # shape never downloads
    data = datasets.load("mnist", "train")
    assert (data.origin, data.warning) == ("data/mnist", None)
    assert calls == [("mnist", Path("data"))]
    assert capsys.readouterr().err == "minicaffe: fetching mnist into data/mnist\n"
    assert datasets.shape("mnist", "test") == (4, 1, 5, 7)


def test_drawn_digits_stand_in_for_mnist_and_a_process_asks_once(online, drawn, capsys):
    answers, calls = online
    answers.append(down)
    data = datasets.load("mnist", "train")
    assert data.warning == (
        "BUILT-IN DRAWN DIGITS, NOT MNIST."
        " Accuracies are not MNIST accuracies. To get MNIST: minicaffe fetch mnist"
    )
    assert (data.name, data.origin) == ("mnist", "drawn by minicaffe")
    assert data.images.shape == (12, 1, 28, 28)
    told = capsys.readouterr().err
    assert told.startswith("minicaffe: fetching mnist into data/mnist\n")
    line = (
        "minicaffe: mnist was not found and could not be fetched (train-images-idx3-ubyte.gz: a: no such"
        " host; b: HTTP 404); with a network: minicaffe fetch mnist; or set MINICAFFE_DATA to the folder"
        " that holds it\n"
    )
    assert line in told
    answers.append(fill)  # the network is back: too late, for the other split was drawn
    assert datasets.load("mnist", "test").warning == data.warning
    assert line not in capsys.readouterr().err and len(calls) == 1
    assert drawn == [(12, 1), (8, 2)]


@pytest.mark.parametrize("value", ["1", "yes"])
def test_offline_asks_nobody(online, drawn, monkeypatch, value, capsys):
    monkeypatch.setenv("MINICAFFE_OFFLINE", value)
    assert datasets.load("mnist", "test").warning
    assert "mnist was not found and could not be fetched (MINICAFFE_OFFLINE is set); with a" in (
        capsys.readouterr().err
    )
    assert drawn == [(8, 2)]
    assert refusal("fashion-mnist", both=False) == (
        "fashion-mnist was not found and could not be fetched (MINICAFFE_OFFLINE is set); with a"
        " network: minicaffe fetch fashion-mnist; or set MINICAFFE_DATA to the folder that holds it"
    )
    assert online[1] == []


def test_another_data_set_or_folder_is_tried(online, drawn, monkeypatch):
    answers, calls = online
    answers += [down] * 3
    datasets.load("mnist", "test")
    assert "could not be fetched (" in refusal("fashion-mnist", both=False)
    monkeypatch.setenv("MINICAFFE_DATA", "sets")
    datasets.load("mnist", "test")
    assert [name for name, _ in calls] == ["mnist", "fashion-mnist", "mnist"]


def test_half_of_mnist_is_neither_used_nor_replaced_by_drawn_digits(online, drawn):
    fill(Path("data/mnist"), skip=fetch.FILES[3:])
    online[0].append(down)
    text = refusal("mnist", both=False)
    assert text.startswith(
        "data/mnist lacks t10k-labels-idx1-ubyte (or the same with .gz, or as idx4 in colour), and "
    )
    assert text.endswith("; complete it with: minicaffe fetch mnist")
    assert drawn == []


def test_a_folder_of_that_name_with_other_things_in_it(drawn):
    Path("mnist").mkdir()
    Path("mnist/train.py").touch()
    assert datasets.load("mnist", "test").warning


def test_digits_on_purpose_are_drawn_once_and_kept(alone, drawn, capsys):
    first = datasets.load("digits", "test")
    assert (first.name, first.origin, first.warning) == ("digits", "drawn by minicaffe", None)
    home = alone / "cache" / f"digits-{datasets._DRAWING}"
    said = f"minicaffe: drawing 8 digits (some 1 s, then kept in {home})\n"
    assert said in capsys.readouterr().err
    assert drawn == [(8, 2)]  # the split asked for, and no other
    assert sorted(os.listdir(home)) == [f"{name}.gz" for name in fetch.FILES[2:]]
    again = datasets.load("digits", "test")
    assert len(drawn) == 1
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(first.images, again.images)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert again.images.shape == datasets.shape("digits", "test") == (8, 1, 28, 28)
    datasets.load("digits", "train")
    assert sorted(os.listdir(home)) == sorted(f"{name}.gz" for name in fetch.FILES)
    assert datasets.load(str(home), "train").images.shape == (12, 1, 28, 28)


@pytest.mark.parametrize("damage", ["cut", "noise", "missing", "fewer", "labels"])
def test_a_damaged_cache_is_drawn_anew(alone, drawn, damage, capsys):
    whole = datasets.load("digits", "test")
    home = alone / "cache" / f"digits-{datasets._DRAWING}"
    path = home / f"{fetch.FILES[3 if damage == 'labels' else 2]}.gz"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "fewer":
        fill(home, counts=(6, 4), sizes=(28, 28), spelled="{}.gz")
    else:
        damaged = {"cut": content[:-5], "noise": b"noise", "labels": gzip.compress(b"")}[damage]
        path.write_bytes(damaged)
    again = datasets.load("digits", "test")
    assert drawn == [(8, 2)] * 2
    anew = f"{path}: not an IDX file: .*: drawing it anew"
    assert damage != "noise" or re.search(anew, capsys.readouterr().err)
    np.testing.assert_array_equal(whole.images, again.images)
    assert path.read_bytes() == content
    datasets.load("digits", "test")
    assert len(drawn) == 2


def test_a_cache_that_cannot_be_written(alone, drawn, capsys):
    (alone / "cache").touch()
    assert datasets.load("digits", "test").images.shape == (8, 1, 28, 28)
    assert "the digits were not kept: Not a directory" in capsys.readouterr().err


def test_who_hears_nothing_gets_the_data_all_the_same(monkeypatch):
    """What is told on the way goes to a stderr whose reader has gone."""

    class Gone:
        def write(self, text):
            raise BrokenPipeError

        flush = write

    monkeypatch.setattr(sys, "stderr", Gone())
    data = datasets.load("mnist", "test")
    assert data.warning is not None
    assert data.images.shape == (8, 1, 28, 28) and data.labels.shape == (8,)  # as really drawn
