"""Losses of two arrays of one shape, entry by entry, and their gradients; of 16 bits in float32."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays


@op(traced=False)
def difference(a: Any, b: Any, out: Any) -> Any:
    """out = a - b, computed in the type of `out`.

    >>> difference(np.array([3.0]), np.array([1.0]), np.empty(1))
    array([2.])
    """
    arrays.minus(a, b, out)


@op(replays=False)
def contrastive(
    diff: Any, similar: Any, margin: float, legacy: bool, out: Any, pull: Any, scratch: Any
) -> Any:
    """out[i] = d^2 of a pair that is similar, else max(margin - d, 0)^2; legacy: max(margin - d^2, 0).

    d is the length of diff[i] (n, c); `similar`, out and pull are (n,). The gradient of out[i] / 2 is
    pull[i] diff[i]; without legacy it is Caffe's, which divides by d + 1e-4. `scratch` is one array of
    diff's shape, one of out's and a boolean one. Source: Caffe's ContrastiveLossLayer.

    >>> scratch = np.empty((2, 1)), np.empty(2), np.empty(2, bool)
    >>> diff, similar = np.array([[3.0], [3.0]]), np.array([1.0, 0.0])
    >>> contrastive(diff, similar, 5.0, False, np.empty(2), np.empty(2), scratch)
    array([9., 4.])
    """
    work, gap, chosen = scratch
    np.sum(np.multiply(diff, diff, out=work), axis=1, out=out)
    if legacy:
        np.subtract(margin, out, out=gap)
        pull.fill(-1)
    else:
        np.add(np.sqrt(out, out=gap), 1e-4, out=pull)
        np.subtract(gap, margin, out=gap)
        np.divide(gap, pull, out=pull)
        np.negative(gap, out=gap)
    np.copyto(pull, 0, where=np.less_equal(gap, 0, out=chosen))
    np.maximum(gap, 0, out=gap)
    if not legacy:
        np.multiply(gap, gap, out=gap)
    np.less(np.absolute(similar, out=work[:, 0]), 1, out=chosen)  # int(similar) is 0
    np.copyto(out, gap, where=chosen)
    np.copyto(pull, 1, where=np.logical_not(chosen, out=chosen))


@op(replays=False)
def smooth_l1(a: Any, b: Any, inside: Any, outside: Any, sigma: float, out: Any, work: Any) -> Any:
    """out = outside f(inside (a - b)), f(d) = (sigma d)^2 / 2 near 0, else |d| - 1 / 2 sigma^2.

    Near is |d| < 1 / sigma^2. Weights may be None; `work` is scratch like out. Source: Girshick's fast-rcnn.

    >>> smooth_l1(np.array([0.5, 3.0]), np.zeros(2), None, None, 1, np.empty(2), np.empty(2))
    array([0.125, 2.5  ])
    """
    np.subtract(a, b, out=work)
    if inside is not None:
        np.multiply(work, inside, out=work)
    np.absolute(work, out=work)
    np.minimum(work, sigma**-2, out=out)  # m, so that f = sigma^2 / 2 (2 |d| - m) m
    np.subtract(np.multiply(work, 2, out=work), out, out=work)
    np.multiply(out, work, out=out)
    np.multiply(out, sigma**2 / 2, out=out)
    out if outside is None else np.multiply(out, outside, out=out)


@op(replays=False)
def smooth_l1_gradient(
    a: Any, b: Any, inside: Any, outside: Any, sigma: float, scale: Any, sign: int, out: Any
) -> Any:
    """The gradient of scale smooth_l1, by a (sign 1) or by b (sign -1); `scale` is one number on the device.

    >>> a, scale = np.array([0.5, 3.0]), np.array(2.0)
    >>> smooth_l1_gradient(a, np.zeros(2), None, None, 1, scale, -1, np.empty(2))
    array([-1., -2.])
    """
    np.subtract(a, b, out=out)
    np.multiply(out, sign * sigma**2, out=out)
    if inside is not None:
        np.multiply(out, inside, out=out)
    np.clip(out, -1, 1, out=out)
    for weight in (inside, outside):
        if weight is not None:
            np.multiply(out, weight, out=out)
    np.multiply(out, scale, out=out)


@op(replays=False)
def sigmoid_cross_entropy(
    x: Any, target: Any, ignore: int | None, out: Any, valid: Any, work: Any, flags: Any
) -> Any:
    """out = -t log p - (1 - t) log(1 - p), p = 1 / (1 + exp(-x)); 0 where int(t) is `ignore`, as is valid.

    Computed as max(x, 0) - x t + log(1 + exp(-|x|)), which no x overflows. `valid` is 1 elsewhere; `work`
    and the boolean `flags` are scratch of out's shape. Source: Caffe's SigmoidCrossEntropyLossLayer.

    >>> scratch = np.empty(2), np.empty(2), np.empty(2, bool)
    >>> x, target = np.array([0.0, 100.0]), np.array([1.0, 0.0])
    >>> sigmoid_cross_entropy(x, target, None, np.empty(2), *scratch).round(3)
    array([  0.693, 100.   ])
    """
    np.negative(np.absolute(x, out=out), out=out)
    np.log1p(np.exp(out, out=out), out=out)
    np.add(out, np.maximum(x, 0, out=work), out=out)
    np.subtract(out, np.multiply(x, target, out=work), out=out)
    valid.fill(1)
    if ignore is not None:
        np.equal(np.trunc(target, out=work), ignore, out=flags)
        np.copyto(out, 0, where=flags)
        np.copyto(valid, 0, where=flags)


@op(replays=False)
def sigmoid_cross_entropy_gradient(
    x: Any, target: Any, ignore: int | None, scale: Any, out: Any, valid: Any, flags: Any
) -> Any:
    """dx = scale (p - t), 0 where the target is ignored; `valid` is as the loss left it, `flags` scratch.

    >>> more = None, np.array(2.0), np.empty(1), np.ones(1), np.empty(1, bool)
    >>> sigmoid_cross_entropy_gradient(np.zeros(1), np.ones(1), *more)
    array([-1.])
    """
    np.tanh(np.multiply(x, 0.5, out=out), out=out)
    np.add(np.multiply(out, 0.5, out=out), 0.5, out=out)
    np.multiply(np.subtract(out, target, out=out), scale, out=out)
    if ignore is not None:
        np.copyto(out, 0, where=np.equal(valid, 0, out=flags))
