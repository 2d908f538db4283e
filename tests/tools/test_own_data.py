"""Models adapted to data of one's own: what is decided, for each kind of data and of model."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import minicaffe
from minicaffe.core.net import Net, read
from minicaffe.errors import DataError, SpecError
from minicaffe.tools import own_data
from minicaffe.tools.data import readers
from minicaffe.tools.data.reader.base import sides
from minicaffe.tools.own_data import adapt

pytest.importorskip("PIL")
from PIL import Image

COLOURS = {"blue": (20, 20, 200), "green": (20, 180, 20), "red": (200, 20, 20)}


def paint(path, colour, random, size=(40, 36)):
    """A picture of one colour and some noise."""
    pixels = random.normal(colour, 20, (*size, 3)).clip(0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=90)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Folders of twelve pictures for each of three colours, in the current folder."""
    random = np.random.default_rng(5)
    for name, colour in COLOURS.items():
        for number in range(12):
            paint(tmp_path / "photos" / name / f"{number}.jpg", colour, random)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


def layer(spec, name, phase="TRAIN"):
    """A layer of a model by its name, in a phase."""
    from minicaffe.core.config.declare import State

    return next(x for x in spec.layers if x.name == name and x.included(State(phase=phase)))


def shapes(spec, phase):
    """The shapes of a net's blobs, without memory."""
    net = Net(spec, phase, device="cpu", shapes_only=True)
    return {value.name: value.shape for step in net.steps for value in step.tops}


def test_folders_of_classes(photos):
    adapted = adapt("small", "photos", epochs=7)
    spec = adapted.spec()
    held = len(readers.open("photos", "train")) - own_data.survey("photos").count
    assert held >= 3 and spec.classes == ("blue", "green", "red")
    assert f"{held} held out for tests, 3 classes" in adapted.lines[0]
    assert layer(spec, "score").options["num_output"] == 3
    train, test = (layer(spec, "data", phase) for phase in ("TRAIN", "TEST"))
    assert train.options["transform"].mirror and not test.options["transform"].mirror
    count, batch = 36 - held, train.options["batch_size"]
    assert batch == 1 << (
        count.bit_length() - 1
    )  # the largest power of two that there are pictures for
    assert spec.solver.max_iter == 7 * math.ceil(count / batch)
    assert spec.solver.test_interval == spec.solver.snapshot == math.ceil(count / batch)
    assert spec.solver.best.output == "accuracy" and spec.solver.early_stopping is None
    found = shapes(spec, "TRAIN")
    assert found["data"] == (batch, 3, 64, 64) and found["score"] == (batch, 3)


def test_a_class_without_pictures_is_told(photos):
    (photos / "violet").mkdir()
    line = adapt("small", "photos", max_iter=1).lines[0]
    assert line.endswith("; THERE IS NO PICTURE OF violet to train with")


def test_it_learns_and_its_score_is_true(photos):
    """What the held-out part says, and what pictures say that training never saw."""
    spec = adapt("small", "photos", epochs=20, batch_size=8, size=(24, 24)).spec()
    solver = minicaffe.Solver(spec, device="cpu", run="runs/a")
    scores = solver.solve()
    assert scores["accuracy"] == 1
    random = np.random.default_rng(6)
    for name, colour in COLOURS.items():
        paint(photos.parent / "new" / f"{name}.png", colour, random)
    answers = minicaffe.predict("runs/a", ["new/*.png"], top=1)
    named = [answer["classes"][0]["name"] for answer in answers]
    assert [answer["image"] for answer in answers] == [f"new/{name}.png" for name in COLOURS]
    assert named == list(COLOURS)


def test_the_text_is_the_model(photos):
    """What `new` prints is what is trained."""
    adapted = adapt("squeezenet", "photos", max_iter=3)
    (photos.parent / "mine.yaml").write_text(adapted.text)
    mine, spec = read("mine.yaml"), adapted.spec()
    assert minicaffe.core.net.model.text(mine, ".") == minicaffe.core.net.model.text(spec, ".")
    assert mine.solver.max_iter == 3
    for (
        line
    ) in adapted.changed.splitlines():  # bottoms are all said where the layer above is left out
        assert line in adapted.text.splitlines() or "bottom:" in line


