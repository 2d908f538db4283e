"""`minicaffe predict` with names, folders, tables, and with deploy nets, against the net's own numbers."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit import CPU

from minicaffe import Net
from minicaffe.cli.predict import write_csv
from minicaffe.interop import caffe
from minicaffe.storage import wire
from minicaffe.tools.data import picture_files

Image = pytest.importorskip("PIL.Image")
MODEL = """
name: Shapes
layers:
  - {name: data, type: Data, top: [data, label], source: photos, batch_size: 5, transform: {scale: 0.01}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 2, weight_filler: xavier}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.01, max_iter: 100, display: 0}
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


@pytest.fixture
def predict(cli):
    return lambda *words: cli("predict", *map(str, words), *CPU)


DARK = "photos/dark/dark0.png"


def test_classes_have_their_names_in_text_and_in_the_snapshot(predict, photos, run):
    ran = predict(run, "photos/dark/dark3.png")
    assert ran.out.startswith("photos/dark/dark3.png: dark (") and ", light (" in ran.out
    (snapshot,) = Path("run").glob("*.npz")
    photos.rename("others")  # whose names are others
    shutil.copytree("others/dark", "photos/a")
    shutil.copytree("others/light", "photos/b")
    picture = "photos/a/dark3.png"
    assert predict(snapshot, picture).out.startswith(f"{picture}: dark (")
    ran = predict("shapes.yaml", picture, "--weights", run)
    assert ran.out.startswith(f"{picture}: a (")


def test_a_folder_gives_an_answer_for_each_picture_below_it(predict, photos, run):
    (photos / "notes.txt").write_text("no picture")
    lines = predict(run, "photos", "--top", "1").out.splitlines()
    assert len(lines) == 20
    alone = [predict(run, line.partition(":")[0], "--top", "1").out for line in lines]
    assert [f"{line}\n" for line in lines] == alone
    Path("empty").mkdir()
    ran = predict(run, "empty")
    assert ran.code == 2 and "minicaffe: empty: holds no pictures; expected" in ran.err


def test_a_damaged_picture_of_a_folder_is_passed_over_and_counted(predict, photos, run):
    (photos / "dark" / "dark9.png").write_bytes(b"no picture")
    ran = predict(run, "photos", "--csv", "out.csv")
    assert ran.code == 2 and len(ran.out.splitlines()) == 19
    assert "minicaffe: photos/dark/dark9.png: is not a picture" in ran.err
    assert ran.last == "minicaffe: 1 of 20 pictures could not be read"
    assert len(Path("out.csv").read_text().splitlines()) == 1 + 19


def test_json_and_csv_say_the_same(predict, run):
    ran = predict(run, "photos", "--json", "--csv", "out.csv", "--top", "2")
    answers = [json.loads(line) for line in ran.out.splitlines()]
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, one in zip(rows, answers, strict=True):
        assert row["image"] == one["image"]
        for more, best in zip(("", "_2"), one["classes"], strict=True):
            assert [row[f"class{more}"], row[f"name{more}"]] == [str(best["class"]), best["name"]]
            assert float(row[f"probability{more}"]) == pytest.approx(best["probability"], abs=1e-6)
    names = [one["classes"][0]["name"] for one in answers]
    right = sum(
        name == Path(one["image"]).parent.name for name, one in zip(names, answers, strict=True)
    )
    counts = ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names)))
    assert (
        f"\n20 pictures: {counts}\nright: {right} of 20 in folders of classes ({5 * right:.2f} %)\n"
        in ran.err
    )


def test_names_are_printed_so_that_no_terminal_acts_on_them(predict, run):
    names = ["\x1b[31mred\x1b]0;title\x07.png", "a.png: light (99.99 %)\nz.png"]
    os.mkdir("new")
    for i, name in enumerate(names):
        shutil.copy(f"photos/dark/dark{i}.png", f"new/{name}")
    ran = predict(run, "new")
    assert len(ran.out.splitlines()) == 2 and ran.out.replace("\n", "").isprintable()
    assert r"new/\x1b[31mred\x1b]0;title\x07.png: " in ran.out
    assert r"new/a.png: light (99.99 %)\nz.png: " in ran.out
    assert predict(run, "new/\x1bgone.png").last == r"minicaffe: new/\x1bgone.png: no such file"


