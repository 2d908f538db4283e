"""Pictures with boxes at the command line: into a database, found again by predict, drawn on pictures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from kit import refusal

from minicaffe import Detector, Net, parse
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.label_map import label_map
from minicaffe.tools.data.datum import AnnotatedSet

pytest.importorskip("lmdb")
Image = pytest.importorskip("PIL.Image")
CONVERT = ["convert-images", "--boxes", "list.txt", "db", "--label-map", "map.prototxt"]

MAP = """item { name: "none_of_the_above" label: 0 display_name: "background" }
item { name: "n1" label: 1 display_name: "a cat" }
item { name: "n2" label: 2 display_name: "a dog" }
"""
XML = """<annotation><filename>a.png</filename><size><width>40</width><height>20</height></size>
<object><name>n1</name><difficult>1</difficult><bndbox><xmin>4</xmin><ymin>5</ymin><xmax>20</xmax><ymax>15</ymax></bndbox></object>
<object><name>n1</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object></annotation>"""


@pytest.fixture
def files(tmp_path, here):
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
def test_a_list_of_pictures_and_boxes_becomes_a_database(options, files, command):
    assert command(*CONVERT, *options) == "db: 3 pictures\n"
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
        ("a.xml", XML.replace(">40</w", ">x</w"), "a.xml: is not an annotation .*could not convert"),
        ("b.txt", "1 2 3", "b.txt: .*line 1: expected class, x0, y0, x1, y1, got '1 2 3'"),
        ("b.txt", "1 2 3 4 x", "b.txt: .*could not convert"),
        ("b.txt", "\u00b2 1 1 5 5", "b.txt: the label map has no class '\u00b2'"),
        ("b.txt", f"{'9' * 5000} 1 1 5 5", "b.txt: the label map has no class '9{60}'"),
        ("b.txt", "1 40 3 50 9", "b.txt: a box of '1' is beside its picture of 40 x 20: 40.0, 3.0, 50.0, 9.0"),
        ("b.txt", "1 0.5 0.5 0.6 0.8", "b.txt: a box of '1' is smaller than a pixel: .*fractions"),
        ("b.txt", "1 0.5 0.5 0.2 0.3", "b.txt: a box of '1' is smaller than a pixel"),  # YOLO's
        ("b.txt", "1 0 0 1 1", "b.txt: a box of '1' is smaller than a pixel"),
        ("b.txt", "1 2 -3 50 0", "b.txt: a box of '1' is beside its picture of 40 x 20"),
        ("c.json", "{}", "c.json: .*it has no 'annotation'"),
        ("c.json", '{"image": [1], "annotation": []}', "c.json: is not an annotation"),
        ("c.json", "[" * 100_000, "c.json: is not an annotation .*recursion"),
        ("c.json", '{"annotation": [{"category_id": 1, "bbox": [1, 1, 1%s, 3]}]}' % ("0" * 400),
         "c.json: is not an annotation .*too large"),
        ("list.txt", "a.png", "list.txt:1: expected a picture and its annotation, got 'a.png'"),
        ("list.txt", "a.png a.doc", "no such file"),
        ("list.txt", "a.png a.png", "a.png: expected an annotation in .xml, .json or .txt"),
        pytest.param("b.txt", "1 2 3 4 5\n" * 200_000, "b.txt: an annotation of more than 1 MiB is not read", id="large"),
        ("map.prototxt", MAP.replace("n2", "n1"), "map.prototxt: the name 'n1' has two labels, 1 and 2"),
        ("map.prototxt", MAP.replace("label: 2", "label: -2"), "the label of 'n2' is -2; expected 0 or more"),
        ("map.prototxt", 'item { name: "a\\x07" label: 1 }', "a name that cannot be printed: 'a"),
        ("map.prototxt", "", "map.prototxt: a label map without a class"),
        ("map.prototxt", 'item { name: "n1" }', "map.prototxt:1:1: an item of a label map needs label"),
    ],
)  # fmt: skip
def test_damage_is_told_in_a_line_and_nothing_is_written(
    file, text, message, files, command, monkeypatch
):
    monkeypatch.setattr("minicaffe.tools.data.reader.picture_set.LARGEST", 1 << 20)
    (files / file).write_text(text, "utf-8")
    said = command(*CONVERT, code=2)
    assert said.count("\n") == 1 and re.search(message, said), said
    assert not (files / "db").exists()


@pytest.mark.parametrize(
    ("size", "turn", "rows", "told"),
    [
        ((40, 20), 1, [0.1, 0.25, 0.5, 0.75], None),
        ((0, 0), 1, [0.1, 0.25, 0.5, 0.75], None),  # not known, as some tools write it
        (("1e999", 20), 1, [0.1, 0.25, 0.5, 0.75], None),
        ((80, 80), 1, [0.05, 0.0625, 0.25, 0.1875], "another size than their annotation says"),
        ((20, 40), 6, [4 / 20, 5 / 40, 20 / 20, 15 / 40], None),  # annotated upright
        ((40, 20), 6, [0.25, 0.1, 0.75, 0.5], "annotated before EXIF's orientation turned them"),
        ((10, 8), 1, [0.4, 0.625, 1, 1], "beyond their picture's edge"),
    ],
)
def test_boxes_are_of_the_picture_that_is_shown(size, turn, rows, told, files, command):
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save("a.png", exif=exif)
    xml = XML[: XML.index("<object><name>n1</name><bndbox>")] + "</annotation>"
    for old, new in zip(("<width>40", "<height>20"), size, strict=True):
        xml = xml.replace(old, old.rstrip("0123456789") + str(new))
    (files / "a.xml").write_text(xml)
    (files / "list.txt").write_text("a.png a.xml\n")
    said = command(*CONVERT).removeprefix("db: 1 pictures\n")
    assert (told in said and ": 1\n" in said) if told else not said
    expected = np.array(rows)
    if turn == 6 and told:  # turned by a quarter to the right: x is what was the height from below
        expected = np.array([1 - 0.75, 0.1, 1 - 0.25, 0.5])
    boxes = AnnotatedSet(files / "db", "db").label(0)
    np.testing.assert_allclose(boxes[0, 2:6], expected, atol=1e-6)


def test_names_need_a_label_map_and_numbers_do_not(files, command):
    """A text may begin with a byte order mark."""
    without = CONVERT[:-2]
    assert "the class 'n1' has no number: --label-map FILE says it" in command(*without, code=2)
    (files / "b.txt").write_text("\ufeff1 0 0 4 4\n", encoding="utf-8")
    (files / "list.txt").write_text("b.png b.txt\nc.png c.json\n")
    command(*without)
    assert AnnotatedSet(files / "db", "db").label(0)[0, 0] == 1


def test_a_label_map(tmp_path):
    (tmp_path / "map.prototxt").write_text(MAP)
    assert label_map(tmp_path / "map.prototxt") == {0: "background", 1: "a cat", 2: "a dog"}
    (tmp_path / "map.prototxt").write_text(MAP + MAP)
    assert "label 0 has two names" in refusal(label_map, tmp_path / "map.prototxt", error=SpecError)


NET = """
layers:
  - {name: data, type: AnnotatedData, top: [data, truth], source: db, batch_size: 4,
     label_map_file: map.prototxt, transform: {resize_param: {height: 12, width: 12}}}
  - {name: small, type: Pooling, pool: AVE, kernel_size: 12}
  - {name: prior, type: PriorBox, bottom: [small, data], min_size: 6, aspect_ratio: 2}
  - {name: loc, type: InnerProduct, bottom: small, num_output: 12, weight_filler: constant}
  - {name: conf, type: InnerProduct, bottom: small, num_output: 9, weight_filler: constant,
     bias_filler: {type: constant, value: 0}}
  - {name: loss, type: MultiBoxLoss, bottom: [loc, conf, prior, truth], include: TRAIN, num_classes: 3}
  - {name: shares, type: Reshape, bottom: conf, shape: {dim: [0, -1, 3]}, include: TEST}
  - {name: prob, type: Softmax, axis: 2, include: TEST}
  - {name: prob_flat, type: Flatten, include: TEST}
  - {name: found, type: DetectionOutput, bottom: [loc, prob_flat, prior], include: TEST, num_classes: 3,
     save_output_param: {output_directory: out, label_map_file: map.prototxt, name_size_file: nowhere}}
  - {name: map, type: DetectionEvaluate, bottom: [found, truth], include: TEST, num_classes: 3}
