"""Each policy, and the warm-up before it, against its formula written out here."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.solver.learning_rate import learning_rate

KEYS = {
    "fixed": (),
    "step": ("gamma", "stepsize"),
    "multistep": ("gamma", "stepvalue"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "poly": ("power", "min_lr"),
    "sigmoid": ("gamma", "stepsize"),
    "cosine": ("min_lr",),
    "plateau": ("gamma", "min_lr"),
}


def wanted(policy, i, k, fallen):
    """The rate as papers and Caffe's comments have it, one case a line."""
    if i < k["warmup_iter"]:
        part = i / k["warmup_iter"]
        return (1 - part) * k["warmup_start_lr"] + part * k["base_lr"]
    base, last, begin = k["base_lr"], k["max_iter"], k["warmup_iter"]
    if policy == "fixed":
        return base
    if policy == "step":
        return base * math.prod([k["gamma"]] * len(range(k["stepsize"], i + 1, k["stepsize"])))
    if policy == "multistep":
        return base * math.prod(k["gamma"] for value in k["stepvalue"] if i >= value)
    if policy == "exp":
        return base * math.prod([k["gamma"]] * i)
    if policy == "inv":
        return base / (1 + k["gamma"] * i) ** k["power"]
    if policy == "poly":
        part = (max(last - i, 0) / last) ** k["power"]
        return base * part + k["min_lr"] * (1 - part)
    if policy == "sigmoid":
        return base * 0.5 * (1 + math.tanh(k["gamma"] * (i - k["stepsize"]) / 2))
    if policy == "plateau":
        return max(k["min_lr"], base * math.prod([k["gamma"]] * fallen))
    last = max(last, begin + 1)  # one iteration of it at least
    if i >= last:
        return k["min_lr"]
    angle = math.pi * (i - begin) / (last - begin)
    return k["min_lr"] + (base - k["min_lr"]) * math.cos(angle / 2) ** 2


@pytest.mark.parametrize("policy", KEYS)
@given(data=st.data())
@settings(max_examples=40)
def test_a_policy_is_its_formula(policy, data):
    base, last = data.draw(st.floats(0.001, 1)), data.draw(st.integers(1, 50))
    every = {
        "gamma": st.floats(0.1, 0.99),
        "power": st.floats(0.3, 2),
        "stepsize": st.integers(1, 20),
        "stepvalue": st.sets(st.integers(0, 60), min_size=1).map(lambda s: tuple(sorted(s))),
        "min_lr": st.floats(0, base),
    }
    given = {key: data.draw(every[key]) for key in KEYS[policy]}
    given["warmup_iter"] = data.draw(st.integers(0, 60))
    given["warmup_start_lr"] = data.draw(st.floats(0, 2)) if given["warmup_iter"] else 0.0
    spec = SolverSpec(base_lr=base, max_iter=last, lr_policy=policy, **given)
    i, fallen = data.draw(st.integers(0, 70)), data.draw(st.integers(0, 5))
    rate = learning_rate(spec, i, fallen)
    known = {**given, "base_lr": base, "max_iter": last}
    assert rate == pytest.approx(wanted(policy, i, known, fallen), rel=1e-9, abs=1e-12)


def test_a_cosine_ends_at_the_least_rate_and_stays_there():
    spec = SolverSpec(base_lr=0.5, max_iter=8, lr_policy="cosine", min_lr=0.1, warmup_iter=2)
    rates = [learning_rate(spec, i) for i in range(11)]
    assert rates[:3] == [0.0, 0.25, 0.5]
    assert rates[5] == pytest.approx(0.3)
    assert rates[8:] == pytest.approx([0.1] * 3)
    assert rates[2:9] == sorted(rates[2:9], reverse=True)
