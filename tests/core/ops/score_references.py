"""The slow references of scores: softmax, its loss and accuracy as loops in float64, from their definitions.

Nothing here calls minicaffe. Scores are (n, c, s), labels (n, s).
"""

import math

import numpy as np


def _exp(x):
    return math.inf if x > 709 else math.exp(x)


def softmax(x):
    """p[k] = 1 / sum over j of exp(x[j] - x[k])."""
    p = np.zeros(x.shape)
    for n, k, s in np.ndindex(*x.shape):
        own = float(x[n, k, s])
        p[n, k, s] = 1 / math.fsum(_exp(float(other) - own) for other in x[n, :, s])
    return p


def softmax_gradient(dy, y):
    """dx = J' dy with the Jacobian written out: J[j, k] = dy[j] / dx[k] = y[j] ([j = k] - y[k])."""
    dx = np.zeros(y.shape)
    for n, k, s in np.ndindex(*y.shape):
        column = [float(v) for v in y[n, :, s]]
        dx[n, k, s] = math.fsum(
            float(dy[n, j, s]) * column[j] * ((j == k) - column[k]) for j in range(len(column))
        )
    return dx


def nll(prob, labels, ignore, floor):
    losses, valid = np.zeros(labels.shape), np.zeros(labels.shape)
    for n, s in np.ndindex(*labels.shape):
        if labels[n, s] != ignore:
            losses[n, s] = -math.log(max(float(prob[n, int(labels[n, s]), s]), floor))
            valid[n, s] = 1
    return losses, valid


def nll_gradient(prob, labels, ignore, scale):
    dx = np.zeros(prob.shape)
    for n, k, s in np.ndindex(*prob.shape):
        if labels[n, s] != ignore:
            dx[n, k, s] = scale * (float(prob[n, k, s]) - (k == labels[n, s]))
    return dx


def accuracy(scores, labels, top_k, ignore):
    """A hit: fewer than top_k other classes are not lower than the label's."""
    hits, valid = np.zeros(labels.shape), np.zeros(labels.shape)
    for n, s in np.ndindex(*labels.shape):
        if labels[n, s] == ignore:
            continue
        label = int(labels[n, s])
        own, others = scores[n, label, s], np.delete(scores[n, :, s], label)
        hits[n, s] = sum(not other < own for other in others) < top_k
        valid[n, s] = 1
    return hits, valid


def class_accuracy(hits, valid, labels, classes):
    shares = np.zeros(classes)
    for k in range(classes):
        mine = [h for h, v, label in zip(hits, valid, labels, strict=True) if v and label == k]
        shares[k] = sum(mine) / len(mine) if mine else 0
    return shares
