"""The slow references of losses, as loops in float64 from their definitions. Nothing here calls minicaffe.

A loss comes with its gradient by what it is of: (losses, gradient of their sum).
"""

import math

import numpy as np


def contrastive(diff, similar, margin, legacy):
    """Of each pair: its loss, and the gradient of half of it by the difference of the two rows."""
    losses, gradient = np.zeros(len(diff)), np.zeros(diff.shape)
    for i, row in enumerate(diff):
        square = math.fsum(float(d) ** 2 for d in row)
        distance = math.sqrt(square)
        if int(similar[i]):
            losses[i], gradient[i] = square, row
        elif legacy:
            losses[i] = max(margin - square, 0)
            gradient[i] = -row if square < margin else 0
        else:
            losses[i] = max(margin - distance, 0) ** 2
            gap = margin - distance
            gradient[i] = -gap / (distance + 1e-4) * row if gap > 0 else 0
    return losses, gradient


def smooth_l1(a, b, inside, outside, sigma):
    losses, gradient = np.zeros(a.shape), np.zeros(a.shape)
    for i in np.ndindex(*a.shape):
        w, v = float(inside[i]), float(outside[i])
        d = w * (float(a[i]) - float(b[i]))
        if abs(d) < 1 / sigma**2:
            losses[i], gradient[i] = v * (sigma * d) ** 2 / 2, v * w * sigma**2 * d
        else:
            losses[i], gradient[i] = v * (abs(d) - 0.5 / sigma**2), v * w * math.copysign(1, d)
    return losses, gradient


def sigmoid_cross_entropy(x, target, ignore):
    """By the definition where that can be computed: log p and log(1 - p) = log p(-x)."""
    losses, gradient, valid = np.zeros(x.shape), np.zeros(x.shape), np.ones(x.shape)
    for i in np.ndindex(*x.shape):
        t, value = float(target[i]), float(x[i])
        if ignore is not None and int(t) == ignore:
            valid[i] = 0
            continue
        losses[i] = -t * _log_sigmoid(value) - (1 - t) * _log_sigmoid(-value)
        gradient[i] = math.exp(_log_sigmoid(value)) - t
    return losses, gradient, valid


def _log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > -700 else x


def hinge(x, labels, squared):
    margins, gradient = np.zeros(x.shape), np.zeros(x.shape)
    for i, k in np.ndindex(*x.shape):
        t = 1 if k == int(labels[i]) else -1
        margins[i, k] = max(0, 1 - t * float(x[i, k]))
        if margins[i, k] > 0:
            gradient[i, k] = -t * (2 * margins[i, k] if squared else 1)
    return margins, gradient


def multinomial(prob, labels, least=1e-20):
    losses, gradient = np.zeros(len(prob)), np.zeros(prob.shape)
    for i, label in enumerate(labels):
        p = max(float(prob[i, int(label)]), least)
        losses[i], gradient[i, int(label)] = -math.log(p), -1 / p
    return losses, gradient


def infogain(x, labels, matrix, ignore, least=1e-20):
    """Of scores x (n, c, s): the losses, and the gradient by the scores as numeric slopes."""
    losses, gradient = np.zeros(labels.shape), np.zeros(x.shape)
    for n, s in np.ndindex(*labels.shape):
        if labels[n, s] == ignore:
            continue
        row = matrix[int(labels[n, s])]

        def loss(column, row=row):
            top = max(column)
            total = math.fsum(math.exp(v - top) for v in column)
            logs = [max(v - top - math.log(total), math.log(least)) for v in column]
            return -math.fsum(float(h) * g for h, g in zip(row, logs, strict=True))

        column = [float(v) for v in x[n, :, s]]
        losses[n, s] = loss(column)
        for k in range(len(column)):
            below, above = ([*column[:k], column[k] + h, *column[k + 1 :]] for h in (-1e-6, 1e-6))
            gradient[n, k, s] = (loss(above) - loss(below)) / 2e-6
    return losses, gradient
