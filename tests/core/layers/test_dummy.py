"""DummyData: what Caffe gives, and random numbers that are a function of seed, layer, pass and top."""

import caffe_cases as cases
import numpy as np
import pytest

from minicaffe import Net, parse
from minicaffe.core.config.declare import Filler
from minicaffe.core.layers.fillers import fill, refill

SHAPE = (200, 50, 5, 5)
FILLERS = {
    "uniform": Filler(type="uniform", min=-2, max=5),
    "gaussian": Filler(type="gaussian", mean=3, std=0.5),
    "sparse": Filler(type="gaussian", std=2, sparse=20),
    "xavier": Filler(type="xavier", variance_norm="AVERAGE"),
    "msra": Filler(type="msra", variance_norm="FAN_OUT"),
    "positive_unitball": Filler(type="positive_unitball"),
}


def net(keys, device="cpu", top="x", **options):
    text = f"layers: [{{name: d, type: DummyData, top: {top}, {keys}}}]"
    return Net(parse(text), device=device, **options)


def values(one):
    return {name: np.array(one.device.to_host(a)) for name, a in one.forward().items()}


def test_constants_are_caffes(device):
    case = cases.load("DummyData_constant")
    one = Net(cases.as_model(cases.from_json(case["net_json"])), device=device)
    for _ in range(2):
        for name, array in values(one).items():
            np.testing.assert_array_equal(array, case[name])


def test_old_nets_give_four_sizes(device):
    one = net("num: [2, 3], channels: 4, height: [5, 6], width: 1, data_filler: {type: constant, value: 7}",
              device, "[a, b]")  # fmt: skip
    given = values(one)
    shapes = {name: array.shape for name, array in given.items()}
    assert shapes == {"a": (2, 4, 5, 1), "b": (3, 4, 6, 1)}
    assert all((array == 7).all() for array in given.values())
    one.reshape(a=(1, 1, 2, 2))
    assert one.forward()["a"].shape == (1, 1, 2, 2)


RANDOM = "shape: [{dim: [40, 30]}, {dim: 1200}], data_filler: [{type: gaussian}, {type: constant, value: 2}]"


def test_a_pass_is_a_function_of_seed_layer_and_number(device):
    one, other = net(RANDOM, device, "[a, b]"), net(RANDOM, device, "[a, b]", dtype="float64")
    first, second = values(one), values(one)
    other.context.passes = 1
    np.testing.assert_array_equal(values(other)["a"].astype(np.float32), second["a"])
    assert abs(np.corrcoef(first["a"].ravel(), second["a"].ravel())[0, 1]) < 0.1
    np.testing.assert_array_equal(first["b"], second["b"])
    seeds = [values(net(RANDOM, device, "[a, b]", seed=seed))["a"] for seed in (1, 2)]
    np.testing.assert_array_equal(seeds[0], first["a"])
    assert abs(np.corrcoef(seeds[1].ravel(), first["a"].ravel())[0, 1]) < 0.1


def test_both_devices_draw_the_same(cuda):
    """Up to the rounding of a logarithm and a cosine."""
    mine, there = values(net(RANDOM, "cpu", "[a, b]")), values(net(RANDOM, cuda, "[a, b]"))
    np.testing.assert_allclose(there["a"], mine["a"], rtol=1e-5, atol=1e-5)


def moments(array):
    outputs = array.reshape(len(array), -1).sum(axis=1)
    return [array.mean(), array.std(), (array == 0).mean(), outputs.std()]


@pytest.mark.parametrize("name", FILLERS)
def test_what_is_drawn_on_the_device_is_distributed_as_by_fill(device, name):
    filler, size = FILLERS[name], int(np.prod(SHAPE))
    noise = device.xp.empty((2, size), "float32")
    drawn = device.to_host(refill(filler, SHAPE, device.xp, noise, 1, "d")).astype(np.float64)
    wanted = fill(filler, SHAPE, np.random.default_rng(0))
    spread = wanted.std()
    np.testing.assert_allclose(moments(drawn)[:3], moments(wanted)[:3], atol=0.03 * spread + 2e-3)
    np.testing.assert_allclose(moments(drawn)[3], moments(wanted)[3], rtol=0.2, atol=1e-5)
    quantiles = [np.quantile(array, np.linspace(0.02, 0.98, 25)) for array in (drawn, wanted)]
    np.testing.assert_allclose(*quantiles, atol=0.05 * spread)
    assert np.isfinite(drawn).all()


@pytest.mark.parametrize(
    "layer", ["type: Scale, filler: {type: constant, value: 2}", "type: Power, scale: 2"]
)
@pytest.mark.parametrize("phase, keep", [("TEST", ()), ("TEST", None), ("TRAIN", None)])
def test_what_is_filled_once_is_overwritten_by_nobody(layer, phase, keep):
    model = (
        "layers:\n"
        "  - {name: x, type: DummyData, shape: {dim: [2, 3]}, data_filler: {type: constant, value: 3}}\n"
        f"  - {{name: s, {layer}, bottom: x, top: x}}\n"
        "  - {name: r, type: ReLU, bottom: x, top: r}\n"
    )
    net = Net(parse(model), phase, device="cpu", keep=keep)
    assert [float(net.forward()["r"].max()) for _ in range(4)] == [6.0] * 4
