"""How the learning rate falls: Caffe's policies."""

from __future__ import annotations

import bisect
import math

from minicaffe.spec.model import SolverSpec


def learning_rate(spec: SolverSpec, iteration: int) -> float:
    """The rate of an iteration. With b = base_lr, g = gamma, p = power, s = stepsize, i = iteration:

    fixed b; step b g^floor(i / s); multistep b g^(stepvalues <= i); exp b g^i; inv b (1 + g i)^-p;
    poly b (1 - i / max_iter)^p; sigmoid b / (1 + exp(-g (i - s))). Source: Caffe's SGDSolver.

    >>> spec = SolverSpec(base_lr=0.1, max_iter=10, lr_policy="step", gamma=0.5, stepsize=4)
    >>> [learning_rate(spec, i) for i in (0, 3, 4, 8)]
    [0.1, 0.1, 0.05, 0.025]
    """
    gamma, power, stepsize = spec.gamma or 0.0, spec.power or 0.0, spec.stepsize or 1
    match spec.lr_policy:
        case "fixed":
            factor = 1.0
        case "step":
            factor = gamma ** (iteration // stepsize)
        case "multistep":
            factor = gamma ** bisect.bisect_right(spec.stepvalue, iteration)
        case "exp":
            factor = gamma**iteration
        case "inv":
            factor = (1 + gamma * iteration) ** -power
        case "poly":
            factor = max(0.0, 1 - iteration / spec.max_iter) ** power
        case _:
            factor = 1 / (1 + math.exp(min(-gamma * (iteration - stepsize), 700.0)))
    return spec.base_lr * factor
