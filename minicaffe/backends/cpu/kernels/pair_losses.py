"""Losses of two arrays of one shape, and their gradients. Weights that are an empty array are ones."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels import maths


@compiled_sums
def contrastive(diff, similar, c, margin, legacy, y, pull, first, last):
    """y = d^2 of a pair that is similar, else max(margin - d, 0)^2, or max(margin - d^2, 0); and the pull."""
    for n in range(first, last):
        squares = y.dtype.type(0)
        for k in range(n * c, (n + 1) * c):
            squares += diff[at(k)] * diff[at(k)]
        if not abs(similar[at(n)]) < 1:  # int(similar) is not 0
            y[at(n)], pull[at(n)] = squares, 1
            continue
        d = math.sqrt(squares)
        gap = margin - squares if legacy else margin - d
        near = not gap <= 0
        loss = gap if legacy else gap * gap
        slope = -1.0 if legacy else -gap / (d + 1e-4)
        y[at(n)] = loss if near else 0
        pull[at(n)] = slope if near else 0


@helper
def apart(a, b, inside, i):
    """inside (a - b)."""
    d = a[at(i)] - b[at(i)]
    return d * inside[at(i)] if inside.size else d


@compiled
def smooth_l1(a, b, inside, outside, square, y, first, last):
    """y = outside f(d), d = inside (a - b), f = square d^2 / 2 up to |d| = 1 / square, then a line."""
    limit = y.dtype.type(1) / square
    half = square / y.dtype.type(2)
    for i in range(first, last):
        size = abs(apart(a, b, inside, i))
        low = limit if size > limit else size
        value = half * low * (size + size - low)
        y[at(i)] = value * outside[at(i)] if outside.size else value


@compiled
def smooth_l1_gradient(a, b, inside, outside, square, scale, sign, dx, first, last):
    """dx = sign scale outside inside f'(d), f' = square d within -1 and 1."""
    one = dx.dtype.type(1)
    for i in range(first, last):
        slope = apart(a, b, inside, i) * square
        slope = one if slope > one else (-one if slope < -one else slope)
        slope *= sign * scale[0]
        slope = slope * inside[at(i)] if inside.size else slope
        dx[at(i)] = slope * outside[at(i)] if outside.size else slope


@functools.cache
def sigmoid_cross_entropy(dtype: Any) -> Any:
    """The loop of y = max(x, 0) - x t + log(1 + exp(-|x|)), 0 where int(t) is to be ignored, as is `valid`."""
    words = maths.words(dtype)
    exp, log1p = words["exp"], words["log1p"]

    def sigmoid_cross_entropy(x, target, ignore, y, valid, first, last):
        for i in range(first, last):
            value, t = x[at(i)], target[at(i)]
            above = value * 0 if value <= 0 else value
            loss = above - value * t + log1p(exp(-abs(value)))
            counts = not (ignore[0] and np.trunc(t) == ignore[1])
            y[at(i)] = loss if counts else 0
            valid[at(i)] = counts

    return compiled(sigmoid_cross_entropy)


@functools.cache
def sigmoid_cross_entropy_gradient(dtype: Any) -> Any:
    """The loop of dx = scale (1 / (1 + exp(-x)) - t), 0 where `valid` is."""
    exp = maths.words(dtype)["exp"]

    def sigmoid_cross_entropy_gradient(x, target, valid, scale, dx, first, last):
        one = dx.dtype.type(1)
        for i in range(first, last):
            slope = (one / (one + exp(-x[at(i)])) - target[at(i)]) * scale[0]
            dx[at(i)] = slope if valid[at(i)] != 0 else 0

    return compiled(sigmoid_cross_entropy_gradient)
