"""Models adapted to data of one's own: what is decided, for each kind of data and of model."""

import json
import math
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from kit import refusal, rows

import minicaffe
from minicaffe.core.config.declare import State
from minicaffe.core.net import Net, read
from minicaffe.core.net.model import text
from minicaffe.tools import own_data
from minicaffe.tools.data import readers
from minicaffe.tools.data.reader.base import sides
from minicaffe.tools.inference import inference
from minicaffe.tools.own_data import adapt

pytest.importorskip("PIL")
from PIL import Image

COLOURS = {"blue": (20, 20, 200), "green": (20, 180, 20), "red": (200, 20, 20)}


def paint(path, colour, random):
    """A picture of one colour and some noise."""
    pixels = random.normal(colour, 20, (40, 36, 3)).clip(0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=90)


@pytest.fixture
def photos(here):
    """Folders of twelve pictures for each of three colours, in the current folder."""
    random = np.random.default_rng(5)
    for name, colour in COLOURS.items():
        for number in range(12):
            paint(Path("photos", name, f"{number}.jpg"), colour, random)
    return Path("photos")


def masks(folder, count):
    """Bright rectangles in dark pictures, their masks, and two rows that count for no class."""
    for kind in ("images", "masks"):
        Path(folder, kind).mkdir(parents=True)
    random = np.random.default_rng(3)
    for number in range(count):
        mask = np.zeros((32, 40), np.uint8)
        mask[random.integers(16) :, random.integers(20) :] = 1
        mask[:2] = 255
        picture = np.where(mask[..., None] == 1, 220, 30) + random.integers(0, 20, (32, 40, 3))
        path = Path(folder, "images", f"{number}.jpg")
        Image.fromarray(picture.astype(np.uint8)).save(path, quality=95)
        image = Image.fromarray(mask).convert("P")
        image.putdata(mask.ravel().tolist())
        image.putpalette([255, 255, 255, 0, 0, 0])  # colours that say nothing of the numbers
        image.save(Path(folder, "masks", f"{number}.png"))


def labelled(names, label):
    """A table labels.csv of the photos, and what label(class, number) gives for each."""
    table = [f"image,{names}"]
    for name in COLOURS:
        for n in range(12):
            table.append(",".join(map(str, (f"photos/{name}/{n}.jpg", *label(name, n)))))
    Path("labels.csv").write_text("\n".join(table))


def layer(spec, name, phase="TRAIN"):
    """A layer of a model by its name, in a phase."""
    return next(x for x in spec.layers if x.name == name and x.included(State(phase=phase)))


def shapes(spec, phase):
    """The shapes of a net's blobs, without memory."""
    net = Net(spec, phase, device="cpu", shapes_only=True)
    return {value.name: value.shape for step in net.steps for value in step.tops}


def trained(model, data, run="runs/a", **given):
    """The adapted model, and the scores of its training."""
    adapted = adapt(model, data, **given)
    return adapted, adapted.solver(device="cpu", run=run).solve()


def test_folders_of_classes(photos):
    adapted = adapt("small", "photos", epochs=7)
    spec = adapted.spec()
    held = len(readers.open("photos", "train")) - own_data.survey("photos").count
    assert held == 6 and spec.classes == ("blue", "green", "red")
    assert f"{held} held out for tests, 3 classes" in adapted.lines[0]
    few = "WARNING: the test has 6 pictures: one of them is 17 % of the accuracy"
    assert adapted.lines[-1] == few
    assert layer(spec, "score").options["num_output"] == 3
    train, test = (layer(spec, "data", phase) for phase in ("TRAIN", "TEST"))
    assert train.options["transform"].mirror and not test.options["transform"].mirror
    count, batch = 36 - held, train.options["batch_size"]
    assert batch == 1 << (count.bit_length() - 1)  # the largest power of two that they are for
    assert spec.solver.max_iter == 7 * math.ceil(count / batch)
    assert spec.solver.test_interval == spec.solver.snapshot == math.ceil(count / batch)
    assert spec.solver.best.output == "accuracy" and spec.solver.early_stopping is None
    found = shapes(spec, "TRAIN")
    assert found["data"] == (batch, 3, 64, 64) and found["score"] == (batch, 3)
    (photos / "violet").mkdir()
    line = adapt("small", "photos", max_iter=1).lines[0]
    assert line.endswith("; THERE IS NO PICTURE OF violet to train with")
    shutil.copy("photos/red/1.jpg", "photos/violet/one.png")  # its only one is for training
    assert adapt("small", "photos", max_iter=1).lines[-1] == "WARNING: never tested: violet"