@pytest.mark.parametrize(
    ("model", "last", "image"),
    [
        ("squeezenet", ["conv10"], (3, 227, 227)),
        ("googlenet", ["loss1/classifier", "loss2/classifier", "loss3/classifier"], (3, 224, 224)),
        ("resnet50", ["fc1000"], (3, 224, 224)),
        ("mobilenet", ["fc7"], (3, 224, 224)),
        ("alexnet", ["fc8"], (3, 227, 227)),
        ("vgg16", ["fc8"], (3, 224, 224)),
        ("lenet", ["ip2"], (1, 28, 28)),
        ("cifar10_quick", ["ip2"], (3, 32, 32)),
        ("logistic_regression", ["fc1"], (1, 28, 28)),
        ("small", ["score"], (3, 64, 64)),
        ("digits", ["ip2"], (1, 28, 28)),
    ],
)
def test_classifiers_of_the_zoo(photos, model, last, image):
    spec = adapt(model, "photos", batch_size=4).spec()
    before = read(model)
    for name in last:
        assert layer(spec, name).options["num_output"] == 3
    for phase in ("TRAIN", "TEST"):
        found = shapes(spec, phase)
        assert found["data"] == (4, *image)
    assert spec.solver.best.output in Net(spec, "TEST", device="cpu", shapes_only=True).outputs
    kept = {x.name for x in before.layers} - {x.name for x in spec.layers}
    assert kept <= {
        "data",
        "label",
        "mnist",
        "cifar",
        "prob",
        "accuracy_top5",
        "accuracy/top-5",
    } | {name for name in kept if "top-5" in name or "top5" in name}


@pytest.mark.parametrize("model", ["mnist_autoencoder", "mnist_siamese", "lstm"])
def test_what_is_no_classifier_is_refused(photos, model):
    with pytest.raises(
        SpecError,
        match="the model is no classifier: expected a SoftmaxWithLoss, or a Soft|how large",
    ):
        adapt(model, "photos")


def test_a_model_that_reads_no_pictures_is_refused(photos):
    Path("none.yaml").write_text(
        "layers:\n  - {name: x, type: DummyData, shape: {dim: [1, 3, 8, 8]}}\n"
        "  - {name: ip, type: InnerProduct, num_output: 2}\n  - {name: p, type: Softmax}\n"
    )
    with pytest.raises(
        SpecError, match="none.yaml: reads no pictures: it has no data layer or Inp"
    ):
        adapt("none.yaml", "photos")


def test_weights_are_kept_but_for_the_last_layer(photos):
    net = Net(read("small"), "TEST", device="cpu")
    net.save("first.npz")
    adapted = adapt("small", "photos", weights="first.npz", max_iter=0)
    assert "it begins anew, as 'score_new', and learns at 10 times the rate" in adapted.lines[2]
    spec = adapted.spec()
    new = layer(spec, "score_new")
    assert new.top == ("score",) and [one.lr_mult for one in new.param] == [10, 20]
    assert spec.solver.type == "SGD" and spec.solver.weights == ("first.npz",)
    solver = minicaffe.Solver(spec, device="cpu", snapshot_after_train=False)
    report = solver.net.load("first.npz", strict=False)
    assert "conv1__0" in report.loaded and not report.mismatched


def test_a_snapshot_of_the_same_classes_goes_on_with_its_last_layer(photos):
    first = adapt("small", "photos", epochs=1, size=(24, 24)).spec()
    minicaffe.Solver(first, device="cpu", run="runs/a").solve()
    again = adapt("runs/a", "photos")
    assert layer(again.spec(), "score").name == "score"
    (photos / "blue").rename(photos / "azure")
    other = adapt("runs/a", "photos")
    assert layer(other.spec(), "score_new").options["num_output"] == 3
    assert other.spec().solver.weights == ("runs/a/small_best.npz",)
    begun = minicaffe.Net("runs/a", "TEST", device="cpu")
    begun.load("runs/a/small_best.npz")
    solver = other.solver(device="cpu", snapshot_after_train=False)
    kept, new = (solver.net.params[name][0].data for name in ("conv4", "score_new"))
    assert (kept == begun.params["conv4"][0].data).all()
    assert (new != begun.params["score"][0].data).any()


