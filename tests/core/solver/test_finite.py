"""Nets that go wrong in each way: what is said, what is kept, what is saved; and nets that do not."""

import itertools
import re

import numpy as np
import pytest
from core.solver.twins import numbers
from half_nets import BATCH, LENET
from half_nets import solver as half_solver
from kit import Heard, model_of, refusal, registered

from minicaffe import DataError, Solver, parse
from minicaffe.backends import cpu
from minicaffe.core.layers import Layer
from minicaffe.core.ops import nan_guard
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import KINDS
from minicaffe.errors import DivergedError
from minicaffe.tools.training.divergence import diagnosis
from minicaffe.tools.visualize.ranges import Look

NET = """
layers:
  - {name: data, type: DummyData, top: [x, label], shape: [{dim: [6, 3]}, {dim: [6]}],
     data_filler: [{type: uniform, min: 0.5, max: 2}, {type: constant, value: 1}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 4}
  - {name: norm, type: BatchNorm}
  - {name: drop, type: Dropout, top: norm}
  - {name: out, type: InnerProduct, num_output: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [out, label]}
solver: {base_lr: 0.1, momentum: 0.9, weight_decay: 0.01, max_iter: 20, type: SGD}
"""
AT = 4  # the iteration at which a spoiler acts


class SpoilsAt(Layer):
    """y = x, but from pass `at` on a value or a gradient of sample 2 that is no number."""

    at: int = AT
    what: str = "data"
    value: float = np.nan
    passes: int = 1

    def setup(self, x):
        return x

    def forward(self, x):
        y = x.copy()
        self.acts = self.context.passes // self.passes >= self.at
        if self.what == "data" and self.acts:
            y[2, 1] = self.value
        return y

    def backward(self, dy):
        dx = dy.copy()
        if self.what == "diff" and self.acts:
            dx[2, 1] = self.value
        return dx


class SpoiltSource(Layer):
    """Three samples, one of them not finite."""

    def setup(self):
        return (3, 2)

    def forward(self):
        x = np.ones((3, 2), np.float32)
        x[1, 0] = np.inf
        return x

    def entry(self, b, passes):
        return f"entry {b + 40} of pass {passes}"


def spoilt(keys="", **changes):
    """The net, with a layer that spoils between ip and norm if it has keys."""
    own = f"  - {{name: spoil, type: SpoilsAt, {keys}}}\n" if keys else ""
    text = NET.replace("  - {name: norm", own + "  - {name: norm", 1)
    for old, new in changes.items():
        text = text.replace(old, new)
    return parse(text)


def summed(*layers):
    """A model of these layers, whose loss is the sum of all values."""
    solver = "solver: {base_lr: 0.1, max_iter: 3}"
    return parse(model_of({"unused": 1}, *layers, "loss Reduction loss_weight: 1", head=solver))


@pytest.fixture(autouse=True, scope="module")
def known():
    """The layer above is a type of layer while these tests run, and so are those of single tests."""
    with registered(SpoilsAt, SpoiltSource):
        yield


@pytest.fixture(autouse=True)
def folder(tmp_path, here):
    return tmp_path


def made(spec, device="cpu", **settings):
    return Solver(spec, device=device, report=Heard(), **settings)


def everything(solver):
    """The bits of all that decides how training goes on, but the window of losses."""
    held = numbers(solver).items()
    passing = ("losses", "flags", "square", "recorded", "0 passes")
    left = {name: x.tobytes() for name, x in held if name not in passing and " of " not in name}
    return solver.iteration, {k: x for k, x in left.items() if not k.endswith(" diff")}


def before(spec, iterations, device="cpu", **settings):
    """What a solver holds after so many good iterations."""
    solver = made(spec, device, **settings)
    solver.step(iterations)
    return everything(solver)


def diverges(solver, count=20):
    with np.errstate(all="ignore"):
        return refusal(solver.step, count, error=DivergedError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["data", "diff"])
def test_each_rule_stops_with_everything_as_it_was(what, kind):
    changes = {"type: SGD": f"type: {kind}" + ", delta: 0.001" * (kind == "AdaDelta")}
    if kind in ("AdaGrad", "RMSProp"):
        changes["momentum: 0.9, "] = ""
    spec = spoilt(f"what: {what}", **changes)
    solver = made(spec, ema_decay=0.9)
    said = diverges(solver)
    assert everything(solver) == before(spec, AT, ema_decay=0.9)
    assert said.startswith(f"iteration {AT}: layer 'spoil' (SpoilsAt) gives ")


