"""Update rules of a user's own: by NumPy, in compiled loops and on CUDA, replayed, restored; and refused ones."""

from __future__ import annotations

import numpy as np
import pytest
from kit import refusal

from minicaffe import Rule, Solver, SpecError, parse, register_rule
from minicaffe.backends import cpu
from minicaffe.backends.formulas import RULES, exp, sign, where
from minicaffe.core.config.declare import TYPES
from minicaffe.core.solver import Report
from minicaffe.core.solver.update_rules import KINDS

MODEL = """
layers:
  - {name: x, type: Input, top: x, shape: {dim: [4, 5]}}
  - {name: t, type: Input, top: t, shape: {dim: [4, 3]}}
  - {name: y, type: InnerProduct, bottom: x, num_output: 3, weight_filler: xavier, param: [{}, {lr_mult: 2, decay_mult: 0}]}
  - {name: loss, type: EuclideanLoss, bottom: [y, t]}
solver: {type: Lion, base_lr: 0.01, lr_policy: exp, gamma: 0.9, momentum: 0.9, momentum2: 0.8, weight_decay: 0.1, max_iter: 40, display: 0, snapshot_after_train: false}
"""


@pytest.fixture(autouse=True)
def rules():
    """All is as before once a test is over."""
    before = [(one, dict(one)) for one in (RULES, KINDS)], [*TYPES]
    yield
    for one, held in before[0]:
        one.clear()
        one.update(held)
    TYPES[:] = before[1]


@pytest.fixture(params=["compiled", "numpy"])
def loops(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(cpu, "available", lambda: False)


def lion(power=1.0):
    """Lion, a step of it taken `power` times."""

    class Lion(Rule):
        decoupled = True

        @staticmethod
        def step(w, g, m, rate, momentum, momentum2, shrink):
            c = momentum * m + (1 - momentum) * g
            return rate * sign(c) + shrink * w, momentum2 * m + (1 - momentum2) * g

        @staticmethod
        def numbers(spec, rate, iteration, decay):
            return power * rate, spec.momentum, spec.momentum2, rate * decay

    return register_rule(Lion)


def feed(solver, seed):
    rng = np.random.default_rng(seed)
    for name in ("x", "t"):
        blob = solver.net.blobs[name].data
        blob[...] = solver.device.asarray(rng.normal(size=blob.shape), blob.dtype)


def trained(steps=9, **given):
    solver = Solver(parse(MODEL), report=Report(), dtype="float64", **given)
    for seed in range(steps):
        feed(solver, seed)
        solver.step(1)
    return solver


def weights(solver):
    return [solver.device.to_host(param.data) for param in solver.net.params["y"]]


def by_hand(steps=9):
    """The same in float64, a parameter after the other, from the gradient of the loss by hand."""
    plain = MODEL.replace("type: Lion", "type: SGD").replace("momentum2: 0.8, ", "")
    solver = Solver(parse(plain), device="cpu", dtype="float64")
    w, b = weights(solver)
    mw, mb = np.zeros_like(w), np.zeros_like(b)
    for i in range(steps):
        rng = np.random.default_rng(i)
        x, t = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))
        dy = (x @ w.T + b - t) / 4
        gw, gb, rate = dy.T @ x, dy.sum(0), 0.01 * 0.9**i
        w = w - rate * np.sign(0.9 * mw + (1 - 0.9) * gw) - rate * 0.1 * w
        b = b - 2 * rate * np.sign(0.9 * mb + (1 - 0.9) * gb)
        mw, mb = 0.8 * mw + (1 - 0.8) * gw, 0.8 * mb + (1 - 0.8) * gb
    return w, b


