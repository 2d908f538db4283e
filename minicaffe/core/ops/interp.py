"""Bilinear interpolation with the corners aligned, one axis after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.dispatch import op


class Axis(NamedTuple):
    """Along one axis, between which two of `size` pixels each of `count` outputs lies."""

    low: Any  # (count,) int32, the pixel before each output
    high: Any  # (count,) int32, the pixel behind it
    share: Any  # its distance from low in pixels
    first: Any  # (size + 1,) int32, the first output whose low is a pixel or one behind it

    @classmethod
    def of(cls, xp: Any, size: int, span: int, count: int, start: int, dtype: Any) -> Axis:
        """Outputs spread evenly from pixel `start` to the last of `span` pixels from there on.

        >>> axis = Axis.of(np, 3, 3, 5, 0, float)
        >>> axis.low.tolist(), axis.share.tolist(), axis.first.tolist()
        ([0, 0, 1, 1, 2], [0.0, 0.5, 0.0, 0.5, 0.0], [0, 2, 4, 5])
        """
        steps = max(count - 1, 1)
        places = np.arange(count, dtype=np.int64) * (span - 1)
        low, share = start + places // steps, places % steps / steps
        first = np.searchsorted(low, np.arange(size + 1))
        whole = [xp.asarray(part.astype(np.int32)) for part in (low, low + (share > 0), first)]
        return cls(whole[0], whole[1], xp.asarray(share.astype(dtype)), whole[2])


@op("out work", replays=False)
def interp(x: Any, rows: Axis, columns: Axis, out: Any, work: Any) -> Any:
    """y = (1 - share) x[low] + share x[high] along rows, then along columns; (n, c, h, w) to (n, c, oh, ow).

    `work` is flat scratch of n c oh (w + max(w, ow)). Source: DeepLab's interp layer.

    >>> x, axes = np.array([[[[1.0, 3.0]]]]), [Axis.of(np, n, n, o, 0, float) for n, o in ((1, 1), (2, 3))]
    >>> interp(x, *axes, np.empty((1, 1, 1, 3)), np.empty(5)).ravel()
    array([1., 2., 3.])
    """
    w, (oh, ow) = x.shape[3], out.shape[2:]
    half = work[: out.size // ow * w].reshape(*x.shape[:2], oh, w)
    for source, axis, number, to in ((x, rows, 2, half), (half, columns, 3, out)):
        beyond = work[half.size : half.size + to.size].reshape(to.shape)
        share = axis.share.reshape((-1, 1) if number == 2 else (-1,))
        np.take(source, axis.low, number, out=to, mode="clip")
        np.take(source, axis.high, number, out=beyond, mode="clip")
        np.subtract(beyond, to, out=beyond)
        np.multiply(beyond, share, out=beyond)
        np.add(to, beyond, out=to)


@op("out work", replays=False)
def interp_gradient(dy: Any, rows: Axis, columns: Axis, out: Any, work: Any) -> Any:
    """dx of `interp`: each output gives (1 - share) of its gradient to low, share to high.

    `work` is as there. On the CPU an output at a time, in their order; on CUDA a pixel a thread.

    >>> dy = np.array([[[[1.0, 2.0, 4.0]]]])
    >>> axes = [Axis.of(np, n, n, o, 0, float) for n, o in ((1, 1), (2, 3))]
    >>> interp_gradient(dy, *axes, np.empty((1, 1, 1, 2)), np.empty(5)).ravel()
    array([2., 5.])
    """
    (oh, ow), w = dy.shape[2:], out.shape[3]
    half = work[: dy.size // ow * w].reshape(*dy.shape[:2], oh, w)
    ways = (dy, columns, (3, 0, 1, 2), half), (half, rows, (2, 0, 1, 3), out)
    for source, axis, order, to in ways:
        to.fill(0)
        source, to = source.transpose(order), to.transpose(order)
        part = work[half.size : half.size + source[0].size].reshape(source.shape[1:])
        for line, low, high, share in zip(source, axis.low, axis.high, axis.share, strict=True):
            to[low] += np.multiply(line, 1 - share, out=part)
            if high > low:
                to[high] += np.multiply(line, share, out=part)
