"""caffe.Classifier: the same classes as a few lines of NumPy give."""

import numpy as np
import pytest
from kit import layer_text, refusal

import minicaffe.interop.pycaffe as caffe
from minicaffe import Net
from minicaffe.interop.caffe import parse

DEPLOY = """
input: "data" input_shape { dim: 4 dim: 3 dim: 5 dim: 6 }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 7 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
MEAN = np.array([104.0, 117.0, 123.0])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """(prototxt, caffemodel, weight, bias)."""
    folder = tmp_path_factory.mktemp("net")
    (folder / "deploy.prototxt").write_text(DEPLOY)
    net, rng = Net(parse(DEPLOY), "TEST", device="cpu"), np.random.default_rng(0)
    weight, bias = (param.data for param in net.params["fc"])
    weight[...] = rng.normal(size=weight.shape) * 0.01
    bias[...] = rng.normal(size=bias.shape)
    net.save(folder / "net.caffemodel")
    return str(folder / "deploy.prototxt"), str(folder / "net.caffemodel"), weight, bias


def prob(files, piece):
    """The classes of one piece (5, 6, 3), red first and from 0 to 1."""
    x = (piece[:, :, ::-1] * 255 - MEAN).transpose(2, 0, 1)
    power = np.exp(files[2] @ x.ravel() + files[3])
    return power / power.sum()


def classifier(files, **more):
    return caffe.Classifier(*files[:2], mean=MEAN, raw_scale=255, channel_swap=(2, 1, 0), **more)


def pictures(count, *size):
    return [np.random.default_rng(i).random((*size, 3)) for i in range(count)]


def test_the_middle_of_each_picture(files):
    given = pictures(6, 9, 11)  # more than a batch
    found = classifier(files, image_dims=(9, 11)).predict(given, oversample=False)
    assert found.shape == (6, 7)
    np.testing.assert_allclose(
        found, [prob(files, one[2:7, 2:8]) for one in given], rtol=1e-4, atol=1e-6
    )


def test_ten_pieces_of_each_picture(files):
    given = pictures(3, 9, 11)
    for one, row in zip(given, classifier(files, image_dims=[9, 11]).predict(given), strict=True):
        five = [one[y : y + 5, x : x + 6] for y, x in [(0, 0), (0, 5), (4, 0), (4, 5), (2, 2)]]
        ten = [prob(files, piece) for piece in [*five, *(piece[:, ::-1] for piece in five)]]
        np.testing.assert_allclose(row, np.mean(ten, 0), rtol=1e-4, atol=1e-6)


def test_pictures_of_any_size_are_resized_to_the_input(files):
    given = [*pictures(1, 8, 7), *pictures(1, 3, 20)]
    found = classifier(files).predict(given, oversample=False)
    wanted = [prob(files, caffe.io.resize_image(one, (5, 6))) for one in given]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert classifier(files).image_dims == (5, 6)


def test_it_is_a_net_and_its_mean_may_be_a_picture(files):
    mean = np.random.default_rng(5).random((3, 5, 6)) * 255
    net = caffe.Classifier(*files[:2], mean=mean, input_scale=0.5)
    assert isinstance(net, caffe.Net)
    assert (net.inputs, net.outputs) == (["data"], ["prob"])
    (one,) = pictures(1, 5, 6)
    power = np.exp(files[2] @ ((one.transpose(2, 0, 1) - mean) * 0.5).ravel() + files[3])
    np.testing.assert_allclose(
        net.predict([one], False)[0], power / power.sum(), rtol=1e-4, atol=1e-6
    )


def test_mistakes_are_named(files, tmp_path):
    flat, train = tmp_path / "flat.prototxt", tmp_path / "train.prototxt"
    flat.write_text('input: "x" input_shape { dim: 1 dim: 3 } ' + layer_text("Softmax"))
    train.write_text(layer_text("DummyData", "dummy_data_param { shape { dim: 1 } }", bottom=""))
    narrow = classifier(files, image_dims=(4, 9))
    for told, use, *given in (
        ("expected pictures to classify, got none", classifier(files).predict, []),
        ("no piece of 5 x 6 lies in a picture of 4 x 9", narrow.predict, pictures(1, 9, 9)),
        ("expected a mean of 3 channels, got 2", caffe.Classifier, *files[:2], None, np.zeros(2)),
        ("x: expected an input for pictures, ", caffe.Classifier, flat, None),
        (" got (1, 3)", caffe.Classifier, flat, None),
        ("the net has no input for pictures: give the deploy net", caffe.Classifier, train, None),
        ("the net has no input for pictures: give the deploy net", caffe.Detector, train, None),
    ):
        assert told in refusal(use, *given)
