"""The solver's steps: one pass over a parameter, its gradient and its history, from entry first to last.

Each rule takes g = scale diff + penalty, leaves its step in diff and subtracts it from the weight; or does
nothing where `skip` says so. What may change from step to step, its numbers, lies in memory.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.cpu import at, compiled


@compiled
def regularized(w: Any, diff: Any, decay: Any, l1: bool, scale: Any) -> Any:
    """g = scale diff + decay w; with the penalty L1, decay sign(w)."""
    penalty = w * decay
    if l1:
        penalty = decay if w > 0 else (-decay if w < 0 else w * 0)
    return diff * scale + penalty


@compiled
def sgd(
    diff: Any,
    history: Any,
    numbers: Any,
    decay: Any,
    l1: bool,
    scale: Any,
    skip: Any,
    weight: Any,
    first: int,
    last: int,
) -> None:
    """h = momentum h + rate g; step = h."""
    if skip[0]:
        return
    kind = weight.dtype.type
    rate, momentum = kind(numbers[0]), kind(numbers[1])
    for i in range(first, last):
        w, d = weight[at(i)], diff[at(i)]
        g = regularized(w, d, decay, l1, scale)
        step = momentum * history[at(i)] + g * rate
        history[at(i)] = step
        diff[at(i)] = step
        weight[at(i)] = w - step


@compiled
def nesterov(
    diff: Any,
    history: Any,
    numbers: Any,
    decay: Any,
    l1: bool,
    scale: Any,
    skip: Any,
    weight: Any,
    first: int,
    last: int,
) -> None:
    """h = momentum h + rate g; step = (1 + momentum) h - momentum h_before."""
    if skip[0]:
        return
    kind = weight.dtype.type
    rate, momentum = kind(numbers[0]), kind(numbers[1])
    for i in range(first, last):
        w, d = weight[at(i)], diff[at(i)]
        g = regularized(w, d, decay, l1, scale)
        before = history[at(i)]
        h = momentum * before + g * rate
        step = h + momentum * (h - before)
        history[at(i)] = h
        diff[at(i)] = step
        weight[at(i)] = w - step


@compiled
def scaled(
    diff: Any,
    history: Any,
    numbers: Any,
    decay: Any,
    l1: bool,
    scale: Any,
    skip: Any,
    weight: Any,
    first: int,
    last: int,
) -> None:
    """h = keep h + take g^2; step = rate g / (sqrt(h) + delta)."""
    if skip[0]:
        return
    kind = weight.dtype.type
    rate = kind(numbers[0])
    keep = kind(numbers[1])
    take = kind(numbers[2])
    delta = kind(numbers[3])
    for i in range(first, last):
        w, d = weight[at(i)], diff[at(i)]
        g = regularized(w, d, decay, l1, scale)
        h = keep * history[at(i)] + take * (g * g)
        step = rate * (g / (math.sqrt(h) + delta))
        history[at(i)] = h
        diff[at(i)] = step
        weight[at(i)] = w - step


@compiled
def adadelta(
    diff: Any,
    gradients: Any,
    updates: Any,
    numbers: Any,
    decay: Any,
    l1: bool,
    scale: Any,
    skip: Any,
    weight: Any,
    first: int,
    last: int,
) -> None:
    """a and b are running means of g^2 and u^2; u = g sqrt((b + delta) / (a + delta)); step = rate u."""
    if skip[0]:
        return
    kind = weight.dtype.type
    rate = kind(numbers[0])
    momentum = kind(numbers[1])
    delta = kind(numbers[2])
    for i in range(first, last):
        w, d = weight[at(i)], diff[at(i)]
        g = regularized(w, d, decay, l1, scale)
        b = updates[at(i)]
        a = momentum * gradients[at(i)] + (1 - momentum) * (g * g)
        u = g * math.sqrt((b + delta) / (a + delta))
        gradients[at(i)] = a
        updates[at(i)] = momentum * b + (1 - momentum) * (u * u)
        step = rate * u
        diff[at(i)] = step
        weight[at(i)] = w - step


@compiled
def adam(
    diff: Any,
    mean: Any,
    square: Any,
    numbers: Any,
    decay: Any,
    l1: bool,
    scale: Any,
    skip: Any,
    weight: Any,
    first: int,
    last: int,
) -> None:
    """m and v are running means of g and g^2; step = rate m / (sqrt(v) + delta) + shrink w."""
    if skip[0]:
        return
    kind = weight.dtype.type
    rate = kind(numbers[0])
    momentum = kind(numbers[1])
    momentum2 = kind(numbers[2])
    delta = kind(numbers[3])
    shrink = kind(numbers[4])
    for i in range(first, last):
        w, d = weight[at(i)], diff[at(i)]
        g = regularized(w, d, decay, l1, scale)
        m = momentum * mean[at(i)] + (1 - momentum) * g
        v = momentum2 * square[at(i)] + (1 - momentum2) * (g * g)
        step = rate * m / (math.sqrt(v) + delta) + shrink * w
        mean[at(i)] = m
        square[at(i)] = v
        diff[at(i)] = step
        weight[at(i)] = w - step
