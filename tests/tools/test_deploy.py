"""A trained model for arrays of one's own."""

import numpy as np
import pytest
from reading_files import read_picture

import minicaffe
from minicaffe import Classifier, Net, ShapeError, SpecError, parse
from minicaffe.errors import DataError
from minicaffe.tools.data import datasets

pytestmark = pytest.mark.usefixtures("fifty_digits")
TEXT = """
layers:
  - {name: digits, type: Data, top: [data, label], source: digits, batch_size: 8, transform: {scale: 0.01, mean_value: 7, crop_size: 20}}
  - {name: conv, type: Convolution, bottom: data, num_output: 3, kernel_size: 5, stride: 3}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""


def test_it_says_what_the_net_says_of_its_own_data(device):
    net = Net(parse(TEXT), "TEST", device=device)
    images = net.layers["digits"].dataset.images
    classifier = Classifier(parse(TEXT), net.weights(), device=device)
    prob = classifier.predict(images)
    assert prob.shape == (20, 10) and prob.dtype == np.float64
    np.testing.assert_allclose(prob.sum(axis=1), 1, rtol=1e-5)
    net.forward()
    scores = device.to_host(net.blobs["ip"].data).astype(float)
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(prob[:8], wanted, rtol=1e-4)
    for count in (0, 1, 7, 9):
        np.testing.assert_allclose(classifier.predict(images[:count]), prob[:count], rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 28, 27), (2, 3, 28, 28), (1, 2, 1, 28, 28), (28,), ()])
def test_pictures_of_another_size_are_refused(shape):
    classifier = Classifier(parse(TEXT), device="cpu")
    told = r"one or several pictures of \(1, 28, 28\), or bytes .*, got float64 of"
    with pytest.raises(ShapeError, match=told):
        classifier.predict(np.zeros(shape))


def test_pictures_of_ones_own_are_paths_images_and_arrays_of_any_size(tmp_path):
    image = pytest.importorskip("PIL.Image")
    classifier = Classifier(parse(TEXT), device="cpu")
    digit = datasets.load("digits", "test").images[3, 0]
    grey = np.zeros((90, 120), np.uint8)
    grey[10:66, 20:76] = np.kron(digit, np.ones((2, 2), np.uint8))
    colours = np.repeat(grey[:, :, None], 3, axis=2)
    path = tmp_path / "digit.png"
    image.fromarray(colours).save(path)
    pixels, _ = read_picture(str(path), (1, 28, 28), digit=True)
    wanted = classifier.predict(pixels)  # as `minicaffe predict` prepares it
    through = np.dstack([colours, np.full(grey.shape, 255, np.uint8)])
    own = [path, str(path), image.open(path), grey, grey[:, :, None], colours, through]
    for one in own:
        assert np.array_equal(classifier.predict(one), wanted)
    together = classifier.predict([*own, digit])  # of several sizes, the last of the data set's
    assert together.shape == (8, 10)
    np.testing.assert_allclose(together[:7], np.tile(wanted, (7, 1)), rtol=1e-5)
    np.testing.assert_allclose(together[7], classifier.predict(digit), rtol=1e-5)
    assert classifier.predict(np.stack([colours, colours])).shape == (2, 10)
    with pytest.raises(DataError, match=r"gone.png: no such file"):
        classifier.predict(["gone.png"])
    with pytest.raises(ShapeError, match=r"of any size, got float64 of \(90, 120, 3\)"):
        classifier.predict(colours / 255)
    with pytest.raises(ShapeError, match=r"got float64 of \(90, 120\)"):
        classifier.predict([grey, grey / 255])


@pytest.mark.parametrize("kind", ["ImageData", "Data"])
def test_colours_come_as_the_net_has_them(kind, tmp_path, here):
    """Blue first from ImageData, red first from a folder; red first in what people have."""
    image = pytest.importorskip("PIL.Image")
    for folder in ("train/a", "test/a"):
        (tmp_path / "photos" / folder).mkdir(parents=True)
        pixels = np.random.default_rng(5).integers(0, 255, (8, 9, 3), np.uint8)
        image.fromarray(pixels).save(tmp_path / "photos" / folder / "one.png")
    (tmp_path / "list.txt").write_text("photos/test/a/one.png 0\n")
    source = "list.txt" if kind == "ImageData" else "photos"
    spec = parse(
        f"layers: [{{name: d, type: {kind}, top: [data, label], source: {source}, batch_size: 1}},"
        " {name: ip, type: InnerProduct, bottom: data, num_output: 4, weight_filler: {type: gaussian, std: 0.01}},"
        " {name: prob, type: Softmax, bottom: ip}, {name: quiet, type: Silence, bottom: label}]"
    )
    net = Net(spec, "TEST", device="cpu")
    wanted = net.forward()["prob"]
    classifier = Classifier(spec, net.weights(), device="cpu")
    for one in ("photos/test/a/one.png", pixels):
        np.testing.assert_allclose(classifier.predict(one), wanted[0], rtol=1e-5)


def test_what_is_no_number_is_refused():
    classifier = Classifier(parse(TEXT), device="cpu")
    for picture, got in [
        (np.full((28, 28), "x"), "got <U1"),
        (np.zeros((28, 28), complex), "got complex128"),
        (np.zeros((28, 28), object), "got object"),
        ([[1.0, 2.0], [3.0]], "got setting an array element with a sequence"),
    ]:
        told = rf"expected real numbers of shape \(1, 28, 28\), {got}"
        with pytest.raises(DataError, match=told):
            classifier.predict(picture)


def test_a_net_that_has_no_data_or_no_softmax_is_refused():
    with pytest.raises(SpecError, match="has no softmax, so it gives no probabilities"):
        Classifier(parse("\n".join(TEXT.splitlines()[:-1])), device="cpu")


def test_the_module_is_public_too():
    assert minicaffe.tools.deploy.Classifier is Classifier


def test_no_convolution_is_measured_and_one_number_of_pictures_is_shaped_once(monkeypatch):
    from minicaffe.core.ops.conv import autotune_cache

    text = TEXT.replace("output: 3, kernel_size: 5, stride: 3", "output: 30, kernel_size: 3")
    monkeypatch.setattr(autotune_cache, "findings", lambda case: pytest.fail("measured"))
    classifier, shapes = Classifier(parse(text), device="cpu"), []
    reshape = classifier.net.reshape
    monkeypatch.setattr(
        classifier.net, "reshape", lambda **new: shapes.append(new) or reshape(**new)
    )
    for count in (5, 5, 8, 20):
        classifier.predict(np.zeros((count, 28, 28)))
    assert shapes == [{"data": (5, 1, 20, 20)}, {"data": (8, 1, 20, 20)}]


def test_the_last_of_several_softmaxes_is_the_answer_and_the_data_may_stand_anywhere():
    """Such as GoogLeNet's, whose first two are there to train it."""
    model = parse("""
layers:
  - {name: wide, type: DummyData, shape: {dim: [1, 4]}}
  - {name: mnist, type: Data, top: [data, label], source: digits, batch_size: 4}
  - {name: aux, type: InnerProduct, num_output: 3, bottom: data}
  - {name: loss1, type: SoftmaxWithLoss, bottom: [aux, label], loss_weight: 0.3}
  - {name: ip, type: InnerProduct, num_output: 10, bottom: data}
  - {name: loss2, type: SoftmaxWithLoss, bottom: [ip, label]}
  - {name: hush, type: Silence, bottom: wide, top: []}
""")
    assert Classifier(model, device="cpu").predict(np.zeros((2, 28, 28), np.uint8)).shape == (2, 10)
