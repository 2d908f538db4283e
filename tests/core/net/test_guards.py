"""Replays hold only while what their traces assume does; and raise what an ordinary pass raises."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from core.solver.twins import Quiet
from kit import registered, small_net

from minicaffe import Net, Solver, parse
from minicaffe.core.layers import Layer
from minicaffe.core.layers.blob import Versioned
from minicaffe.core.solver import Report
from minicaffe.errors import DataError, LayerError, ShapeError

pytestmark = pytest.mark.usefixtures("form")
ONE = """
layers:
  - {name: data, type: Input, shape: {dim: [2, 8]}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 4, bias_term: false, weight_filler: {type: gaussian, std: 1}}
"""
LEARNS = """
layers:
  - {name: data, type: Input, shape: {dim: [4, 8]}}
  - {name: label, type: Input, shape: {dim: [4]}}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 4, weight_filler: {type: gaussian, std: 1}}
MORE
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, lr_policy: fixed, max_iter: 100, clip_gradients: 100, momentum: 0.9}
"""
ACCURACY = "  - {name: acc, type: Accuracy, bottom: [ip, label], top: acc}\n"


def test_parameters_that_are_shared_by_turns():
    """A view that is born at the address of one that is gone was taken for it."""
    x = np.random.default_rng(0).normal(size=(2, 8)).astype("f")
    base, test, *candidates = (Net(parse(ONE), "TEST", device="cpu", seed=n) for n in range(8))
    for candidate in candidates:
        test.share_with(candidate)
        right = candidate.forward(data=x)["ip"].copy()
        for _ in range(6):
            assert np.array_equal(test.forward(data=x)["ip"], right)
        assert test.passes.nodes
        test.share_with(base)


def learner(more="", **settings):
    solver = Solver(parse(LEARNS.replace("MORE\n", more)), device="cpu", report=Quiet(), **settings)
    solver.net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=(4, 8))
    solver.net.blobs["label"].data[...] = [0, 1, 2, 3]
    return solver


def test_settings_that_change_twice_between_two_steps():
    both = learner(), learner()
    both[1].iterations.premise.never = "asked"
    for clip in (0.5, 0.1, 0.05, 0.01):
        for solver in both:
            solver.step(6)
            solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, display=0)
            solver.rule.spec = solver.spec = dataclasses.replace(solver.spec, clip_gradients=clip)
        assert both[0].iterations.whole.nodes
        weights = [solver.net.params["ip"][0].data.tobytes() for solver in both]
        assert weights[0] == weights[1]


@pytest.mark.parametrize("odd", [9.0, -1.0, np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("more", ["", ACCURACY])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 6])
def test_a_label_that_is_no_class_ends_an_iteration(odd, more, before):
    """It takes no update, whichever layer refuses it; and training goes on as if it had not been."""
    solver = learner(more)
    solver.step(before)
    weights = solver.net.params["ip"][0].data.copy()
    label = solver.net.blobs["label"].data
    label[2] = odd
    with pytest.raises(
        DataError, match=re.escape(f"label {odd:g} is not one of the 4 classes 0..3")
    ):
        solver.step(1)
    assert np.array_equal(solver.net.params["ip"][0].data, weights)
    assert not solver.net.params["ip"][0].diff.any()
    assert solver.iteration == solver.net.context.passes == before
    label[2] = 2
    solver.step(6 - before + 4)
    undisturbed = learner(more)
    undisturbed.step(10)
    for name, param in undisturbed.net.named_params.items():
        assert np.array_equal(solver.net.named_params[name].data, param.data)


def test_what_a_layer_refused_and_does_not_find_again_is_told():
    """A replay of inference has the layer's flag; `check` looks at its bottoms, which may share memory."""
    net = Net(parse(LEARNS.replace("MORE\n", "")), "TEST", device="cpu")
    for _ in range(6):
        net.forward()
    net.layers["loss"].check = lambda: None
    net.blobs["label"].data[2] = 9
    with pytest.raises(DataError, match="layer 'loss' .*a label, index or region is not valid"):
        net.forward()


def test_what_only_accuracy_refuses_ends_an_iteration_too():
    """The loss ignores such a label; a replay must not."""
    text = LEARNS.replace("[ip, label]}", "[ip, label], ignore_label: 9}").replace(
        "MORE\n", ACCURACY
    )
    for before in (0, 6):
        solver = Solver(parse(text), device="cpu", report=Quiet())
        solver.net.blobs["data"].data[...] = 1
        solver.step(before)
        solver.net.blobs["label"].data[0] = 9
        with pytest.raises(DataError, match=r"layer 'acc' \(Accuracy\): label 9"):
            solver.step(1)
        assert solver.iteration == before


def test_a_refused_pass_is_none_of_those_that_are_compared():
    net = Net(parse(LEARNS.replace("MORE\n", ACCURACY)), "TEST", device="cpu")
    for number in range(9):
        label = [0, 1, 2, 9 if number in (0, 2, 4) else 3]
        if number in (0, 2, 4):
            with pytest.raises(DataError):
                net.forward(data=np.ones((4, 8)), label=label)
        else:
            net.forward(data=np.ones((4, 8)), label=label)
        assert bool(net.passes.nodes) is (number >= 5)  # after 1, 3 and 5


