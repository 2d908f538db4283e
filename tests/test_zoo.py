"""models/: shapes as Caffe's, sizes as the literature has them, worked out again here, and that they learn."""

import dataclasses
import json
import math
from functools import cache
from pathlib import Path

import caffe_nets
import numpy as np
import pytest

import minicaffe.interop.caffe
from minicaffe import Net, Solver
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import read
from minicaffe.interop.caffe.prototxt import prototxt
from minicaffe.tools.data import datasets

ROOT = Path(__file__).parent.parent
FIXTURES = Path(__file__).parent / "fixtures"
MODELS = {path.stem: path for path in sorted((ROOT / "models").glob("*.yaml"))}
IMAGENET = ["alexnet", "caffenet", "googlenet", "mobilenet", "resnet50", "squeezenet", "vgg16"]
CIFAR = ["cifar10_full", "cifar10_quick"]
QUIET, TESTLESS = {"display": 0, "snapshot": 0}, {"test_iter": 0, "test_interval": 0}


@cache
def shapes(name, phase="TEST"):
    return Net(read(MODELS[name]), phase, device="cpu", shapes_only=True)


class Tally:
    """Parameters and multiply-adds of convolutions and products, from the tables of the papers."""

    def __init__(self):
        self.params = self.statistics = self.multiply_adds = 0

    def conv(self, inputs, outputs, kernel, size, group=1, bias=True, norm=False):
        """A layer whose tops are size x size; norm: a learnt scale and shift, and BatchNorm's numbers."""
        weights = inputs // group * outputs * kernel * kernel
        self.params += weights + outputs * bias + 2 * outputs * norm
        self.statistics += (2 * outputs + 1) * norm
        self.multiply_adds += weights * size * size
        return outputs

    def fc(self, inputs, outputs):
        return self.conv(inputs, outputs, 1, 1)


def alexnet(tally):
    """Krizhevsky and others 2012, figure 2: two halves in conv2, conv4 and conv5."""
    c = tally.conv(3, 96, 11, 55)
    c = tally.conv(c, 256, 5, 27, group=2)
    c = tally.conv(c, 384, 3, 13)
    c = tally.conv(c, 384, 3, 13, group=2)
    c = tally.conv(c, 256, 3, 13, group=2)
    tally.fc(tally.fc(tally.fc(c * 6 * 6, 4096), 4096), 1000)


# Table 1 of Simonyan and Zisserman
VGG_D = ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)


def vgg16(tally):
    c = 3
    for stage, widths in enumerate(VGG_D):
        for width in widths:
            c = tally.conv(c, width, 3, 224 >> stage)
    tally.fc(tally.fc(tally.fc(c * 7 * 7, 4096), 4096), 1000)


INCEPTION = """
28  64  96 128 16  32  32
28 128 128 192 32  96  64
14 192  96 208 16  48  64
14 160 112 224 24  64  64
14 128 128 256 24  64  64
14 112 144 288 32  64  64
14 256 160 320 32 128 128
 7 256 160 320 32 128 128
 7 384 192 384 48 128 128
"""  # table 1 of Szegedy and others 2015: size, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj


def googlenet(tally, auxiliary=False):
    c = tally.conv(3, 64, 7, 112)
    c = tally.conv(tally.conv(c, 64, 1, 56), 192, 3, 56)
    for row, line in enumerate(INCEPTION.split("\n")[1:-1]):
        size, one, reduce3, three, reduce5, five, pool = map(int, line.split())
        tally.conv(c, one, 1, size)
        tally.conv(tally.conv(c, reduce3, 1, size), three, 3, size)
        tally.conv(tally.conv(c, reduce5, 1, size), five, 5, size)
        tally.conv(c, pool, 1, size)
        c = one + three + five + pool
        if auxiliary and row in (2, 5):  # after 4a and 4d
            tally.fc(tally.fc(tally.conv(c, 128, 1, 4) * 4 * 4, 1024), 1000)
    tally.fc(c, 1000)


