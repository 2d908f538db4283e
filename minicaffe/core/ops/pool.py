"""Max, average and stochastic pooling over windows of (n, c, h, w), with Caffe's clipping at the edges.

Also max pooling of regions of interest, and the opposite: a mask of maxima's places, pixels back to them.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op, threads
from minicaffe.core.ops.geometry import Sizes, Window
from minicaffe.errors import DataError

BLOCK = 2**16  # outputs that NumPy computes at a time
SLICES: Any = {"grain": 2**13, "worth": BLOCK // 2}  # outputs that a thread has, and is woken for
FAR = 1 << 28  # pixels: further off is as far
TINY = float(np.finfo(np.float32).tiny)  # keeps a window of zeros from 0 / 0, as in Caffe
NOWHERE = -1


def workspace(window: Window, image: Sizes, pooled: Sizes) -> int:
    """Elements of work that the functions below share among the threads of the CPU; (h, w) and (oh, ow)."""
    return workspace_of_one(window, image, pooled) * threads()


@functools.cache
def workspace_of_one(window: Window, image: Sizes, pooled: Sizes) -> int:
    """Elements of work that each thread needs."""
    spans = [(o - 1) * s + k for o, s, k in zip(pooled, window.stride, window.kernel, strict=True)]
    return 5 * spans[0] * max(spans[1], image[1]) + pooled[1]


@op("out which better", samples="x out which better", scratch="work", by_calls=True, **SLICES)
def max_pool(
    x: Any, window: Window, out: Any, which: Any, better: Any, work: Any = None, keep: bool = True
) -> Any:
    """y[o] = max of x over window o; `which` (int32) is the kernel element i kw + j that won.

    Padding never wins, the first of equal values does, and a window that lies wholly past the image
    (possible when the stride exceeds the kernel) is 0, in Caffe -FLT_MAX. `better` is
    boolean scratch. x is (n, c, h, w); out, which and better are (n, c, oh, ow). `work` is flat scratch, of
    `workspace` and no less than two arrays of out's shape, taken anew if it is not given. Unless asked to
    `keep` it, `which` may be left as it is, and `workspace` will do. Source: Caffe's PoolingLayer.

    >>> x = np.array([[1.0, 4.0], [3.0, 2.0]]).reshape(1, 1, 2, 2)
    >>> y, which, scratch = (np.empty((1, 1, 1, 1), t) for t in (float, np.int32, bool))
    >>> max_pool(x, Window((2, 2)), y, which, scratch).item(), which.item()
    (4.0, 1)
    """
    if not keep:
        for here in _blocks(out, len(out)):
            y = out[here]
            np.copyto(y, -np.inf)
            for _, (oy, ox), (iy, ix) in window.elements(x.shape[2:], y.shape[2:]):
                np.fmax(y[:, :, oy, ox], x[here, :, iy, ix], out=y[:, :, oy, ox])
            _empty(x.shape[2:], window, y)
        return
    count, each = math.prod(window.kernel), max(1, math.prod(out.shape[1:]))
    if work is None:
        work = np.empty(2 * out.size, x.dtype)
    takes = 2 * each  # of the work, for a sample
    if side_by_side := _cover(window, x, out):
        # what all elements see, the maximum, and bytes for them
        takes = each * (1 + count) + -(-each * count // x.itemsize)
    for here in _blocks(out, max(1, work.size // takes)):
        y, size = out[here], out[here].size
        if side_by_side and work.size >= takes:
            _first_of_equal(x[here], window, y, which[here], work)
            continue
        values, number = work[:size].reshape(y.shape), which[here]
        if count < 256:
            number = work[size : 2 * size].view(np.uint8)[:size].reshape(y.shape)
        _with_winners(x[here], window, y, better[here], values, number)
        np.subtract(number, 1, out=which[here], dtype=which.dtype)
        _empty(x.shape[2:], window, y)


@op("out won", samples="dy which out won", scratch="share", by_calls=True, **SLICES)
def max_pool_gradient(dy: Any, which: Any, window: Window, out: Any, won: Any, share: Any) -> Any:
    """dx[i] = sum of dy over the windows that i won; `won` and `share` are scratch of dy's shape.

    >>> dy, which = np.full((1, 1, 1, 1), 5.0), np.full((1, 1, 1, 1), 1, np.int32)
    >>> scratch = np.empty(dy.shape, bool), np.empty(dy.shape)
    >>> max_pool_gradient(dy, which, Window((2, 2)), np.empty((1, 1, 2, 2)), *scratch).tolist()
    [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    apart = all(k <= s for k, s in zip(window.kernel, window.stride, strict=True))
    few = _cover(window, out, dy) and math.prod(window.kernel) <= dy.itemsize
    for here in _blocks(dy, max(1, share.size // max(1, math.prod(dy.shape[1:])))):
        y, dx = dy[here], out[here]
        if few:
            _back_to_first(y, which[here], window, dx, share)
            continue
        wins, part = won[here], share.reshape(-1)[: y.size].reshape(y.shape)
        np.copyto(dx, 0)
        for (i, j), (oy, ox), (iy, ix) in window.elements(out.shape[2:], dy.shape[2:]):
            np.equal(which[here], i * window.kernel[1] + j, out=wins)
            pixels = dx[:, :, iy, ix]
            if apart:  # no pixel is in two windows: nothing to add to
                np.multiply(y[:, :, oy, ox], wins[:, :, oy, ox], out=pixels)
                continue
            np.multiply(y, wins, out=part)
            np.add(pixels, part[:, :, oy, ox], out=pixels)


@op(samples="x out", by_calls=True, **SLICES)
def ave_pool(x: Any, window: Window, out: Any, work: Any = None) -> Any:
    """y[o] = sum of x over window o / the window's size clipped to the padded image; `work` as above.

    The zeros of the padding count, what lies beyond the padding does not; a window wholly past the
    image is 0, in Caffe 0/0. Source: Caffe's PoolingLayer.

    >>> ave_pool(np.array([[[[1.0, 4.0], [3.0, 2.0]]]]), Window((2, 2)), np.empty((1, 1, 1, 1))).item()
    2.5
    """
    rows, columns = window.divisors(x.shape[2:], out.shape[2:], out.dtype)
    np.copyto(out, 0)
    for _, (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here = out[:, :, oy, ox]
        np.add(here, x[:, :, iy, ix], out=here)
    np.divide(out, rows, out=out)
    np.divide(out, columns, out=out)


@op("out share", samples="dy out share", by_calls=True, **SLICES)
def ave_pool_gradient(dy: Any, window: Window, out: Any, share: Any, work: Any = None) -> Any:
    """dx[i] = sum over the windows that hold i of dy / window size; `share` is scratch like dy, `work` above.

    >>> dy = np.full((1, 1, 1, 1), 4.0)
    >>> ave_pool_gradient(dy, Window((2, 2)), np.empty((1, 1, 2, 2)), np.empty_like(dy)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    rows, columns = window.divisors(out.shape[2:], dy.shape[2:], dy.dtype)
    np.divide(dy, rows, out=share)
    np.divide(share, columns, out=share)
    np.copyto(out, 0)
    for _, (oy, ox), (iy, ix) in window.elements(out.shape[2:], dy.shape[2:]):
        here = out[:, :, iy, ix]
        np.add(here, share[:, :, oy, ox], out=here)


@op("out which work", samples="x noise out which work", grain=1, worth=0, replays=False)
def draw_pool(x: Any, window: Window, noise: Any, out: Any, which: Any, work: Any) -> Any:
    """y[o] = the first pixel of window o at which the sum so far reaches noise[o] times the whole sum.

    `which` (int32) is the number i kw + j of the kernel element that saw it, for `max_pool_gradient`; of
    a window wholly past the image -1, and y 0. If no pixel reaches it, which takes negative ones, it is the
    last. noise in [0, 1) is float32; `work` is scratch of y's shape: two arrays of x's type, two bool. The
    window has no padding. Source: Caffe's PoolingLayer; M. Zeiler, R. Fergus, Stochastic Pooling, 2013.

    >>> x, y = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.empty((1, 1, 1, 1))
    >>> which, work = np.empty(y.shape, np.int32), [np.empty(y.shape, t) for t in (float, float, bool, bool)]
    >>> draw_pool(x, Window((1, 2)), np.full(y.shape, 0.5, np.float32), y, which, work).item()
    3.0
    """
    wanted, so_far, open_, reached = work
    for array, start in ((out, 0), (which, -1), (wanted, 0), (so_far, 0), (open_, True)):
        array.fill(start)
    parts = window.elements(x.shape[2:], out.shape[2:])
    for _, (oy, ox), (iy, ix) in parts:
        wanted[:, :, oy, ox] += x[:, :, iy, ix]
    np.multiply(wanted, noise, out=wanted)
    for (i, j), (oy, ox), (iy, ix) in parts:
        here = (slice(None), slice(None), oy, ox)
        pixel, is_open, so = x[:, :, iy, ix], open_[here], so_far[here]
        np.copyto(which[here], i * window.kernel[1] + j, where=is_open)
        np.copyto(out[here], pixel, where=is_open)
        np.add(so, pixel, out=so)
        np.greater_equal(so, wanted[here], out=reached[here])
        np.greater(is_open, reached[here], out=is_open)  # open, and not reached


@op("out total", samples="x out total", grain=1, worth=0, replays=False)
def expected_pool(x: Any, window: Window, out: Any, total: Any) -> Any:
    """y[o] = sum of x^2 / sum of x over window o: the mean of what is drawn. `total` is left the sum.

    Of x of 16 bits the sum, which may be more than those hold, is float32.

    >>> x, y = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.empty((1, 1, 1, 1))
    >>> expected_pool(x, Window((1, 2)), y, y.copy()).item()
    2.5
    """
    parts = window.elements(x.shape[2:], out.shape[2:])
    out.fill(0)
    for _, (oy, ox), (iy, ix) in parts:
        square = total[:, :, oy, ox]  # for the time being
        out[:, :, oy, ox] += np.square(x[:, :, iy, ix], out=square)
    total.fill(TINY)
    for _, (oy, ox), (iy, ix) in parts:
        total[:, :, oy, ox] += x[:, :, iy, ix]
    np.divide(out, total, out=out)


@op("out share", samples="dy x y total out share", grain=1, worth=0, replays=False)
def expected_pool_gradient(
    dy: Any, x: Any, y: Any, total: Any, window: Window, out: Any, share: Any
) -> Any:
    """dx[i] = sum of dy (2 x[i] - y) / total over the windows with i, not all 0; `share` is scratch like dy.

    >>> x, one = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.ones((1, 1, 1, 1))
    >>> given = one, x, 2.5 * one, 4 * one, Window((1, 2)), np.empty_like(x), one.copy()
    >>> expected_pool_gradient(*given).ravel()
    array([-0.125,  0.875])
    """
    parts = window.elements(x.shape[2:], dy.shape[2:])
    np.greater(total, TINY, out=share)
    np.multiply(share, dy, out=share)
    np.divide(share, total, out=share)
    out.fill(0)
    for _, (oy, ox), (iy, ix) in parts:
        out[:, :, iy, ix] += share[:, :, oy, ox]
    np.multiply(out, x, out=out)
    np.multiply(out, 2, out=out)
    np.multiply(share, y, out=share)
    for _, (oy, ox), (iy, ix) in parts:
        out[:, :, iy, ix] -= share[:, :, oy, ox]


def _cover(window: Window, image: Any, pooled: Any) -> bool:
    """Whether the windows lie side by side and are all of the image, and an int8 tells their elements."""
    whole = window.covers(image.shape[2:], pooled.shape[2:]) and image.flags.c_contiguous
    return bool(whole and math.prod(window.kernel) < 128)


def _elements(image: Any, window: Window, pooled: Any) -> Any:
    """An image as (kh, kw, n, c, oh, ow): of each kernel element what it sees in windows side by side."""
    n, c, oh, ow = pooled.shape
    kh, kw = window.kernel
    return image.reshape(n, c, oh, kh, ow, kw).transpose(3, 5, 0, 1, 2, 4)


@functools.cache
def _numbers(count: int, dtype: Any) -> Any:
    """Those from 0 on: always the same array, so that what is recorded is."""
    return np.arange(count, dtype=dtype)


def _first_of_equal(x: Any, window: Window, out: Any, which: Any, work: Any) -> None:
    """The maxima of windows side by side, and the first element that is it (-1: none), taken all at once."""
    count, size, kind = math.prod(window.kernel), out.size, x.dtype.type
    seen, most = work[: count * size].reshape(count, size), work[count * size :][:size]
    np.copyto(seen.reshape(*window.kernel, *out.shape), _elements(x, window, out))
    np.fmax.reduce(seen, axis=0, out=out.reshape(-1), initial=kind(-np.inf))
    np.maximum(out.reshape(-1), np.finfo(x.dtype).min, out=most)  # -inf is no maximum
    number = work[(count + 1) * size :].view(np.uint8)[: count * size].reshape(count, size)
    np.not_equal(seen, most, out=number.view(np.bool_))
    np.negative(number, out=number)  # 0, or 255
    np.bitwise_or(number, _numbers(count, np.uint8)[:, None], out=number)
    np.minimum.reduce(number, axis=0, out=number[0])
    np.copyto(which.reshape(-1), number[0].view(np.int8))


def _back_to_first(dy: Any, which: Any, window: Window, out: Any, work: Any) -> None:
    """The gradient, back to the elements that won; `work` is flat, as long as dy."""
    count = math.prod(window.kernel)
    won = work.view(np.bool_)[: count * dy.size].reshape(*window.kernel, *dy.shape)
    np.equal(which, _numbers(count, np.int32).reshape(*window.kernel, 1, 1, 1, 1), out=won)
    np.multiply(dy, won, out=_elements(out, window, dy))


def _blocks(pooled: Any, most: int) -> Iterator[slice]:
    """Slices of the samples, as many at a time as stay near the cache, `most` at the most."""
    many = min(most, max(1, BLOCK // max(1, math.prod(pooled.shape[1:]))))
    return (slice(start, start + many) for start in range(0, len(pooled), many))


def _with_winners(x: Any, window: Window, out: Any, better: Any, seen: Any, number: Any) -> None:
    """The maxima, and of each its element's number plus 1: the largest, for a later winner's is larger."""
    np.copyto(out, -np.inf)
    np.copyto(number, 0)
    for (i, j), (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here, value, won = out[:, :, oy, ox], seen[:, :, oy, ox], better[:, :, oy, ox]
        winner, last = i * window.kernel[1] + j + 1, number[:, :, oy, ox]
        np.copyto(value, x[:, :, iy, ix])  # together, for it is read twice
        np.greater(value, here, out=won)
        np.fmax(here, value, out=here)
        if last.itemsize == 1:
            numbers = won.view(np.uint8)
            np.multiply(numbers, winner, out=numbers)
            np.maximum(last, numbers, out=last)
        else:
            np.copyto(last, winner, where=won)


def _empty(image: tuple[int, ...], window: Window, out: Any) -> None:
    """0 where a window lies past the image."""
    for axis, size in enumerate(image):
        seen = -(-(size + window.pad[axis]) // window.stride[axis])
        if seen < out.shape[2 + axis]:
            np.copyto(out[(slice(None),) * (2 + axis) + (slice(seen, None),)], 0)


@op(replays=False)
def roi_pool(
    x: Any, rois: Any, scale: float, out: Any, which: Any, better: Any, refused: Any
) -> Any:
    """out[r, k, p, q] = the largest entry of channel k in bin (p, q) of region r, `which` its place y w + x.

    x (n, c, h, w); rois (r, 5): image, x0, y0, x1, y1, in pixels times 1 / scale, rounded half away from 0,
    at least one pixel. Bin p of `length` rows reaches from floor(p length / oh) to ceil((p + 1) length / oh),
    cut to the image; an empty one is 0, with place -1. `better` (c,) is boolean scratch. Raises DataError for
    an image that is not there; on CUDA, which is not waited for, its region is NaN. A replay sets `refused`,
    one int32, to 1 instead of raising. Source: ROIPoolingLayer of R. Girshick's fast-rcnn.

    >>> x, rois = np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0.0, 0, 2, 6, 6]])
    >>> y, which = np.empty((1, 1, 2, 2)), np.empty((1, 1, 2, 2), np.int32)
    >>> roi_pool(x, rois, 0.5, y, which, np.empty(1, bool), np.zeros(1, np.int32)).tolist()
    [[[[9.0, 11.0], [13.0, 15.0]]]]
    """
    (n, _, h, w), bins = x.shape, out.shape[2:]
    check_regions(rois, n)
    for r, roi in enumerate(rois):
        image, spans = _spans(roi, x.dtype.type(scale), (h, w), bins)
        for p, rows in enumerate(spans[0]):
            for q, columns in enumerate(spans[1]):
                best, winner = out[r, :, p, q], which[r, :, p, q]
                best.fill(-np.inf if rows and columns else 0)
                winner.fill(-1)
                for a in rows:
                    for b in columns:
                        value = x[image, :, a, b]
                        np.greater(value, best, out=better)
                        np.copyto(best, value, where=better)
                        np.copyto(winner, a * w + b, where=better)


@op(replays=False)
def roi_pool_gradient(dy: Any, which: Any, rois: Any, scale: float, out: Any, scratch: Any) -> Any:
    """dx = the sum of dy over the bins that each entry won; `scratch`, like dy, is int64, bool, dy's type.

    >>> dy, which = np.full((1, 1, 1, 2), 5.0), np.array([[[[2, 2]]]], np.int32)
    >>> scratch = [np.empty(dy.shape, kind) for kind in (np.int64, bool, float)]
    >>> rois = np.array([[0.0, 0, 0, 1, 1]])
    >>> roi_pool_gradient(dy, which, rois, 1, np.empty((1, 1, 2, 2)), scratch).tolist()
    [[[[0.0, 0.0], [10.0, 0.0]]]]
    """
    _, c, h, w = out.shape
    places, won, share = scratch
    np.maximum(which, 0, out=places)
    for r in range(len(dy)):
        places[r] += int(rois[r, 0]) * c * h * w
    for k in range(c):
        places[:, k] += k * h * w
    np.multiply(dy, np.greater_equal(which, 0, out=won), out=share)
    out.fill(0)
    np.add.at(out.reshape(-1), places.reshape(-1), share.reshape(-1))


def check_regions(rois: np.ndarray, n: int) -> None:
    """Raise DataError for a region of an image that is not one of n."""
    for r, roi in enumerate(rois):
        if not -1 < roi[0] < n:
            raise DataError(f"region {r} is of image {roi[0]:g}; there are {n}: 0..{n - 1}")


def _spans(
    roi: Any, scale: Any, image: tuple[int, int], out: tuple[int, int]
) -> tuple[int, list[list[range]]]:
    """A region's image; the rows of each row of bins, the columns of each column."""
    x0, y0, x1, y1 = (_pixel(value * scale) for value in roi[1:])
    spans = []
    for first, last, size, count in ((y0, y1, image[0], out[0]), (x0, x1, image[1], out[1])):
        length = scale.dtype.type(max(last - first + 1, 1)) / scale.dtype.type(count)
        spans.append([_span(p, length, first, size) for p in range(count)])
    return int(roi[0]), spans


def _span(p: int, length: Any, first: int, size: int) -> range:
    """The rows or columns of bin p of those of a length, from `first` on, that are in the image."""
    start = math.floor(length.dtype.type(p) * length) + first
    stop = math.ceil(length.dtype.type(p + 1) * length) + first
    return range(min(max(start, 0), size), min(max(stop, 0), size))


def _pixel(value: Any) -> int:
    """The nearest whole number, of two the one away from 0."""
    if not -FAR < value < FAR:
        return FAR if value > 0 else -FAR
    size = math.floor(abs(value))
    return int(math.copysign(size + (abs(value) - size >= 0.5), value))


@op(replays=False)
def mask(
    which: Any, window: Window, width: int, corners: Any, out: Any, place: Any, none: Any
) -> Any:
    """The place y w + x of each window's winner in its image, w being its `width`; -1 if there is none.

    `which` (n, c, oh, ow) numbers the winner in its window, row by row; `corners` (oh, ow) are the windows'
    first places. `place` (int32) and `none` (bool) are scratch of which's shape, for the CPU.

    >>> which, corners = np.array([[[[3, -1]]]], np.int32), np.array([[0, 2]])
    >>> mask(which, Window((2, 2), (2, 2)), 4, corners, np.empty((1, 1, 1, 2)), which.copy(), which < 0)
    array([[[[ 5., -1.]]]])
    """
    kernel = window.kernel[1]
    np.floor_divide(which, kernel, out=place)
    np.multiply(place, width - kernel, out=place)
    np.add(place, which, out=place)
    np.add(place, corners, out=place)
    np.less(which, 0, out=none)
    np.copyto(out, place)
    np.copyto(out, -1, where=none)


@op(replays=False)
def places(mask: Any, image: tuple[int, int], out: Any, refused: Any) -> Any:
    """A mask's numbers as int64 `out`: places y w + x of an image (h, w), -1 for none, -2 for others.

    Raises DataError for a place outside; not on CUDA, which is not waited for: see `check_mask`. A replay sets
    `refused`, one int32, to 1 instead.

    >>> places(np.array([3.0, -1.0]), (2, 2), np.empty(2, np.int64), np.zeros(1, np.int32))
    array([ 3, -1])
    """
    check_mask(mask, image)
    np.copyto(out, mask, casting="unsafe")


def check_mask(mask: np.ndarray, image: tuple[int, int]) -> None:
    """Raise DataError for a number of the host's mask that is no place of an image (h, w), nor -1."""
    (h, w), lowest, highest = image, mask.min(initial=0), mask.max(initial=0)
    if not (lowest >= NOWHERE and highest < h * w):
        odd = highest if highest >= h * w else lowest
        raise DataError(f"place {odd:g} of the mask is not in the image of {h} x {w}")


@op(replays=False)
def unpool(x: Any, place: Any, out: Any, winner: Any) -> Any:
    """y = 0 but y[place[i]] = x[i], plane by plane; of pixels with one place the last is there.

    x and place (n, c, h, w); out and winner, an int32 scratch, (n, c, oh, ow). A place outside makes its
    plane's first pixel NaN.

    >>> x, place = np.array([5.0, 7.0]).reshape(1, 1, 1, 2), np.array([[[[2, 0]]]])
    >>> unpool(x, place, np.empty((1, 1, 1, 3)), np.empty((1, 1, 1, 3), np.int32)).ravel()
    array([7., 0., 5.])
    """
    pixels, size = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    out.fill(0)
    planes = x.reshape(-1, pixels), place.reshape(-1, pixels), out.reshape(-1, size)
    for values, where, to in zip(*planes, strict=True):
        if where.min(initial=0) == NOWHERE:
            values, where = values[where >= 0], where[where >= 0]
        to[where] = values


@op(replays=False)
def unpool_gradient(dy: Any, place: Any, out: Any) -> Any:
    """dx[i] = dy[place[i]], 0 where that is none."""
    pixels, size = math.prod(out.shape[2:]), math.prod(dy.shape[2:])
    planes = dy.reshape(-1, size), place.reshape(-1, pixels), out.reshape(-1, pixels)
    for values, where, to in zip(*planes, strict=True):
        np.take(values, where, out=to, mode="clip")
        if where.min(initial=0) == NOWHERE:
            to[where < 0] = 0
