"""Tables of pictures: which columns are what, several labels, splits, and what is wrong with a table."""

import csv
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import refusal, rows

from minicaffe import DataError, Net, parse
from minicaffe.tools.data import readers
from minicaffe.tools.data.reader.base import sides
from minicaffe.tools.data.reader.picture_set import TableSet

pytest.importorskip("PIL")
from PIL import Image


@pytest.fixture
def table(tmp_path, here):
    """Writes rows as a table, beside pictures 0.png ... 5.png, and opens a split of it."""
    for number in range(6):
        Image.new("RGB", (4 + number, 5), (number, 0, 0)).save(f"{number}.png")

    def write(*rows, split="train", name="table.csv"):
        (tmp_path / name).write_text("\n".join(rows), encoding="utf-8")
        return readers.open(name, split)

    return write


@pytest.mark.parametrize(
    "rows",
    [
        ("0.png,1", "1.png,0"),
        ("image,label", "0.png,1", "1.png,0"),
        ("Class,File", "1,0.png", "0,1.png"),
        ("id,filename,target", "a,0.png,1", "b,1.png,0"),
        ("image\tlabel", "0.png\t1", "1.png\t0"),
        ("﻿image,label", "", '"0.png","1"', "1.png,0", ""),
    ],
)
def test_columns_are_found_by_their_names(table, rows):
    found = table(*rows, name="table.tsv" if "\t" in rows[0] else "table.csv")
    assert found.paths == ["0.png", "1.png"] and found.labels.tolist() == [1, 0]
    assert not found.classes and not found.label_shape


def test_several_labels_in_columns(table):
    found = table("image,sea,sun", "0.png,1,0", "1.png,1,1", "2.png,0,0")
    assert found.classes == ("sea", "sun") and found.label_shape == (2,)
    assert [found[i][1].tolist() for i in range(3)] == [[1, 0], [1, 1], [0, 0]]
    assert [found.label(i) for i in range(3)] == [0, 0, -1]


def test_several_labels_in_a_cell(table):
    found = table("image,labels", "0.png,sun; sea", "1.png,", "2.png,sea")
    assert found.classes == ("sea", "sun")
    assert [found.vector(i).tolist() for i in range(3)] == [[1, 1], [0, 0], [1, 0]]


def test_a_column_of_splits_numbers_names_alike(table):
    rows = ("image,label,split", "0.png,b,train", "1.png,c,val", "2.png,a,test", "3.png,c,train")
    train, test = table(*rows), table(*rows, split="test")
    assert train.classes == test.classes == ("a", "b", "c")
    assert train.labels.tolist() == [1, 2] and test.labels.tolist() == [2, 0]
    assert train.own_split and test.paths == ["1.png", "2.png"]


def test_a_part_held_out_keeps_vectors(table):
    parts = sides(table("image,a,b", *[f"{i}.png,{i % 2},{int(i < 3)}" for i in range(6)]), 0.5)
    assert parts is not None
    for part in parts:
        assert part.label_shape == (2,) and part[0][1].shape == (2,)


@pytest.mark.parametrize(
    ("text", "told"),
    rows(r"""
        | holds no rows
        image,label | holds no rows below the names of its columns
        image/0.png | 1: expected a picture's path and a label in each row
        image,label/0.png,a,b | 2: expected 2 columns, got 3
        image;label/0.png;a | 1: expected commas between columns, found ';'
        image,label/0.png,a/1.png, | 3: expected a label, got an empty cell
        image,a,b/0.png,1,0/1.png,1,x | 3: expected 0 or 1 in each column of labels, got 'x'; of one label a picture the column is called label
        image,label,split/0.png,a,trian | 2: expected the split train, test or val, got 'trian'
        image,label,split/0.png,a,test | has no row of the split train
        image,label/0.png,a/0.png,b | 3: 0.png has another label than in a row above; several labels of a picture stand in one cell, with ';' between them
        0.png,1,0/1.png,0,1 | 1: expected names of the columns, for there are several labels
        split,image/train,0.png | 1: expected a column of labels beside 'image'
        image,label/"0.png,a | 2: is not a table: unexpected end of data
        image,label/0.png,99999999999 | 2: expected a label, found '99999999999'
    """),
)
def test_mistakes_are_told_with_their_line(table, text, told):
    line = refusal(table, *text.split("/"))
    assert line.replace("table.csv: ", "").replace("table.csv:", "") == told


def test_a_picture_that_is_missing_is_named(table):
    assert "9.png" in refusal(table("image,label", "0.png,a", "9.png,b").__getitem__, 1)


CHARACTERS = st.characters(whitelist_categories=("L", "N"), whitelist_characters=" _-'")
words = st.text(CHARACTERS, min_size=1)
names = words.map(str.strip).filter(lambda word: word and not word.isdecimal())


@settings(max_examples=60)
@given(labels=st.lists(names, min_size=1, max_size=12))
def test_any_names_come_back(tmp_path_factory, labels):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    lines = [("image", "label"), *((f"{i}.png", x) for i, x in enumerate(labels))]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    found = TableSet(path, "t.csv", "train")
    assert [found.classes[k] for k in found.labels] == labels


@settings(max_examples=60)
@given(text=st.text(max_size=80))
def test_any_text_is_a_table_or_one_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        found = TableSet(path, "t.csv", "train")
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert len(found) == len(found.labels) and np.isfinite(found.labels).all()


def test_a_net_is_fed_vectors(table, device):
    """The layer Data writes (batch_size, labels), whatever the transform, the same in any number of workers."""
    table("image,a,b,c", *[f"{i}.png,{i % 2},{int(i < 3)},{int(i == 5)}" for i in range(6)])
    made = []
    for workers, jitter in itertools.product((0, 2), ("", ", color_jitter: {brightness: 0.5}")):
        spec = parse(
            "layers: [{name: data, type: Data, top: [data, label], source: table.csv, batch_size: 4,"
            f" workers: {workers}, new_height: 6, new_width: 6, transform: {{scale: 0.5{jitter}}}}}]"
        )
        net = Net(spec, "TRAIN", device=device)
        to_host = net.device.to_host
        batches = [net.forward() and to_host(net.blobs["label"].data).copy() for _ in range(6)]
        assert batches[0].shape == (4, 3)
        made.append(np.concatenate(batches))
        if not jitter:  # red tells which picture it is
            red = to_host(net.blobs["data"].data)[:, 2].mean(axis=(1, 2)) * 2
            entry = np.rint(red).astype(int)
            assert (batches[-1] == np.stack([entry % 2, entry < 3, entry == 5], axis=1)).all()
    assert all((one == made[0]).all() for one in made)


def test_commands_count_labels_and_make_no_database_of_several(table, command):
    table("image,sea,sun", "0.png,1,0", "1.png,1,1", "2.png,0,0")
    assert "labels: 2, of 1 to 2 entries\n  0 sea: 2\n  1 sun: 1\n" in command("data", "table.csv")
    for target in ("out_lmdb", "out.npz"):
        told = command("convert-images", "table.csv", target, code=2)
        assert "its pictures have several labels" in told
