"""im2col and its adjoint col2im: a batch of images to the matrix of its windows, and back."""

import functools
import itertools
import math
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.geometry import Layout, Sizes, Window, axes_of

BOTH = (slice(None), slice(None))  # all samples and channels
Form = Literal["caffe", "loopfree"]


@op(traced=False)
def im2col(
    x: Any,
    window: Window,
    out: Any,
    layout: Layout = "caffe",
    form: Form = "caffe",
    places: Sizes | None = None,
) -> Any:
    """The windows of images as columns, into `out` of `column_shape`.

    col[s][(c kh + i) kw + j, oy ow + ox] = x[s, c, oy sh - ph + i dh, ox sw - pw + j dw], 0 outside; 1 to 3
    axes alike. x is (n, c, *image). On CUDA, `form` says which kernel: Caffe's, or one without loops. `places`
    asks for the first outputs along each axis. Source: Caffe's im2col_cpu; Chellapilla et al. 2006.

    >>> x = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> im2col(x, Window((2, 2)), np.empty((1, 4, 4)))[0]
    array([[0., 1., 3., 4.],
           [1., 2., 4., 5.],
           [3., 4., 6., 7.],
           [4., 5., 7., 8.]])
    """
    _unroll(x, window, _windows_of(out, x.shape, window, places, layout))


@op("col", samples="x col", grain=1, worth=0, by_calls=True)
def _unroll(x: Any, window: Window, col: Any) -> Any:
    """The windows into columns seen as (n, c, *kernel, *places)."""
    image, places = x.shape[2:], col.shape[-x.ndim + 2 :]
    if _within(window, places, image):
        np.copyto(col, _windows(x, window, col.shape))
        return
    np.copyto(col, 0)
    for element, outputs, pixels in window.elements(image, places):
        np.copyto(col[BOTH + element + outputs], x[BOTH + pixels])


@op(traced=False)
def col2im(
    col: Any,
    window: Window,
    out: Any,
    layout: Layout = "caffe",
    form: Literal["gather", "scatter"] = "gather",
    places: Sizes | None = None,
    add: bool = False,
) -> Any:
    """The adjoint of im2col: each image entry is the sum of the column entries read from it.

    col is of `column_shape`; out is (n, c, *image) and is overwritten. With `places`, col holds the first
    outputs along each axis only; with `add`, out is added to. On CUDA, `form` says which kernel: a gather,
    whose sums are always in one order, or a scatter with atomic additions. Source: Caffe's col2im_cpu.

    >>> col2im(np.ones((1, 4, 4)), Window((2, 2)), np.empty((1, 1, 3, 3)))[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    _roll(_windows_of(col, out.shape, window, places, layout), window, out, add)


@op(samples="col out", grain=1, worth=0, by_calls=True)
def _roll(col: Any, window: Window, out: Any, add: bool) -> Any:
    """The sums of columns seen as (n, c, *kernel, *places)."""
    image, places = out.shape[2:], col.shape[-out.ndim + 2 :]
    if window.covers(image, places) and not add:
        np.copyto(_windows(out, window, col.shape, writeable=True), col)
        return
    if not add:
        np.copyto(out, 0)
    strides_only = any(s > 1 for s in window.stride) and all(d == 1 for d in window.dilation)
    if strides_only and _within(window, places, image):  # several elements do not overlap
        for corner, element in _blocks(window):
            values = col[BOTH + element]
            target = _windows(out[BOTH + corner], window, values.shape, writeable=True)
            np.add(target, values, out=target)
        return
    for tap, outputs, pixels in window.elements(image, places):
        here = out[BOTH + pixels]
        np.add(here, col[BOTH + tap + outputs], out=here)


def side_by_side(shape: Sizes, work: Any) -> Any:
    """Images (n, c, *image) in flat work, where the samples of a pixel are neighbours.

    >>> side_by_side((2, 3, 5), np.empty(30)).strides
    (8, 80, 16)
    """
    n, *others = shape
    return np.moveaxis(work[: math.prod(shape)].reshape(*others, n), -1, 0)


def _within(window: Window, places: Sizes, image: Sizes) -> bool:
    return not any(window.pad) and all(
        seen <= size for seen, size in zip(window.images(places), image, strict=True)
    )


@functools.cache
def _blocks(window: Window) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Parts of the kernel, no larger than the stride, so that windows do not overlap: pixels, elements."""
    along = [
        [(slice(k, None), slice(k, min(k + stride, size))) for k in range(0, size, stride)]
        for size, stride in zip(window.kernel, window.stride, strict=True)
    ]
    return [tuple(zip(*axes, strict=True)) for axes in itertools.product(*along)]


def _windows(x: Any, window: Window, shape: Sizes, writeable: bool = False) -> Any:
    """All windows of unpadded images as a view: [s, c, i, j, oy, ox] = x[s, c, oy sh + i dh, ox sw + j dw]."""
    sample, channel, *pixels = x.strides
    kernel = [step * d for step, d in zip(pixels, window.dilation, strict=True)]
    places = [step * s for step, s in zip(pixels, window.stride, strict=True)]
    return as_strided(x, shape, (sample, channel, *kernel, *places), writeable=writeable)


def _windows_of(col: Any, x_shape: Sizes, window: Window, places: Sizes | None, layout: str) -> Any:
    """Columns of any layout as a view (n, c, *kernel, *places)."""
    shape, order = axes_of(x_shape, window, places, layout)
    return col.reshape(shape).transpose(order)