def test_a_deploy_net_gets_a_loss(photos):
    text = """
name: "Old"
input: "data" input_dim: 1 input_dim: 3 input_dim: 32 input_dim: 32
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 1000 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
    (photos.parent / "deploy.prototxt").write_text(text)
    spec = adapt("deploy.prototxt", "photos").spec()
    assert [x.type for x in spec.layers[2:]] == ["InnerProduct", "SoftmaxWithLoss", "Accuracy"]
    assert shapes(spec, "TEST")["fc"][1] == 3


def table(path, rows):
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))


def test_several_labels(photos):
    rows = [("image", "warm", "cold")]
    rows += [
        (f"photos/{name}/{n}.jpg", int(name == "red"), int(name != "red"))
        for name in COLOURS
        for n in range(12)
    ]
    table(photos.parent / "labels.csv", rows)
    adapted = adapt("small", "labels.csv", epochs=10, size=(24, 24))
    spec = adapted.spec()
    assert spec.solver.best.output == "label_error" and spec.solver.best.mode == "min"
    solver = minicaffe.Solver(spec, device="cpu", run="runs/labels")
    scores = solver.solve()
    assert scores["label_error"] <= 0.1
    answer = minicaffe.predict("runs/labels", "photos/red/0.jpg", top=2)[0]["classes"]
    assert [one["name"] for one in answer] == ["warm", "cold"]
    assert answer[0]["probability"] > 0.5 > answer[1]["probability"]
    inferred, notes = minicaffe.tools.inference.inference(spec)
    assert [x.type for x in inferred.layers if x.type not in ("Convolution", "BatchNorm")][
        -1
    ] == "Sigmoid"
    assert "a Sigmoid, prob" in notes[0] and "label" not in {
        top for x in inferred.layers for top in x.tops
    }


def test_label_error_is_the_share_that_is_wrong(photos):
    """Against a slow reference: each score above 0 is a label."""
    rows = [("image", "a", "b", "c")]
    random = np.random.default_rng(2)
    bits = random.integers(0, 2, (36, 3))
    rows += [
        (f"photos/{name}/{n}.jpg", *bits[12 * i + n])
        for i, name in enumerate(COLOURS)
        for n in range(12)
    ]
    table(photos.parent / "labels.csv", rows)
    spec = adapt("small", "labels.csv", batch_size=6, size=(24, 24)).spec("layers.data.split=0")
    net = Net(spec, "TEST", device="cpu")
    for param in net.params["score"]:
        param.data[...] = random.normal(0, 1, param.shape)
    for _ in range(3):
        outputs = net.forward()
        scores, label = net.blobs["score"].data, net.blobs["label"].data
        wrong = np.mean(
            [(s > 0) != (y > 0.5) for s, y in zip(scores.flat, label.flat, strict=True)]
        )
        assert float(outputs["label_error"]) == pytest.approx(wrong)


def masks(folder, count=6):
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    random = np.random.default_rng(3)
    for number in range(count):
        mask = np.zeros((32, 40), np.uint8)
        mask[random.integers(16) :, random.integers(20) :] = 1
        mask[:2] = 255
        picture = np.where(mask[..., None] == 1, 220, 30) + random.integers(0, 20, (32, 40, 3))
        Image.fromarray(picture.astype(np.uint8)).save(
            folder / "images" / f"{number}.jpg", quality=95
        )
        image = Image.fromarray(mask).convert("P")
        image.putdata(mask.ravel().tolist())
        image.putpalette([255, 255, 255, 0, 0, 0])  # colours that say nothing of the numbers
        image.save(folder / "masks" / f"{number}.png")


def test_masks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes", 10)
    adapted = adapt("segment", "scenes", size=(32, 40), epochs=15)
    spec = adapted.spec()
    assert "2 classes of pixels; 255 counts for none" in adapted.lines[0]
    found = shapes(spec, "TRAIN")
    assert found["label"][1:] == (1, 32, 40) and found["score"][1:] == (2, 32, 40)
    scores = minicaffe.Solver(spec, device="cpu", run="runs/scenes").solve()
    assert scores["accuracy"] > 0.9
    answer = minicaffe.predict("runs/scenes", "scenes/images/0.jpg")[0]
    truth = np.asarray(Image.open("scenes/masks/0.png"))
    known = truth != 255
    assert answer["mask"].shape == truth.shape
    assert (answer["mask"] == truth)[known].mean() > 0.9
    assert sum(one["share"] for one in answer["pixels"]) == pytest.approx(1)


def test_a_net_for_masks_wants_masks(photos):
    with pytest.raises(
        SpecError, match="labels each pixel: expected in photos a folder images and a"
    ):
        adapt("segment", "photos")


SPLITS = [
    ("train", "val"),
    ("Train", "Valid"),
    ("training", "testing"),
    ("training_set", "test_set"),
]
SPLITS += [
    ("train", "dev"),
    ("train-set", "eval"),
    ("train_data", "Hold-Out"),
    ("trainset", "evaluation"),
]


@pytest.mark.parametrize("names", SPLITS)
def test_folders_of_splits(photos, names):
    for name in COLOURS:
        for split, some in zip(names, ("[0-8].jpg", "9.jpg"), strict=True):
            (photos.parent / "set" / split / name).mkdir(parents=True)
            for path in (photos / name).glob(some):
                path.rename(photos.parent / "set" / split / name / path.name)
    adapted = adapt("small", "set")
    assert adapted.lines[0].startswith("data: set: 27 to train with, 3 classes")
    assert len(readers.open("set", "test")) == 3


def test_pictures_of_the_same_bytes_are_told_and_on_one_side(photos):
    """Copies, exports, frames of a film: the labels of chance were scored 0.82 by them."""
    names = sorted(COLOURS)
    for i in range(5):
        shutil.copy(photos / names[0] / "3.jpg", photos / names[0] / f"copy{i}.jpg")
    line = adapt("small", "photos").lines[0]
    assert "; 5 duplicates, kept on one side" in line
    parts = sides(readers.open("photos", "train"), 0.2)
    held = [
        {Path(part.place(i)).name for i in range(len(part)) if names[0] in part.place(i)}
        for part in parts
    ]
    copies = {"3.jpg", *(f"copy{i}.jpg" for i in range(5))}
    assert copies in (copies & held[0], copies & held[1])
    shutil.copy(photos / names[0] / "3.jpg", photos / names[1] / "other.jpg")
    line = adapt("small", "photos").lines[0]
    assert "; 6 duplicates, kept on one side; 1 PICTURES ARE IN SEVERAL CLASSES, such as" in line
    assert f"photos/{names[0]}/3.jpg and photos/{names[1]}/other.jpg" in line


def test_test_pictures_that_are_in_training_are_told(photos):
    names = sorted(COLOURS)
    for name in names:
        for split, number in (("train", "[0-8].jpg"), ("test", "9.jpg")):
            (photos.parent / "set" / split / name).mkdir(parents=True)
            for path in (photos / name).glob(number):
                shutil.copy(path, photos.parent / "set" / split / name / path.name)
    assert "duplicate" not in adapt("small", "set").lines[0]
    shutil.copy(photos / names[0] / "1.jpg", photos.parent / "set/test" / names[0] / "new.jpg")
    assert (
        "; 1 duplicates, 1 OF THE TEST PICTURES ARE IN TRAINING, such as"
        f" set/train/{names[0]}/1.jpg and set/test/{names[0]}/new.jpg"
    ) in adapt("small", "set").lines[0]


def test_arrays_of_the_same_numbers_are_on_one_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (24, 1, 28, 28), np.uint8), 4, 0)
    np.savez("set.npz", images=images, labels=np.arange(96) // 4 % 3)
    assert "; 72 duplicates, kept on one side" in adapt("lenet", "set.npz").lines[0]
    train, test = sides(readers.open("set.npz", "train"), 0.2)
    seen = {train[i][0].tobytes() for i in range(len(train))}
    assert len(test) and not any(test[i][0].tobytes() in seen for i in range(len(test)))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.arange(9) % 3 - 1, "expected labels from 0 on, found -1"),
        (np.arange(9) * 10**6, "expected numbers of classes from 0 on, found 8000000"),
    ],
)
def test_labels_that_are_none_are_named(labels, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("set.npz", images=np.zeros((9, 1, 28, 28), np.uint8), labels=labels)
    with pytest.raises(DataError, match=f"set.npz: {told}$"):
        adapt("lenet", "set.npz")


def test_a_picture_without_a_mask_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes")
    (tmp_path / "scenes/masks/3.png").unlink()
    with pytest.raises(DataError, match=r"scenes/images/3.jpg: has no mask scenes/masks/3.png"):
        adapt("segment", "scenes")


def test_masks_of_training_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes/train")
    with pytest.raises(DataError, match="scenes: has a folder train; expected beside it, for TEST"):
        text = (
            "layers: [{name: d, type: DenseImageData, source: scenes, batch_size: 1, top: [x, y]}]"
        )
        Net(minicaffe.parse(text), "TEST", device="cpu")


def test_boxes(tmp_path, monkeypatch):
    """A detector for other classes: each layer that depends on their number has it."""
    pytest.importorskip("lmdb")
    import runpy
    from pathlib import Path

    from minicaffe.cli import main

    monkeypatch.chdir(tmp_path)
    example = Path(__file__).parents[2] / "examples/ssd/draw_scenes.py"
    runpy.run_path(str(example))["draw"](Path("scenes"), 24, 8)
    names = Path("scenes/labelmap.prototxt")
    names.write_text(names.read_text() + 'item { name: "star" label: 4 display_name: "star" }\n')
    for split in ("train", "test"):
        lists = f"scenes/{split}.txt", f"scenes/{split}_lmdb"
        words = ["convert-images", "--boxes", *lists, "--label-map", str(names), "--encoded"]
        assert main(words) == 0
    adapted = adapt("ssd_small", "scenes", max_iter=2)
    spec = adapted.spec()
    assert (
        "24 pictures with boxes to train with, 4 classes (circle, square, triangle, star)"
        in adapted.lines[0]
    )
    for name in ("conv4_2_conf", "conv5_2_conf", "conv6_1_conf"):
        assert layer(spec, name).options["num_output"] == 6 * 5
        assert layer(spec, name.replace("conf", "loc")).options["num_output"] == 6 * 4
    assert layer(spec, "mbox_loss").options["num_classes"] == 5
    assert (
        layer(spec, "data").options["batch_sampler"]
        == layer(read("ssd_small"), "data").options["batch_sampler"]
    )
    scores = adapted.solver(device="cpu", run="runs/scenes").solve()
    assert 0 <= scores["mAP"] <= 1 and scores["mAP of each class"].shape == (4,)
    answer = minicaffe.predict("runs/scenes", "scenes/test", threshold=0)
    assert len(answer) == 8 and {"class", "name", "score", "box"} == set(answer[0]["boxes"][0])
    with pytest.raises(SpecError, match="--size: a detector's boxes are made for its own size of"):
        adapt("ssd_small", "scenes", size=(64, 64))
    with pytest.raises(SpecError, match="no detector: expected a MultiBoxLoss"):
        adapt("small", "scenes")


def test_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (20, 40, 48, 3), np.uint8)
    np.savez(
        "set.npz",
        x_train=images,
        y_train=np.arange(20) % 4,
        x_test=images,
        y_test=np.arange(20) % 4,
    )
    spec = adapt("small", "set.npz", epochs=1).spec()
    assert layer(spec, "data").options["transform"].resize == 73
    assert shapes(spec, "TRAIN")["data"] == (16, 3, 64, 64)
    grey = random.integers(0, 256, (20, 28, 28), np.uint8)
    np.savez("grey.npz", images=grey, labels=np.arange(20) % 2)
    assert shapes(adapt("small", "grey.npz", epochs=1).spec(), "TRAIN")["data"][1] == 1
    np.savez("unit.npz", images=images.astype(np.float32) / 255, labels=np.arange(20) % 2)
    spec = adapt("small", "unit.npz", epochs=1).spec()
    net = Net(spec, "TEST", device="cpu")
    net.forward()
    seen = net.blobs["data"].data
    assert abs(seen.mean()) < 0.2 and 0.5 < seen.std() < 1.5
    Net(read("small"), "TEST", device="cpu").save("w.npz")
    with pytest.raises(DataError, match="has 1 channels; the weights are for pictures of 3"):
        adapt("small", "grey.npz", weights="w.npz")


def test_grey_pictures_on_light_paper_are_answered_as_they_were_trained(tmp_path, monkeypatch):
    """What training did not invert, predict does not."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for name, ink in (("dark", 60), ("pale", 190)):
        (tmp_path / "light" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.normal(240, 5, (28, 28))
            pixels[8:20, 8:20] = random.normal(ink, 5, (12, 12))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"light/{name}/{number}.png")
    adapted = adapt("lenet", "light", epochs=10, batch_size=4)
    assert adapted.solver(device="cpu", run="runs/light").solve()["accuracy"] == 1
    for name in ("dark", "pale"):
        answers = minicaffe.predict("runs/light", f"light/{name}", top=1)
        assert {one["classes"][0]["name"] for one in answers} == {name}


