"""Losses of scores with a label each, and their gradients; a label that is none sets `refused`, and is NaN."""

from __future__ import annotations

import math

import numpy as np

from minicaffe.backends.cpu import at, compiled
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
def multinomial(prob, labels, d, least, refused, y, first, last):
    """y = -log max(prob[label], least)."""
    for n in range(first, last):
        own, _ = read(labels[at(n)], d, NONE, refused)
        p = prob[at(n * d + max(own, 0))]
        y[at(n)] = -math.log(p if p > least or p != p else least) if own >= 0 else np.nan


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
