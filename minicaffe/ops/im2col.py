"""im2col and its adjoint col2im: an image to the matrix of its windows, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minicaffe.backend import launch, on_cuda
from minicaffe.ops.geometry import Window


def im2col(x: Any, window: Window, out: Any) -> Any:
    """The windows of an image as columns.

    col[(c kh + i) kw + j, oy ow + ox] = x[c, oy sh - ph + i dh, ox sw - pw + j dw], 0 outside.
    x is (c, h, w); out is (c kh kw, oh, ow). Source: Caffe's im2col_cpu; Chellapilla et al. 2006.

    >>> import numpy as np
    >>> x = np.arange(9.0).reshape(1, 3, 3)
    >>> im2col(x, Window((2, 2)), np.empty((4, 2, 2))).reshape(4, 4)
    array([[0., 1., 3., 4.],
           [1., 2., 4., 5.],
           [3., 4., 6., 7.],
           [4., 5., 7., 8.]])
    """
    if on_cuda(x):
        launch(
            "im2col.cu",
            "im2col",
            x.shape[0] * math.prod(out.shape[1:]),
            out,
            x,
            *_sizes(x, window, out),
            out,
        )
        return out
    col = out.reshape(x.shape[0], *window.kernel, *out.shape[1:])
    if not any(window.pad):
        np.copyto(col, _windows(x, window, col.shape))
        return out
    col.fill(0)
    for i, j, (oy, ox), (iy, ix) in window.elements(x.shape[1:], out.shape[1:]):
        col[:, i, j, oy, ox] = x[:, iy, ix]
    return out


def col2im(col: Any, window: Window, out: Any) -> Any:
    """The adjoint of im2col: each image entry is the sum of the column entries read from it.

    col is (c kh kw, oh, ow); out is (c, h, w) and is overwritten. Source: Caffe's col2im_cpu.

    >>> import numpy as np
    >>> col2im(np.ones((4, 2, 2)), Window((2, 2)), np.empty((1, 3, 3)))
    array([[[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]]])
    """
    if on_cuda(col):
        launch(
            "im2col.cu", "col2im", math.prod(out.shape), out, col, *_sizes(out, window, col), out
        )
        return out
    columns = col.reshape(out.shape[0], *window.kernel, *col.shape[1:])
    out.fill(0)
    for i, j, (oy, ox), (iy, ix) in window.elements(out.shape[1:], col.shape[1:]):
        out[:, iy, ix] += columns[:, i, j, oy, ox]
    return out


def _windows(x: Any, window: Window, shape: tuple[int, ...]) -> Any:
    """All windows of an unpadded image as a view: [c, i, j, oy, ox] = x[c, oy sh + i dh, ox sw + j dw]."""
    channel, row, column = x.strides
    (sh, sw), (dh, dw) = window.stride, window.dilation
    return as_strided(
        x, shape, (channel, row * dh, column * dw, row * sh, column * sw), writeable=False
    )


def _sizes(image: Any, window: Window, col: Any) -> tuple[int, ...]:
    h, w = image.shape[1:]
    oh, ow = col.shape[1:]
    return (h, w, *window.kernel, *window.pad, *window.stride, *window.dilation, oh, ow)