def resnet50(tally):
    """He and others 2016, table 1; the first convolution has a bias in the file they published."""
    c = tally.conv(3, 64, 7, 112, norm=True)
    for width, count, size in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for number in range(count):
            if number == 0:
                tally.conv(c, 4 * width, 1, size, bias=False, norm=True)
            c = tally.conv(c, width, 1, size, bias=False, norm=True)
            c = tally.conv(c, width, 3, size, bias=False, norm=True)
            c = tally.conv(c, 4 * width, 1, size, bias=False, norm=True)
    tally.fc(c, 1000)


def squeezenet(tally):
    """Version 1.1 on 227 x 227: sizes 113, 56, 28, 14."""
    c = tally.conv(3, 64, 3, 113)
    fires = ((16, 64, 56), (16, 64, 56), (32, 128, 28), (32, 128, 28))
    for squeeze, expand, size in (*fires, *((s, 4 * s, 14) for s in (48, 48, 64, 64))):
        c = tally.conv(c, squeeze, 1, size)
        c = tally.conv(c, expand, 1, size) + tally.conv(c, expand, 3, size)
    tally.conv(c, 1000, 1, 14)


def mobilenet(tally):
    """Howard and others 2017, table 1."""
    c, size = tally.conv(3, 32, 3, 112, bias=False, norm=True), 112
    for number, width in enumerate((64, 128, 128, 256, 256, 512, *[512] * 5, 1024, 1024)):
        size //= 2 if number in (1, 3, 5, 11) else 1
        tally.conv(c, c, 3, size, group=c, bias=False, norm=True)
        c = tally.conv(c, width, 1, size, bias=False, norm=True)
    tally.fc(c, 1000)


def cifar10_quick(tally):
    c = tally.conv(tally.conv(tally.conv(3, 32, 5, 32), 32, 5, 16), 64, 5, 8)
    tally.fc(tally.fc(c * 4 * 4, 64), 10)


def cifar10_full(tally):
    tally.fc(tally.conv(tally.conv(tally.conv(3, 32, 5, 32), 32, 5, 16), 64, 5, 8) * 4 * 4, 10)


def mnist_siamese(tally):
    """LeNet and a layer of two: each half does it, for 64 images; the weights are one set."""
    c = tally.conv(tally.conv(1, 20, 5, 24), 50, 5, 8)
    tally.fc(tally.fc(tally.fc(c * 4 * 4, 500), 10), 2)
    tally.multiply_adds *= 2 * 64


def mnist_autoencoder(tally):
    width = 784
    for outputs in (1000, 500, 250, 30, 250, 500, 1000, 784):
        width = tally.fc(width, outputs)
    tally.multiply_adds *= 100


def logistic_regression(tally):
    tally.fc(784, 10)
    tally.multiply_adds *= 10


def lstm(tally):
    """The embedding, two layers of four gates of input and state, the prediction; 50 x 50 characters."""
    for inputs, outputs in ((256, 512), (256, 512), (128, 128)):
        tally.fc(inputs, outputs)
    tally.multiply_adds *= 50 * 50
    tally.params += 128 * 128


def fcn8s(tally):
    """VGG-16 padded by 100 on 500 x 500, scores of three layers, and what upsamples 21 classes at once."""
    c = 3
    for width in VGG_D[0]:
        c = tally.conv(c, width, 3, 698)
    for size, widths in zip((349, 175, 88, 44), VGG_D[1:], strict=True):
        for width in widths:
            c = tally.conv(c, width, 3, size)
    tally.conv(tally.conv(tally.conv(c, 4096, 7, 16), 4096, 1, 16), 21, 1, 16)
    tally.conv(512, 21, 1, 44)
    tally.conv(256, 21, 1, 88)
    for kernel, size in ((4, 16), (4, 34), (16, 70)):  # of a Deconvolution, the size it starts from
        tally.conv(21, 21, kernel, size, bias=False)


# published: parameters (weights, biases, scales and shifts), millions of multiply-adds of a picture
PUBLISHED = {
    alexnet: (60_965_224, 724),
    vgg16: (138_357_544, 15_470),
    googlenet: (6_998_552, 1_583),
    resnet50: (25_557_032 + 64, 3_858),
    squeezenet: (1_235_496, 388),
    mobilenet: (4_231_976, 569),
    cifar10_quick: (145_578, 12.35),
    cifar10_full: (89_578, 12.30),
}


