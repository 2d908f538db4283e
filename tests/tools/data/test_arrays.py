"""Arrays as data: a table and pictures, for `adapt`, for nets with a Data layer and with Inputs."""

import gc
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from kit import Heard

from minicaffe import Classifier, Solver, SpecError, adapt, predict
from minicaffe.core.solver.report import Mute
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.errors import DataError
from minicaffe.tools.training.speed import iterations

TABLE = np.random.default_rng(0).normal(size=(330, 20)).astype(np.float32)
CLASSES = (TABLE[:, 0] > TABLE[:, 1]).astype(np.int64)
LAYERS = """
layers:
  - {name: x, type: Input, shape: {dim: [32, 20]}}
  - {name: y, type: Input, shape: {dim: [32]}}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, y]}
  - {name: accuracy, type: Accuracy, bottom: [ip, y], include: TEST}
"""
SOLVER = "solver: {base_lr: 0.5, max_iter: 40, test_interval: 20, snapshot: 0, display: 0}"
pytestmark = pytest.mark.usefixtures("here")


def solver(text: str = LAYERS + SOLVER) -> Solver:
    with open("mlp.yaml", "w") as file:
        file.write(text)
    return Solver("mlp.yaml", device="cpu", report=Mute())


def picture_solver() -> Solver:
    """A solver of pictures 28 x 28 in a file."""
    np.savez("few.npz", images=np.zeros((20, 28, 28), np.uint8), labels=np.arange(20) % 10)
    data = "{name: data, type: Data, top: [x, y], source: few.npz, batch_size: 8, transform: {scale: 0.5}}"
    text = LAYERS[LAYERS.index("  - {name: ip") :].replace("num_output: 2", "num_output: 10")
    return solver(f"layers:\n  - {data}\n{text}{SOLVER.replace('40', '6')}")


def test_a_table_is_learnt_and_its_file_predicts_without_it():
    adapted = adapt("logistic_regression", (TABLE, CLASSES), epochs=5)
    assert adapted.lines[1].startswith("inputs: 20 numbers; less a mean of ")
    assert "mirror" not in adapted.text
    assert iterations(adapted.spec(), adapted.spec().solver, 8) == 8 * 9  # each of 264 in 32s
    learning = adapted.solver("solver.base_lr=0.1", device="cpu", snapshot=0, report=Mute())
    name = adapted.source
    del adapted
    gc.collect()
    assert learning.fit()["accuracy"] > 0.85
    assert learning.net.params["fc1"][0].shape == (2, 20)
    learning.net.save("table.npz")
    classifier = Classifier("table.npz", device="cpu")
    answers = classifier.predict(TABLE[:3])
    assert answers.shape == (3, 2)
    np.testing.assert_allclose(classifier.predict(TABLE[0]), answers[0], atol=1e-6)
    code = (
        "import numpy, minicaffe\n"
        "print(minicaffe.Classifier('table.npz', device='cpu').predict(numpy.zeros((2, 20))).shape)\n"
        "minicaffe.Solver('table.npz', device='cpu').step(1)\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "MINICAFFE_NUMBA": "0"},
    )
    assert other.stdout == "(2, 2)\n"
    assert f"{name}: were arrays of a program; solver.fit(x, y) takes them again" in other.stderr
    again = Solver("table.npz", device="cpu", max_iter=1, report=Mute())
    assert again.fit(TABLE, CLASSES, validation=(TABLE[:9], CLASSES[:9]))["accuracy"] <= 1


def test_arrays_of_the_tests_are_read_by_them_alone():
    gap = adapt("digits", (np.zeros((6, 28, 28), np.uint8), [0, 2, 0, 2, 0, 2])).lines[0]
    assert "3 classes; THERE IS NO PICTURE OF 1 to train with" in gap
    trained = np.zeros((9, 28, 28), np.uint8), np.arange(9)
    tested = np.ones((4, 28, 28), np.uint8), np.arange(4)
    learning = adapt("digits", trained, validation=tested).solver(device="cpu", report=Mute())
    pixels = [net.layers["data"].reader.arrays()[0] for net in (learning.net, *learning.test_nets)]
    assert score_suffixes(learning.test_nets, learning.net) == ("",)
    assert [(len(one), one.max()) for one in pixels] == [(9, 0), (4, 1)]


