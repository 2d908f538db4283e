"""The share of labels among the best scores; of all labels, and of each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.labels import Labels


@op(replays=False)
def accuracy(
    scores: Any, labels: Any, top_k: int, ignore: int | None, out: Any, read: Labels, lower: Any
) -> Any:
    """out[n, s] = 1 if fewer than top_k other classes score at least as high as the label's, else 0.

    Ties count against the label, as in Caffe; a NaN score is a miss (in Caffe, by accident, a hit).
    `lower` is boolean scratch of the scores' shape. Source: Caffe's AccuracyLayer.

    >>> scores, labels = np.array([[0.1, 0.9], [0.5, 0.5]]).reshape(2, 2, 1), np.array([[1.0], [0.0]])
    >>> read, lower = Labels.empty(np, 2, 2, 1, float), np.empty((2, 2, 1), bool)
    >>> accuracy(scores, labels, 1, None, np.empty((2, 1)), read, lower).ravel()
    array([1., 0.])
    """
    n, c, s = scores.shape
    read.read(labels, ignore, c, s)
    np.take(scores.reshape(-1), read.place, out=out, mode="clip")
    np.less(scores, out.reshape(n, 1, s), out=lower)
    np.sum(lower, axis=1, out=read.place)
    np.greater_equal(read.place, c - top_k, out=out)
    np.multiply(out, read.valid, out=out)


@op(replays=False)
def class_accuracy(hits: Any, valid: Any, labels: Any, out: Any) -> Any:
    """out[k] = share of hits among the valid labels k; 0 for a class that did not occur.

    >>> hits, labels = np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
    >>> class_accuracy(hits, np.ones(3), labels, np.empty(3))
    array([0.5, 1. , 0. ])
    """
    classes = np.where(valid, labels, 0).astype(np.int64).ravel()
    counts = np.bincount(classes, valid.ravel(), out.size)
    out[...] = np.bincount(classes, (hits * valid).ravel(), out.size) / np.maximum(counts, 1)
