"""Confusion matrix and mistakes against slow references; what a net cannot have is left out."""

import base64
import io
import json
from collections import Counter

import numpy as np
import pytest

from minicaffe import Net, parse, read
from minicaffe.backends import device as backend
from minicaffe.tools.report import write
from minicaffe.tools.report.sections import as_seen, smaller
from minicaffe.tools.report.study import Limits, Study

CPU = backend.device("cpu")


def sections(folder, device=CPU) -> dict:
    data = write([folder], folder / "report.html", device=device)
    return {one["id"]: one.get("data", one.get("left_out")) for one in data["sections"]}


def answers(folder) -> list[tuple]:
    """(label, answer, probability of the label, entry) of each test picture, one after the other."""
    net = Net(read(folder / "model.yaml"), "TEST", device="cpu", deterministic=True)
    net.load(folder / "small_iter_70.npz")
    found = []
    for batch in range(3):
        net.forward()
        for b in range(8):
            entry = 8 * batch + b
            if entry < 21:
                scores = [float(x) for x in net.blobs["ip"].data[b]]
                powers = [np.exp(x) for x in scores]
                label = int(net.blobs["label"].data[b])
                found.append((label, scores.index(max(scores)), powers[label] / sum(powers), entry))
    return found


def test_confusion_and_mistakes_are_those_of_a_slow_pass(make_run, device):
    folder = make_run()
    found, expected = sections(folder, device), answers(folder)
    pairs = Counter((label, answer) for label, answer, *_ in expected)
    assert found["confusion"]["matrix"] == [[pairs[i, j] for j in range(3)] for i in range(3)]
    wrong = sorted(
        (share, entry, label, answer) for label, answer, share, entry in expected if label != answer
    )
    assert len(wrong) >= 3 and found["mistakes"]["wrong"] == len(wrong)
    shown = found["mistakes"]["shown"]
    assert [(int(one["entry"]), one["label"], one["answer"]) for one in shown] == [
        (entry, str(label), str(answer)) for _, entry, label, answer in wrong[:24]
    ]
    np.testing.assert_allclose(
        [one["shares"][1] for one in shown], [one[0] for one in wrong[:24]], rtol=1e-4
    )


def test_pictures_of_mistakes_are_the_data_sets(make_run):
    image = pytest.importorskip("PIL.Image")
    from minicaffe.tools.data import datasets

    folder = make_run()
    images = datasets.load(str(folder.parent / "pictures"), "test").images
    for one in sections(folder)["mistakes"]["shown"]:
        with image.open(io.BytesIO(base64.b64decode(one["image"].partition(",")[2]))) as opened:
            assert (np.asarray(opened) == images[one["entry"], 0]).all()