def measured(net):
    """Parameters that are learnt, those that BatchNorm keeps, and multiply-adds of a net."""
    kept = sum(p.size for s in net.steps if s.spec.type == "BatchNorm" for p in s.layer.params)
    whole = sum(param.size for param in net.learnable)
    return whole - kept, kept, sum(step.layer.multiply_adds for step in net.steps)


@pytest.mark.parametrize("net", PUBLISHED, ids=lambda net: net.__name__)
def test_sizes_are_those_of_the_literature(net):
    tally, (params, millions) = Tally(), PUBLISHED[net]
    net(tally)
    assert tally.params == params
    assert tally.multiply_adds / 1e6 == pytest.approx(millions, rel=1e-3)
    assert measured(shapes(net.__name__)) == (params, tally.statistics, tally.multiply_adds)


@pytest.mark.parametrize(
    ("net", "phase", "params"),
    [
        (mnist_siamese, "TRAIN", 431_102),
        (mnist_autoencoder, "TRAIN", 2_837_314),
        (logistic_regression, "TRAIN", 7_850),
        (lstm, "TRAIN", 296_064),
        (fcn8s, "TEST", 134_489_759),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_sizes_are_those_worked_out_here(net, phase, params):
    tally = Tally()
    net(tally)
    assert tally.params == params
    assert measured(shapes(net.__name__, phase)) == (params, 0, tally.multiply_adds)


def test_caffenet_is_as_large_as_alexnet_and_googlenet_has_more_in_training():
    assert measured(shapes("caffenet")) == measured(shapes("alexnet"))
    tally = Tally()
    googlenet(tally, auxiliary=True)
    assert tally.params == 13_378_280  # as of bvlc_googlenet.caffemodel
    assert measured(shapes("googlenet", "TRAIN")) == (13_378_280, 0, tally.multiply_adds)


TOPS = {  # key blobs, as the papers and the published nets have them
    "caffenet": {"pool1": (96, 27, 27), "pool2": (256, 13, 13), "pool5": (256, 6, 6), "fc8": (1000,)},
    "vgg16": {"conv1_2": (64, 224, 224), "pool3": (256, 28, 28), "pool5": (512, 7, 7), "fc7": (4096,)},
    "googlenet": {
        "pool2/3x3_s2": (192, 28, 28), "inception_3b/output": (480, 28, 28),
        "inception_4e/output": (832, 14, 14), "inception_5b/output": (1024, 7, 7),
        "pool5/7x7_s1": (1024, 1, 1), "loss3/classifier": (1000,),
    },
    "resnet50": {
        "conv1": (64, 112, 112), "pool1": (64, 56, 56), "res2c": (256, 56, 56), "res3d": (512, 28, 28),
        "res4f": (1024, 14, 14), "res5c": (2048, 7, 7), "pool5": (2048, 1, 1), "fc1000": (1000,),
    },
    "squeezenet": {"conv1": (64, 113, 113), "fire3/concat": (128, 56, 56), "fire9/concat": (512, 14, 14)},
    "mobilenet": {"conv2_1/dw": (32, 112, 112), "conv5_5/sep": (512, 14, 14), "conv6/sep": (1024, 7, 7)},
    "fcn8s": {
        "conv1_1": (64, 698, 698), "pool3": (256, 88, 88), "pool5": (512, 22, 22), "fc7": (4096, 16, 16),
        "upscore2": (21, 34, 34), "upscore_pool4": (21, 70, 70), "upscore8": (21, 568, 568),
        "score": (21, 500, 500),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TOPS)
def test_key_blobs_are_of_the_published_shapes(name):
    found = {value.name: value.shape for step in shapes(name).steps for value in step.tops}
    assert {key: found[key][1:] for key in TOPS[name]} == TOPS[name]
    assert {found[key][0] for key in TOPS[name]} == {1}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("alexnet", "bvlc_alexnet_deploy"),
        ("cifar10_quick", "cifar10_cifar10_quick"),
        ("lenet", "mnist_lenet"),
    ],
)
def test_layers_blobs_and_parameters_are_caffes(name, case):
    """Of LeNet without its head, which is Caffe's deploy net's in the case."""
    wanted = json.loads((FIXTURES / f"Shapes_{case}.json").read_text())
    head = {"mnist", "data", "label", "accuracy", "loss", "prob"} if name == "lenet" else ()
    net = Net(read(MODELS[name]), "TEST", device="cpu", shapes_only=True)
    net.reshape(data=tuple(dict(wanted["blobs"])["data"]))
    found = [[value.name, list(value.shape)] for step in net.steps for value in step.tops]
    layers = [
        [step.spec.name, step.spec.type, [list(param.shape) for param in step.layer.params]]
        for step in net.steps
    ]
    for mine, theirs in ((dict(found).items(), wanted["blobs"]), (layers, wanted["layers"])):
        assert [list(x) for x in mine if x[0] not in head] == [
            x for x in theirs if x[0] not in head
        ]


def layers_of(spec, state, left_out=()):
    """What the layers of a state do, by name, without the rules that put them there."""
    nets = {str(found): layers for found, layers in caffe_nets.resolved(spec)[1]}
    found = {}
    for name, kind, bottoms, tops, own, common in nets[state]:
        if kind != "Data" and name not in left_out:
            rules = ("include", "exclude")
            common = {key: value for key, value in common.items() if key not in rules}
            own = own | {key: one or (1,) for key, one in own.items() if key == "stride"}
            found[name] = kind, bottoms, tops, own, common
    return found


@pytest.mark.parametrize("name", [*CIFAR, "mnist_siamese", "mnist_autoencoder"])
def test_nets_and_solvers_are_those_of_caffes_files(name):
    ours = read(MODELS[name])
    stock = minicaffe.interop.caffe.read(caffe_nets.NETS / f"{name}_solver.prototxt")
    for phase in ("TRAIN", "TEST"):
        mine, theirs = (", stage lmdb" if name in CIFAR else ""), ""
        if name == "mnist_autoencoder" and phase == "TEST":
            theirs = ", stage test-on-test"
        of_ours = ("difference", "distance", "differs", "sim", "l2_error")
        assert layers_of(ours, f"phase {phase}{mine}", of_ours) == layers_of(
            stock, f"phase {phase}{theirs}", ("slice_pair", "loss_2")
        )
    skipped = ("snapshot_format", "snapshot_prefix", "test_state", "test_iter", "mark", "nodes")
    for key in {field.name for field in dataclasses.fields(ours.solver)}.difference(skipped):
        assert getattr(ours.solver, key) == getattr(stock.solver, key), key


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_head_and_few_lines(name):
    lines = MODELS[name].read_text().splitlines()
    assert lines[0].startswith("# ") and len(lines) <= 100
    assert max(map(len, lines)) <= 111


@pytest.mark.parametrize(
    ("name", "stage"),
    [*((name, "lmdb") for name in (*IMAGENET, *CIFAR)), *((name, "cifar10") for name in CIFAR)],
)
def test_databases_take_the_place_of_the_inputs(name, stage):
    """The data layers themselves need the databases."""
    spec = read(MODELS[name])
    for phase in ("TRAIN", "TEST"):
        state = dataclasses.replace(spec.state, phase=phase, stage=(stage,))
        kinds = [layer.type for layer in spec.layers if layer.included(state)]
        assert kinds[0] == "Data" and kinds.count("Data") == 1
        assert not {"Input", "Softmax"} & set(kinds) and "SoftmaxWithLoss" in kinds
        assert ("Accuracy" in kinds) == (phase == "TEST")


@pytest.mark.parametrize("name", ["googlenet", "resnet50", "fcn8s", "lstm"])
def test_models_go_to_prototxt_and_back(name):
    spec = read(MODELS[name])
    text = prototxt(spec, REGISTRY)
    assert text.count("minicaffe_param") == 1  # of the snapshots, which are .npz files
    assert caffe_nets.resolved(minicaffe.interop.caffe.parse(text)) == caffe_nets.resolved(spec)


@pytest.mark.parametrize(
    ("name", "layers", "steps"),
    [
        ("mnist_siamese", ("mnist", "mnist_p"), 18),
        ("mnist_autoencoder", ("data",), 6),
        ("logistic_regression", ("data",), 60),
    ],
)
def test_nets_of_mnist_learn(name, layers, steps, monkeypatch):
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 200, "test": 200})
    given = [f"layers.{layer}.source=digits" for layer in layers]
    given += [f"layers.{layer}.batch_size=16" for layer in layers]
    if name == "mnist_autoencoder":
        given += [f"layers.{way}{i}.num_output=40" for way in ("encode", "decode") for i in (2, 3)]
    solver = Solver(
        read(MODELS[name], *given), device="cpu", deterministic=True, **QUIET, **TESTLESS
    )
    losses = []
    for _ in range(steps):
        solver.step(1)
        losses.append(solver.loss())
    third = steps // 3
    assert np.mean(losses[-third:]) < 0.8 * np.mean(losses[:third]), losses