def test_it_learns_and_its_score_is_true(photos):
    """What pictures say that training never saw; and what begins with such a run has what it learnt."""
    _, scores = trained("small", "photos", epochs=20, batch_size=8, size=(24, 24))
    assert scores["accuracy"] == 1
    random = np.random.default_rng(6)
    for name, colour in COLOURS.items():
        paint(Path("new", f"{name}.png"), colour, random)
    answers = minicaffe.predict("runs/a", ["new/*.png"], top=1)
    assert [answer["image"] for answer in answers] == [f"new/{name}.png" for name in COLOURS]
    assert [answer["classes"][0]["name"] for answer in answers] == list(COLOURS)

    for weights in ("runs/a", "runs/a/", "runs/a/small_best.npz"):
        adapted = adapt("small", "photos", weights=weights)
        assert "less a mean of 128, times 0.015625" in adapted.lines[1]  # as the run saw pictures
        assert adapted.spec().solver.weights == ("runs/a/small_best.npz",)
    for model in ("runs/a", "runs/a/", "./runs/a"):
        again = adapt(model, "photos")
        assert "begins anew" not in again.lines[2] and layer(again.spec(), "score")
    (photos / "blue").rename(photos / "azure")
    other = adapt("runs/a", "photos")
    assert layer(other.spec(), "score_new").options["num_output"] == 3
    assert other.spec().solver.weights == ("runs/a/small_best.npz",)
    begun = Net("runs/a", "TEST", device="cpu")
    begun.load("runs/a/small_best.npz")
    solver = other.solver(device="cpu", snapshot_after_train=False)
    kept, new = (solver.net.params[name][0].data for name in ("conv4", "score_new"))
    assert (kept == begun.params["conv4"][0].data).all()
    assert (new != begun.params["score"][0].data).any()


def test_the_text_is_the_model(photos):
    """What `new` prints is what is trained."""
    adapted = adapt("squeezenet", "photos", max_iter=3)
    Path("mine.yaml").write_text(adapted.text)
    mine = read("mine.yaml")
    assert text(mine, ".") == text(adapted.spec(), ".") and mine.solver.max_iter == 3


@pytest.mark.parametrize(
    ("model", "last", "image"),
    rows("""
        squeezenet | conv10 | [3, 227, 227]
        googlenet | loss1/classifier loss2/classifier loss3/classifier | [3, 224, 224]
        resnet50 | fc1000 | [3, 224, 224]
        mobilenet | fc7 | [3, 224, 224]
        alexnet | fc8 | [3, 227, 227]
        vgg16 | fc8 | [3, 224, 224]
        lenet | ip2 | [1, 28, 28]
        cifar10_quick | ip2 | [3, 32, 32]
        logistic_regression | fc1 | [1, 28, 28]
        small | score | [3, 64, 64]
        digits | ip2 | [1, 28, 28]
    """),
)
def test_classifiers_of_the_zoo(photos, model, last, image):
    spec = adapt(model, "photos", batch_size=4).spec()
    assert {layer(spec, name).options["num_output"] for name in last.split()} == {3}
    for phase in ("TRAIN", "TEST"):
        assert shapes(spec, phase)["data"] == (4, *json.loads(image))
    assert spec.solver.best.output in Net(spec, "TEST", device="cpu", shapes_only=True).outputs
    gone = {x.name for x in read(model).layers} - {x.name for x in spec.layers}
    gone -= {"data", "label", "mnist", "cifar", "prob"}
    assert all(re.search("top-?5", name) for name in gone), gone


