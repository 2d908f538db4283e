"""Each type of solver against its formula, number by number in Python."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import Net, parse
from minicaffe.backends import cpu as loops
from minicaffe.core.config.declare import Filler, SolverSpec
from minicaffe.core.layers.blob import Param
from minicaffe.core.solver.update_rules import KINDS, Update

SHAPES = ((2, 3), (4,), (1,))
MULTIPLIERS = ((1, 1), (2, 0), (0, 1))


def expected(kind, w, g, h, t, rate, s):
    """One weight's step as the papers and Caffe write it: (step, its history afterwards)."""
    if kind == "SGD":
        h = [s.momentum * h[0] + rate * g]
        return h[0], h
    if kind == "Nesterov":
        new = s.momentum * h[0] + rate * g
        return (1 + s.momentum) * new - s.momentum * h[0], [new]
    if kind == "AdaGrad":
        h = [h[0] + g**2]
        return rate * g / (math.sqrt(h[0]) + s.delta), h
    if kind == "RMSProp":
        h = [s.rms_decay * h[0] + (1 - s.rms_decay) * g**2]
        return rate * g / (math.sqrt(h[0]) + s.delta), h
    if kind == "AdaDelta":
        a = s.momentum * h[0] + (1 - s.momentum) * g**2
        u = g * math.sqrt((h[1] + s.delta) / (a + s.delta))
        return rate * u, [a, s.momentum * h[1] + (1 - s.momentum) * u**2]
    m = s.momentum * h[0] + (1 - s.momentum) * g
    v = s.momentum2 * h[1] + (1 - s.momentum2) * g**2
    if kind == "Adam":
        correction = math.sqrt(1 - s.momentum2**t) / (1 - s.momentum**t)
        return rate * correction * m / (math.sqrt(v) + s.delta), [m, v]
    first, second = m / (1 - s.momentum**t), v / (1 - s.momentum2**t)
    return rate * first / (math.sqrt(second) + s.delta), [m, v]


def take_steps(spec, device, dtype, seed):
    """Four steps of random gradients, by us and by the formula; gives both results.

    The third is at the rate of the second, and so is the fourth, with the decay of one parameter another.
    """
    random, multipliers = np.random.default_rng(seed), [*MULTIPLIERS]
    params = [Param(shape, device, np.dtype(dtype), Filler(type="constant")) for shape in SHAPES]
    for param, (lr, decay) in zip(params, MULTIPLIERS, strict=True):
        param.lr_mult, param.decay_mult = lr, decay
        device.copy_from_host(param.data, random.normal(size=param.shape).astype(dtype))
    w = [device.to_host(param.data).astype(np.float64).ravel() for param in params]
    h = [[[0.0] * KINDS[spec.type].memory for _ in one] for one in w]
    rule = Update(spec, params, device)
    for step in range(4):
        if step == 3:
            multipliers[0], params[0].decay_mult = (1, 3), 3
        g = [random.normal(size=param.shape).astype(dtype) for param in params]
        g[2][...] = 0  # of a parameter that does not learn
        for param, one in zip(params, g, strict=True):
            device.copy_from_host(param.diff, one)
        rate = 0.1 / min(step + 1, 2)
        rule.update(rate, step)
        norm = math.sqrt(sum(float((one.astype(np.float64) ** 2).sum()) for one in g))
        shrink = spec.clip_gradients / norm if 0 < spec.clip_gradients < norm else 1.0
        for i, (lr, decay) in enumerate(multipliers[:2]):
            for k, gradient in enumerate(g[i].astype(np.float64).ravel()):
                x, decayed = w[i][k], spec.weight_decay * decay
                coupled = 0.0 if spec.type == "AdamW" else decayed
                penalty = coupled * (x if spec.regularization_type == "L2" else np.sign(x))
                full = shrink * gradient / spec.iter_size + penalty
                given = spec.type, x, full, h[i][k], step + 1, rate * lr, spec
                moved, h[i][k] = expected(*given)
                if spec.type == "AdamW":
                    moved += rate * lr * decayed * x
                w[i][k] = x - moved
    return [device.to_host(param.data).ravel() for param in params], w


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@given(
    momentum=st.floats(0, 0.99),
    decay=st.floats(0, 0.1),
    penalty=st.sampled_from(["L1", "L2"]),
    clip=st.sampled_from([-1.0, 0.5, 100.0]),
    iter_size=st.integers(1, 3),
    delta=st.sampled_from([1e-8, 0.1]),
    seed=st.integers(0, 9),
)
@settings(max_examples=15)
def test_a_rule_is_its_formula(
    kind, compiled, momentum, decay, penalty, clip, iter_size, delta, seed
):
    spec = SolverSpec(
        type=kind, base_lr=1, max_iter=9, momentum=momentum, momentum2=0.9, rms_decay=0.8,
        delta=delta, weight_decay=decay, regularization_type=penalty, clip_gradients=clip,
        iter_size=iter_size,
    )  # fmt: skip
    cpu = Net(parse("layers: [{name: x, type: Input, shape: {dim: 1}}]"), device="cpu").device
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(loops, "available", lambda: False)
        got, wanted = take_steps(spec, cpu, "float64", seed)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("penalty", ["L1", "L2"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_its_formula_on_each_device(kind, penalty, dtype, device):
    spec = SolverSpec(
        type=kind, base_lr=1, max_iter=9, momentum=0.0 if kind in ("AdaGrad", "RMSProp") else 0.7,
        momentum2=0.9, weight_decay=0.01, regularization_type=penalty, clip_gradients=2.0,
        delta=1e-3, iter_size=2,
    )  # fmt: skip
    got, wanted = take_steps(spec, device, dtype, 3)
    tolerance = 1e-9 if dtype == "float64" else 2e-5
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
