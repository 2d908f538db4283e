"""The solver's update of one parameter, by each of the rules; and the running mean of the weights."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import module, op
from minicaffe.backends.formulas import RULES, Function, StepFormula, rule_on_blocks
from minicaffe.backends.thread_state import inside

NEAR = 2**17  # entries that NumPy takes at a time, near the cache,
BLOCK = 2**18  # and beside other threads, for whose hold on Python it waits at each call
SHARED = 2**20  # entries from which threads pay NumPy: it waits for memory, not for a core

# The NumPy form of each rule of formulas.py, which makes of the gradient in d the step, and brings the history
# h up to date. It works in place, with scratch s of the same shape: new arrays take NumPy twice the time. The
# rule's numbers are n.


def _sgd(w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    (history,), (rate, momentum) = h, n
    np.multiply(d, rate, out=d)
    np.multiply(history, momentum, out=history)
    np.add(history, d, out=history)
    np.copyto(d, history)


def _nesterov(w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    (history,), (rate, momentum) = h, n
    np.multiply(d, rate, out=d)
    np.multiply(history, momentum, out=s)
    np.add(s, d, out=history)
    np.multiply(history, 1 + momentum, out=d)
    np.subtract(d, s, out=d)


def _scaled(w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    (history,), (rate, keep, take, delta) = h, n
    _running_square(history, d, s, keep, take)
    np.add(np.sqrt(history, out=s), delta, out=s)
    np.divide(d, s, out=d)
    np.multiply(d, rate, out=d)


def _adadelta(w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    (gradients, updates), (rate, momentum, delta) = h, n
    _running_square(gradients, d, s, momentum, 1 - momentum)
    np.multiply(d, np.sqrt(np.add(updates, delta, out=s), out=s), out=d)
    np.divide(d, np.sqrt(np.add(gradients, delta, out=s), out=s), out=d)
    _running_square(updates, d, s, momentum, 1 - momentum)
    np.multiply(d, rate, out=d)


def _adam(w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    (mean, square), (rate, momentum, momentum2, delta, shrink) = h, n
    _running_square(square, d, s, momentum2, 1 - momentum2)
    np.multiply(d, 1 - momentum, out=d)
    np.multiply(mean, momentum, out=mean)
    np.add(mean, d, out=mean)
    np.add(np.sqrt(square, out=s), delta, out=s)
    np.divide(mean, s, out=d)
    np.multiply(d, rate, out=d)
    np.add(d, np.multiply(w, shrink, out=s), out=d)


def _running_square(history: Any, x: Any, s: Any, keep: Any, take: Any) -> None:
    """history = keep history + take x^2."""
    np.multiply(np.multiply(x, x, out=s), take, out=s)
    np.multiply(history, keep, out=history)
    np.add(history, s, out=history)


FORMS: dict[str, Callable[..., None]] = {
    "sgd": _sgd,
    "nesterov": _nesterov,
    "scaled": _scaled,
    "adadelta": _adadelta,
    "adam": _adam,
}


def add_rule(name: str, step: Function, memory: int) -> str:
    """Add a formula to RULES; returns the name it has there, of its own where another formula has this one.

    What runs by the other goes on by it. Raises TypeError where the formula has no CUDA or returns too little.
    """
    emit = module("minicaffe.backends.cuda.emit")
    results = emit.emitted(step, emit.parameters(step)) if emit else ()
    if emit and len(results) != 1 + memory:
        raise TypeError(f"it returns {len(results)} values, not the step and {memory} of history")
    own = (f"rule_{name}_{count}" for count in range(1, 2 + len(RULES)))  # a word of no kernel's
    free = next(one for one in own if one not in RULES)
    RULES[free] = StepFormula(step, memory)
    return free


def _by_formula(rule: str, w: Any, d: Any, s: Any, h: Any, n: Any) -> None:
    """A rule without a form of its own, evaluated with new arrays."""
    results = rule_on_blocks(rule, d.dtype)(w, d, *h, *n)
    copies = [np.array(np.broadcast_to(value, d.shape)) for value in results]  # one may be d, or h
    for array, value in zip((d, *h), copies, strict=True):
        array[...] = value


class Parts:
    """Which entries of an array go by which numbers: those up to each end, by the row of them beside it.

    >>> from minicaffe.backends.device import device
    >>> Parts([(800, 0), (810, 1)], device("cpu")).slices
    [(slice(0, 800, None), 0), (slice(800, 810, None), 1)]
    """

    def __init__(self, ends: Sequence[tuple[int, int]], device: Device):
        starts = [0, *(end for end, _ in ends)]
        self.slices = [(slice(a, b), row) for a, (b, row) in zip(starts, ends, strict=False)]
        self.there = device.asarray(np.array(ends, np.int32))


@op("weight", traced=False, array="weight")
def update(
    rule: str,
    weight: Any,
    diff: Any,
    history: Sequence[Any],
    numbers: Any,
    parts: Parts,
    penalty: Literal["L1", "L2"],
    scale: float,
    scratch: Any,
    skip: Any,
) -> Any:
    """weight -= step, which is left in `diff`; step = rule(g), g = scale diff + decay weight.

    With the penalty L1, g = scale diff + decay sign(weight). The rules, their history and their numbers are
    those of formulas.py. All in place; `scratch`, flat, is NumPy's: each thread takes as many entries at a
    time as its share of it holds, up to BLOCK. `numbers` are an array of float64: of each row, the decay comes
    last; `parts` tell which entries go by which row. Where `skip`, one int32, is not 0, nothing is done.
    Source: Caffe's solvers.

    >>> from minicaffe.backends.device import device
    >>> weight, diff, history = np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([10.0, 10.0])
    >>> numbers, skip = np.array([[0.1, 0.5, 0.0], [0.2, 0.5, 0.0]]), np.zeros(1, np.int32)
    >>> parts = Parts([(1, 0), (2, 1)], device("cpu"))
    >>> _ = update("sgd", weight, diff, [history], numbers, parts, "L2", 1.0, np.empty(2), skip)
    >>> weight, history
    (array([-4.2, -4.4]), array([5.2, 5.4]))
    """
    flat = [array.reshape(-1) for array in (weight, diff, *history)]
    for here, row in parts.slices:
        w, d, *h = [array[here] for array in flat]
        step(rule, w, d, tuple(h), numbers[row], penalty == "L1", scale, scratch, skip)


@op("weight diff history scratch", entries="weight diff history", scratch="scratch", worth=SHARED)
def step(
    rule: str,
    weight: Any,
    diff: Any,
    history: tuple[Any, ...],
    numbers: Any,
    l1: bool,
    scale: float,
    scratch: Any,
    skip: Any,
) -> Any:
    """`update` of entries that go by one row of numbers."""
    if skip[0]:
        return
    form = FORMS.get(rule) or functools.partial(_by_formula, rule)
    *floats, decay = numbers.tolist()  # which leave the type of an array as it is
    block = min(scratch.size, BLOCK if inside.get() else NEAR)
    for start in range(0, weight.size, block):
        w, d, *h = (array[start : start + block] for array in (weight, diff, *history))
        s = scratch[: w.size]
        if scale != 1:
            np.multiply(d, scale, out=d)
        if decay:
            np.multiply(w if not l1 else np.sign(w, out=s), decay, out=s)
            np.add(d, s, out=d)
        form(w, d, s, h, floats)
        np.subtract(w, d, out=w)


@op("weight step")
def trust(weight: Any, step: Any, rate: Any, skip: Any) -> Any:
    """weight -= rate |weight| / |step| step, which is left in `step`; without the ratio if a length is 0.

    `rate` is one float64. Where `skip`, one int32, is not 0, nothing is done. Source: the trust ratio of LARS
    and LAMB (You et al. 2017, 2020).

    >>> weight, step = np.array([3.0, 4.0]), np.array([0.0, 2.0])
    >>> trust(weight, step, np.array([0.1]), np.zeros(1, np.int32))
    array([3. , 3.5])
    """
    if not skip[0]:
        length, of_step = (math.sqrt(float((a * a).sum())) for a in (weight, step))
        ratio = float(rate[0]) * length / of_step if length and of_step else 1.0
        np.multiply(step, ratio, out=step)
        np.subtract(weight, step, out=weight)


@op("diff", replays=False)
def unscale(diff: Any, scale: float, gradient: Any, add: bool, bad: Any) -> Any:
    """gradient = diff / scale, plus what it was with `add`; diff = 0; bad = 1 if a diff is not finite.

    gradient is of diff's type, or float32 for one of 16 bits; bad is one int32.

    >>> diff, gradient, bad = np.array([8.0, np.inf]), np.ones(2), np.zeros(1, np.int32)
    >>> _ = unscale(diff, 4.0, gradient, True, bad)
    >>> gradient, diff, bad
    (array([ 3., inf]), array([0., 0.]), array([1], dtype=int32))
    """
    np.logical_or(bad, not np.isfinite(diff).all(), out=bad)
    np.add(diff / gradient.dtype.type(scale), gradient if add else 0, out=gradient)
    diff.fill(0)


@op("mean scratch", entries="mean x scratch", worth=2**17)
def average(mean: Any, x: Any, share: Any, scratch: Any, skip: Any) -> None:
    """mean += share (x - mean), in place; `scratch`, of the same shape and type, is NumPy's. `share` is one
    float64. Where `skip`, one int32, is not 0, nothing is done. What stands still stays as it is to the bit.

    >>> mean, x = np.array([1.0, 5.0]), np.array([2.0, 5.0])
    >>> _ = average(mean, x, np.array([0.25]), np.empty(2), np.zeros(1, np.int32))
    >>> mean
    array([1.25, 5.  ])
    """
    if skip[0]:
        return
    np.subtract(x, mean, out=scratch)
    np.multiply(scratch, mean.dtype.type(share[0]), out=scratch)
    np.add(mean, scratch, out=mean)