@pytest.mark.parametrize(
    ("model", "data", "given", "line"),
    rows("""
        mnist_autoencoder | photos | {} | the model is no classifier: expected a SoftmaxWithLoss, or a Softmax or scores at its end
        mnist_siamese | photos | {} | the model is no classifier: expected a SoftmaxWithLoss, or a Softmax or scores at its end
        lstm | photos | {} | the model does not say how large its pictures are: give --size WxH
        none.yaml | photos | {} | none.yaml: reads no pictures: it has no data layer or Input
        segment | photos | {} | the model labels each pixel: expected in photos a folder images and a folder masks
        small | photos | {weights: nope.npz} | nope.npz: no such file of weights
        small | photos | {epochs: 0} | epochs: expected at least 1, got 0
        small | photos | {batch_size: 0} | batch_size: expected at least 1, got 0
        small | one | {} | one: has one class, 'red'; a classifier needs two or more
        lenet | below.npz | {} | below.npz: expected labels from 0 on, found -1
        lenet | far.npz | {} | far.npz: expected numbers of classes from 0 on, found 8000000
        small | grey.npz | {weights: small.npz} | grey.npz: has 1 channels; the weights are for pictures of 3
        segment | unmasked | {} | unmasked/images/0.jpg: has no mask unmasked/masks/0.png
        segment | rgb | {} | rgb/masks/0.png: expected a mask of grey values or of a palette, found RGB
        segment | wide | {} | wide: its masks hold no class but 0; 255 counts for none, so a mask of 0 and 255 is to be one of 0 and 1
    """),
)
def test_what_is_refused(photos, model, data, given, line):
    Path("none.yaml").write_text(
        "layers: [{name: x, type: DummyData, shape: {dim: [1, 3, 8, 8]}},"
        " {name: ip, type: InnerProduct, num_output: 2}, {name: p, type: Softmax}]"
    )
    shutil.copytree("photos/red", "one/red")
    images, numbers = np.zeros((9, 28, 28), np.uint8), np.arange(9)
    for name, labels in {"below": numbers % 3 - 1, "far": numbers * 10**6, "grey": numbers}.items():
        np.savez(f"{name}.npz", images=images, labels=labels)
    if "small.npz" in given:
        Net(read("small"), "TEST", device="cpu").save("small.npz")
    for name in ("unmasked", "rgb", "wide"):
        masks(name, 1)
    Path("unmasked/masks/0.png").unlink()
    mask = Image.open("rgb/masks/0.png")
    mask.convert("RGB").save("rgb/masks/0.png")
    Image.fromarray(np.where(np.array(mask) == 1, 255, 0).astype(np.uint8)).save("wide/masks/0.png")
    assert refusal(adapt, model, data, **yaml.safe_load(given)) == line


def test_weights_are_kept_but_for_the_last_layer(photos):
    Net(read("small"), "TEST", device="cpu").save("first.npz")
    adapted = adapt("small", "photos", weights="first.npz", max_iter=0)
    assert "it begins anew, as 'score_new', and learns at 10 times the rate" in adapted.lines[2]
    spec = adapted.spec()
    new = layer(spec, "score_new")
    assert new.top == ("score",) and [one.lr_mult for one in new.param] == [10, 20]
    assert spec.solver.type == "SGD" and spec.solver.weights == ("first.npz",)
    solver = minicaffe.Solver(spec, device="cpu", snapshot_after_train=False)
    report = solver.net.load("first.npz", strict=False)
    assert "conv1__0" in report.loaded and not report.mismatched


def test_several_labels(photos):
    labelled("warm,cold", lambda name, _: (int(name == "red"), int(name != "red")))
    adapted, scores = trained("small", "labels.csv", epochs=10, size=(24, 24))
    best = adapted.spec().solver.best
    assert best.output == "label_error" and best.mode == "min"
    assert scores["label_error"] <= 0.1
    answer = minicaffe.predict("runs/a", "photos/red/0.jpg", top=2)[0]["classes"]
    assert [one["name"] for one in answer] == ["warm", "cold"]
    assert answer[0]["probability"] > 0.5 > answer[1]["probability"]
    inferred, notes = inference(adapted.spec())
    types = [x.type for x in inferred.layers if x.type not in ("Convolution", "BatchNorm")]
    assert types[-1] == "Sigmoid" and "a Sigmoid, prob" in notes[0]
    assert "label" not in {top for x in inferred.layers for top in x.tops}

    again = adapt("runs/a", "labels.csv").spec()
    assert [x.type for x in again.layers].count("SigmoidCrossEntropyLoss") == 1
    assert layer(again, "label_error", "TEST").type == "Reduction"
    inferred, _ = inference(adapt("googlenet", "labels.csv", batch_size=2).spec())
    assert Net(inferred, "TEST", device="cpu", shapes_only=True).outputs == ["prob"]


