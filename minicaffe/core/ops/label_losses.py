"""Losses of scores (n, d) with a label a row (n,), and their gradients; of 16 bits in float32.

`read` are the buffers of labels.Labels for (n, d, 1), filled by the loss on the CPU. A label that is no
class raises DataError there; on CUDA, which is not waited for, the loss is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops.labels import Labels
from minicaffe.core.ops.softmax import grain
from minicaffe.core.ops.typed import launch_typed, number

FILE = "label_losses.cu"
LEAST = 1e-20  # a smaller probability counts as this (Caffe's kLOG_THRESHOLD)


def hinge(x: Any, labels: Any, out: Any, read: Labels, own: Any) -> Any:
    """out[n, k] = max(0, 1 - x) of the label's score, max(0, 1 + x) of the others; `own` (n,) is scratch.

    Source: Caffe's HingeLossLayer.

    >>> read = Labels.empty(np, 1, 3, 1, float)
    >>> x = np.array([[0.5, 0.25, -2.0]])
    >>> hinge(x, np.zeros(1), np.empty((1, 3)), read, np.empty(1))
    array([[0.5 , 1.25, 0.  ]])
    """
    n, d = x.shape
    if on_cuda(x):
        launch_typed(FILE, "hinge", n * d, (x, labels, out), x, labels, d, out)
        return out
    fast = loops("label_losses", x.dtype)
    if fast is not None:
        run(fast.hinge, n, x.reshape(-1), labels, d, read.refused, out.reshape(-1), grain=grain(d))
        read.check(labels, None, d)
        return out
    trace.host(hinge.__name__)
    read.read(labels.reshape(n, 1), None, d, 1)
    np.copyto(out, x)
    _negate(out, read.place[:, 0], own)
    np.add(out, 1, out=out)
    return np.maximum(out, 0, out=out)


def hinge_gradient(
    margins: Any, labels: Any, squared: bool, scale: Any, out: Any, read: Labels, own: Any
) -> Any:
    """The gradient of scale times the sum of `margins`, as `hinge` left them, or of their squares.

    >>> read = Labels.empty(np, 1, 3, 1, float)
    >>> margins = hinge(np.array([[0.5, 0.25, -2.0]]), np.zeros(1), np.empty((1, 3)), read, np.empty(1))
    >>> hinge_gradient(margins, np.zeros(1), True, np.array(2.0), np.empty((1, 3)), read, np.empty(1))
    array([[-2.,  5.,  0.]])
    """
    n, d = margins.shape
    if on_cuda(margins):
        given = margins, labels, d, int(squared), scale, out
        launch_typed(FILE, "hinge_gradient", n * d, (margins, labels, out), *given)
        return out
    fast = loops("label_losses", margins.dtype)
    if fast is not None:
        flat = margins.reshape(-1), labels, d, squared, scale.reshape(-1), out.reshape(-1)
        run(fast.hinge_gradient, n, *flat, grain=grain(d))
        return out
    trace.host(hinge_gradient.__name__)
    if squared:
        np.multiply(margins, 2, out=out)
    else:
        np.sign(margins, out=out)
    _negate(out, read.place[:, 0], own)
    return np.multiply(out, scale, out=out)


def multinomial(prob: Any, labels: Any, out: Any, read: Labels) -> Any:
    """out[n] = -log max(prob[n, label], 1e-20). Source: Caffe's MultinomialLogisticLossLayer.

    >>> read = Labels.empty(np, 1, 2, 1, float)
    >>> multinomial(np.array([[0.25, 0.75]]), np.ones(1), np.empty(1), read).round(3)
    array([0.288])
    """
    n, d = prob.shape
    if on_cuda(prob):
        given = prob, labels, d, number(LEAST, out), out
        launch_typed(FILE, "multinomial", n, (prob, labels, out), *given)
        return out
    fast = loops("label_losses", prob.dtype)
    if fast is not None:
        run(fast.multinomial, n, prob.reshape(-1), labels, d, number(LEAST, out), read.refused, out)
        read.check(labels, None, d)
        return out
    trace.host(multinomial.__name__)
    read.read(labels.reshape(n, 1), None, d, 1)
    np.take(prob.reshape(-1), read.place[:, 0], out=out, mode="clip")
    np.log(np.maximum(out, LEAST, out=out), out=out)
    return np.negative(out, out=out)


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
    n, d = prob.shape
    if on_cuda(prob):
        given = prob, labels, d, number(LEAST, out), scale, out
        launch_typed(FILE, "multinomial_gradient", n * d, (prob, labels, out), *given)
        return out
    fast = loops("label_losses", prob.dtype)
    if fast is not None:
        flat = prob.reshape(-1), labels, d, number(LEAST, out), scale.reshape(-1)
        run(fast.multinomial_gradient, n, *flat, out.reshape(-1), grain=grain(d))
        return out
    trace.host(multinomial_gradient.__name__)
    np.take(prob.reshape(-1), read.place[:, 0], out=own, mode="clip")
    np.divide(scale, np.maximum(own, LEAST, out=own), out=own)
    out.fill(0)
    np.put(out, read.place[:, 0], np.negative(own, out=own), mode="clip")
    return out


def _negate(out: Any, place: Any, own: Any) -> None:
    np.take(out.reshape(-1), place, out=own, mode="clip")
    np.put(out, place, np.negative(own, out=own), mode="clip")