def test_on_the_cpu_it_is_what_is_computed_by_hand(loops):
    lion()
    for got, expected in zip(weights(trained(device="cpu")), by_hand(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_on_cuda_too(cuda):
    lion()
    for got, expected in zip(weights(trained(device=cuda)), by_hand(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_it_goes_on_from_a_snapshot(loops, tmp_path):
    lion()
    whole = trained(device="cpu")
    half = trained(5, device="cpu", snapshot_prefix=str(tmp_path / "a"))
    again = Solver(parse(MODEL), device="cpu", report=Report(), dtype="float64")
    again.restore(half.snapshot())
    for seed in range(5, 9):
        feed(again, seed)
        again.step(1)
    for one, other in zip(weights(whole), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_arrays_of_history_and_words(loops):
    @register_rule
    class Odd(Rule):
        memory = 2

        @staticmethod
        def step(w, g, a, b, rate, momentum):
            a = momentum * a + g * g
            return where(g > 0.0, rate, -rate) * (1.0 - exp(-abs(g))) + 0.0 * b, a, b + 1.0

        @staticmethod
        def numbers(spec, rate, iteration, decay):
            return rate, spec.momentum

    model = MODEL.replace("type: Lion", "type: Odd").replace("momentum2: 0.8, ", "")
    solver = Solver(parse(model), device="cpu", dtype="float64")
    for seed in range(5):
        feed(solver, seed)
        solver.step(1)
    assert len(solver.rule.history) == 4
    np.testing.assert_array_equal(solver.rule.history[2], np.full((3, 5), 5.0))


def test_a_rule_that_is_registered_again_is_another(loops):
    """Whoever has the first one goes on by it, replayed or not; the next solver takes the second."""
    lion()
    first = trained(4, device="cpu")
    lion(power=2.0)
    for seed in range(4, 9):
        feed(first, seed)
        first.step(1)
    for got, expected in zip(weights(first), by_hand(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert abs(weights(trained(1, device="cpu"))[1] - by_hand(0)[1]).max() == pytest.approx(0.04)


def odd_words():
    """Parameters and a class of names that kernels have, or C++ has, for their own."""

    class Sum(Rule):
        @staticmethod
        def step(weight, new, S, rate):
            return rate * new, S

    return Sum


def what_it_is_given():
    """The gradient itself is remembered."""

    class Optimistic(Rule):
        @staticmethod
        def step(w, g, before, rate):
            return rate * (2 * g - before), g

    return Optimistic


def zero_by_zero():
    """What lies between two parameters is 0, and none of the rule's business."""

    class Signs(Rule):
        @staticmethod
        def step(w, g, h, rate):
            return rate * g / abs(g), h

    return Signs


@pytest.mark.parametrize("make", [odd_words, what_it_is_given, zero_by_zero])
@pytest.mark.parametrize("device", ["cuda", "compiled", "numpy"])
def test_a_formula_is_one_wherever_it_runs(make, device, request, monkeypatch):
    """As Python computes it, entry by entry."""
    cls = register_rule(make())
    if device == "cuda":
        device = request.getfixturevalue("cuda")
    else:
        if device == "numpy":
            monkeypatch.setattr(cpu, "available", lambda: False)
        device = "cpu"
    model = MODEL.replace("type: Lion", f"type: {cls.__name__}").replace(
        "weight_decay: 0.1", "weight_decay: 0"
    )
    model = model.replace("lr_policy: exp, gamma: 0.9, ", "").replace("lr_mult: 2, ", "")
    solver = Solver(parse(model), device=device, report=Report(), dtype="float64")
    held = [np.zeros_like(one) for one in weights(solver)]
    for seed in range(6):
        before = [one.copy() for one in weights(solver)]
        feed(solver, seed)
        rng = np.random.default_rng(seed)
        x, t = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))
        dy = (x @ before[0].T + before[1] - t) / 4
        diffs = [dy.T @ x, dy.sum(0)]
        solver.step(1)
        for i, after in enumerate(weights(solver)):
            step, held[i] = cls.step(before[i], diffs[i], held[i], 0.01)
            np.testing.assert_allclose(after, before[i] - step, rtol=1e-12)
    solver.loss()


def test_numbers_that_are_too_few_are_named():
    @register_rule
    class Short(Rule):
        @staticmethod
        def step(w, g, h, rate, momentum):
            return rate * g, momentum * h

    model = MODEL.replace("type: Lion", "type: Short")
    with pytest.raises(SpecError, match="rule Short: `numbers` returns 1 values, `step` takes 2"):
        Solver(parse(model), device="cpu")


def test_another_formula_of_one_name_is_compiled_anew(loops):
    """The loops on disk go by the formula, which is in no file of ours."""

    def once(factor):
        class Plain(Rule):
            @staticmethod
            def step(w, g, h, rate):
                return rate * g, h

        class Twice(Plain):
            @staticmethod
            def step(w, g, h, rate):
                return rate * g * 2.0, h

        cls = Plain if factor == 1 else Twice
        cls.__name__ = "Plain"
        register_rule(cls)
        model = MODEL.replace("type: Lion", "type: Plain").replace(
            "weight_decay: 0.1", "weight_decay: 0"
        )
        solver = Solver(parse(model), device="cpu", dtype="float64")
        before = weights(solver)[0].copy()
        feed(solver, 0)
        solver.step(1)
        return weights(solver)[0] - before

    np.testing.assert_allclose(once(2), 2 * once(1), rtol=1e-12)


def bad(name, step, **members):
    return type(name, (Rule,), {"step": staticmethod(step), **members})


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (bad("SGD", step=lambda w, g, h, rate: (g, h)), "rule SGD: is a built-in rule's name"),
        (bad("New", memory=3, step=lambda w, g, h, rate: (g, h)), "rule New: memory: expected 1 or 2, got 3"),
        (bad("New", step=lambda w, g, h, rate: rate * g), "rule New: it returns 1 values, not the step and 1 of history"),
        (bad("New", step=lambda w, g, h, rate: (np.cbrt(g), h)), "rule New: the formula <lambda> has no CUDA: "),
        (bad("New", step=lambda w, g, h, rate: (g if g > 0 else h, h)), "it branches on a value"),
        (int, "register_rule: int is no subclass of Rule"),
        (bad("Große", step=lambda w, g, h, rate: (g, h)), "rule Große: expected a name in ASCII, as C++ takes it"),
    ],
    ids=["built in", "memory", "too few", "a function", "a branch", "no rule", "no ASCII"],
)  # fmt: skip
def test_mistakes_are_named(cls, message):
    before = dict(RULES), [*TYPES]
    assert message in refusal(register_rule, cls, error=SpecError)
    assert before == (RULES, TYPES)


def test_a_type_that_is_not_there_is_named():
    told = "solver: type: expected one of SGD, .*AdamW, got 'Lion'; --import FILE brings rules"
    with pytest.raises(SpecError, match=told):
        parse(MODEL)
    with pytest.raises(SpecError, match="solver: type: expected one of SGD, .*, got 7"):
        parse(MODEL.replace("type: Lion", "type: 7"))
