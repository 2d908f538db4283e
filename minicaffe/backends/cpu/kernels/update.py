"""The solver's steps: one pass over a parameter, its gradient and its history, from entry first to last.

Each rule takes g = scale diff + penalty, leaves its step in diff and subtracts it from the weight; or does
nothing where `skip` says so. What may change from step to step, its numbers, lies in memory.
"""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels import maths
from minicaffe.backends.cpu.kernels.elementwise import WORDS
from minicaffe.backends.formulas import RULES, typed


@compiled
def regularized(w, diff, decay, l1, scale):
    """g = scale diff + decay w; with the penalty L1, decay sign(w)."""
    penalty = w * decay
    if l1:
        penalty = decay if w > 0 else (-decay if w < 0 else w * 0)
    return diff * scale + penalty


def settings_of(count: int) -> Any:
    """The first so many numbers as a tuple, in the type of the weight."""
    last = count - 1
    if count == 1:
        return helper(lambda numbers, weight: (weight.dtype.type(numbers[0]),))
    before = settings_of(last)
    return helper(
        lambda numbers, weight: (*before(numbers, weight), weight.dtype.type(numbers[last]))
    )


@functools.cache
def loop(rule: str, dtype: Any) -> Any:
    """The loop of a rule of formulas.py. It reads arrays itself: where a helper does, no vectors are made."""
    formula, memory = RULES[rule]
    count = formula.__code__.co_argcount - 2 - memory
    f = helper(typed(formula, dtype, {**WORDS, **maths.words(dtype), "sqrt": math.sqrt}))
    settings, two = settings_of(count), memory == 2

    def update(diff, history, numbers, decay, l1, scale, skip, weight, first, last):
        if skip[0]:
            return
        typed_numbers = settings(numbers, weight)
        a, b = history[0], history[-1]
        for i in range(first, last):
            w, d = weight[at(i)], diff[at(i)]
            g = regularized(w, d, decay, l1, scale)
            if two:
                result = f(w, g, a[at(i)], b[at(i)], *typed_numbers)
                b[at(i)] = result[2]
            else:
                result = f(w, g, a[at(i)], *typed_numbers)
            a[at(i)] = result[1]
            diff[at(i)] = result[0]
            weight[at(i)] = w - result[0]

    code = formula.__code__  # a rule of one's own is in no file that the cache knows
    words = repr((code.co_code, code.co_consts, code.co_names)).encode()
    digest = hashlib.blake2b(words, digest_size=6).hexdigest()
    update.__name__ = f"{rule}_{digest}"  # under which it is kept
    return compiled(update)
