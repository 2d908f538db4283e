"""Normalisations in nets: Caffe's running statistics, snapshots, 16 bits, no sample."""

import caffe_cases
import numpy as np
import pytest
from core.layers.rows.normalization import ROWS
from half_nets import TYPES, feed
from kit import net_of, same_numbers
from test_caffe import run_layer
from test_step_memory import STEPS

from minicaffe import Layer, Net, Solver, Traits, parse, register
from minicaffe.core.layers import REGISTRY

TRAINED = """
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [6, 2, 5, 4]}, {dim: [6]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 3, pad: 1}
  - {name: norm, type: BatchNorm, top: conv, scale_bias: true, moving_average_fraction: 0.9}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, momentum: 0.9, weight_decay: 0.01, clip_gradients: 1, iter_size: 2, max_iter: 9, test_iter: 1, test_interval: 100}
"""
X = 2, 4, 5, 6
RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(2, 3, (6, 2, 5, 4)), "label": RNG.integers(0, 3, 6)}


@pytest.mark.parametrize("name", caffe_cases.names("BatchNorm"))
def test_running_statistics_are_caffes(name, device):
    case = caffe_cases.load(name)
    _, step = run_layer(case, device)
    params = step.layer.params
    assert [p.lr_mult for p in params] == [0, 0, 0]
    for j, param in enumerate(params):
        wanted = case.get(f"param_after_forward_{j}", case[f"param_{j}"])
        caffe_cases.assert_close(device.to_host(param.data), wanted, f"parameter {j}")


def solver(device, **options):
    made = Solver(parse(TRAINED), device=device, **options)
    for net in (made.net, made.test_net):
        for name, array in BATCH.items():
            device.copy_from_host(net.blobs[name].data, np.asarray(array, net.blobs[name].dtype))
    return made


def test_training_keeps_the_statistics_that_tests_use(device, here):
    """The test net reads what the training net remembers, before and after a stop."""
    whole = solver(device, snapshot_prefix="a", keep=["conv"])
    first = solver(device, snapshot_prefix="b")
    whole.step(4)
    first.step(2)
    again = solver(device, snapshot_prefix="c")
    again.restore(first.snapshot())
    again.step(2)
    same_numbers(again.net.weights(), whole.net.weights())
    mean, variance, count, scale, bias = (whole.net.weights()[f"norm__{i}"] for i in range(5))
    # Of 4 iterations, 2 batches each
    np.testing.assert_allclose(count, [(1 - 0.9**8) / 0.1], rtol=1e-5)
    assert whole.test() == again.test()
    net = whole.test_net
    net.forward()
    apart = Net(parse(TRAINED.split("  - {name: norm")[0]), device=device)
    apart.load({k: v for k, v in whole.net.weights().items() if k.startswith("conv")})
    x = device.to_host(apart.forward(**BATCH)["conv"])

    def each(values):
        return values.reshape(1, -1, 1, 1)

    y = each(scale) * (x - each(mean / count)) / np.sqrt(each(variance / count) + 1e-5) + each(bias)
    np.testing.assert_allclose(
        device.to_host(net.blobs["conv"].data), np.maximum(y, 0), atol=1e-4 * np.abs(y).max()
    )


@TYPES
def test_statistics_of_16_bits_are_float32(cuda, dtype, here):
    """In float16 the sum of a thousand variances of 66 is infinite, and 1 in a thousand is not kept."""
    made = solver(cuda, dtype=dtype)
    made.net.params["norm"][1].load(np.full(4, 70_000.0, np.float32))
    before = made.net.weights()
    made.step(1)
    after = made.net.weights()
    assert [param.dtype.name for param in made.net.params["norm"]] == ["float32"] * 3 + [dtype] * 2
    np.testing.assert_allclose(after["norm__2"], before["norm__2"] * 0.81 + 1.9, rtol=1e-6)
    assert (after["norm__1"] > 0.81 * 70_000).all() and np.isfinite(after["norm__1"]).all()
    again = solver(cuda, dtype=dtype)
    again.restore(made.snapshot())
    for one in (made, again):
        one.step(1)
    same_numbers(again.net.weights(), made.net.weights())
    assert (made.net.weights()["norm__3"] != before["norm__3"]).all()  # the scale learns