@pytest.mark.parametrize(("display", "seen"), [(5, 5), (1, 4)])
@pytest.mark.parametrize("what", ["data", "diff"])
def test_on_cuda_it_is_found_late_and_nothing_has_changed(cuda, what, display, seen):
    spec = spoilt(f"what: {what}")
    solver = made(spec, cuda, display=display, ema_decay=0.9)
    read = []
    told = solver.watch.told
    solver.watch.told = lambda device: read.append(solver.iteration) or told(device)
    said = diverges(solver)
    assert read[-1] == seen
    assert everything(solver) == before(spec, AT, cuda, ema_decay=0.9)
    assert said.startswith(f"iteration {AT}: layer 'spoil' (SpoilsAt) gives ")


def test_what_is_said_of_a_blob(folder):
    solver = made(spoilt("what: data"), snapshot_prefix=str(folder / "net"))
    said = diverges(solver)
    ip = solver.net.blobs["ip"].data
    assert said == (
        "iteration 4: layer 'spoil' (SpoilsAt) gives blob 'spoil' 1 of 24 values that are no finite numbers, "
        f"the first at (2, 1); the loss is nan, lr 0.1; what went in: ip {ip.min():.4g}..{ip.max():.4g}; "
        "what went in is of ordinary size: look at forward of SpoilsAt; "
        f"minicaffe replay {folder}/net_diverged.npz shows all of it"
    )
    assert [line.name for line in folder.iterdir()] == ["net_diverged.npz"]


def test_an_iteration_that_cannot_be_saved_is_told(folder):
    solver = made(spoilt("what: data"), snapshot_prefix=str(folder / "gone" / "net"))
    solver.report = report = Heard()
    assert "minicaffe replay" not in diverges(solver)
    assert "the iteration that diverged: " in "".join(report.lines)


def test_a_parameter_that_is_no_number(device):
    solver = made(spoilt(), device, display=3)
    solver.step(2)
    weight = solver.net.params["out"][0]
    values = solver.device.to_host(weight.data).copy()
    values[1, 2] = np.inf
    weight.data = solver.device.asarray(values)
    said = diverges(solver)
    assert said.startswith(
        "iteration 2: layer 'out' (InnerProduct) has parameter 'out__0' 1 of 12 values"
    )
    assert "; the iteration before made it so; " in said


def test_weights_that_overflow_where_no_loss_shows_it():
    """A bias of -inf before a ReLU leaves loss and gradients finite; a snapshot of it would be none."""
    relu = "  - {name: relu, type: ReLU, top: ip}\n  - {name: norm"
    solver = made(parse(NET.replace("  - {name: norm", relu, 1)), snapshot=3, weight_decay=0.0)
    solver.step(2)
    solver.net.params["ip"][1].data[1] = -np.inf
    assert re.match("iteration 3: .*parameter 'ip__1' 1 of 4", diverges(solver, 5))
    assert solver.iteration == 3


@pytest.mark.parametrize("iter_size", [1, 3])
def test_the_first_iteration(iter_size, folder):
    keys = f"what: data, at: 0, passes: {iter_size}"
    solver = made(spoilt(keys), iter_size=iter_size, snapshot_prefix=str(folder / "net"))
    start = everything(solver)
    said = diverges(solver)
    assert everything(solver) == start
    assert said.startswith("iteration 0: ") and "look at forward of SpoilsAt" in said
    with np.load("net_diverged.npz") as file:
        assert sum(name.startswith("@batch/") for name in file) == 2 * iter_size


def test_a_number_that_is_not_finite_once_only():
    solver = made(spoilt("at: 99"))
    layer, forward = solver.net.layers["spoil"], solver.net.layers["spoil"].forward
    calls = []

    def once(x):
        calls.append(x)
        return forward(x) * (np.float32("nan") if len(calls) == 3 else 1)

    layer.forward = once
    assert diverges(solver).startswith(
        "iteration 2: the loss is nan, lr 0.1; computed again all is finite: some layer"
    )


def test_losses_that_are_finite_and_whose_sum_is_not():
    solver = made(spoilt("at: 99"))
    said = diagnosis(solver, Look(solver.net, check=True), [], float("inf"), float("inf"))
    assert said == f"the loss is inf, lr {solver.rate:g}, a sum of finite losses"


def test_running_sums_that_overflow_where_no_loss_shows_it():
    """A variance that is infinite makes of each value 0: nothing but the sum of variances tells."""
    solver = made(spoilt("what: data, at: 99"), display=2)
    solver.net.layers["spoil"].forward = lambda x: x * np.float32(1e30)
    said = diverges(solver)
    assert said.startswith("iteration 1: layer 'norm' (BatchNorm) has parameter 'norm__1' 4 of 4")


def test_after_a_resume(folder):
    given = {"snapshot_prefix": str(folder / "net"), "display": 3}
    spec = spoilt("what: diff")
    first = made(spec, **given)
    first.step(2)
    path = first.snapshot()
    second = made(spec, **given)
    second.restore(path)
    assert diverges(second).startswith(f"iteration {AT}: ")
    assert everything(second) == before(spec, AT)


