"""Losses of scores (n, d) with a label a row (n,), and their gradients; of 16 bits in float32.

`read` are the buffers of `Labels` for (n, d, 1), filled by the loss on the CPU. A label that is no
class raises DataError there; on CUDA, which is not waited for, the loss is NaN. The infogain loss, which takes
for each label its row of a matrix against the logarithms of the probabilities, is of (n, c, s).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.softmax import Labels

LEAST = 1e-20  # a smaller probability counts as this (Caffe's kLOG_THRESHOLD)


@op(replays=False)
def hinge(x: Any, labels: Any, out: Any, read: Labels, own: Any) -> Any:
    """out[n, k] = max(0, 1 - x) of the label's score, max(0, 1 + x) of the others; `own` (n,) is scratch.

    Source: Caffe's HingeLossLayer.

    >>> read = Labels.empty(np, 1, 3, 1, float)
    >>> x = np.array([[0.5, 0.25, -2.0]])
    >>> hinge(x, np.zeros(1), np.empty((1, 3)), read, np.empty(1))
    array([[0.5 , 1.25, 0.  ]])
    """
    n, d = x.shape
    read.read(labels.reshape(n, 1), None, d, 1)
    np.copyto(out, x)
    _negate(out, read.place[:, 0], own)
    np.add(out, 1, out=out)
    np.maximum(out, 0, out=out)


@op(replays=False)
def hinge_gradient(
    margins: Any, labels: Any, squared: bool, scale: Any, out: Any, read: Labels, own: Any
) -> Any:
    """The gradient of scale times the sum of `margins`, as `hinge` left them, or of their squares.

    >>> read = Labels.empty(np, 1, 3, 1, float)
    >>> margins = hinge(np.array([[0.5, 0.25, -2.0]]), np.zeros(1), np.empty((1, 3)), read, np.empty(1))
    >>> hinge_gradient(margins, np.zeros(1), True, np.array(2.0), np.empty((1, 3)), read, np.empty(1))
    array([[-2.,  5.,  0.]])
    """
    if squared:
        np.multiply(margins, 2, out=out)
    else:
        np.sign(margins, out=out)
    _negate(out, read.place[:, 0], own)
    np.multiply(out, scale, out=out)


@op(replays=False)
def multinomial(prob: Any, labels: Any, out: Any, read: Labels) -> Any:
    """out[n] = -log max(prob[n, label], 1e-20). Source: Caffe's MultinomialLogisticLossLayer.

    >>> read = Labels.empty(np, 1, 2, 1, float)
    >>> multinomial(np.array([[0.25, 0.75]]), np.ones(1), np.empty(1), read).round(3)
    array([0.288])
    """
    n, d = prob.shape
    read.read(labels.reshape(n, 1), None, d, 1)
    np.take(prob.reshape(-1), read.place[:, 0], out=out, mode="clip")
    np.log(np.maximum(out, LEAST, out=out), out=out)
    np.negative(out, out=out)


@op(replays=False)
def multinomial_gradient(
    prob: Any, labels: Any, scale: Any, out: Any, read: Labels, own: Any
) -> Any:
    """dx = -scale / max(prob, 1e-20) at the labels, 0 elsewhere; `own` (n,) is scratch.

    >>> read = Labels.empty(np, 1, 2, 1, float)
    >>> prob, own = np.array([[0.5, 0.5]]), np.empty(1)
    >>> _ = multinomial(prob, np.ones(1), own, read)
    >>> multinomial_gradient(prob, np.ones(1), np.array(3.0), np.empty((1, 2)), read, own)
    array([[ 0., -6.]])
    """
    np.take(prob.reshape(-1), read.place[:, 0], out=own, mode="clip")
    np.divide(scale, np.maximum(own, LEAST, out=own), out=own)
    out.fill(0)
    np.put(out, read.place[:, 0], np.negative(own, out=own), mode="clip")


def _negate(out: Any, place: Any, own: Any) -> None:
    np.take(out.reshape(-1), place, out=own, mode="clip")
    np.put(out, place, np.negative(own, out=own), mode="clip")


class InfogainScratch(NamedTuple):
    """What the NumPy form computes in: each label's class, the sum of its row, its row."""

    classes: Any
    sums: Any
    rows: Any

    @classmethod
    def empty(cls, xp: Any, n: int, c: int, s: int, dtype: Any) -> InfogainScratch:
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
    scratch: InfogainScratch,
) -> Any:  # fmt: skip
    """out[n, s] = -sum over k of matrix[label, k] log max(prob[n, k, s], 1e-20), 0 where ignored.

    `work` is scratch of the probabilities' shape. Raises DataError for a label that is no class; on CUDA,
    which is not waited for, its loss is NaN. Source: Caffe's InfogainLossLayer.

    >>> read, scratch = Labels.empty(np, 1, 2, 1, float), InfogainScratch.empty(np, 1, 2, 1, float)
    >>> prob, matrix = np.exp([[[-1.0], [-2.0]]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> more = None, np.empty((1, 1)), read, np.empty((1, 2, 1)), scratch
    >>> infogain(prob, np.ones((1, 1)), matrix, *more)
    array([[11.]])
    """
    c, s = prob.shape[1:]
    read.read(labels, ignore, c, s)
    np.subtract(read.place, read.start, out=scratch.classes)
    np.floor_divide(scratch.classes, s, out=scratch.classes)
    np.log(np.maximum(prob, LEAST, out=work), out=work)
    np.take(matrix, scratch.classes, axis=0, out=scratch.rows, mode="clip")
    np.multiply(scratch.rows, work.transpose(0, 2, 1), out=scratch.rows)
    np.negative(np.sum(scratch.rows, axis=2, out=out), out=out)
    np.copyto(out, 0, where=read.ignored)


@op(replays=False)
def infogain_gradient(
    prob: Any, labels: Any, matrix: Any, sums: Any, ignore: int | None, scale: Any, out: Any,
    read: Labels, scratch: InfogainScratch,
) -> Any:  # fmt: skip
    """dx = scale (prob rows[label] - matrix[label]), by scores whose softmax is prob; 0 where ignored.

    `sums` are the matrix's `row_sums`; `read` and `scratch` are as the loss left them.

    >>> read, scratch = Labels.empty(np, 1, 2, 1, float), InfogainScratch.empty(np, 1, 2, 1, float)
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
