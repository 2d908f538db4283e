"""Random nets: whatever the wiring, the gradient is the numeric one, and CUDA says what the CPU says."""

import random

import numpy as np
import pytest
import yaml

from minicaffe import Net, parse
from minicaffe.errors import MinicaffeError

SHAPE = (2, 4, 5, 5)
KINDS = """
ReLU ReLU Dropout Eltwise Eltwise InnerProduct Softmax Concat Flatten SoftmaxWithLoss
Convolution Convolution Deconvolution Im2col Pooling Pooling
""".split()  # noqa: SIM905


def random_model(seed: int) -> dict:
    """A net of built-in layers: in place, fan-out, repeated bottoms, sharing, several losses."""
    chance = random.Random(seed)
    layers = [
        {"name": "x", "type": "Input", "shape": {"dim": list(SHAPE)}},
        {"name": "label", "type": "Input", "shape": {"dim": [2]}},
    ]
    shapes = {"x": SHAPE}
    for number in range(chance.randint(4, 11)):
        layer = _layer(chance, chance.choice(list(shapes)), shapes, f"l{number}")
        if chance.random() < 0.25:
            layer["loss_weight"] = chance.choice([0.5, 2.0, -1.0])
        try:
            net = Net(
                parse(yaml.safe_dump({"layers": [*layers, layer]})), device="cpu", shapes_only=True
            )
        except MinicaffeError:
            continue  # a layer that does not fit here
        layers.append(layer)
        if layer["type"] != "SoftmaxWithLoss":
            (value,) = net.steps[-1].tops
            shapes[value.name] = value.shape
    layers[-1].setdefault("loss_weight", 1.0)
    return {"force_backward": True, "layers": layers}


def _layer(chance: random.Random, bottom: str, shapes: dict, name: str) -> dict:
    kind = chance.choice(KINDS)
    layer: dict = {"name": name, "type": kind, "bottom": bottom, "top": name}
    alike = [blob for blob in shapes if shapes[blob] == shapes[bottom]]
    if kind in ("ReLU", "Dropout", "Softmax", "Eltwise") and chance.random() < 0.5:
        layer["top"] = bottom
    if kind == "ReLU":
        layer["negative_slope"] = chance.choice([0.0, 0.2])
    elif kind == "Eltwise":
        layer["bottom"] = [bottom, *chance.choices(alike, k=chance.randint(1, 2))]
        layer["operation"] = chance.choice(["SUM", "PROD", "MAX"])
    elif kind == "Concat":
        layer["bottom"] = [bottom, *chance.choices(alike, k=chance.randint(0, 1))]
    elif kind == "InnerProduct":
        layer["num_output"] = 5
        layer["param"] = chance.choice(
            [{"name": f"w{shapes[bottom][1:]}"}, {"lr_mult": 0}, {"lr_mult": 2}]
        )
    elif kind == "Convolution":
        size = chance.choice([1, 3])
        layer |= {"num_output": 4, "kernel_size": size, "pad": 1, "stride": chance.choice([1, 2])}
        layer["param"] = chance.choice(
            [{"name": f"c{shapes[bottom][1]}{size}"}, {"lr_mult": 0}, {"lr_mult": 1}]
        )
    elif kind == "Deconvolution":
        layer |= {"num_output": 2, "group": 2, "kernel_size": 2, "stride": chance.choice([1, 2])}
    elif kind == "Im2col":
        layer |= {"kernel_size": 2, "pad": chance.choice([0, 1]), "stride": 2}
    elif kind == "Pooling":
        layer |= {"pool": chance.choice(["MAX", "AVE"]), "kernel_size": 2}
        layer["stride"] = chance.choice([1, 2])
    elif kind == "SoftmaxWithLoss":
        layer["bottom"] = [bottom, "label"]
    return layer


def prepared(model: dict, seed: int, device="cpu"):
    """The net with random parameters, and a function that gives its loss at an x."""
    net = Net(parse(yaml.safe_dump(model)), device=device, dtype="float64")
    chance = np.random.default_rng(seed)
    x = chance.normal(size=SHAPE)
    for param in net.learnable:
        net.device.copy_from_host(param.data, 0.5 * chance.normal(size=param.shape))

    def loss(x=x):
        net.context.passes = 0
        net.forward(x=x, label=[0, 1])
        return net.loss

    return net, x, loss, chance


def seeds(config: pytest.Config) -> range:
    return range(600 if config.getoption("--long") else 24)


def test_gradients_of_random_nets(request):
    checked = 0
    for seed in seeds(request.config):
        net, x, loss, chance = prepared(random_model(seed), seed)
        for _ in range(2):  # twice, so that what a first pass leaves behind shows
            net.clear_param_diffs()
            loss()
            net.backward()
        points = [(x, net.first_blobs["x"].diff.copy())]
        points += [(p.data, p.diff.copy()) for p in net.learnable if p.learns]
        for array, gradient in points:
            u, before = chance.normal(size=array.shape), array.copy()
            wanted, errors = float((gradient * u).sum()), []
            for h in (1e-6, 1e-7):  # a kink between the two points of one is none for the other
                array[...] = before + h * u
                above = loss()
                array[...] = before - h * u
                errors.append(abs((above - loss()) / (2 * h) - wanted))
                array[...] = before
            assert min(errors) < 1e-5 * max(1, abs(wanted)), f"seed {seed}"
            checked += 1
    assert checked > 2 * len(seeds(request.config))


def test_random_nets_on_cuda(request, cuda):
    for seed in seeds(request.config)[: None if request.config.getoption("--long") else 8]:
        results = []
        for device in ("cpu", cuda):
            net, _, loss, _ = prepared(random_model(seed), seed, device)
            host = net.device.to_host
            value = loss()
            net.backward()
            results.append(
                [value, host(net.first_blobs["x"].diff), *(host(p.diff) for p in net.learnable)]
            )
        for on_cpu, on_cuda in zip(*results, strict=True):
            np.testing.assert_allclose(
                on_cuda, on_cpu, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}"
            )