def test_what_was_found_and_not_read_is_forgotten_at_a_resume(cuda, folder):
    solver = made(spoilt("what: data"), cuda, display=0, snapshot_prefix=str(folder / "net"))
    solver.step(2)
    path = solver.snapshot()
    with np.errstate(all="ignore"):
        solver.step(4)
    solver.net.layers["spoil"].at = 99
    solver.restore(path)
    solver.step(3)
    solver.loss()
    other = made(spoilt("what: data, at: 99"), cuda)
    other.step(5)
    assert everything(solver) == everything(other)


FLAT = "  - {name: flat, type: Power, scale: 0}\n"
IMAGE = "  - {name: image, type: Reshape, shape: {dim: [6, 4, 1, 1]}}\n"
IP = "ip InnerProduct num_output: 1"


def norm(kind, keys, before=FLAT):
    """The net with such a layer in place of its BatchNorm, which sees numbers that are all alike."""
    changed = f"{before}  - {{name: norm, type: {kind}, {keys}}}\n"
    return spoilt(**{"  - {name: norm, type: BatchNorm}\n": changed})


def drawn(filler, layer):
    """Data of a filler, seen by a layer."""
    x = f"x DummyData shape: {{dim: [5, 4]}}, data_filler: {{type: {filler}}}"
    return summed(x, f"f {layer}", IP)