@pytest.mark.parametrize("before", [0, 3], ids=["first", "after steps on other rows"])
def test_inputs_read_rows_as_a_loop_of_ones_own_would(before):
    """Shuffled anew in each epoch, in TRAIN; every row of the tests once."""
    fed, mine = solver(), solver(LAYERS + SOLVER.replace("40", "60"))
    fed.step(before), mine.step(before)
    scores = fed.fit(TABLE, CLASSES, validation=(TABLE[:50], CLASSES[:50]))
    assert score_suffixes(fed.test_nets, fed.net) == ("",)
    rows = mine.net.layers["x"]
    order = fed.net.layers["x"].order
    for number in range(before, 40):
        index, epochs = np.zeros((2, 32), np.int64)
        order.take(1, number, index, epochs)
        mine.net.blobs["x"].data[...] = TABLE[index]
        mine.net.blobs["y"].data[...] = CLASSES[index]
        mine.step(1)
    assert type(rows).__name__ == "Input"
    np.testing.assert_array_equal(fed.net.params["ip"][0].data, mine.net.params["ip"][0].data)
    answers = TABLE[:50] @ mine.net.params["ip"][0].data.T + mine.net.params["ip"][1].data
    assert scores["accuracy"] == pytest.approx((answers.argmax(1) == CLASSES[:50]).mean())
    classifier = Classifier(fed.net.spec, fed.net.weights(), device="cpu")
    assert classifier.predict(TABLE[:7]).shape == (7, 2)


def test_a_data_layer_reads_arrays_from_the_next_pass_on():
    """A fifth of each class is held out, and no pass that was recorded on the digits is replayed."""
    learning = picture_solver()
    learning.step(4)
    pictures, labels = np.full((50, 28, 28), 7, np.uint8), np.repeat(np.arange(10), 5)
    pictures[:, 0, 0] = np.arange(50)
    learning.report = Heard()
    learning.fit(pictures, labels)
    told = "data: arrays-[0-9a-f]{12}: 40 to train with, 10 to test with"
    assert any(re.fullmatch(told, line) for line in learning.report.lines)
    assert score_suffixes(learning.test_nets, learning.net) == ("",)
    data, tested = (net.layers["data"] for net in (learning.net, *learning.test_nets))
    assert (len(data.reader), len(tested.reader)) == (40, 10)
    read = np.unique(learning.net.blobs["x"].data[..., 1:, :]).tolist()
    assert read == pytest.approx([7 * data.transform.scale])


def test_whole_numbers_pictures_of_another_size_and_a_second_fit():
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 40, 40))
    learning = adapt("small", (images, np.arange(12) % 3), epochs=1).solver(
        device="cpu", snapshot=0
    )
    assert learning.net.layers["data"].reader.arrays()[0].dtype == np.uint8
    learning.fit()
    learning.net.save("small.npz")
    trained = Classifier("small.npz", device="cpu")
    answers = trained.predict(images[:2].astype(np.uint8))
    alone = [trained.predict(image.astype(np.uint8).transpose(1, 2, 0)) for image in images[:2]]
    np.testing.assert_allclose(answers, alone, atol=0.02)  # scaled by another filter
    both = predict(trained, images[:2].astype(np.float32), top=1)
    assert [one["classes"][0]["class"] for one in both] == answers.argmax(axis=1).tolist()
    with pytest.raises(
        SpecError, match="^max_iter 2 is reached: nothing is left to train; make another Solver$"
    ):
        learning.fit(images, np.arange(12) % 3)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: adapt("digits", (TABLE, CLASSES)), "holds vectors; expected pictures, for layer 'conv1'"),
        (lambda: adapt("digits", (TABLE,)), "^data: expected a path, or a pair of arrays .x, y., got a tuple$"),
        (lambda: adapt("digits", "x.npz", validation=(TABLE, CLASSES)), "^validation: is for arrays; x.npz is a path"),
        (lambda: adapt("logistic_regression", (np.where(TABLE > 2.5, np.nan, TABLE), CLASSES)), r"^x: entry \d+ holds a number that is not finite$"),
        (lambda: solver().fit(TABLE, CLASSES, validation=0.2), "^validation: expected a pair of arrays .x, y., got a float$"),
        (lambda: adapt("digits", (TABLE, CLASSES[:3])), "^y: expected 330 labels, one a picture, found .3,.$"),
        (lambda: solver().fit(TABLE[:, :3], CLASSES), r"^x: expected an array of \(n, 20\), got \(\d+, 3, 1, 1\)$"),
        (lambda: solver(LAYERS + "solver: {base_lr: 1, max_iter: 3}").fit(TABLE, CLASSES, validation=(TABLE, CLASSES)), "^validation: the solver tests nothing"),
        (lambda: picture_solver().fit(TABLE, CLASSES), r"^expected pictures of \(1, 28, 28\), got \(20, 1, 1\)$"),
        (lambda: solver("layers: [{name: x, type: Input, shape: {dim: [2, 3]}}, {name: loss, type: EuclideanLoss, bottom: [x, x]}]\n" + SOLVER.replace("test_interval: 20, ", "")).fit(TABLE, CLASSES), "expected a Data layer, or an Input of x and one of y"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(use, told):
    with pytest.raises(DataError, match=told):
        use()
