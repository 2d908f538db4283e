"""`minicaffe predict` with names, folders, tables, and with deploy nets, against the net's own numbers."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from minicaffe import Net
from minicaffe.cli.predict import write_csv
from minicaffe.interop import caffe
from minicaffe.storage import wire
from minicaffe.tools.data import picture_files

Image = pytest.importorskip("PIL.Image")
CPU = ("--device", "cpu")
MODEL = """
name: Shapes
layers:
  - {name: data, type: Data, top: [data, label], source: photos, batch_size: 5, transform: {scale: 0.01}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 2, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, max_iter: 30, display: 0}
"""
DEPLOY = """
name: "Deploy" input: "data" input_dim: 10 input_dim: 3 input_dim: 6 input_dim: 6
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def photos(folder):
    """Dark and light pictures, in a folder a class."""
    rng = np.random.default_rng(1)
    for word, least in (("dark", 0), ("light", 130)):
        (folder / "photos" / word).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(least, least + 100, (6, 6, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / word / f"{word}{i}.png")
    (folder / "shapes.yaml").write_text(MODEL)
    (folder / "deploy.prototxt").write_text(DEPLOY)
    return folder / "photos"


@pytest.fixture
def run(cli, photos):
    assert cli("train", "shapes.yaml", "--run", "run", "--quiet", *CPU).code == 0
    return "run"


def test_classes_have_their_names_in_text_and_in_the_snapshot(cli, photos, run):
    ran = cli("predict", run, "photos/dark/dark3.png", *CPU)
    assert ran.out.startswith("photos/dark/dark3.png: dark (") and ", light (" in ran.out
    (snapshot,) = Path("run").glob("*.npz")
    photos.rename("others")  # whose names are others
    shutil.copytree("others/dark", "photos/a")
    shutil.copytree("others/light", "photos/b")
    ran = cli("predict", str(snapshot), "photos/a/dark3.png", *CPU)
    assert ran.out.startswith("photos/a/dark3.png: dark (")
    ran = cli("predict", "shapes.yaml", "photos/a/dark3.png", "--weights", run, *CPU)
    assert ran.out.startswith("photos/a/dark3.png: a (")


def test_a_folder_gives_an_answer_for_each_picture_below_it(cli, photos, run):
    (photos / "notes.txt").write_text("no picture")
    lines = cli("predict", run, "photos", "--top", "1", *CPU).out.splitlines()
    assert len(lines) == 20
    alone = [cli("predict", run, line.partition(":")[0], "--top", "1", *CPU).out for line in lines]
    assert [f"{line}\n" for line in lines] == alone
    Path("empty").mkdir()
    ran = cli("predict", run, "empty", *CPU)
    assert ran.code == 2 and "minicaffe: empty: holds no pictures; expected" in ran.err


def test_a_damaged_picture_of_a_folder_is_passed_over_and_counted(cli, photos, run):
    (photos / "dark" / "dark4.png").write_bytes(b"no picture")
    ran = cli("predict", run, "photos", "--csv", "out.csv", *CPU)
    assert ran.code == 2 and len(ran.out.splitlines()) == 19
    assert "minicaffe: photos/dark/dark4.png: is not a picture" in ran.err
    assert ran.last == "minicaffe: 1 of 20 pictures could not be read"
    assert len(Path("out.csv").read_text().splitlines()) == 1 + 2 * 19


def test_json_and_csv_say_the_same(cli, photos, run):
    ran = cli("predict", run, "photos/light", "--json", "--csv", "out.csv", *CPU)
    answers = [json.loads(line) for line in ran.out.splitlines()]
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(answers) == 10 and len(rows) == 20
    listed = [
        (one["image"], rank, *best.values())
        for one in answers
        for rank, best in enumerate(one["classes"], 1)
    ]
    for row, (path, rank, number, name, prob) in zip(rows, listed, strict=True):
        assert (row["image"], row["rank"], row["class"], row["name"]) == (
            path,
            str(rank),
            str(number),
            name,
        )
        assert float(row["probability"]) == pytest.approx(prob, abs=1e-6)
    assert {best["name"] for one in answers for best in one["classes"]} == {"dark", "light"}


def test_names_are_printed_so_that_no_terminal_acts_on_them(cli, photos, run):
    names = ["\x1b[31mred\x1b]0;title\x07.png", "a.png: light (99.99 %)\nz.png"]
    os.mkdir("new")
    for i, name in enumerate(names):
        shutil.copy(f"photos/dark/dark{i}.png", f"new/{name}")
    ran = cli("predict", run, "new", *CPU)
    assert len(ran.out.splitlines()) == 2 and ran.out.replace("\n", "").isprintable()
    assert r"new/\x1b[31mred\x1b]0;title\x07.png: " in ran.out
    assert r"new/a.png: light (99.99 %)\nz.png: " in ran.out
    ran = cli("predict", run, "new/\x1bgone.png", *CPU)
    assert ran.last == r"minicaffe: new/\x1bgone.png: no such file"


def test_no_cell_of_a_table_is_a_formula(cli, photos, run):
    Path("words.txt").write_text("=1+1\n-2+cmd|x\n")
    os.mkdir("@new")
    shutil.copy("photos/dark/dark0.png", "@new/+1.png")
    os.chdir("@new")
    cli("predict", f"../{run}", "+1.png", "--csv", "o.csv", "--labels", "../words.txt", *CPU)
    with open("o.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["image"] for row in rows} == {"'+1.png"}
    assert {row["name"] for row in rows} == {"'=1+1", "'-2+cmd|x"}
    write_csv("o.csv", [["a", -1.5, "-1.5", "\t=1"]], ("a", "b", "c", "d"))
    assert Path("o.csv").read_text().splitlines()[1] == "a,-1.5,-1.5,'\t=1"


def test_labels_name_the_classes_one_a_line(cli, run):
    Path("words.txt").write_text("n01 night, dusk\nn02 day\n\n")
    ran = cli("predict", run, "photos/dark/dark0.png", "--labels", "words.txt", *CPU)
    assert "n01 night, dusk (" in ran.out and "n02 day (" in ran.out
    label_map = 'item { name: "n02" label: 1 display_name: "day" } item { name: "n01" label: 0 }\n'
    Path("map").write_text(label_map)
    ran = cli("predict", run, "photos/dark/dark0.png", "--labels", "map", *CPU)
    words = cli("predict", run, "photos/dark/dark0.png", "--labels", "words.txt", *CPU).out
    assert ran.out == words.replace("n01 night, dusk", "n01").replace("n02 day", "day")
    Path("map").write_text(label_map.replace("label: 0", "label: 2"))
    ran = cli("predict", run, "photos/dark/dark0.png", "--labels", "map", *CPU)
    told = "--labels map: names 2 classes, from 1 to 2; the net has classes 0 to 1"
    assert (ran.code, ran.out, ran.last) == (2, "", f"minicaffe: {told}")
    for text, told in (("one\n", "--labels words.txt: has 1 names; the net has 2 classes"),):
        Path("words.txt").write_text(text)
        ran = cli("predict", run, "photos/dark/dark0.png", "--labels", "words.txt", *CPU)
        assert (ran.code, ran.out, ran.last) == (2, "", f"minicaffe: {told}")
    ran = cli("predict", run, "photos/dark/dark0.png", "--labels", "none.txt", *CPU)
    assert ran.last == "minicaffe: none.txt: no such file"


def deployed(run, picture, mean, scale, order):
    """What the deploy net says of a picture of its size, given as it should be."""
    net = Net(caffe.read("deploy.prototxt"), "TEST", device="cpu")
    (snapshot,) = Path(run).glob("*.npz")
    net.load(snapshot)
    pixels = picture_files.read(picture, "colour")[:, :, ::order].transpose(2, 0, 1)
    net.reshape(data=(1, 3, 6, 6))
    return net.forward(data=(pixels[None] - mean) * scale)["prob"].ravel()


MEANS = np.float32([104, 117, 123])[:, None, None]


@pytest.mark.parametrize(
    "words, mean, scale, order",
    [
        ((), 0, 1, 1),
        (("--mean", "7"), 7, 1, 1),
        (("--mean", "104,117,123", "--scale", "0.017"), MEANS, 0.017, 1),
        (("--channels", "rgb", "--scale", "0.01"), 0, 0.01, -1),
        (("--mean", "same.npy", "--scale", "0.01"), np.arange(108).reshape(3, 6, 6), 0.01, 1),
        (("--mean", "larger.binaryproto", "--scale", "0.01"), MEANS, 0.01, 1),
        (("--mean", "channels.npy", "--scale", "0.01"), MEANS, 0.01, 1),
    ],
)  # fmt: skip
def test_a_deploy_net_classifies(cli, run, words, mean, scale, order):
    np.save("same.npy", np.arange(108, dtype=np.float32).reshape(3, 6, 6))
    np.save("channels.npy", MEANS.ravel())
    larger = np.broadcast_to(MEANS, (3, 9, 8)).copy()
    Path("larger.binaryproto").write_bytes(b"".join(map(bytes, wire.blob_parts(larger[None]))))
    picture = "photos/light/light2.png"
    ran = cli("predict", "deploy.prototxt", picture, "--weights", run, "--json", *CPU, *words)
    assert ran.code == 0, ran.err
    found = {best["class"]: best["probability"] for best in json.loads(ran.out)["classes"]}
    wanted = deployed(run, picture, mean, scale, order)
    np.testing.assert_allclose([found[0], found[1]], wanted, rtol=1e-5)
    assert f"pictures: {'blue, green, red' if order == 1 else 'red, green, blue'}, mean " in ran.err


def test_a_picture_of_another_size_is_scaled_to_a_deploy_nets_as_caffe_does(cli, run):
    pixels = np.full((20, 40, 3), 200, np.uint8)
    Image.fromarray(pixels).save("wide.png")
    Image.fromarray(pixels[:6, :6]).save("small.png")
    words = ("--weights", run, "--scale", "0.01", *CPU)
    lines = cli("predict", "deploy.prototxt", "wide.png", "small.png", *words).out.splitlines()
    assert lines[0].partition(": ")[2] == lines[1].partition(": ")[2]


def test_what_a_deploy_net_cannot_be_asked(cli, mistake, run):
    picture = "photos/light/light2.png"
    words = ("predict", "deploy.prototxt", picture, "--weights", run, *CPU, "--quiet")
    assert "--mean none.npy: there is no such file, and it is not one number or 3" in mistake(
        *words, "--mean", "none.npy"
    )
    assert "--mean 1,2: expected 1 or 3 numbers" in mistake(*words, "--mean", "1,2")
    told = mistake("predict", run, picture, "--scale", "2", *CPU, "--quiet")
    assert "--scale: the layer 'data' says it; give --set layers.data.transform.scale=..." in told
    Path("two.prototxt").write_text(
        DEPLOY + 'input: "info" input_dim: 1 input_dim: 3 input_dim: 1 input_dim: 1'
    )
    assert "its inputs are data 10x3x6x6, info 1x3x1x1" in mistake(
        "predict", "two.prototxt", *words[2:]
    )
    text = DEPLOY.replace('"InnerProduct"', '"Convolution"').replace(
        "inner_product_param {", "convolution_param { kernel_size: 3"
    )
    Path("places.prototxt").write_text(text)
    net = Net(caffe.read("places.prototxt"), "TEST", device="cpu")
    net.save("places.npz")
    ran = cli("predict", "places.prototxt", picture, "--weights", "places.npz", *CPU, "--quiet")
    assert ran.code == 0 and ran.out.endswith(" of the pixels\n")


def test_more_scores_than_classes_are_told(cli, photos):
    told = "photos has 2 classes, 'ip' scores for 5: the others are learnt never to occur; --set layers.ip.num_output=2"
    ran = cli("train", "shapes.yaml", "--run", "run", "--set", "layers.ip.num_output=5", *CPU)
    assert ran.code == 0 and ran.err.splitlines().count(told) == 1
    assert "classes" not in cli("train", "shapes.yaml", "--run", "fit", *CPU).err