def test_label_error_is_the_share_that_is_wrong(photos):
    """Against a slow reference: each score above 0 is a label."""
    random = np.random.default_rng(2)
    labelled("a,b,c", lambda name, number: random.integers(0, 2, 3))
    spec = adapt("small", "labels.csv", batch_size=6, size=(24, 24)).spec("layers.data.split=0")
    net = Net(spec, "TEST", device="cpu")
    for param in net.params["score"]:
        param.data[...] = random.normal(0, 1, param.shape)
    for _ in range(3):
        outputs = net.forward()
        pairs = zip(net.blobs["score"].data.flat, net.blobs["label"].data.flat, strict=True)
        wrong = np.mean([(score > 0) != (label > 0.5) for score, label in pairs])
        assert float(outputs["label_error"]) == pytest.approx(wrong)


def test_masks(here, command):
    masks("scenes", 10)
    adapted, scores = trained("segment", "scenes", size=(32, 40), epochs=15)
    assert "2 classes of pixels; 255 counts for none" in adapted.lines[0]
    found = shapes(adapted.spec(), "TRAIN")
    assert found["label"][1:] == (1, 32, 40) and found["score"][1:] == (2, 32, 40)
    assert scores["accuracy"] > 0.9
    answer = minicaffe.predict("runs/a", "scenes/images/0.jpg")[0]
    truth = np.asarray(Image.open("scenes/masks/0.png"))
    assert answer["mask"].shape == truth.shape
    assert (answer["mask"] == truth)[truth != 255].mean() > 0.9
    assert sum(one["share"] for one in answer["pixels"]) == pytest.approx(1)
    one = np.zeros((3, 32, 40), np.uint8)  # as the net has them: answered in their size
    assert minicaffe.predict("runs/a", [one])[0]["mask"].shape == (32, 40)
    assert len(minicaffe.predict("runs/a", np.stack([one] * 3))) == 3

    assert "begins anew" not in str(adapt("runs/a", "scenes").lines)
    lines = adapt("segment", "scenes", weights="runs/a").lines
    assert any("'up4_new'" in line and "times the rate" not in line for line in lines)

    pytest.importorskip("onnxruntime")
    command("export", "--run", "runs/a", "--onnx", "a.onnx")
    about = json.loads(Path("a.json").read_text())["preprocessing"]
    assert about["fit"] == "stretch" and about["size"] == [32, 40]


def test_classes_of_masks_that_only_tests_have(here):
    for name, label in (("Train", 1), ("valid", 4)):
        masks(f"scenes/{name}", 3)
        for path in Path("scenes", name, "masks").iterdir():
            Image.fromarray(np.full((32, 40), label, np.uint8)).save(path)
    line = adapt("segment", "scenes").lines[0]
    assert "scenes: 3 pictures with masks to train with, 3 to test with, 5 classes" in line
    shutil.rmtree("scenes/valid")
    spec = "layers: [{name: d, type: DenseImageData, source: scenes, batch_size: 1, top: [x, y]}]"
    said = refusal(Net, minicaffe.parse(spec), "TEST", device="cpu")
    assert said.endswith("scenes: has a folder train; expected beside it, for TEST, test or val")


def divided(train, test):
    """Copies of the photos 0 to 8 of each class in set/train, of the ninth in set/test."""
    for name in COLOURS:
        for split, some in ((train, "[0-8].jpg"), (test, "9.jpg")):
            folder = Path("set", split, name)
            folder.mkdir(parents=True)
            for path in Path("photos", name).glob(some):
                shutil.copy(path, folder)


SPLITS = "train:val Train:Valid training:testing training_set:test_set train:dev train-set:eval"
SPLITS += " train_data:Hold-Out trainset:evaluation Training:Testing TRAIN:Validation train:test"