def test_no_cell_of_a_table_is_a_formula(predict, run):
    Path("words.txt").write_text("=1+1\n-2+cmd|x\n")
    os.mkdir("@new")
    shutil.copy(DARK, "@new/+1.png")
    os.chdir("@new")
    predict(f"../{run}", "+1.png", "--csv", "o.csv", "--labels", "../words.txt", "--top", "2")
    with open("o.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["image"] for row in rows} == {"'+1.png"}
    assert {rows[0]["name"], rows[0]["name_2"]} == {"'=1+1", "'-2+cmd|x"}
    write_csv("o.csv", [{"a": "a", "b": -1.5, "c": "-1.5", "d": "\t=1"}])
    assert Path("o.csv").read_text().splitlines()[1] == "a,-1.5,-1.5,'\t=1"


def test_labels_name_the_classes_one_a_line(predict, run):
    def ask(labels):
        return predict(run, DARK, "--labels", labels)

    Path("words.txt").write_text("n01 night, dusk\nn02 day\n\n")
    words = ask("words.txt").out
    assert "n01 night, dusk (" in words and "n02 day (" in words
    label_map = 'item { name: "n02" label: 1 display_name: "day" } item { name: "n01" label: 0 }\n'
    Path("map").write_text(label_map)
    assert ask("map").out == words.replace("n01 night, dusk", "n01").replace("n02 day", "day")
    Path("map").write_text(label_map.replace("label: 0", "label: 2"))
    Path("words.txt").write_text("one\n")
    net = "the net has classes 0 to 1"
    for file, told in (
        ("map", f"--labels map: names 2 classes, from 1 to 2; {net}"),
        ("words.txt", f"--labels words.txt: names 1 classes, from 0 to 0; {net}"),
        ("none.txt", "none.txt: no such file"),
    ):
        ran = ask(file)
        assert (ran.code, ran.out, ran.last) == (2, "", f"minicaffe: {told}")


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
def test_a_deploy_net_classifies(predict, run, words, mean, scale, order):
    np.save("same.npy", np.arange(108, dtype=np.float32).reshape(3, 6, 6))
    np.save("channels.npy", MEANS.ravel())
    larger = np.broadcast_to(MEANS, (3, 9, 8)).copy()
    Path("larger.binaryproto").write_bytes(b"".join(map(bytes, wire.blob_parts(larger[None]))))
    picture = "photos/light/light2.png"
    ran = predict("deploy.prototxt", picture, "--weights", run, "--json", *words)
    assert ran.code == 0, ran.err
    found = {best["class"]: best["probability"] for best in json.loads(ran.out)["classes"]}
    wanted = deployed(run, picture, mean, scale, order)
    np.testing.assert_allclose([found[0], found[1]], wanted, rtol=1e-5)
    assert f"pictures: {'blue, green, red' if order == 1 else 'red, green, blue'}, mean " in ran.err


def test_a_picture_of_another_size_is_scaled_to_a_deploy_nets_as_caffe_does(predict, run):
    pixels = np.full((20, 40, 3), 200, np.uint8)
    Image.fromarray(pixels).save("wide.png")
    Image.fromarray(pixels[:6, :6]).save("small.png")
    words = ("deploy.prototxt", "wide.png", "small.png", "--weights", run, "--scale", "0.01")
    wide, small = predict(*words).out.splitlines()
    assert wide.partition(": ")[2] == small.partition(": ")[2]


def test_what_a_deploy_net_cannot_be_asked(predict, mistake, run):
    picture = "photos/light/light2.png"
    data = 'input: "info" input_dim: 1 input_dim: 3 input_dim: 1 input_dim: 1'
    layer = ' layer { name: "r" type: "ReLU" bottom: "info" top: "r" }'
    Path("two.prototxt").write_text(DEPLOY + data + layer)
    deploy = f"deploy.prototxt {picture} --weights {run} --mean"
    for words, told in (
        (f"{deploy} none.npy", "--mean none.npy: there is no such file, and it is not one number or 3"),
        (f"{deploy} 1,2", "--mean 1,2: expected 1 or 3 numbers"),
        (f"{run} {picture} --scale 2", "--scale: the layer 'data' says it; give --set layers.data.transform.scale=..."),
        (f"two.prototxt {picture} --weights {run}", "its inputs are data 10x3x6x6, info 1x3x1x1"),
    ):  # fmt: skip
        assert told in mistake("predict", *words.split(), *CPU, "--quiet")
    text = DEPLOY.replace('"InnerProduct"', '"Convolution"')
    text = text.replace("inner_product_param {", "convolution_param { kernel_size: 3")
    Path("places.prototxt").write_text(text)
    Net(caffe.read("places.prototxt"), "TEST", device="cpu").save("places.npz")
    ran = predict("places.prototxt", picture, "--weights", "places.npz", "--quiet")
    assert ran.code == 0 and ran.out.endswith(" of the pixels\n")


def test_more_scores_than_classes_are_told(cli, photos):
    told = "photos has 2 classes, 'ip' scores for 5: the others are learnt never to occur; --set layers.ip.num_output=2"
    ran = cli("train", "shapes.yaml", "--run", "run", "--set", "layers.ip.num_output=5", *CPU)
    assert ran.code == 0 and ran.err.splitlines().count(told) == 1
    assert "classes" not in cli("train", "shapes.yaml", "--run", "fit", *CPU).err
