"""Layers whose tops' sizes are known only when they have run, and what stands behind them."""

import numpy as np
import pytest
from kit import registered
from tools.parallel.in_threads import on_ranks

from minicaffe import Layer, Net, ShapeError, Traits, parse
from minicaffe.core.net.memory import Memory
from minicaffe.core.solver import mean_outputs

MODEL = """
force_backward: true
layers:
  - {name: data, type: Input, top: [x, keep], shape: [{dim: [4, 3]}, {dim: [4]}]}
  - {name: some, type: Positive, bottom: [x, keep], top: [some]}
  - {name: act, type: ReLU, top: some}
  - {name: ip, type: InnerProduct, bottom: some, num_output: 2}
"""


class Positive(Layer):
    """The samples whose mark is above 0."""

    traits = Traits(sizes_vary=True, label_bottoms=(1,))

    def setup(self, x, keep):
        return x

    def forward(self, x, keep):
        self.kept = np.flatnonzero(self.context.device.to_host(keep) > 0)
        y = self.out[0][: len(self.kept)]
        for i, k in enumerate(self.kept):
            y[i] = x[int(k)]
        return y

    def backward(self, dy):
        self.grad[0].fill(0)
        for i, k in enumerate(self.kept):
            self.grad[0][int(k)] = dy[i]
        return self.grad[0], None


@pytest.fixture(autouse=True)
def positive():
    with registered(Positive):
        yield


def test_the_layers_behind_take_the_size_of_each_pass(device):
    net = Net(parse(MODEL), device=device)
    host, random = net.device.to_host, np.random.default_rng(0)
    weight = host(net.params["ip"][0].data)
    for marks in ("0110", "1111", "0010", "0010", "0000", "1101"):
        keep = [int(mark) for mark in marks]
        x = random.normal(size=(4, 3)).astype(np.float32)
        chosen = np.flatnonzero(keep)
        out = net.forward(x=x, keep=keep)["ip"]
        assert out.shape == (len(chosen), 2) == net.blobs["ip"].shape
        np.testing.assert_allclose(host(out), np.maximum(x[chosen], 0) @ weight.T, rtol=1e-5)
        assert host(net.blobs["some"].data).shape == (len(chosen), 3)
        dy = random.normal(size=out.shape).astype(np.float32)
        net.clear_param_diffs()
        net.backward(ip=dy)
        wanted = np.zeros((4, 3), np.float32)
        wanted[chosen] = dy @ weight * (x[chosen] > 0)
        np.testing.assert_allclose(host(net.blobs["x"].diff), wanted, rtol=1e-5, atol=1e-6)
        wanted = dy.T @ np.maximum(x[chosen], 0)
        np.testing.assert_allclose(host(net.params["ip"][0].diff), wanted, rtol=1e-5, atol=1e-6)


def test_what_cannot_take_the_size_is_named_and_the_net_goes_on():
    net = Net(parse(MODEL + "  - {name: sum, type: Eltwise, bottom: [some, x]}\n"), device="cpu")
    with pytest.raises(ShapeError, match=r"layer 'sum' \(Eltwise\): needs bottoms of one shape"):
        net.forward(x=np.ones((4, 3)), keep=[1, 0, 0, 0])
    assert net.forward(x=np.ones((4, 3)), keep=[1, 1, 1, 1])["sum"].shape == (4, 3)


def test_where_memory_for_the_size_is_missing_the_net_goes_on(monkeypatch):
    net = Net(parse(MODEL), device="cpu")
    take = Memory.take

    def full(self, graph, behind=0):
        if behind:
            raise MemoryError
        take(self, graph, behind)

    with monkeypatch.context() as patched:
        patched.setattr(Memory, "take", full)
        with pytest.raises(MemoryError):
            net.forward(x=np.ones((4, 3)), keep=[1, 0, 0, 0])
    assert net.forward(x=np.ones((4, 3)), keep=[1, 0, 0, 0])["ip"].shape == (1, 2)
    assert net.blobs["ip"].shape == (1, 2)


def test_there_is_no_mean_of_outputs_that_vary():
    net = Net(parse(MODEL), device="cpu")
    forward, marks = net.forward, iter(([1, 1, 0, 0], [1, 0, 0, 0]))
    net.forward = lambda: forward(x=np.ones((4, 3)), keep=next(marks))
    said = r"'ip' has shape \(2, 2\) of one batch, \(1, 2\) of another: there is no mean of it"
    with pytest.raises(ShapeError, match=said):
        mean_outputs(net, 2)


BEHIND = [
    "{type: Deconvolution, num_output: 2, kernel_size: 2}",
    "{type: Convolution, num_output: 2, kernel_size: 2}",
    "{type: SPP, pyramid_height: 2}",
    "{type: Reshape, shape: {dim: [0, -1]}}",
    "{type: Reshape, shape: {dim: [-1, 2]}}",
    "{type: ArgMax}",
    "{type: ArgMax, out_max_val: true}",
    "{type: BatchReindex, bottom: [some, t]}",
    "{type: EuclideanLoss, bottom: [some, some]}",
    "{type: SmoothL1Loss, bottom: [some, some]}",
    "{type: ContrastiveLoss, bottom: [p, p, t]}",
    "{type: SigmoidCrossEntropyLoss, bottom: [some, some]}",
    "{type: SigmoidCrossEntropyLoss, bottom: [some, some], normalization: VALID}",
    "{type: HingeLoss, bottom: [p, t]}",
    "{type: MultinomialLogisticLoss, bottom: [p, t]}",
    "{type: SoftmaxWithLoss, bottom: [p, t]}",
]


@pytest.mark.parametrize("layer", BEHIND)
def test_a_batch_of_nothing_goes_through(layer, device):
    text = f"""
    force_backward: true
    layers:
      - {{name: data, type: Input, top: [x, prob, label, keep],
         shape: [{{dim: [4, 2, 3, 3]}}, {{dim: [4, 2]}}, {{dim: [4]}}, {{dim: [4]}}]}}
      - {{name: filter, type: Filter, bottom: [x, prob, label, keep], top: [some, p, t]}}
      - {layer.replace("{", "{name: last, ", 1).replace("type", "bottom: some, type", "bottom" not in layer)}
      - {{name: quiet, type: Silence, bottom: [some, p, t]}}
    """
    net = Net(parse(text), device=device)
    random = np.random.default_rng(0)
    given = {"x": random.random((4, 2, 3, 3)), "prob": np.full((4, 2), 0.5), "label": [0, 1, 0, 1]}
    for keep in ([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]):
        top = net.forward(**given, keep=keep)["last"]
        loss = "Loss" in layer
        assert top.shape[:1] == (() if loss else (sum(keep) * (9 if "-1, 2" in layer else 1),))
        assert not loss or (net.loss == 0) <= (sum(keep) == 0 or "some, some" in layer)
        if "ArgMax" not in layer:
            net.backward(**({} if loss else {"last": np.ones(top.shape)}))
        assert np.all(np.isfinite(net.device.to_host(net.blobs["x"].diff)))


def test_nor_is_there_one_of_ranks_that_have_others():
    def work(ranks):
        net = Net(parse(MODEL), device="cpu")
        forward, keep = net.forward, [1, 1, 0, 0] if ranks.rank else [1, 0, 0, 0]
        net.forward = lambda: forward(x=np.ones((4, 3)), keep=keep)
        with pytest.raises(ShapeError, match=r"'ip' has shape \(1, 2\) of one batch, \(2, 2\) of"):
            mean_outputs(net, 2, communicator=ranks)

    on_ranks(2, work)
