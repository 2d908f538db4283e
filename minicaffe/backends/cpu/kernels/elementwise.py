"""Element-wise functions: one pass over memory, from entry first to last."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels import maths
from minicaffe.backends.formulas import FORMULAS, typed

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
    meaning = {**WORDS, **maths.words(dtype)}
    f = helper(typed(getattr(FORMULAS[name], part), dtype, meaning))

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
def dropout(x, kept, scale, y, first, last):
    """y = x kept scale."""
    if x.ctypes.data == y.ctypes.data:
        for i in range(first, last):
            y[at(i)] = y[at(i)] * kept[at(i)] * scale
    else:
        for i in range(first, last):
            y[at(i)] = x[at(i)] * kept[at(i)] * scale


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
                there, image = ((b * c + k) * oh + r) * ow, entry[b] * c * h * w + here
                if mirror[b]:
                    for q in range(ow):
                        value = y.dtype.type(images[at(image + ow - 1 - q)])
                        y[at(there + q)] = (value - mean[at(here + ow - 1 - q)]) * scale
                else:
                    for q in range(ow):
                        value = y.dtype.type(images[at(image + q)])
                        y[at(there + q)] = (value - mean[at(here + q)]) * scale


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