"""


@pytest.fixture
def detector(files, command):
    """A net that says of each picture that its middle is a dog."""
    command(*CONVERT)
    (files / "net.yaml").write_text(NET)
    net = Net(parse(NET), "TEST", device="cpu")
    net.layers["conf"].params[1].data[:] = [9, 0, 12, 9, 0, 0, 9, 0, 0]
    net.save(files / "w.npz")
    return files


PREDICT = ["predict", "net.yaml", "--weights", "w.npz"]


def test_predict_tells_boxes_in_pixels_and_draws_them(detector, command):
    said = command(*PREDICT, "a.png", "b.png", "--save", "drawn", "--csv", "t.csv").splitlines()
    lines = [f"{name}.png: a dog (95.26 %) at 10,5-30,15" for name in "ab"]
    assert said[:2] == lines
    rows = (detector / "t.csv").read_text().splitlines()
    assert rows[0] == "image,rank,class,name,score,x0,y0,x1,y1"
    assert rows[1] == "a.png,1,2,a dog,0.952569,10,5,30,15"
    for name in "ab":
        with Image.open(detector / "drawn" / f"{name}.png") as image:
            drawn = np.asarray(image)
        assert drawn.shape == (160, 320, 3)
        edge = drawn[60, 80]  # the left side of the box, 8 times as large
        assert (drawn[41:118, 80:82] == edge).all() and edge.max() > 150
        assert (drawn[80, 120] == 50 * (name == "b")).all()
    assert not (detector / "out").exists()
    (found,) = json.loads(command(*PREDICT, "a.png", "--json").splitlines()[0])["boxes"]
    assert found["name"] == "a dog" and found["box"] == [10, 5, 30, 15]
    none = command(*PREDICT, "a.png", "b.png", "--threshold", "0.99")
    assert none.startswith("a.png: nothing found\nb.png: nothing found\n")
    assert command(*PREDICT, "a.png", "a.png").splitlines()[:2] == lines[:1] * 2


def test_names_are_those_of_the_labels_given(detector, command):
    (detector / "words.txt").write_text("nothing\none\ntwo\n")
    (detector / "other.prototxt").write_text('# animals\nitem { name: "wolf" label: 2 }')
    for file, name in (("words.txt", "two"), ("other.prototxt", "wolf")):
        assert command(*PREDICT, "a.png", "--labels", file).startswith(f"a.png: {name} (")
    (detector / "map.prototxt").unlink()
    assert command(*PREDICT, "a.png").startswith("a.png: 2 (")
    Path("empty.txt").write_text("\n")
    for words, told in (
        ("--labels empty.txt", "--labels empty.txt: expected a label map, or a name in each line"),
        ("--threshold nan", "--threshold: invalid float value: 'nan'"),
    ):
        assert told in command(*PREDICT, "a.png", *words.split(), code=2)


def test_a_box_that_is_nan_is_no_box(detector, monkeypatch, command):
    from minicaffe.interop.caffe.forks import ssd

    found = ssd.DetectionOutput.found

    def spoilt(self, *arrays):
        rows = found(self, *arrays)
        rows[0, 4] = np.nan
        return rows

    whole = len(Detector("net.yaml", "w.npz", device="cpu").predict("a.png"))
    monkeypatch.setattr(ssd.DetectionOutput, "found", spoilt)
    assert len(Detector("net.yaml", "w.npz", device="cpu").predict("a.png")) == whole - 1
    said = command(*PREDICT, "a.png", "--threshold", "0", "--save", "drawn", "--json")
    assert len(json.loads(said.splitlines()[0])["boxes"]) == whole - 1


def test_a_detector_in_python(detector):
    net = Detector("net.yaml", "w.npz", device="cpu")
    found = net.predict("a.png")
    assert (np.diff(found[:, 1]) <= 0).all()
    np.testing.assert_allclose(found[0], [2, 0.95256, 0.25, 0.25, 0.75, 0.75], atol=1e-4)
    several = net.predict(["a.png", np.zeros((30, 50, 3), np.uint8)] * 3)
    assert len(several) == 6 and len(several[1]) == len(found)
    np.testing.assert_array_equal(several[0], found)


def test_answers_of_a_classifier_are_drawn_too(files, command):
    text = """
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 20, 40]}}
  - {name: ip, type: InnerProduct, num_output: 2, weight_filler: constant}
  - {name: prob, type: Softmax}
