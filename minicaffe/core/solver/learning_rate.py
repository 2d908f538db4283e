"""How the learning rate rises and falls: Caffe's policies, cosine, plateau, and warm-up before any."""

import bisect
import math

from minicaffe.core.config.declare import SolverSpec


def learning_rate(spec: SolverSpec, iteration: int, fallen: int = 0) -> float:
    """The rate of an iteration. With b = base_lr, g = gamma, p = power, s = stepsize, i = iteration:

    fixed b; step b g^floor(i / s); multistep b g^(stepvalues <= i); exp b g^i; inv b (1 + g i)^-p;
    poly m + (b - m) (1 - i / max_iter)^p, m = min_lr; sigmoid b / (1 + exp(-g (i - s))). Source: Caffe's
    SGDSolver; m NVCaffe's.

    cosine m + (b - m) (1 + cos(pi t)) / 2, t = (i - w) / (max_iter - w), w = warmup_iter:
    half a wave, from the end of the warm-up. Source: Loshchilov and Hutter, SGDR, ICLR 2017, without restarts.
    plateau max(b g^fallen, m); `fallen` counts how often tests did not get better (see Trend).

    While i < w, whatever the policy: a + (b - a) i / w, a = warmup_start_lr. Source: Goyal et al. 2017, with
    the names and the count of iterations, from the beginning, of Intel's Caffe.

    >>> spec = SolverSpec(base_lr=0.1, max_iter=10, lr_policy="step", gamma=0.5, stepsize=4)
    >>> [learning_rate(spec, i) for i in (0, 3, 4, 8)]
    [0.1, 0.1, 0.05, 0.025]
    """
    start, length = spec.warmup_start_lr, spec.warmup_iter
    if iteration < length:
        return start + (spec.base_lr - start) * iteration / length
    match spec.lr_policy:
        case "plateau":
            return max(spec.base_lr * (spec.gamma or 0.0) ** fallen, spec.min_lr)
        case "cosine":
            done = min((iteration - length) / max((spec.max_iter or 0) - length, 1), 1.0)
            return spec.min_lr + (spec.base_lr - spec.min_lr) * (1 + math.cos(math.pi * done)) / 2
    gamma, power, stepsize = spec.gamma or 0.0, spec.power or 0.0, spec.stepsize or 1
    try:
        match spec.lr_policy:
            case "fixed":
                factor = 1.0
            case "step" | "multistep":
                factor = gamma ** falls(spec, iteration)
            case "exp":
                factor = gamma**iteration
            case "inv":
                factor = (1 + gamma * iteration) ** -power
            case "poly":
                factor = max(0.0, 1 - iteration / max(spec.max_iter or 0, 1)) ** power
            case _:
                factor = 1 / (1 + math.exp(min(-gamma * (iteration - stepsize), 700.0)))
    except OverflowError:
        return math.inf
    return spec.min_lr + (spec.base_lr - spec.min_lr) * factor


def falls(spec: SolverSpec, iteration: int) -> int:
    """How often the rate has fallen, for the policies step and multistep (Caffe's current_step); else 0."""
    if spec.lr_policy == "multistep":
        return bisect.bisect_right(spec.stepvalue, iteration)
    return iteration // (spec.stepsize or 1) if spec.lr_policy == "step" else 0
