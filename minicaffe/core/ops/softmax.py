"""Softmax along an axis, and its negative log-likelihood.

Scores are seen as (n, c, s): n = product of the axes before the softmax axis, c classes, s = product
of the axes after it. Labels are (n, s), whole numbers held in the scores' own type, as in Caffe.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.labels import Labels, Mean, find

GRAIN = 2**11  # scores that a thread is worth waking for


@op("out reduced", samples="x out reduced", grain=GRAIN, by_calls=True)
def softmax(x: Any, out: Any, reduced: Any) -> Any:
    """p[n, c, s] = exp(x - max) / sum exp(x - max), over c; `reduced` (n, 1, s) is scratch.

    Of x of 16 bits it is computed in the type of `out` and `reduced`.
    Source: Caffe's SoftmaxLayer.

    >>> x = np.array([[0.0, np.log(3.0)]]).reshape(1, 2, 1)
    >>> softmax(x, np.empty_like(x), np.empty((1, 1, 1))).ravel()
    array([0.25, 0.75])
    """
    if x.dtype != out.dtype:
        np.copyto(out, x)
        x = out
    np.maximum.reduce(x, axis=1, keepdims=True, out=reduced)
    np.subtract(x, reduced, out=out)
    np.exp(out, out=out)
    np.add.reduce(out, axis=1, keepdims=True, out=reduced)
    np.divide(out, reduced, out=out)


@op("out reduced", samples="dy y out reduced", grain=GRAIN, by_calls=True)
def softmax_gradient(dy: Any, y: Any, out: Any, reduced: Any) -> Any:
    """dx = (dy - sum over c of dy y) y, computed in the type of y, `out` and `reduced`.

    >>> y = np.array([0.25, 0.75]).reshape(1, 2, 1)
    >>> softmax_gradient(np.ones_like(y), y, np.empty_like(y), np.empty((1, 1, 1))).ravel()
    array([0., 0.])
    """
    np.multiply(dy, y, out=out)
    np.add.reduce(out, axis=1, keepdims=True, out=reduced)
    np.subtract(dy, reduced, out=out)
    np.multiply(out, y, out=out)


@op(traced=False)
def softmax_loss(
    x: Any,
    labels: Any,
    ignore: int | None,
    prob: Any,
    losses: Any,
    read: Labels,
    mean: Mean,
    out: Any,
    work: Any,
) -> Any:
    """out = - sum over labels of log max(prob[n, label, s], smallest normal number) / normalizer.

    prob is the softmax of x; a label of the value `ignore` does not count. `losses`, of the labels' shape,
    are scratch. Raises DataError for a label that is no class; on CUDA, which is not waited for, the loss is
    NaN then. Source: Caffe's SoftmaxWithLossLayer.

    >>> x, prob, losses = np.log([[0.25, 0.75]]).reshape(1, 2, 1), np.empty((1, 2, 1)), np.empty((1, 1))
    >>> read, mean = Labels.empty(np, 1, 2, 1, float), Mean.empty(np, 1, False, float)
    >>> given = np.array([[1.0]]), None, prob, losses, read, mean, np.empty(()), np.empty(8)
    >>> round(float(np.exp(-softmax_loss(x, *given))), 6), prob.ravel()
    (0.75, array([0.25, 0.75]))
    """
    softmax(x, prob, losses.reshape(x.shape[0], 1, x.shape[2]))
    of_labels = read.start, read.valid, read.ignored, read.place, read.refused
    nll(prob, labels, ignore, losses, *of_labels)
    read.check(labels, ignore, x.shape[1])
    mean.of(losses, read.valid, out, work)


@op(
    "out valid ignored place refused",
    samples="prob labels out start valid ignored place",
    grain=GRAIN,
)
def nll(
    prob: Any,
    labels: Any,
    ignore: int | None,
    out: Any,
    start: Any,
    valid: Any,
    ignored: Any,
    place: Any,
    refused: Any,
) -> Any:
    """The loss of each label on the CPU, 0 where it does not count; the rest is as in labels.Labels."""
    c, s = prob.shape[1:]
    find(labels, ignore, c, s, start, out=(valid, ignored, place, refused))
    prob.reshape(-1).take(place - start[:1, :1], out=out, mode="clip")
    np.maximum(out, np.finfo(prob.dtype).tiny, out=out)
    np.log(out, out=out)
    np.negative(out, out=out)
    np.copyto(out, 0, where=ignored)


@op(traced=False)
def softmax_loss_gradient(
    prob: Any, labels: Any, ignore: int | None, dloss: Any, out: Any, read: Labels, mean: Mean
) -> Any:
    """dx = dloss (prob - onehot(label)) / normalizer, 0 where the label does not count.

    `read` and `mean` are as `softmax_loss` left them, `dloss` is one number on the device.

    >>> p, labels, losses = np.array([[[0.25], [0.75]]]), np.ones((1, 1)), np.empty((1, 1))
    >>> read, mean = Labels.empty(np, 1, 2, 1, float), Mean.empty(np, 1, False, float)
    >>> loss = softmax_loss(np.log(p), labels, None, p, losses, read, mean, np.empty(()), np.empty(8))
    >>> softmax_loss_gradient(p, labels, None, np.array(2.0), np.empty_like(p), read, mean).ravel()
    array([ 0.5, -0.5])
    """
    of_labels = read.start, read.valid, read.ignored, read.place
    nll_gradient(prob, labels, mean.gradient(dloss), out, *of_labels)


@op(samples="prob labels out start valid ignored place", grain=GRAIN)
def nll_gradient(
    prob: Any,
    labels: Any,
    scale: Any,
    out: Any,
    start: Any,
    valid: Any,
    ignored: Any,
    place: Any,
) -> Any:
    """dx = scale (prob - onehot(label)) on the CPU, where `scale` is one number."""
    np.copyto(out, prob)
    out.reshape(-1)[(place - start[:1, :1]).reshape(-1)] -= 1
    np.multiply(out, scale, out=out)
    np.copyto(out, 0, where=ignored[:, None])