@pytest.mark.parametrize("names", SPLITS.split())
def test_folders_of_splits(photos, names):
    divided(*names.split(":"))
    assert adapt("small", "set").lines[0].startswith("data: set: 27 to train with, 3 to test with")
    assert len(readers.open("set", "test")) == 3


def test_pictures_of_the_same_bytes_are_told_and_on_one_side(photos):
    """Copies, exports, frames of a film: the labels of chance were scored 0.82 by them."""
    for i in range(5):
        shutil.copy("photos/blue/3.jpg", f"photos/blue/copy{i}.jpg")
    assert "; 5 duplicates, kept on one side" in adapt("small", "photos").lines[0]
    parts = sides(readers.open("photos", "train"), 0.2)
    held = {Path(parts[0].place(i)) for i in range(len(parts[0]))}
    copies = {photos / "blue" / name for name in ("3.jpg", *(f"copy{i}.jpg" for i in range(5)))}
    assert copies & held in (copies, set())
    shutil.copy("photos/blue/3.jpg", "photos/green/other.jpg")
    line = adapt("small", "photos").lines[0]
    assert "; 6 duplicates, kept on one side; 1 PICTURES ARE IN SEVERAL CLASSES, such as" in line
    assert "photos/blue/3.jpg and photos/green/other.jpg" in line


def test_test_pictures_that_are_in_training_are_told(photos):
    divided("train", "test")
    assert "duplicate" not in adapt("small", "set").lines[0]
    shutil.copy("photos/blue/1.jpg", "set/test/blue/new.jpg")
    assert (
        "; 1 duplicates, 1 OF THE TEST PICTURES ARE IN TRAINING, such as"
        " set/train/blue/1.jpg and set/test/blue/new.jpg"
    ) in adapt("small", "set").lines[0]


def test_arrays_of_the_same_numbers_are_on_one_side(here):
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (24, 1, 28, 28), np.uint8), 4, 0)
    np.savez("set.npz", images=images, labels=np.arange(96) // 4 % 3)
    assert "; 72 duplicates, kept on one side" in adapt("lenet", "set.npz").lines[0]
    train, test = sides(readers.open("set.npz", "train"), 0.2)
    seen = {train[i][0].tobytes() for i in range(len(train))}
    assert len(test) and not any(test[i][0].tobytes() in seen for i in range(len(test)))


def test_boxes(here, command):
    """A detector for other classes: each layer that depends on their number has it."""
    pytest.importorskip("lmdb")
    example = Path(__file__).parents[2] / "examples/ssd/draw_scenes.py"
    runpy.run_path(str(example))["draw"](Path("scenes"), 24, 8)
    names = Path("scenes/labelmap.prototxt")
    names.write_text(names.read_text() + 'item { name: "star" label: 4 display_name: "star" }\n')
    for split in ("train", "test"):
        lists = f"scenes/{split}.txt", f"scenes/{split}_lmdb"
        command("convert-images", "--boxes", *lists, "--label-map", names, "--encoded")
    adapted, scores = trained("ssd_small", "scenes", max_iter=2)
    told = "24 pictures with boxes to train with, 4 classes (circle, square, triangle, star)"
    spec = adapted.spec()
    assert told in adapted.lines[0]
    for name in ("conv4_2", "conv5_2", "conv6_1"):
        assert layer(spec, f"{name}_conf").options["num_output"] == 6 * 5
        assert layer(spec, f"{name}_loc").options["num_output"] == 6 * 4
    assert layer(spec, "mbox_loss").options["num_classes"] == 5
    ours, theirs = (layer(x, "data").options["batch_sampler"] for x in (spec, read("ssd_small")))
    assert ours == theirs
    assert 0 <= scores["mAP"] <= 1 and scores["mAP of each class"].shape == (4,)
    assert "begins anew" not in str(adapt("runs/a", "scenes").lines)
    answer = minicaffe.predict("runs/a", "scenes/test", threshold=0)
    assert len(answer) == 8 and {"class", "name", "score", "box"} == set(answer[0]["boxes"][0])
    assert (
        refusal(adapt, "ssd_small", "scenes", size=(64, 64))
        == "--size: a detector's boxes are made for its own size of pictures"
    )
    assert (
        refusal(adapt, "small", "scenes")
        == "the model is no detector: expected a MultiBoxLoss, as SSD's training nets have it"
    )


def test_arrays(here):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (20, 40, 48, 3), np.uint8), np.arange(20) % 4
    np.savez("set.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    spec = adapt("small", "set.npz", epochs=1).spec()
    assert layer(spec, "data").options["transform"].resize == 73
    assert shapes(spec, "TRAIN")["data"] == (16, 3, 64, 64)
    np.savez("grey.npz", images=images[:, :28, :28, 0], labels=labels)
    assert shapes(adapt("small", "grey.npz", epochs=1).spec(), "TRAIN")["data"][1] == 1
    np.savez("unit.npz", images=images.astype(np.float32) / 255, labels=labels)
    net = Net(adapt("small", "unit.npz", epochs=1).spec(), "TEST", device="cpu")
    net.forward()
    seen = net.blobs["data"].data
    assert abs(seen.mean()) < 0.2 and 0.5 < seen.std() < 1.5


def test_grey_pictures_on_light_paper_are_answered_as_they_were_trained(here):
    """What training did not invert, predict does not."""
    random = np.random.default_rng(1)
    for name, ink in (("dark", 60), ("pale", 190)):
        Path("light", name).mkdir(parents=True)
        for number in range(12):
            pixels = random.normal(240, 5, (28, 28))
            pixels[8:20, 8:20] = random.normal(ink, 5, (12, 12))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"light/{name}/{number}.png")
    _, scores = trained("lenet", "light", epochs=10, batch_size=4)
    assert scores["accuracy"] == 1
    for name in ("dark", "pale"):
        answers = minicaffe.predict("runs/a", f"light/{name}", top=1)
        assert {one["classes"][0]["name"] for one in answers} == {name}