class Fails(Layer):
    """Raises when it is told to."""

    when = ""

    def setup(self, x):
        return x

    def forward(self, x):
        if Fails.when == "forward":
            raise ValueError("as told")
        return x * 1

    def backward(self, dy):
        if Fails.when == "backward":
            raise ValueError("as told")
        return dy * 1


@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("before", [0, 6])
def test_a_layer_that_raises_leaves_no_gradient(when, before, own, monkeypatch):
    solver = learner("  - {name: fails, type: Fails, bottom: ip, top: ip}\n")
    solver.step(before)
    weights = solver.net.params["ip"][0].data.copy()
    with monkeypatch.context() as now, pytest.raises(LayerError, match="as told"):
        now.setattr(own, "when", when)
        solver.step(1)
    assert not any(param.diff.any() for param in solver.net.learnable)
    assert np.array_equal(solver.net.params["ip"][0].data, weights)
    assert solver.net.context.passes == before
    solver.step(3)


def test_a_net_that_is_dropped_is_freed_at_once():
    """The guard keeps arrays alive, not the net."""
    import gc
    import weakref

    net = Net(parse(ONE), "TEST", device="cpu")
    for _ in range(5):
        net.forward(data=np.ones((2, 8)))
    gc.disable()
    try:
        gone = weakref.ref(net)
        del net
        assert gone() is None
    finally:
        gc.enable()


def twins(text, **settings):
    """Two solvers of a model, of which the second replays nothing."""
    both = [Solver(parse(text), device="cpu", report=Quiet(), **settings) for _ in range(2)]
    both[1].iterations.premise.never = "asked"
    for solver in both:
        solver.net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=(4, 8))
        solver.net.blobs["label"].data[...] = [0, 1, 2, 3]
    return both


def same(both):
    """What both hold is the same."""
    for name, param in both[0].net.named_params.items():
        other = both[1].net.named_params[name]
        assert param.data.tobytes() == other.data.tobytes(), name
        assert param.diff.tobytes() == other.diff.tobytes(), name
    assert both[0].watch.flags.tobytes() == both[1].watch.flags.tobytes()
    assert both[0].loss() == both[1].loss()


def outcome(work):
    """What work raises, as text."""
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def label_of(both, value):
    for solver in both:
        solver.net.blobs["label"].data[0] = value


@pytest.fixture
def own():
    """The layer of one's own, which notes what is asked of it."""
    with registered(Fails):
        yield Fails
    Fails.when = ""


BEHIND = """
  - {name: more, type: Input, top: other, shape: {dim: [4]}}
  - {name: acc, type: Accuracy, bottom: [ip, other], top: acc}
"""


def test_a_layer_that_checks_its_own_labels_forgets_no_other_refusal():
    """In the NumPy form Accuracy is Python between rows, and finds its labels good."""
    text = LEARNS.replace("MORE\n", "").replace("solver:", BEHIND.strip("\n") + "\nsolver:")
    both = twins(text)
    for solver in both:
        solver.step(6)
    label_of(both, 9)
    told = [outcome(lambda solver=solver: solver.step(1)) for solver in both]
    assert told[0] == told[1] and "layer 'loss' (SoftmaxWithLoss): label 9" in told[0]
    same(both)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_what_comes_after_a_refused_gradient(apart, iter_size):
    """The next gradient and update are taken; so is an update by hand."""
    both = twins(LEARNS.replace("MORE\n", ""), iter_size=iter_size)
    for solver in both:
        for _ in range(6):
            solver.gradient()
            solver.update()
        if not apart:
            solver.step(6)
    label_of(both, 9)
    run = Solver.gradient if apart else (lambda solver: solver.step(1))
    told = [outcome(lambda solver=solver: run(solver)) for solver in both]
    assert told[0] == told[1] and "label 9 is not one of the 4 classes" in told[0]
    same(both)
    label_of(both, 0)
    for solver in both:
        solver.gradient()
    assert both[0].net.params["ip"][0].diff.any()
    for solver in both:
        solver.update()
    same(both)
    for solver in both:
        solver.step(4)
    same(both)


def test_a_refusal_does_not_clear_what_has_diverged():
    both = twins(LEARNS.replace("MORE\n", ""))
    for solver in both:
        solver.step(6)
        solver.net.blobs["data"].data[0, 0] = np.nan
        solver.gradient()
        solver.update()
        solver.net.blobs["data"].data[0, 0] = 0
    label_of(both, 9)
    for solver in both:
        with pytest.raises(DataError):
            solver.gradient()
    assert [solver.watch.stopped_at_hand() for solver in both] == [True, True]


EMBED = """
layers:
  - {name: data, type: Input, shape: {dim: [4, 8]}}
  - {name: label, type: Input, shape: {dim: [4]}}
  - {name: embed, type: Embed, bottom: label, input_dim: 4, num_output: 5, weight_filler: {type: xavier}}
  - {name: fails, type: Fails, bottom: embed, top: seen}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 5, weight_filler: {type: xavier}}
  - {name: loss, type: EuclideanLoss, bottom: [ip, seen]}
solver: {base_lr: 0.1, max_iter: 100}
"""