def test_weights_of_a_run_bring_how_they_saw_pictures(photos):
    adapt("small", "photos", epochs=1, size=(24, 24)).solver(device="cpu", run="runs/a").solve()
    for weights in ("runs/a", "runs/a/", "runs/a/small_best.npz"):
        adapted = adapt("small", "photos", weights=weights)
        assert "less a mean of 128, times 0.015625" in adapted.lines[1]
        assert adapted.spec().solver.weights == ("runs/a/small_best.npz",)
    for model in ("runs/a", "runs/a/", "./runs/a"):
        assert "begins anew" not in adapt(model, "photos").lines[2]
    with pytest.raises(DataError, match="nope.npz: no such file of weights"):
        adapt("small", "photos", weights="nope.npz")


PROTOTXT = """
name: "px"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 4 backend: LMDB }
        transform_param { crop_size: 24 } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


@pytest.mark.parametrize(
    "more",
    [
        """layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" include { phase: TEST } }
layer { name: "acc" type: "Accuracy" bottom: "prob" bottom: "label" top: "acc" include { phase: TEST } }""",
        """layer { name: "acc5" type: "Accuracy" bottom: "fc" bottom: "label" top: "acc5"
        accuracy_param { top_k: 5 } include { phase: TEST } }""",
        """layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" include { phase: TEST } }""",
        "",
    ],
)
def test_nets_as_people_wrote_them(photos, more):
    (photos.parent / "px.prototxt").write_text(PROTOTXT + more)
    spec = adapt("px.prototxt", "photos", max_iter=1).spec()
    net = Net(spec, "TEST", device="cpu", shapes_only=True)
    assert spec.solver.best.output in net.outputs


