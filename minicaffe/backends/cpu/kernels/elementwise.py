"""Functions of entries, and of two arrays, and the solver's steps: one pass over memory, from first to last.

Each update rule takes g = scale diff + penalty, leaves its step in diff and subtracts it from the weight; or
does nothing where `skip` says so. What may change from step to step, its numbers, lies in memory.
"""

import functools
import hashlib
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels import maths
from minicaffe.backends.formulas import FORMULAS, RULES, typed

HELD = 1024  # entries aside
WORDS = {  # of the formulas that are compiled, beside those of maths.py
    "erfc": math.erfc,
    "sign": np.sign,
    "where": helper(lambda condition, a, b: a if condition else b),
    "maximum": helper(lambda a, bound: bound if a <= bound else a),  # a NaN stays one
    "minimum": helper(lambda a, bound: bound if a >= bound else a),
}


@functools.cache
def formula(name: str, part: str, dtype: Any) -> Any:
    """The loop of a row of formulas.py: y = y(x), or, of its `slope`, dx = dy slope(x, y).

    In place a block at a time is held aside: of two arrays that overlap no vectors are made, and of one, where
    some entries stay as they are, only those others would be stored, lane by lane on many processors.
    """
    f = helper(typed(getattr(FORMULAS[name], part), dtype, {**WORDS, **maths.words(dtype)}))

    def forward(x, numbers, y, first, last):
        if x.ctypes.data == y.ctypes.data:
            held = np.empty(HELD, y.dtype)
            for start in range(first, last, HELD):
                count = min(HELD, last - start)
                for i in range(count):
                    held[at(i)] = y[at(start + i)]
                for i in range(count):
                    y[at(start + i)] = f(held[at(i)], *numbers)
        else:
            for i in range(first, last):
                y[at(i)] = f(x[at(i)], *numbers)

    def gradient(dy, x, y, numbers, dx, first, last):
        if dy.ctypes.data == dx.ctypes.data:
            for i in range(first, last):
                dx[at(i)] *= dx.dtype.type(f(x[at(i)], y[at(i)], *numbers))
        else:
            for i in range(first, last):
                dx[at(i)] = dy[at(i)] * dx.dtype.type(f(x[at(i)], y[at(i)], *numbers))

    loop = forward if part == "y" else gradient
    loop.__name__ = f"{name}_{part}"  # under which it is kept
    return compiled(loop)


@compiled
def dropout(x, mask, scale, y, first, last):
    """y = x kept scale."""
    if x.ctypes.data == y.ctypes.data:
        for i in range(first, last):
            y[at(i)] = y[at(i)] * mask[at(i)] * scale
    else:
        for i in range(first, last):
            y[at(i)] = x[at(i)] * mask[at(i)] * scale


@compiled
def average(x, share, skip, mean, first, last):
    """mean += share (x - mean), unless `skip` says no."""
    if skip[0]:
        return
    part = mean.dtype.type(share[0])
    for i in range(first, last):
        m = mean[at(i)]
        mean[at(i)] = m + part * (x[at(i)] - m)


@compiled
def gather(images, labels, places, mean, scale, sizes, y, y_labels, first, last):
    """Samples first..last of a batch: entry, crop, mirror, mean, scale; and their labels, if there are any."""
    c, h, w, oh, ow = sizes
    entry, top, left, mirror = places
    for b in range(first, last):
        if labels.size:
            y_labels[at(b)] = labels[at(entry[b])]
        for k in range(c):
            for r in range(oh):
                here = (k * h + r + top[b]) * w + left[b]
                to, image = ((b * c + k) * oh + r) * ow, entry[b] * c * h * w + here
                if mirror[b]:
                    for q in range(ow):
                        value = y.dtype.type(images[at(image + ow - 1 - q)])
                        y[at(to + q)] = (value - mean[at(here + ow - 1 - q)]) * scale
                else:
                    for q in range(ow):
                        value = y.dtype.type(images[at(image + q)])
                        y[at(to + q)] = (value - mean[at(here + q)]) * scale


@compiled
def larger(x, y, first, last):
    """y = the larger of x and y."""
    for i in range(first, last):
        y[at(i)] = x[at(i)] if x[at(i)] >= y[at(i)] else y[at(i)]


@compiled
def larger_of(x, number, which, y, first, last):
    """The same, and which = `number` where it is x."""
    for i in range(first, last):
        which[at(i)] = np.int32(number) if x[at(i)] >= y[at(i)] else which[at(i)]
        y[at(i)] = x[at(i)] if x[at(i)] >= y[at(i)] else y[at(i)]


@compiled
def where_it_is(dy, which, number, dx, first, last):
    """dx = dy where `which` is a number, else 0."""
    for i in range(first, last):
        dx[at(i)] = dy[at(i)] if which[at(i)] == np.int32(number) else dx.dtype.type(0)


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
def update_loop(rule: str, dtype: Any) -> Any:
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


FUNCTIONS = {
    "copy": lambda a, b: b,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": lambda a, b: a if a >= b or a != a else b,
}


@helper
def place(row, sizes, steps):
    """Where row `row`, counted along all axes but the last, begins."""
    start = 0
    for k in range(len(sizes) - 1):
        axis = len(sizes) - 2 - k
        start += row % sizes[axis] * steps[axis]
        row = row // sizes[axis]
    return start


@compiled
def rectified_sum(a, b, y, first, last):
    """y = a + b, and 0 where that is less, of arrays that lie apart."""
    zero = y.dtype.type(0)
    for i in range(first, last):
        value = a[at(i)] + b[at(i)]
        y[at(i)] = zero if value <= zero else value


@functools.cache
def function(name: str) -> Any:
    """y = f(a, b) for entries first..last of a walk of `sizes`, in which each array has its own steps."""
    f = helper(FUNCTIONS[name])

    def loop(a, of_a, b, of_b, sizes, y, of_y, first, last):
        inner, done = sizes[-1], first
        sa, sb, sy = of_a[-1], of_b[-1], of_y[-1]
        in_place = a.ctypes.data == y.ctypes.data and sa == sy
        while done < last:
            row, begin = done // inner, done % inner
            count = min(inner - begin, last - done)
            k = place(row, sizes, of_a) + begin * sa
            m = place(row, sizes, of_b) + begin * sb
            o = place(row, sizes, of_y) + begin * sy
            if sy == 1 and sb == 1 and in_place:
                for i in range(count):  # as one array: of two that overlap not one vector is made
                    y[at(o + i)] = f(y[at(o + i)], b[at(m + i)])
            elif sy == 1 and sb == 1 and sa == 1:
                for i in range(count):
                    y[at(o + i)] = f(a[at(k + i)], b[at(m + i)])
            elif sy == 1 and sb == 0 and in_place:
                value = b[at(m)]
                for i in range(count):
                    y[at(o + i)] = f(y[at(o + i)], value)
            elif sy == 1 and sb == 0 and sa == 1:
                value = b[at(m)]
                for i in range(count):
                    y[at(o + i)] = f(a[at(k + i)], value)
            else:
                for i in range(count):
                    y[at(o + i * sy)] = f(a[at(k + i * sa)], b[at(m + i * sb)])
            done += count

    loop.__name__ = name  # under which it is kept
    return compiled(loop)
