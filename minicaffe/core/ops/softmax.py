"""Softmax along an axis, and its negative log-likelihood.

Scores are seen as (n, c, s): n = product of the axes before the softmax axis, c classes, s = product
of the axes after it. Labels are (n, s), whole numbers held in the scores' own type, as in Caffe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cpu.threads import FEW
from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.launch import GRID, THREADS, launch, launch_blocks
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.arrays import LONG
from minicaffe.core.ops.labels import Labels, Mean, find, flag

MANY = 2**16  # threads that are enough to keep a device busy
GRAIN = 2**11  # scores that a thread is worth waking for
COUNTS, APART = 1, 2  # the labels that count are the normalizer; or to be added to others'


def softmax(x: Any, out: Any, reduced: Any) -> Any:
    """p[n, c, s] = exp(x - max) / sum exp(x - max), over c; `reduced` (n, 1, s) is scratch.

    Of x of 16 bits it is computed in the type of `out` and `reduced`.
    Source: Caffe's SoftmaxLayer.

    >>> x = np.array([[0.0, np.log(3.0)]]).reshape(1, 2, 1)
    >>> softmax(x, np.empty_like(x), np.empty((1, 1, 1))).ravel()
    array([0.25, 0.75])
    """
    n, c, s = x.shape
    if on_cuda(x):
        _launch("softmax", x.shape, (x, out), x)
        return out
    fast = loops("softmax", x.dtype)
    if fast is not None:
        flat = x.reshape(-1), c, s, reduced.reshape(-1), out.reshape(-1)
        run(fast.softmax(x.dtype), n * s, *flat, grain=grain(c))
        return out
    _by_samples(_softmax, c * s, x, out, reduced)
    return out


def _by_samples(function: Callable[..., None], each: int, *arrays: Any) -> None:
    """Call a function of NumPy's on slices of the samples, which have `each` scores."""

    def part(first: int, last: int, _: Any) -> None:
        function(*(array[first:last] for array in arrays))

    grain, worth = min(FEW, 1 + GRAIN // max(each, 1)), 1 + LONG // max(each, 1)
    in_slices(part, len(arrays[0]), grain=grain, worth=worth, noted=True)


def _softmax(x: Any, out: Any, reduced: Any) -> None:
    """`softmax` of some samples, by NumPy."""
    if x.dtype != out.dtype:
        do(np.copyto, out, x)
        x = out
    do(np.maximum.reduce, x, axis=1, keepdims=True, out=reduced)
    do(np.subtract, x, reduced, out=out)
    do(np.exp, out, out=out)
    do(np.add.reduce, out, axis=1, keepdims=True, out=reduced)
    do(np.divide, out, reduced, out=out)


def softmax_gradient(dy: Any, y: Any, out: Any, reduced: Any) -> Any:
    """dx = (dy - sum over c of dy y) y, computed in the type of y, `out` and `reduced`.

    >>> y = np.array([0.25, 0.75]).reshape(1, 2, 1)
    >>> softmax_gradient(np.ones_like(y), y, np.empty_like(y), np.empty((1, 1, 1))).ravel()
    array([0., 0.])
    """
    if on_cuda(dy):
        _launch("softmax_gradient", dy.shape, (dy, out), dy, y)
        return out
    fast = loops("softmax", dy.dtype)
    if fast is not None:
        n, c, s = dy.shape
        given = dy.reshape(-1), y.reshape(-1), c, s, reduced.reshape(-1), out.reshape(-1)
        run(fast.softmax_gradient, n * s, *given, grain=grain(c))
        return out
    _by_samples(_softmax_gradient, dy[0].size if len(dy) else 0, dy, y, out, reduced)
    return out


def _softmax_gradient(dy: Any, y: Any, out: Any, reduced: Any) -> None:
    """`softmax_gradient` of some samples, by NumPy."""
    do(np.multiply, dy, y, out=out)
    do(np.add.reduce, out, axis=1, keepdims=True, out=reduced)
    do(np.subtract, dy, reduced, out=out)
    do(np.multiply, out, y, out=out)


def grain(c: int) -> int:
    """Places of c scores that a thread is worth waking for."""
    return 1 + GRAIN // c


def _launch(
    name: str,
    shape: tuple[int, int, int],
    types: tuple[Any, Any],
    *arrays: Any,
    more: tuple[Any, ...] = (),
) -> None:
    """A kernel of softmax.cu: as many threads a column as it has classes, unless columns are plenty."""
    n, c, s = shape
    most, lanes = THREADS if s == 1 else min(THREADS, MANY // max(1, n * s)), 1
    while lanes < c and 2 * lanes <= most:
        lanes *= 2
    grid = (min(-(-n * s * lanes // THREADS), GRID),)
    sizes = n * s, *arrays, c, s, lanes
    launch_blocks("softmax.cu", name, grid, types, *sizes, *more, types[1])


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
    if on_cuda(x) and not x.size:
        return mean.of(losses, read.valid, out, work)
    if on_cuda(x):
        counts = 0 if not mean.counts else COUNTS if mean.add is None else APART
        told = labels, *flag(ignore), losses, read.valid, arrived(), counts
        dloss = dx = None  # what cuda.fusion_rules puts there
        more = *told, mean.normalizer, out, dloss, dx
        _launch("softmax_loss", x.shape, (x, prob), x, more=more)
        return mean.over(out) if counts == APART else out
    softmax(x, prob, losses.reshape(x.shape[0], 1, x.shape[2]))
    _nll(prob, labels, ignore, losses, read)
    mean.of(losses, read.valid, out, work)
    return out


def _nll(prob: Any, labels: Any, ignore: int | None, out: Any, read: Labels) -> None:
    """The loss of each label on the CPU, 0 where it does not count."""
    n, c, s = prob.shape
    fast = loops("softmax", prob.dtype)
    if fast is not None:
        flat = prob.reshape(-1), labels.reshape(-1), c, s, flag(ignore), np.finfo(prob.dtype).tiny
        filled = out.reshape(-1), read.valid.reshape(-1), read.refused
        run(fast.nll, n * s, *flat, *filled, grain=grain(c))
        read.check(labels, ignore, c)
        return

    def nll(
        prob: Any, labels: Any, start: Any, valid: Any, ignored: Any, place: Any, out: Any
    ) -> None:
        do(find, labels, ignore, c, s, start, out=(valid, ignored, place, read.refused))
        do(_scores, prob, place, start, out=out)
        do(np.maximum, out, np.finfo(prob.dtype).tiny, out=out)
        do(np.log, out, out=out)
        do(np.negative, out, out=out)
        do(np.copyto, out, 0, where=ignored)

    of_labels = labels, read.start, read.valid, read.ignored, read.place
    _by_samples(nll, c * s, prob, *of_labels, out)
    read.check(labels, ignore, c)


def _scores(scores: Any, place: Any, start: Any, out: Any) -> None:
    """The scores at places, of samples whose first begins at the first start."""
    scores.reshape(-1).take(place - start[:1, :1], out=out, mode="clip")


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
    n, c, s = prob.shape
    if on_cuda(prob):
        given = prob, labels, c, s, *flag(ignore), dloss, mean.normalizer, out
        launch("softmax_loss.cu", "softmax_loss_gradient", out.size, out, *given)
        return out
    scale = mean.gradient(dloss)
    fast = loops("softmax", prob.dtype)
    if fast is not None:
        flat = prob.reshape(-1), labels.reshape(-1), c, s, read.valid.reshape(-1), scale.reshape(-1)
        run(fast.nll_gradient, n * s, *flat, out.reshape(-1), grain=grain(c))
        return out

    def gradient(prob: Any, start: Any, ignored: Any, place: Any, out: Any) -> None:
        do(np.copyto, out, prob)
        do(_less_one, place, start, out=out)
        do(np.multiply, out, scale, out=out)
        do(np.copyto, out, 0, where=ignored[:, None])

    _by_samples(gradient, c * s, prob, read.start, read.ignored, read.place, out)
    return out


def _less_one(place: Any, start: Any, out: Any) -> None:
    """The scores at places, likewise, less one."""
    out.reshape(-1)[(place - start[:1, :1]).reshape(-1)] -= 1