def test_several_labels_go_on_and_take_nets_of_several_losses(photos):
    rows = [("image", "a", "b")]
    rows += [(f"photos/{name}/{n}.jpg", n % 2, int(n < 6)) for name in COLOURS for n in range(12)]
    table(photos.parent / "labels.csv", rows)
    adapted = adapt("small", "labels.csv", epochs=1, size=(24, 24))
    adapted.solver(device="cpu", run="runs/a").solve()
    again = adapt("runs/a", "labels.csv").spec()
    assert [x.type for x in again.layers].count("SigmoidCrossEntropyLoss") == 1
    assert layer(again, "label_error", "TEST").type == "Reduction"
    google = adapt("googlenet", "labels.csv", batch_size=2).spec()
    inferred, _ = minicaffe.tools.inference.inference(google)
    net = Net(inferred, "TEST", device="cpu", shapes_only=True)
    assert net.outputs == ["prob"]


def test_a_detector_and_a_net_of_masks_go_on_with_all_their_layers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes", 6)
    adapt("segment", "scenes", size=(32, 40), epochs=1).solver(device="cpu", run="runs/a").solve()
    assert not [line for line in adapt("runs/a", "scenes").lines if "begins anew" in line]
    lines = adapt("segment", "scenes", weights="runs/a").lines
    assert any("'up4_new'" in line and "times the rate" not in line for line in lines)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda mask: Image.fromarray(mask).convert("RGB"),
            "expected a mask of grey values or of a palette, found RGB",
        ),
        (
            lambda mask: Image.fromarray(np.where(mask == 1, 255, 0).astype(np.uint8)),
            "is to be one of 0 and 1",
        ),
    ],
)
def test_masks_that_are_no_numbers_of_classes(tmp_path, monkeypatch, change, told):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes", 3)
    for path in (tmp_path / "scenes/masks").iterdir():
        change(np.array(Image.open(path))).save(path)
    with pytest.raises(DataError, match=told):
        adapt("segment", "scenes")