def test_samples_are_of_each_class_where_the_data_is_sorted(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(24, 1, 1) * np.ones((1, 8, 8), np.uint8)
    np.savez(
        tmp_path / "sorted.npz",
        x_train=images,
        y_train=np.repeat([0, 1, 2], 8),
        x_test=images,
        y_test=np.repeat([0, 1, 2], 8),
    )
    text = f"""
layers:
  - {{name: data, type: Data, top: [data, label], source: {tmp_path}/sorted.npz, batch_size: 5}}
  - {{name: conv, type: Convolution, num_output: 2, kernel_size: 3}}
  - {{name: ip, type: InnerProduct, num_output: 3}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}}
"""
    some = Study(parse(text), lambda net: None, "", CPU, Limits()).some(7)
    assert some["label"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert some["data"][:, 0, 0, 0].tolist() == [0, 1, 2, 8, 9, 16, 17]
    assert some["conv"].shape == (7, 2, 6, 6)


def test_layers_have_times_shapes_and_memory(make_run):
    found = sections(make_run())["layers"]
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["conv1"]["tops"] == [["conv1", [8, 4, 6, 6]]]
    assert rows["conv1"]["params"] == 4 * 9 + 4 and rows["ip"]["params"] == 3 * 144 + 3
    assert rows["conv1"]["blobs"] == 2 * 8 * 4 * 36 * 4 and rows["relu1"]["blobs"] == 0
    assert all(min(row["ms"]) >= 0 for row in rows.values())
    assert found["bytes"]["parameters"] == 4 * (4 * 9 + 4 + 3 * 144 + 3)


def test_a_net_without_an_answer_has_no_confusion(make_run):
    loss = "- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}"
    change = {
        "- {name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}": "",
        loss: "- {name: to_one, type: InnerProduct, bottom: ip, num_output: 1}\n"
        "  - {name: flat, type: Reshape, shape: {dim: [-1]}}\n"
        "  - {name: loss, type: EuclideanLoss, bottom: [flat, label]}",
    }
    found = sections(make_run(change=change))
    assert (
        "neither Accuracy nor" in found["confusion"] and "neither Accuracy nor" in found["mistakes"]
    )
    assert found["filters"]["width"] > 0


HEAD = "- {name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}"
LOSS = "- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}"


@pytest.mark.parametrize(
    ("change", "section", "told"),
    [
        ({"kernel_size: 3": "kernel_size: 1"}, "filters", "the filters of 'conv1' are of 1 x 1"),
        ({LOSS: LOSS[:-1] + ", include: TEST}"}, "layers", "Not timed: no layer is a loss"),
        (
            {
                "- {name: ip, type: InnerProduct, num_output: 3, weight_filler: {type: gaussian, std: 0.5}}": "- {name: ip, type: Convolution, num_output: 3, kernel_size: 1, weight_filler: xavier}\n"
                "  - {name: wide, type: Reshape, bottom: label, shape: {dim: [0, 1, 1, 1]}}\n"
                "  - {name: high, type: Tile, tiles: 6, axis: 2}\n"
                "  - {name: many, type: Tile, tiles: 6, axis: 3}",
                HEAD: HEAD.replace("label", "many"),
                LOSS: LOSS.replace("label", "many"),
            },
            "mistakes",
            "a sample has many labels, not one",
        ),
        (
            {
                HEAD: "- {name: two, type: Concat, axis: 0, bottom: [ip, ip]}\n"
                "  - {name: labels, type: Concat, axis: 0, bottom: [label, label]}\n  "
                + HEAD.replace("[ip, label]", "[two, labels]"),
                LOSS: LOSS.replace("[ip, label]", "[two, labels]"),
            },
            "mistakes",
            "the pictures of a batch are not as many as its labels",
        ),
    ],
)
def test_what_a_net_does_not_have_is_said(make_run, change, section, told):
    assert told in json.dumps(sections(make_run(change=change))[section])


def test_where_the_data_is_gone_the_rest_stays(make_run):
    folder = make_run()
    for file in (folder.parent / "pictures").iterdir():
        file.unlink()
    found = sections(folder)
    assert "pictures" in found["confusion"] and "pictures" in found["layers"]
    assert json.loads(json.dumps(found)) == found


def test_weights_that_diverged_are_told(make_run):
    folder = make_run()
    net = Net(read(folder / "model.yaml"), "TRAIN", device="cpu", deterministic=True)
    net.params["ip"][1].data[...] = 3e38
    net.params["ip"][0].data[...] = 3e38
    net.save(folder / "small_iter_70.npz")
    assert "no finite numbers" in sections(folder)["confusion"]


def test_pictures_are_shown_as_they_were_before_the_transform(make_run):
    folder = make_run(change={"scale: 0.0039": "scale: 0.5, mean_value: 9, crop_size: 6"})
    net = Net(read(folder / "model.yaml"), "TEST", device="cpu", deterministic=True)
    net.forward()
    from minicaffe.tools.data import datasets

    images = datasets.load(str(folder.parent / "pictures"), "test").images
    assert (as_seen(net, "data", net.blobs["data"].data)[..., 0] == images[:8, 0, 1:7, 1:7]).all()


def test_smaller_takes_means():
    picture = np.arange(36, dtype=np.uint8).reshape(6, 6, 1)
    found = smaller(picture, 3)
    slow = [
        [picture[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for j in range(3)] for i in range(3)
    ]
    assert np.abs(found[..., 0] - np.array(slow)).max() <= 0.5
