"""Pictures with boxes at the command line: into a database, found again by predict, drawn on pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minicaffe.caffe.label_map import label_map
from minicaffe.cli import main
from minicaffe.data.annotated import AnnotatedSet
from minicaffe.errors import SpecError

pytest.importorskip("lmdb")
Image = pytest.importorskip("PIL.Image")

MAP = """item { name: "none_of_the_above" label: 0 display_name: "background" }
item { name: "n1" label: 1 display_name: "a cat" }
item { name: "n2" label: 2 display_name: "a dog" }
"""
XML = """<annotation><filename>a.png</filename><size><width>40</width><height>20</height></size>
<object><name>n1</name><difficult>1</difficult><bndbox><xmin>4</xmin><ymin>5</ymin><xmax>20</xmax><ymax>15</ymax></bndbox></object>
<object><name>n1</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object></annotation>"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate("abc"):
        Image.fromarray(np.full((20, 40, 3), 50 * i, np.uint8)).save(f"{name}.png")
    (tmp_path / "a.xml").write_text(XML)
    (tmp_path / "b.txt").write_text("n2 10 0 20 10\n1, 0, 0, 4, 4, 1\n\n")
    boxes = {"annotation": [{"category_id": 2, "bbox": [8, 4, 16, 8], "iscrowd": 1}]}
    (tmp_path / "c.json").write_text(json.dumps(boxes))
    (tmp_path / "list.txt").write_text("a.png a.xml\nb.png b.txt\nc.png c.json\n")
    (tmp_path / "map.prototxt").write_text(MAP)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--encoded"], ["--resize", "20x10"]])
def test_a_list_of_pictures_and_boxes_becomes_a_database(options, files, capsys):
    command = ["convert-images", "--boxes", "list.txt", "db", "--label-map", "map.prototxt"]
    assert main([*command, *options]) == 0
    assert capsys.readouterr().out == "db: 3 pictures\n"
    found = AnnotatedSet(files / "db", "db")
    assert found.boxes() == 2
    wanted = [
        [[1, 0, 0.1, 0.25, 0.5, 0.75, 1], [1, 1, 0, 0, 1, 1, 0]],
        [[2, 0, 0.25, 0, 0.5, 0.5, 0], [1, 0, 0, 0, 0.1, 0.2, 1]],
        [[2, 0, 0.2, 0.2, 0.6, 0.6, 1]],
    ]
    for i, rows in enumerate(wanted):
        picture, boxes = found[i]
        assert picture.shape == ((3, 10, 20) if "--resize" in options else (3, 20, 40))
        assert (picture == 50 * i).all()
        np.testing.assert_allclose(boxes, rows, rtol=1e-6)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("a.xml", XML.replace("n1", "n3"), "a.xml: the label map has no class 'n3'"),
        ("a.xml", "<annotation>", "a.xml: is not an annotation that can be read: no element found"),
        ("a.xml", XML.replace("xmin", "x"), "a.xml: .*an object has no name, or no bndbox"),
        ("a.xml", XML.replace(">20<", ">4<"), "a.xml: a box of 'n1' has no area: 4.0, 5.0, 4.0, 15.0"),
        ("b.txt", "1 2 3", "b.txt: .*line 1: expected class, x0, y0, x1, y1, got '1 2 3'"),
        ("b.txt", "1 2 3 4 x", "b.txt: .*could not convert"),
        ("c.json", "{}", "c.json: .*it has no 'annotation'"),
        ("list.txt", "a.png", "list.txt:1: expected a picture and its annotation, got 'a.png'"),
        ("list.txt", "a.png a.doc", "no such file"),
        ("map.prototxt", 'item { name: "n1" }', "map.prototxt:1:1: an item of a label map needs label"),
    ],
)
def test_damage_is_told_in_a_line_and_nothing_is_written(file, text, message, files, capsys):
    import re

    (files / file).write_text(text)
    command = ["convert-images", "--boxes", "list.txt", "db", "--label-map", "map.prototxt"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and re.search(message, said), said
    assert not (files / "db").exists()


def test_names_need_a_label_map_and_numbers_do_not(files, capsys):
    assert main(["convert-images", "--boxes", "list.txt", "db"]) == 2
    assert "the class 'n1' has no number: --label-map FILE says it" in capsys.readouterr().err
    (files / "list.txt").write_text("c.png c.json\n")
    assert main(["convert-images", "--boxes", "list.txt", "db"]) == 0
    assert main(["convert-images", "list.txt", "db2", "--label-map", "map.prototxt"]) == 2
    assert main(["convert-images", "--boxes", "list.txt", "db.npz"]) == 2


def test_a_label_map(tmp_path):
    (tmp_path / "map.prototxt").write_text(MAP)
    assert label_map(tmp_path / "map.prototxt") == {0: "background", 1: "a cat", 2: "a dog"}
    (tmp_path / "map.prototxt").write_text(MAP + MAP)
    with pytest.raises(SpecError, match="label 0 has two names"):
        label_map(tmp_path / "map.prototxt")
