"""The share of labels among the best scores; of all labels, and of each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops.labels import Labels, flag
from minicaffe.core.ops.softmax import GRAIN, grain


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
    if on_cuda(scores):
        sizes = (c, s, top_k, *flag(ignore))
        launch("accuracy.cu", "accuracy", n * s, out, scores, labels, *sizes, out, read.valid)
        return out
    fast = loops("softmax", scores.dtype)
    if fast is not None:
        flat = scores.reshape(-1), labels.reshape(-1), c, s, top_k, flag(ignore), out.reshape(-1)
        run(fast.accuracy, n * s, *flat, read.valid.reshape(-1), read.refused, grain=grain(c))
        read.check(labels, ignore, c)
        return out
    trace.host(accuracy.__name__)
    read.read(labels, ignore, c, s)
    np.take(scores.reshape(-1), read.place, out=out, mode="clip")
    np.less(scores, out.reshape(n, 1, s), out=lower)
    np.sum(lower, axis=1, out=read.place)
    np.greater_equal(read.place, c - top_k, out=out)
    return np.multiply(out, read.valid, out=out)


def class_accuracy(hits: Any, valid: Any, labels: Any, out: Any) -> Any:
    """out[k] = share of hits among the valid labels k; 0 for a class that did not occur.

    >>> hits, labels = np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
    >>> class_accuracy(hits, np.ones(3), labels, np.empty(3))
    array([0.5, 1. , 0. ])
    """
    if on_cuda(hits):
        launch(
            "accuracy.cu", "class_accuracy", out.size, out, hits, valid, labels, labels.size, out
        )
        return out
    fast = loops("softmax", hits.dtype)
    if fast is not None:
        flat = hits.reshape(-1), valid.reshape(-1), labels.reshape(-1), out
        run(fast.class_accuracy, out.size, *flat, grain=1 + GRAIN // max(labels.size, 1))
        return out
    trace.host(class_accuracy.__name__)
    classes = np.where(valid, labels, 0).astype(np.int64).ravel()
    counts = np.bincount(classes, valid.ravel(), out.size)
    out[...] = np.bincount(classes, (hits * valid).ravel(), out.size) / np.maximum(counts, 1)
    return out