SPREAD = "it divides by a spread of 0: give it an eps above 0 .now 0."


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: spoilt("what: diff, value: -1.0e+39"),
         "'spoil' .SpoilsAt. gives the gradient of blob 'ip' 1 of 24 values .* what went in: spoil diff -.*, ip "),
        *((lambda kind=kind: norm(kind, "eps: 0"), f"'norm' .{kind}. gives blob 'norm'.*{SPREAD}")
          for kind in ("BatchNorm", "MVN", "LayerNorm")),
        (lambda: norm("LRN", "k: 0", FLAT + IMAGE),
         "'norm' .LRN. gives blob 'norm'.*it divides by 0 where all it sums are 0: give it a k above 0 .now 0."),
        (lambda: drawn("uniform, min: -1, max: 2", "Log"), "'f' .*it takes the logarithm of -0.*: set its shift above 0"),
        (lambda: drawn("uniform, min: 1, max: 2", "Exp scale: 100"), "'f' .*exp of 19.* is infinite, .* above 88.7"),
        (lambda: drawn("constant", "Power power: -1"), "'f' .*it divides by 0; give it a shift"),
        (lambda: drawn("uniform, min: -1", "Power power: 0.5"), "'f' .*to the power 0.5, which is no number"),
        (lambda: drawn("constant, value: 1.0e+30", "Power power: 2"), "'f' .*before any update: scale the data"),
        (lambda: summed("x Parameter shape: {dim: [2, 2]}", "root Power power: 0.5"),
         "'root' .Power. gives the gradient of blob 'x' 4 of 4.*its slope divides by 0; give it a shift"),
        (lambda: summed("source SpoiltSource", IP),
         "'source' .SpoiltSource. gives blob 'source' 1 of 6 values.*the data themselves are not finite:"
         " sample 1 of the batch, entry 41 of pass 0"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_is_said_and_what_to_try_is_of_the_case(make, said):
    told = diverges(made(make()))
    assert re.search(f"layer {said}", told), told


def test_an_entry_of_a_data_set_is_named(folder):
    images = np.arange(36, dtype=np.float32).reshape(9, 1, 2, 2) / 36
    images[6, 0, 1, 1] = np.nan
    np.savez("things.npz", images=images, labels=np.zeros(9, np.int64))
    text = """
layers:
  - {name: data, type: Data, top: [x, label], source: things.npz, batch_size: 2}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, max_iter: 9}
"""
    said = diverges(made(parse(text)))
    assert "layer 'data' (Data) gives blob 'x' 1 of 8 values" in said
    assert re.search(r"not finite: sample [01] of the batch, things.npz: images: entry 6;", said), (
        said
    )


def test_one_sample_that_is_of_another_kind():
    net = half_solver(LENET.replace("dtype: float16", ""), "cpu", BATCH)
    x = BATCH["x"].astype(np.float32).copy()
    x[7] *= 1e38
    net.net.blobs["x"].data = x
    said = diverges(net)
    assert "sample 7 of 'x' reaches " in said and said.startswith("iteration 0: layer 'conv1'")


def test_labels_that_are_none_are_still_told_first():
    spec = spoilt(**{"value: 1}": "value: 9}"})
    assert "label 9 is not one of the 3" in refusal(made(spec).step, 3, error=DataError)


def test_training_can_go_on_after_it(folder):
    """With a rate that is lower, say: what was found is forgotten."""
    spec = spoilt("what: data")
    solver = made(spec)
    diverges(solver)
    solver.net.layers["spoil"].at = 99
    solver.step(2)
    solver.loss()
    other = made(spec)
    other.net.layers["spoil"].at = 99
    other.step(AT + 2)
    assert everything(solver) == everything(other)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_large_sum_of_finite_gradients_is_no_divergence(compiled, monkeypatch, device):
    if not compiled:
        monkeypatch.setattr(cpu, "available", lambda: False)
    text = """
layers:
  - {name: x, type: Parameter, shape: {dim: [50]}}
  - {name: loss, type: Reduction, loss_weight: 1.0e+30}
solver: {base_lr: 1.0e-31, max_iter: 9, display: 1, clip_gradients: LIMIT}
"""
    for limit in (-1.0, 1e29):
        solver = made(parse(text.replace("LIMIT", str(limit))), device)
        solver.step(3)
        assert solver.norms()[0] == pytest.approx(1e30 * 50**0.5)
        step = 0.1 if limit < 0 else 0.01 / 50**0.5
        got = device.to_host(solver.net.params["x"][0].data)
        np.testing.assert_allclose(got, -3 * step, rtol=1e-5)


def test_16_bits_stop_at_a_loss_and_pass_over_a_gradient(cuda):
    solver = half_solver(LENET, cuda, BATCH, display=4)
    solver.step(2)
    start = everything(solver)
    x = BATCH["x"].copy()
    x[3, 0, 4, 5] = np.nan
    cuda.copy_from_host(solver.net.blobs["x"].data, x)
    said = diverges(solver)
    assert said.startswith("iteration 2: layer 'data' (Input) gives blob 'x' 1 of 2304 values")
    assert everything(solver) == start


@pytest.mark.parametrize("size", [0, 1, 1000, nan_guard.ALONE + 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_squares_and_what_is_not_finite(size, dtype):
    x = np.random.default_rng(1).normal(size=size).astype(dtype)
    out, parts, bad = np.array(2.0), np.empty(4), np.zeros(1, np.int32)
    exact = float((x.astype(np.float64) ** 2).sum())
    assert nan_guard.squares(x, out, parts, bad) == pytest.approx(exact, rel=1e-5) and not bad[0]
    assert nan_guard.squares(x, out, parts, bad, add=True) == pytest.approx(2 * exact, rel=1e-5)
    for value in (np.inf, -np.inf, np.nan) if size else ():
        x[size // 2] = value
        bad[0] = 0
        nan_guard.squares(x, out, parts, bad)
        assert bad[0] == 1


def test_norms_are_those_of_the_parameters_that_learn():
    solver = made(spoilt(), iter_size=2, display=1)
    solver.step(1)
    param = solver.net.params
    learnt = [*param["ip"], *param["out"]]
    weights = np.sqrt(sum(float((p.data.astype(np.float64) ** 2).sum()) for p in learnt))
    other = made(spoilt(), iter_size=2)
    other.gradient()
    learnt = [*other.net.params["ip"], *other.net.params["out"]]
    gradient = np.sqrt(sum(float(((p.diff.astype(np.float64) / 2) ** 2).sum()) for p in learnt))
    assert solver.norms() == pytest.approx((gradient, weights), rel=1e-6)


def test_the_watch_counts_from_where_it_stopped():
    seen = Watch(np, 1, np.float32)
    gradient = [np.ones(4, np.float32)]
    for iteration in range(10, 16):
        seen.begin()
        gradient[0][2] = np.nan if iteration == 13 else 1
        seen.expect(iteration)
        seen.judge(gradient, -1.0)
    told = seen.told(type("Host", (), {"to_host": staticmethod(lambda array: array)}))
    assert told.stopped and told.done == 3 and seen.iteration(told) == 13


@pytest.mark.parametrize("begins", [True, False])
def test_a_batch_norm_that_is_frozen_and_thawed_on_the_way(begins):
    """What its passes no longer change stays; what they change again is put back."""
    frozen = f"type: BatchNorm, use_global_stats: {str(begins).lower()}"
    solver = made(parse(NET.replace("type: BatchNorm", frozen)))
    norm, weight = solver.net.layers["norm"], solver.net.params["ip"][0].data
    for frozen in (begins, not begins, begins):
        norm.use_global_stats = frozen
        solver.step(4)
        held = [param.data.copy() for param in solver.net.params["norm"]]
        before = weight.copy()
        weight[0, 0] = np.inf
        diverges(solver, 1)
        weight[...] = before
        now = [param.data for param in solver.net.params["norm"]]
        assert all(map(np.array_equal, held, now)), frozen
        solver.step(1)
        assert all(map(np.array_equal, held, now)) is frozen