@TYPES
def test_all_of_them_train_in_16_bits_and_take_nothing(cuda, dtype):
    (text,) = (path.read_text() for path in STEPS if path.stem == "normalized")
    text = text.replace("dim: [20", "dim: [2").replace("24, 24", "7, 6")
    made = Solver(parse(text), device=cuda, dtype=dtype)
    feed(made, {"x": RNG.normal(size=(2, 8, 7, 6)), "label": [3, 4]})
    made.step(2)

    def taken():
        return [getattr(cuda.xp, name, 0) for name in ("allocations", "synchronizations")]

    before = taken()
    made.step(1)
    assert taken() == before
    assert int(made.rule.skipped) == 0 and np.isfinite(made.loss())


@pytest.fixture
def none_of(monkeypatch):
    """A layer that gives no sample, as Filter may."""
    monkeypatch.setattr("minicaffe.core.layers.registry.REGISTRY", REGISTRY)

    @register
    class NoneOf(Layer):
        """No sample."""

        traits = Traits(sizes_vary=True)

        def setup(self, x):
            return x

        def forward(self, x):
            return self.out[0][:0]

        def backward(self, dy):
            self.grad[0].fill(0)
            return self.grad[0]

    yield
    del REGISTRY["NoneOf"]


@pytest.mark.parametrize("kind", ROWS)
def test_no_sample_gives_none_and_is_not_remembered(device, none_of, kind):
    layers = [{"name": "x", "type": "Input", "shape": {"dim": [2, 4, 3, 3]}}]
    layers += [{"name": "none", "type": "NoneOf"}, {"name": "y", "type": kind, **ROWS[kind][0][0]}]
    net = Net({"layers": layers, "force_backward": True}, device=device)
    before = net.weights()
    assert net.forward(x=np.ones((2, 4, 3, 3)))["y"].shape == (0, 4, 3, 3)
    net.backward(y=np.ones((0, 4, 3, 3)))
    same_numbers(net.weights(), before)
    for name in before:
        layer, number = name.split("__")
        assert not device.to_host(net.params[layer][int(number)].diff).any()


@pytest.mark.parametrize(
    "filler", ["scale_bias: true", "scale_filler: constant", "bias_filler: constant"]
)
def test_a_filler_of_scale_or_bias_asks_for_both(filler):
    assert len(net_of(f"type: BatchNorm, {filler}", X).params["it"]) == 5


def test_weights_of_nvcaffe_are_read_as_there():
    """Mean and variance themselves with a count of 1; their scale starts at 1, their bias at 0."""
    net = net_of("type: BatchNorm, scale_bias: true", X, phase="TEST", dtype="float32")
    assert [float(p.data[0]) for p in net.params["it"]] == [0, 0, 0, 1, 0]
    mean, variance, scale, bias = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    net.load({f"it__{i}": a for i, a in enumerate([mean, variance, np.ones(1), scale, bias])})
    x = np.random.default_rng(1).normal(size=(2, 4, 5, 6))
    wide = [a.reshape(1, 4, 1, 1) for a in (mean, variance, scale, bias)]
    wanted = (x - wide[0]) / np.sqrt(wide[1] + 1e-5) * wide[2] + wide[3]
    np.testing.assert_allclose(net.forward(b0=x)["it"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_lrn_finds_room_in_a_net_without_a_way_back(region):
    """Nothing learns and the bottom is data, in either phase, kept or not."""
    x = np.random.default_rng(1).normal(size=X)
    text = f"""
layers:
  - {{name: x, type: Input, shape: {{dim: [2, 4, 5, 6]}}}}
  - {{name: y, type: LRN, norm_region: {region}, local_size: 1}}
"""
    for kept in [{}, {"keep": ()}]:
        y = Net(parse(text), "TEST", device="cpu", **kept).forward(x=x)["y"]
        np.testing.assert_allclose(y, x * (1 + x * x) ** -0.75, rtol=1e-4)