def filled_solver(name, shapes, fill, model=(), **settings):
    """A solver whose Inputs have other shapes and are filled once."""
    spec = read(MODELS[name], *model)
    given = QUIET | (TESTLESS if spec.solver.test_iter else {}) | settings
    solver = Solver(spec, device="cpu", deterministic=True, **given)
    solver.net.reshape(**shapes)
    fill(**{blob: solver.net.blobs[blob].data for blob in shapes})
    return solver


def test_cifar_quick_learns():
    """From larger weights than published: with those the loss does not move for some hundred iterations."""

    def fill(data, label):
        rng = np.random.default_rng(0)
        label[...] = np.arange(4)
        data[...] = 2 * rng.normal(size=(4, 3, 1, 1)) + rng.normal(size=data.shape)

    larger = [f"layers.{name}.weight_filler=msra" for name in ("conv1", "conv2", "conv3")]
    solver = filled_solver("cifar10_quick", {"data": (4, 3, 32, 32), "label": (4,)}, fill, larger)
    solver.step(1)
    first = solver.loss()
    solver.step(15)
    assert solver.loss() < 0.5 * first


def test_the_lstm_learns_a_sentence():
    text = np.frombuffer(b"a rose is a rose is a rose. ", np.uint8)
    steps = 12

    def fill(data, target, cont):
        starts = 4 * np.arange(4)
        data[...] = text[starts + np.arange(steps)[:, None]]
        target[...] = text[starts + np.arange(1, steps + 1)[:, None]]
        cont[...] = np.arange(steps)[:, None] > 0

    small = ["layers.lstm1.num_output=48", "layers.lstm2.num_output=48"]
    shapes = dict.fromkeys(("data", "target", "cont"), (steps, 4))
    solver = filled_solver("lstm", shapes, fill, small, base_lr=0.01)
    solver.step(1)
    assert solver.loss() == pytest.approx(math.log(128), abs=0.1)  # each character as likely as any
    solver.step(40)
    assert solver.loss() < 1.5


