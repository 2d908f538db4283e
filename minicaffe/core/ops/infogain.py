"""The infogain loss: of each label, its row of a matrix against the logarithms of the probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.label_losses import LEAST
from minicaffe.core.ops.labels import Labels


@dataclass(frozen=True)
class Scratch:
    """What the NumPy form computes in: each label's class, the sum of its row, its row."""

    classes: Any
    sums: Any
    rows: Any

    @classmethod
    def empty(cls, xp: Any, n: int, c: int, s: int, dtype: Any) -> Scratch:
        """The buffers for probabilities (n, c, s)."""
        shapes = ((n, s), np.int64), ((n, s), dtype), ((n, s, c), dtype)
        return cls(*(xp.empty(shape, kind) for shape, kind in shapes))


@op(replays=False)
def row_sums(matrix: Any, out: Any) -> Any:
    """out[l] = the sum of row l of the matrix (c, c).

    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0]]), np.empty(2))
    array([3., 7.])
    """
    np.sum(matrix, axis=1, out=out)


@op(replays=False)
def infogain(
    prob: Any, labels: Any, matrix: Any, ignore: int | None, out: Any, read: Labels, work: Any,
    scratch: Scratch,
) -> Any:  # fmt: skip
    """out[n, s] = -sum over k of matrix[label, k] log max(prob[n, k, s], 1e-20), 0 where ignored.

    `work` is scratch of the probabilities' shape. Raises DataError for a label that is no class; on CUDA,
    which is not waited for, its loss is NaN. Source: Caffe's InfogainLossLayer.

    >>> read, scratch = Labels.empty(np, 1, 2, 1, float), Scratch.empty(np, 1, 2, 1, float)
    >>> prob, matrix = np.exp([[[-1.0], [-2.0]]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> more = None, np.empty((1, 1)), read, np.empty((1, 2, 1)), scratch
    >>> infogain(prob, np.ones((1, 1)), matrix, *more)
    array([[11.]])
    """
    c, s = prob.shape[1:]
    read.read(labels, ignore, c, s)
    np.floor_divide(
        np.subtract(read.place, read.start, out=scratch.classes), s, out=scratch.classes
    )
    np.log(np.maximum(prob, LEAST, out=work), out=work)
    np.take(matrix, scratch.classes, axis=0, out=scratch.rows, mode="clip")
    np.multiply(scratch.rows, work.transpose(0, 2, 1), out=scratch.rows)
    np.negative(np.sum(scratch.rows, axis=2, out=out), out=out)
    np.copyto(out, 0, where=read.ignored)


@op(replays=False)
def infogain_gradient(
    prob: Any, labels: Any, matrix: Any, sums: Any, ignore: int | None, scale: Any, out: Any,
    read: Labels, scratch: Scratch,
) -> Any:  # fmt: skip
    """dx = scale (prob rows[label] - matrix[label]), by scores whose softmax is prob; 0 where ignored.

    `sums` are the matrix's `row_sums`; `read` and `scratch` are as the loss left them.

    >>> read, scratch = Labels.empty(np, 1, 2, 1, float), Scratch.empty(np, 1, 2, 1, float)
    >>> prob, labels, eye = np.full((1, 2, 1), 0.5), np.ones((1, 1)), np.eye(2)
    >>> _ = infogain(prob, labels, eye, None, np.empty((1, 1)), read, np.empty((1, 2, 1)), scratch)
    >>> more = np.ones(2), None, np.array(2.0), np.empty((1, 2, 1)), read, scratch
    >>> infogain_gradient(prob, labels, eye, *more).ravel()
    array([ 1., -1.])
    """
    n, _, s = prob.shape
    np.take(sums, scratch.classes, out=scratch.sums, mode="clip")
    np.take(matrix, scratch.classes, axis=0, out=scratch.rows, mode="clip")
    np.multiply(prob, scratch.sums.reshape(n, 1, s), out=out)
    np.subtract(out, scratch.rows.transpose(0, 2, 1), out=out)
    np.multiply(out, scale, out=out)
    np.copyto(out, 0, where=read.ignored.reshape(n, 1, s))
