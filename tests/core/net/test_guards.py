"""Replays hold only while what their traces assume does; and raise what an ordinary pass raises."""

import dataclasses
import re

import numpy as np
import pytest
from core.solver.twins import Quiet, Twins
from kit import model_of, registered

from minicaffe import Net, Solver, parse
from minicaffe.core.layers import Layer
from minicaffe.core.layers.blob import Versioned
from minicaffe.core.solver import Report
from minicaffe.errors import DataError, LayerError, ShapeError

pytestmark = pytest.mark.usefixtures("form")
GAUSSIAN = "weight_filler: {type: gaussian, std: 1}"
ONE = model_of({"data": [2, 8]}, f"ip InnerProduct num_output: 4, bias_term: false, {GAUSSIAN}")
IP = f"ip InnerProduct bottom: data, num_output: 4, {GAUSSIAN}"
LOSS = "loss SoftmaxWithLoss bottom: [ip, label]"
ACCURACY = "acc Accuracy bottom: [ip, label]"
OWN = "fails Fails bottom: ip, top: ip"
IN_PLACE = (
    "relu ReLU top: ip",
    "fails Fails bottom: ip",
    "loss SoftmaxWithLoss bottom: [fails, label]",
)


def text_of(*layers):
    """A net that learns of two inputs."""
    head = "solver: {base_lr: 0.1, max_iter: 100, clip_gradients: 100, momentum: 0.9}"
    return model_of({"data": [4, 8], "label": [4]}, *layers, head=head)


def learner(*layers, **settings):
    solver = Solver(parse(text_of(*layers)), device="cpu", report=Quiet(), **settings)
    solver.net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=(4, 8))
    solver.net.blobs["label"].data[...] = [0, 1, 2, 3]
    return solver


class Fails(Layer):
    """Raises when it is told to, and notes what is asked of it."""

    when, asked = None, []

    def setup(self, x):
        return x

    def forward(self, x):
        return self.times_one("forward", x)

    def backward(self, dy):
        return self.times_one("backward", dy)

    def times_one(self, way, x):
        Fails.asked.append(way)
        if Fails.when == way:
            raise Fails.error("as told")
        return x * 1


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """The layer of one's own, which fails in no other test."""
    monkeypatch.setattr(Fails, "when", None)
    monkeypatch.setattr(Fails, "error", ValueError, raising=False)
    with registered(Fails):
        yield Fails


@pytest.mark.parametrize("before", [0, 2, 6])
@pytest.mark.parametrize(
    ("layers", "fault", "said"),
    [
        *((layers, odd, f"label {odd:g} is not one of the 4 classes 0..3")
          for layers in ((IP, LOSS), (IP, ACCURACY, LOSS)) for odd in (9.0, np.nan, -np.inf)),
        # a label that the loss ignores, but Accuracy does not
        ((IP, ACCURACY, f"{LOSS}, ignore_label: 9"), 9, "layer 'acc' (Accuracy): label 9"),
        ((IP, OWN, LOSS), "forward", "as told"),
        ((IP, OWN, LOSS), "backward", "as told"),
    ],
)  # fmt: skip
def test_an_iteration_that_fails_leaves_all_as_it_was(own, layers, fault, said, before):
    """It takes no update, whichever layer refuses it; and training goes on as if it had not been."""
    solver, undisturbed = learner(*layers), learner(*layers)
    solver.step(before)
    weights, label = solver.net.weights(), solver.net.blobs["label"].data
    if isinstance(fault, str):
        own.when = fault
    else:
        label[2] = fault
    with pytest.raises((DataError, LayerError), match=re.escape(said)):
        solver.step(1)
    assert all(np.array_equal(x, weights[name]) for name, x in solver.net.weights().items())
    assert not any(param.diff.any() for param in solver.net.learnable)
    assert solver.iteration == solver.net.context.passes == before
    own.when, label[2] = None, 2
    solver.step(10 - before)
    undisturbed.step(10)
    for name, weight in undisturbed.net.weights().items():
        assert np.array_equal(solver.net.weights()[name], weight)


def test_what_a_layer_refused_and_does_not_find_again_is_told():
    """A replay of inference has the layer's flag; `check` looks at its bottoms, which may share memory."""
    net = Net(parse(text_of(IP, LOSS)), "TEST", device="cpu")
    for _ in range(6):
        net.forward()
    net.layers["loss"].check = lambda: None
    net.blobs["label"].data[2] = 9
    with pytest.raises(DataError, match="layer 'loss' .*a label, index or region is not valid"):
        net.forward()


def test_a_refusal_does_not_clear_what_has_diverged():
    both = Twins(lambda: learner(IP, LOSS))
    both.step(6)
    for solver in both.both:
        solver.net.blobs["data"].data[0, 0] = np.nan
        solver.gradient()
        solver.update()
        solver.net.blobs["data"].data[0, 0] = 0
        solver.net.blobs["label"].data[0] = 9
        with pytest.raises(DataError):
            solver.gradient()
        assert solver.watch.stopped_at_hand()


