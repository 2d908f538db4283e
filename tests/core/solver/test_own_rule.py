"""Update rules of a user's own: by NumPy, in compiled loops and on CUDA, replayed, restored; and refused ones."""

import functools

import numpy as np
import pytest
from kit import refusal

from minicaffe import Rule, Solver, SpecError, parse, register_rule
from minicaffe.backends import cpu
from minicaffe.backends.cpu import threads
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


@pytest.fixture(params=["compiled", "numpy", "cuda"])
def place(request, monkeypatch):
    """The forms of the CPU's loops, and CUDA."""
    if request.param == "numpy":
        monkeypatch.setattr(cpu, "available", lambda: False)
        monkeypatch.setattr(threads, "_crew", functools.cache(threads._crew.__wrapped__))
    return request.getfixturevalue("cuda") if request.param == "cuda" else "cpu"


def rule(name, step, **members):
    """A rule by its formula."""
    return type(name, (Rule,), {"step": staticmethod(step), **members})


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


def train(solver, seeds):
    """An iteration on the batch of each seed."""
    for seed in seeds:
        feed(solver, seed)
        solver.step(1)
    return solver


def solver_of(kind, device="cpu", **settings):
    """A solver of a rule."""
    text = MODEL.replace("type: Lion", f"type: {kind}")
    text = text if kind == "Lion" else text.replace("momentum2: 0.8, ", "")
    return Solver(parse(text), device=device, report=Report(), dtype="float64", **settings)


def trained(steps=9, **given):
    return train(solver_of("Lion", **given), range(steps))


def weights(solver):
    return [solver.device.to_host(param.data) for param in solver.net.params["y"]]


def gradients(seed, w, b):
    """Of the loss of a batch."""
    rng = np.random.default_rng(seed)
    x, t = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))
    dy = (x @ w.T + b - t) / 4
    return dy.T @ x, dy.sum(0)


def by_hand(steps=9):
    """The same in float64, a parameter after the other, from the gradient of the loss by hand."""
    w, b = weights(solver_of("SGD"))
    mw, mb = np.zeros_like(w), np.zeros_like(b)
    for i in range(steps):
        (gw, gb), rate = gradients(i, w, b), 0.01 * 0.9**i
        w = w - rate * np.sign(0.9 * mw + (1 - 0.9) * gw) - rate * 0.1 * w
        b = b - 2 * rate * np.sign(0.9 * mb + (1 - 0.9) * gb)
        mw, mb = 0.8 * mw + (1 - 0.8) * gw, 0.8 * mb + (1 - 0.8) * gb
    return w, b


def test_it_is_what_is_computed_by_hand(place):
    lion()
    for got, expected in zip(weights(trained(device=place)), by_hand(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_it_goes_on_from_a_snapshot(place, tmp_path):
    lion()
    half = trained(5, device=place, snapshot_prefix=str(tmp_path / "a"))
    again = solver_of("Lion", place)
    again.restore(half.snapshot())
    train(again, range(5, 9))
    for one, other in zip(weights(trained(device=place)), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)


def odd(w, g, a, b, rate, momentum):
    a = momentum * a + g * g
    return where(g > 0.0, rate, -rate) * (1.0 - exp(-abs(g))) + 0.0 * b, a, b + 1.0


def test_two_arrays_of_history_and_words(place):
    numbers = staticmethod(lambda spec, rate, iteration, decay: (rate, spec.momentum))
    register_rule(rule("Odd", odd, memory=2, numbers=numbers))
    solver = train(solver_of("Odd", place), range(5))
    assert len(solver.rule.history) == 4
    counted = solver.device.to_host(solver.rule.history[2])
    np.testing.assert_array_equal(counted, np.full((3, 5), 5.0))


def test_a_rule_that_is_registered_again_is_another(place):
    """Whoever has the first one goes on by it, replayed or not; the next solver takes the second."""
    lion()
    first = trained(4, device=place)
    lion(power=2.0)
    train(first, range(4, 9))
    for got, expected in zip(weights(first), by_hand(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert abs(weights(trained(1, device=place))[1] - by_hand(0)[1]).max() == pytest.approx(0.04)


FORMULAS = {
    # Of names that kernels have, or C++ has, for their own
    "Sum": lambda weight, new, S, rate: (rate * new, S),
    # The gradient itself is remembered
    "Optimistic": lambda w, g, before, rate: (rate * (2 * g - before), g),
    # What lies between two parameters is 0, and none of the rule's business
    "Signs": lambda w, g, h, rate: (rate * g / abs(g), h),
    # Each parameter's step is made as long as it is, times the rate, but for one of zeros
    "Trusted": lambda w, g, h, rate: (rate * (g + 0.1 * w + h), 0.9 * h + g),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_one_wherever_it_runs(place, name):
    """As Python computes it, entry by entry."""
    trust = name == "Trusted"
    register_rule(rule(name, FORMULAS[name], trust=trust))
    solver = solver_of(name, place, weight_decay=0, lr_policy="fixed", gamma=None)
    for param in solver.net.params["y"]:
        param.lr_mult = 1
    held = [np.zeros_like(one) for one in weights(solver)]
    for seed in range(6):
        before = [one.copy() for one in weights(solver)]
        diffs = gradients(seed, *before)
        train(solver, [seed])
        for i, after in enumerate(weights(solver)):
            step, held[i] = FORMULAS[name](before[i], diffs[i], held[i], 0.01)
            if trust and before[i].any():
                step *= 0.01 * np.linalg.norm(before[i]) / np.linalg.norm(step)
            np.testing.assert_allclose(after, before[i] - step, rtol=1e-12)
    solver.loss()
    before = [one.copy() for one in weights(solver)]
    solver.net.params["y"][0].diff.fill(np.inf)
    solver.update()
    np.testing.assert_array_equal(weights(solver)[0], before[0])
    assert solver.rule.laid.complete is not trust  # whose update no ranks share


def test_another_formula_of_one_name_is_compiled_anew(place):
    """The loops on disk go by the formula, which is in no file of ours."""

    def once(formula):
        register_rule(rule("Plain", formula))
        solver = solver_of("Plain", place, weight_decay=0)
        before = weights(solver)[0].copy()
        return weights(train(solver, [0]))[0] - before

    plain = once(lambda w, g, h, rate: (rate * g, h))
    np.testing.assert_allclose(
        once(lambda w, g, h, rate: (rate * g * 2.0, h)), 2 * plain, rtol=1e-12
    )


def test_numbers_that_are_too_few_are_named():
    register_rule(rule("Short", lambda w, g, h, rate, momentum: (rate * g, momentum * h)))
    with pytest.raises(SpecError, match="rule Short: `numbers` returns 1 values, `step` takes 2"):
        solver_of("Short")


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (rule("SGD", lambda w, g, h, rate: (g, h)), "rule SGD: is a built-in rule's name"),
        (rule("New", lambda w, g, h, rate: (g, h), memory=3), "rule New: memory: expected 1 or 2, got 3"),
        (rule("New", lambda w, g, h, rate: rate * g), "rule New: it returns 1 values, not the step and 1 of history"),
        (rule("New", lambda w, g, h, rate: (np.cbrt(g), h)), "rule New: the formula <lambda> has no CUDA: "),
        (rule("New", lambda w, g, h, rate: (g if g > 0 else h, h)), "it branches on a value"),
        (int, "register_rule: int is no subclass of Rule"),
        (rule("Große", lambda w, g, h, rate: (g, h)), "rule Große: expected a name in ASCII, as C++ takes it"),
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
