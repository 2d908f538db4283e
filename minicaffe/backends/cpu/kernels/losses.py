"""Losses and their gradients: of scores with a label each, and of two arrays of one shape.

A label that is none sets `refused`, and is NaN. Weights that are an empty array are ones.
"""

import math

import numpy as np
from numpy import exp, log1p

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels import maths
from minicaffe.backends.cpu.kernels.softmax import read

NONE = (0, 0)  # no label is ignored


@compiled
def hinge(x, labels, d, refused, y, first, last):
    """y = max(0, 1 - x) of the label's score, max(0, 1 + x) of the others, for samples first..last."""
    for n in range(first, last):
        own, _ = read(labels[at(n)], d, NONE, refused)
        for k in range(d):
            value = x[at(n * d + k)]
            value = y.dtype.type(1) + (-value if k == own else value)
            y[at(n * d + k)] = value if value > 0 or value != value else 0
        if own < 0:
            y[at(n * d)] = np.nan


@compiled
def hinge_gradient(margins, labels, d, squared, scale, dx, first, last):
    """scale times the slope of the sum of margins, or of their squares."""
    for n in range(first, last):
        for k in range(d):
            value = margins[at(n * d + k)]
            slope = 2 * value if squared else (value if value == 0 or value != value else 1)
            dx[at(n * d + k)] = slope * (-scale[0] if labels[at(n)] == k else scale[0])


@compiled
def multinomial_gradient(prob, labels, d, least, scale, dx, first, last):
    """dx = -scale / max(prob, least) at the labels, 0 elsewhere."""
    for n in range(first, last):
        for k in range(d):
            p = prob[at(n * d + k)]
            p = p if p > least or p != p else least
            dx[at(n * d + k)] = -scale[0] / p if labels[at(n)] == k else 0


@compiled
def row_sums(matrix, out, first, last):
    """out[l] = the sum of row l of a square matrix, for rows first..last."""
    c = len(out)
    for row in range(first, last):
        out[at(row)] = 0
        for k in range(c):
            out[at(row)] += matrix[at(row * c + k)]


@compiled
def infogain(prob, labels, matrix, c, s, ignore, least, losses, valid, refused, first, last):
    """losses = -sum over k of matrix[label, k] log max(prob[n, k, s], least), 0 where ignored."""
    for place in range(first, last):
        own, counts = read(labels[at(place)], c, ignore, refused)
        valid[at(place)] = counts
        total = losses.dtype.type(np.nan if counts and own < 0 else 0)
        if own >= 0:
            start = place // s * c * s + place % s
            for k in range(c):
                p = prob[at(start + k * s)]
                total -= matrix[at(own * c + k)] * math.log(p if p > least or p != p else least)
        losses[at(place)] = total


@compiled
def infogain_gradient(prob, labels, matrix, sums, c, s, valid, scale, dx, first, last):
    """dx = scale (prob sums[label] - matrix[label]), 0 where the label does not count."""
    for place in range(first, last):
        label, start = labels[at(place)], place // s * c * s + place % s
        counts = valid[at(place)] != 0 and label > -1 and label < c
        own = int(label) if counts else 0
        for k in range(c):
            where = at(start + k * s)
            value = (prob[where] * sums[at(own)] - matrix[at(own * c + k)]) * scale[0]
            dx[where] = value if counts else 0


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


@maths.by_type(compiled)
def sigmoid_cross_entropy(x, target, ignore, y, valid, first, last):
    """y = max(x, 0) - x t + log(1 + exp(-|x|)), 0 where int(t) is to be ignored, as is `valid`."""
    for i in range(first, last):
        value, t = x[at(i)], target[at(i)]
        above = value * 0 if value <= 0 else value
        loss = above - value * t + log1p(exp(-abs(value)))
        counts = not (ignore[0] and np.trunc(t) == ignore[1])
        y[at(i)] = loss if counts else 0
        valid[at(i)] = counts


@maths.by_type(compiled)
def sigmoid_cross_entropy_gradient(x, target, valid, scale, dx, first, last):
    """dx = scale (1 / (1 + exp(-x)) - t), 0 where `valid` is."""
    one = dx.dtype.type(1)
    for i in range(first, last):
        slope = (one / (one + exp(-x[at(i)])) - target[at(i)]) * scale[0]
        dx[at(i)] = slope if valid[at(i)] != 0 else 0