@pytest.mark.parametrize("name", ["squeezenet", "mobilenet"])
def test_opencv_reads_our_prototxt_and_weights_and_computes_the_same(name, tmp_path):
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        pytest.skip("OpenCV 5 reads no Caffe models")
    spec = read(MODELS[name])
    net = Net(spec, "TEST", device="cpu", deterministic=True)
    always = {"include": (), "exclude": ()}
    layers = tuple(
        dataclasses.replace(step.spec, bottom=tuple(value.name for value in step.bottoms), **always)
        for step in net.steps
    )
    deploy = dataclasses.replace(spec, layers=layers, solver=None)
    (tmp_path / "net.prototxt").write_text(prototxt(deploy, REGISTRY))
    rng = np.random.default_rng(3)
    for step in net.steps:
        if step.spec.type == "BatchNorm":
            for param, low in zip(step.layer.params, (-0.1, 0.5, 1), strict=True):
                param.data[...] = rng.uniform(low, 1, param.shape)
    net.save(tmp_path / "net.caffemodel")
    image = rng.normal(size=net.blobs["data"].shape).astype(np.float32)
    files = (str(tmp_path / f"net.{end}") for end in ("prototxt", "caffemodel"))
    theirs = cv2.dnn.readNetFromCaffe(*files)
    theirs.setInput(image, "data")
    wanted = theirs.forward("prob").reshape(-1)
    assert wanted.std() > 0
    np.testing.assert_allclose(net.forward(data=image)["prob"].reshape(-1), wanted, rtol=1e-4)