def test_classes_of_masks_that_only_tests_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, label in (("Train", 1), ("valid", 4)):
        masks(tmp_path / "scenes" / name, 3)
        for path in (tmp_path / "scenes" / name / "masks").iterdir():
            Image.fromarray(np.full((32, 40), label, np.uint8)).save(path)
    adapted = adapt("segment", "scenes")
    assert "scenes: 3 pictures with masks to train with, 5 classes of pixels" in adapted.lines[0]


def test_arrays_as_the_net_has_them_are_answered_in_their_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes", 4)
    adapt("segment", "scenes", size=(32, 40), epochs=1).solver(device="cpu", run="runs/a").solve()
    one = np.zeros((3, 32, 40), np.uint8)
    assert minicaffe.predict("runs/a", [one])[0]["mask"].shape == (32, 40)
    assert len(minicaffe.predict("runs/a", np.stack([one] * 3))) == 3


def test_a_net_of_masks_is_exported(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from minicaffe.cli import main

    monkeypatch.chdir(tmp_path)
    masks(tmp_path / "scenes", 4)
    adapt("segment", "scenes", size=(32, 40), epochs=1).solver(device="cpu", run="runs/a").solve()
    assert main(["export", "--run", "runs/a", "--onnx", "a.onnx"]) == 0
    import json

    about = json.loads((tmp_path / "a.json").read_text())
    assert about["preprocessing"]["fit"] == "stretch" and about["preprocessing"]["size"] == [32, 40]


@pytest.mark.parametrize(
    ("given", "told"),
    [({"epochs": 0}, "epochs: expected at least 1"), ({"batch_size": 0}, "batch_size: ")],
)
def test_numbers_that_are_none(photos, given, told):
    with pytest.raises(SpecError, match=told):
        adapt("small", photos, **given)


def test_one_class_is_refused(photos):
    for name in ("green", "red"):
        for file in (photos / name).iterdir():
            file.unlink()
        (photos / name).rmdir()
    with pytest.raises(DataError, match="has one class; a classifier needs two or more"):
        adapt("small", "photos")


@pytest.mark.parametrize(("memory", "batch"), [(1 << 40, 256), (400 << 20, 32), (1 << 20, 1)])
def test_the_batch_fits_the_memory(photos, monkeypatch, memory, batch):
    monkeypatch.setattr(own_data.backend.Device, "memory", lambda self: memory)
    spec = adapt("small", "photos", max_iter=1).spec()
    found, why = own_data.fitting(
        lambda size: own_data.replace(
            spec,
            layers=tuple(
                own_data.replace(x, options={**x.options, "batch_size": size})
                if x.name == "data"
                else x
                for x in spec.layers
            ),
        ),
        256,
        None,
    )
    assert found == batch and "MiB" in why
    net = Net(spec, "TRAIN", device="cpu", shapes_only=True)
    both = 2 * 4 * sum(math.prod(value.shape) for step in net.steps for value in step.tops)
    if (
        memory < 1 << 40 and batch > 1
    ):  # by hand: blobs and gradients, without those that work in place
        assert found * both / 16 / 3 < memory / 4
