"""Softmax, its negative log-likelihood, accuracy and the largest scores; places (n, s) first to last.

Scores are (n, c, s). Where s is 1 a place's are neighbours; else the places of a sample are, and are taken
side by side, with `reduced` (n, s) for what there is one of a place. A label that is no class sets `refused`.
"""

import math

import numpy as np
from numpy import exp

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels import maths


@maths.by_type(compiled_sums)
def softmax(x, c, s, reduced, y, first, last):
    """y = exp(x - max) / sum."""
    place = first
    while place < last:
        start, some = run_of_places(place, last, c, s)
        if s == 1:
            largest = x[at(start)]
            for k in range(start + 1, start + c):
                largest = greater(x[at(k)], largest)
            for k in range(start, start + c):
                y[at(k)] = exp(x[at(k)] - largest)
            total = y.dtype.type(0)
            for k in range(start, start + c):
                total += y[at(k)]
            for k in range(start, start + c):
                y[at(k)] /= total
        else:
            for q in range(some):
                reduced[at(place + q)] = x[at(start + q)]
            for k in range(start + s, start + c * s, s):
                for q in range(some):
                    reduced[at(place + q)] = greater(x[at(k + q)], reduced[at(place + q)])
            for k in range(start, start + c * s, s):
                for q in range(some):
                    y[at(k + q)] = exp(x[at(k + q)] - reduced[at(place + q)])
            for q in range(some):
                reduced[at(place + q)] = 0
            for k in range(start, start + c * s, s):
                for q in range(some):
                    reduced[at(place + q)] += y[at(k + q)]
            for k in range(start, start + c * s, s):
                for q in range(some):
                    y[at(k + q)] /= reduced[at(place + q)]
        place += some


@helper
def run_of_places(place, last, c, s):
    """Where the scores of a place begin, and how many places from it on are of its sample."""
    sample, q = place // s, place % s
    return sample * c * s + q, min(s - q, last - place)


@helper
def greater(a, b):
    """The greater of two, NaN if one is."""
    return a if a > b or a != a else b


@compiled_sums
def softmax_gradient(dy, y, c, s, reduced, dx, first, last):
    """dx = (dy - sum over c of dy y) y."""
    place = first
    while place < last:
        start, some = run_of_places(place, last, c, s)
        if s == 1:
            total = y.dtype.type(0)
            for k in range(start, start + c):
                total += dy[at(k)] * y[at(k)]
            for k in range(start, start + c):
                dx[at(k)] = (dy[at(k)] - total) * y[at(k)]
        else:
            for q in range(some):
                reduced[at(place + q)] = 0
            for k in range(start, start + c * s, s):
                for q in range(some):
                    reduced[at(place + q)] += dy[at(k + q)] * y[at(k + q)]
            for k in range(start, start + c * s, s):
                for q in range(some):
                    dx[at(k + q)] = (dy[at(k + q)] - reduced[at(place + q)]) * y[at(k + q)]
        place += some


@helper
def read(label, c, ignore, refused):
    """The class that a label is and whether it counts; -1 for one that is none. `ignore`: if at all, which."""
    if ignore[0] and label == ignore[1]:
        return -1, False
    if label > -1 and label < c:
        return int(label), True
    refused[0] = 1
    return -1, True


@compiled
def nll(prob, labels, c, s, ignore, tiny, losses, valid, refused, first, last):
    """losses = -log max(prob[label], tiny), 0 where ignored, NaN at a label that is no class."""
    for place in range(first, last):
        which, counts = read(labels[at(place)], c, ignore, refused)
        valid[at(place)] = counts
        losses[at(place)] = np.nan if counts else 0
        if which >= 0:
            p = prob[at(place // s * c * s + which * s + place % s)]
            losses[at(place)] = -math.log(p if p > tiny or p != p else tiny)


@compiled
def nll_gradient(prob, labels, c, s, valid, scale, dx, first, last):
    """dx = scale (prob - onehot(label)) where valid, else 0; scale is one number in memory."""
    factor, place = scale[0], first
    while place < last:
        start, some = run_of_places(place, last, c, s)
        if s == 1:
            for k in range(start, start + c):
                dx[at(k)] = prob[at(k)] * factor if valid[at(place)] != 0 else 0
        else:
            for k in range(start, start + c * s, s):
                for q in range(some):
                    dx[at(k + q)] = prob[at(k + q)] * factor if valid[at(place + q)] != 0 else 0
        for q in range(some):
            label = labels[at(place + q)]  # which may have changed since the loss
            if valid[at(place + q)] != 0 and label > -1 and label < c:
                own = at(start + q + int(label) * s)
                dx[own] = (prob[own] - 1) * factor
        place += some


@compiled
def accuracy(scores, labels, c, s, top_k, ignore, hits, valid, refused, first, last):
    """hits = 1 if fewer than top_k other classes score at least as high as the label's, else 0."""
    for place in range(first, last):
        which, counts = read(labels[at(place)], c, ignore, refused)
        valid[at(place)] = counts
        start, lower = place // s * c * s + place % s, 0
        own = scores[at(start + max(which, 0) * s)]
        for k in range(start, start + c * s, s):
            lower += scores[at(k)] < own
        hits[at(place)] = which >= 0 and lower >= c - top_k


@compiled
def class_accuracy(hits, valid, labels, out, first, last):
    """out[k] = share of hits among the valid labels k, for the classes first..last."""
    for k in range(first, last):
        count = hit = 0
        for i in range(len(labels)):
            own = valid[at(i)] != 0 and labels[at(i)] > k - 1 and int(labels[at(i)]) == k
            count += own
            hit += own and hits[at(i)] != 0
        out[at(k)] = hit / max(count, 1)


@compiled
def largest(x, c, s, k, place, number, first, last):
    """The k largest of columns first..last, largest first, the last of equal ones before the others."""
    for column in range(first, last):
        start, out = column // s * c * s + column % s, column // s * k * s + column % s
        before, bound = c, np.inf
        for i in range(k):
            best, where = -np.inf, -1
            for j in range(c):
                value = x[at(start + j * s)]
                if value >= best and (i == 0 or value < bound or (value == bound and j < before)):
                    best, where = value, j
            place[at(out + i * s)] = where
            number[at(out + i * s)] = best if where >= 0 else np.nan
            before, bound = where, number[at(out + i * s)]