AT_ONCE = {
    "embed": (IP, "embed Embed bottom: label, input_dim: 4, num_output: 4", "fails Fails bottom: embed",
              "loss EuclideanLoss bottom: [ip, fails]"),
    "again": (IP, "fails Fails bottom: ip", "loss SoftmaxWithLoss bottom: [fails, label], ignore_label: 9",
              "again BatchReindex bottom: [ip, label]"),
}  # fmt: skip


@pytest.mark.parametrize(("layer", "layers"), AT_ONCE.items(), ids=AT_ONCE)
def test_what_is_refused_is_raised_before_python_is_called(own, layer, layers):
    """Forward, or backward where a last layer refuses it."""
    both = Twins(lambda: learner(*layers))
    both.step(6)
    for solver in both.both:
        solver.net.blobs["label"].data[0] = 9
        own.asked.clear()
        with pytest.raises(DataError, match=f"layer '{layer}'"):
            solver.step(1)
        assert own.asked == (["forward"] if layer == "again" else [])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_iteration_that_failed_nobody_knows_what_memory_holds(own, error):
    both = Twins(lambda: learner(IP, *IN_PLACE))
    both.step(6)
    own.when, own.error = "forward", error
    for solver in both.both:
        with pytest.raises((LayerError, KeyboardInterrupt)):
            solver.step(1)
        for start in ("relu", "fails"):
            with pytest.raises(ShapeError, match="overwritten in place"):
                solver.net.forward(start=start)


def test_an_array_among_settings_is_never_replayed():
    net = Net(parse(ONE), "TEST", device="cpu")
    for _ in range(6):
        net.layers["ip"].axis = np.array([1, 1])
        net.forward(data=np.ones((2, 8)))
        assert not net.passes.nodes


@pytest.mark.parametrize("change", [{"recordable": False}, {"keeps_dtype": True}])
def test_traits_that_change_end_a_replay(change):
    net = Net(parse(ONE), "TEST", device="cpu")
    layer, given = net.layers["ip"], {"data": np.ones((2, 8))}
    steps = [step for step in net.steps if step.bottoms]
    for _ in range(6):
        net.forward(**given)
    before = net.passes.guard.of_passes(steps)
    assert net.passes.nodes and before.holds(net.passes.guard.of_passes(steps))
    layer.traits = dataclasses.replace(layer.traits)  # another object that says the same
    assert before.holds(net.passes.guard.of_passes(steps))
    layer.traits = dataclasses.replace(layer.traits, **change)
    assert not before.holds(net.passes.guard.of_passes(steps))
    net.forward(**given)
    assert not net.passes.nodes


def test_no_array_of_before_a_reshape_is_kept():
    import gc
    import weakref

    solver = learner(IP, LOSS)
    solver.step(6)
    solver.gradient()
    old = weakref.ref(solver.net.blobs["ip"].data)
    solver.net.reshape(data=(4, 8))
    solver.step(1)
    gc.collect()
    assert old() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.params["ip"][0].lie_in(np.zeros((4, 8), "f")),
        lambda net: net.params["ip"][0].lie_in(np.zeros((4, 8), "f"), "diff"),
        lambda net: setattr(net.params["ip"][0], "decay_mult", 0.5),
        lambda net: setattr(net.params["ip"][0], "owner", net.params["ip"][0]),
        lambda net: net.share_with(Net(parse(ONE), "TEST", device="cpu")),
        lambda net: setattr(net.layers["ip"], "num_output", 5),
        lambda net: setattr(net.layers["ip"], "forward", net.layers["ip"].forward),
        lambda net: setattr(net.layers["ip"], "traits", net.layers["ip"].traits),
        lambda net: setattr(net.layers["ip"], "plan", None),
        lambda net: setattr(net.steps[1].tops[0], "loss_weight", 1.0),
        lambda net: setattr(net.steps[1].tops[0], "blob", net.steps[1].tops[0].blob),
        lambda net: delattr(net.layers["ip"], "num_output"),
    ],
)
def test_what_passes_assume_makes_another_version(change):
    net = Net(parse(ONE), "TEST", device="cpu")
    before = Versioned.version
    net.layers["ip"].remark = "nothing that passes assume"
    net.params["ip"][0].stale = True
    net.steps[1].ran = False
    assert Versioned.version == before
    change(net)
    assert Versioned.version != before


def test_reports_of_all_kinds_hear_of_each_iteration(monkeypatch):
    """Also where a method of their class is set later, as a plug-in may."""
    heard = []
    monkeypatch.setattr(Report, "iterated", lambda self, solver: heard.append(solver.iteration))
    learner(IP, LOSS).step(2)
    assert heard == [1, 2]


def test_a_layer_may_choose_its_prepare():
    """One object's own `prepare` is called before each pass, in a replay too."""
    net, counted = Net(parse(ONE), "TEST", device="cpu"), []
    net.layers["ip"].prepare = lambda: counted.append(len(counted))
    for _ in range(6):
        net.forward()
    assert counted == [0, 1, 2, 3, 4, 5]