"""
    (files / "net.yaml").write_text(text)
    Net(parse(text), device="cpu").save("w.npz")
    (files / "more").mkdir()
    (files / "c.png").rename(files / "more" / "a.png")
    command(*PREDICT, "a.png", "b.png", "more", "--save", "d")
    assert sorted(path.name for path in (files / "d").iterdir()) == ["a-2.png", "a.png", "b.png"]


def test_a_run_with_a_net_to_train_and_one_to_test_is_tested_and_used(files, command):
    """As SSD's own solvers have them: the net that is trained has no data in TEST."""
    import yaml

    command(*CONVERT)
    nets = {"TRAIN": [], "TEST": []}
    for layer in yaml.safe_load(NET)["layers"]:
        own = {k: v for k, v in layer.items() if k not in ("include", "save_output_param")}
        for phase, layers in nets.items():
            layers += [dict(own)] * (layer.get("include", phase) == phase)
    nets["TRAIN"][0]["include"] = "TRAIN"
    solver = {"base_lr": 0.01, "max_iter": 2, "test_iter": [1], "test_interval": 2}
    text = {"layers": nets["TRAIN"], "test_nets": [{"layers": nets["TEST"]}], "solver": solver}
    (files / "two.yaml").write_text(yaml.safe_dump(text))
    command("train", "two.yaml", "--device", "cpu", "--run", "run")
    assert "map" in command("test", "run", "--device", "cpu")
    assert command("predict", "run", "a.png", "--threshold", "0").startswith("a.png: a ")
    command("report", "run")
    assert '"id":"boxes"' in (files / "run" / "report.html").read_text("utf-8").replace(" ", "")