def test_what_is_refused_is_raised_before_python_is_called(own, monkeypatch):
    both, asked = twins(EMBED), []
    for solver in both:
        solver.step(6)
    for way in ("forward", "backward"):
        known = getattr(Fails, way)
        noted = lambda self, x, way=way, known=known: asked.append(way) or known(self, x)  # noqa: E731
        noted.__module__ = Fails.__module__
        monkeypatch.setattr(Fails, way, noted)
    for solver in both:
        solver.step(6)
    asked.clear()
    label_of(both, 9)
    for solver in both:
        with pytest.raises(DataError, match=r"layer 'embed' \(Embed\): index 9"):
            solver.step(1)
    assert asked == []
    same(both)


IN_PLACE = """
  - {name: relu, type: ReLU, bottom: ip, top: ip}
  - {name: fails, type: Fails, bottom: ip, top: seen}
"""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_iteration_that_failed_nobody_knows_what_memory_holds(own, error, monkeypatch):
    text = LEARNS.replace("MORE\n", IN_PLACE.lstrip("\n")).replace("[ip, label]}", "[seen, label]}")
    both = twins(text)
    for solver in both:
        solver.step(6)

    def raises(self, x):
        raise error("as told")

    monkeypatch.setattr(Fails, "forward", raises)
    for solver in both:
        with pytest.raises((LayerError, KeyboardInterrupt)):
            solver.step(1)
        assert not any(param.diff.any() for param in solver.net.learnable)
        for start in ("relu", "fails"):
            with pytest.raises(ShapeError, match="overwritten in place"):
                solver.net.forward(start=start)
    same(both)


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

    solver = learner()
    solver.step(6)
    solver.gradient()
    old = weakref.ref(solver.net.blobs["ip"].data)
    solver.net.reshape(data=(4, 8))
    solver.step(1)
    gc.collect()
    assert old() is None


def test_all_is_listed_again_only_once_something_was_set():
    net, other = (Net(parse(ONE), "TEST", device="cpu", seed=n) for n in range(2))
    for _ in range(6):
        net.forward()
    guard, nodes = net.passes.guard, net.passes.nodes
    listed = guard.listed
    net.forward()
    assert guard.listed is listed
    other.params["ip"][0].lr_mult = 3.0  # of whatever net: it is listed, and nothing has changed
    net.forward()
    assert guard.listed is not listed and net.passes.nodes is nodes
    net.reshape(data=(2, 8))
    assert guard.listed is None  # no array is kept alive


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


def other_class(net):
    class Doubled(type(net.layers["relu"])):
        def forward(self, x):
            y = super().forward(x)
            y *= 2
            return y

    net.layers["relu"].__class__ = Doubled


def no_gradient(net):
    net.layers["ip2"].needs_gradient[0] = False


TWO = """  - {name: relu, type: ReLU, bottom: ip, top: ip}
  - {name: ip2, type: InnerProduct, bottom: ip, num_output: 4, weight_filler: {type: gaussian, std: 1}}
  - {name: loss2, type: SoftmaxWithLoss, bottom: [ip2, label]}
"""


@pytest.mark.parametrize("change", [no_gradient, other_class])
def test_changes_of_a_layer_that_set_no_attribute(change):
    """Each step has the bits of one without replay."""
    both = learner(TWO), learner(TWO)
    both[1].iterations.premise.never = "asked"
    for solver in both:
        solver.step(6)
    apart = learner(TWO)
    apart.step(12)
    for solver in both:
        change(solver.net)
        solver.step(6)
    mine, theirs, unchanged = (one.net.weights()["ip__0"].tobytes() for one in (*both, apart))
    assert mine == theirs != unchanged


def test_reports_of_all_kinds_hear_of_each_iteration(monkeypatch):
    """Also where a method of their class is set later, as a plug-in may."""
    heard = []
    monkeypatch.setattr(Report, "iterated", lambda self, solver: heard.append(solver.iteration))
    learner().step(2)
    assert heard == [1, 2]


def test_a_layer_may_choose_its_prepare():
    """One object's own `prepare` is called before each pass, in a replay too."""
    net, counted = Net(parse(ONE), "TEST", device="cpu"), []
    net.layers["ip"].prepare = lambda: counted.append(len(counted))
    for _ in range(6):
        net.forward()
    assert counted == [0, 1, 2, 3, 4, 5]


def test_a_workspace_that_is_large_enough_stays():
    net = small_net({"data": [2, 1, 8, 8]}, "pool Pooling kernel_size: 2", phase="TEST")
    net.forward()
    before = net.context.workspace
    net.reshape(data=(2, 1, 4, 4))
    net.forward()
    assert net.context.workspace is before
    net.reshape(data=(2, 1, 64, 64))
    net.forward()
    assert net.context.workspace.size >= net.context.workspace_size > before.size