FC = 'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 10 } }'
PROTOTXT = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ crop_size: 24 }}
        data_param {{ source: "x" batch_size: 4 backend: LMDB }} }}
{FC}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }}
"""
PROB = 'layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob"'
TESTED = 'bottom: "label" top: "acc" include { phase: TEST }'


@pytest.mark.parametrize(
    "more",
    [
        f'{PROB} include {{ phase: TEST }} }}\nlayer {{ name: "acc" type: "Accuracy" bottom: "prob" {TESTED} }}',
        f'layer {{ name: "acc" type: "Accuracy" bottom: "fc" {TESTED} accuracy_param {{ top_k: 5 }} }}',
        f"{PROB} include {{ phase: TEST }} }}",
        "",
    ],
)
def test_nets_as_people_wrote_them(photos, more):
    Path("px.prototxt").write_text(PROTOTXT + more)
    spec = adapt("px.prototxt", "photos", max_iter=1).spec()
    assert spec.solver.best.output in Net(spec, "TEST", device="cpu", shapes_only=True).outputs


def test_a_deploy_net_gets_a_loss(photos):
    inputs = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 32 input_dim: 32'
    Path("deploy.prototxt").write_text(f"{inputs}\n{FC}\n{PROB} }}")
    spec = adapt("deploy.prototxt", "photos").spec()
    assert [x.type for x in spec.layers[2:]] == ["InnerProduct", "SoftmaxWithLoss", "Accuracy"]
    assert shapes(spec, "TEST")["fc"][1] == 3


@pytest.mark.parametrize(("memory", "batch"), [(1 << 40, 256), (0, 256), (400 << 20, 32), (9, 1)])
def test_the_batch_fits_the_memory(photos, monkeypatch, memory, batch):
    monkeypatch.setattr(own_data.backend.Device, "memory", lambda self: memory)

    def built(size):
        return adapt("small", "photos", max_iter=1, batch_size=size).spec()

    found, why = own_data.fitting(built, 256, None)
    assert found == batch and "MiB" in why
    if batch == 32:  # by hand: blobs and gradients, without those that work in place
        net = Net(built(16), "TRAIN", device="cpu", shapes_only=True)
        both = 2 * 4 * sum(math.prod(value.shape) for step in net.steps for value in step.tops)
        assert found * both / 16 / 3 < memory / 4
