"""Max and average pooling over windows of (n, c, h, w), with Caffe's clipping at the edges."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, threads
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.dispatch import in_slices, run
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops import maxima
from minicaffe.core.ops.geometry import Sizes, Window, window_sizes

NO_NAMES = np.empty(0, np.int32)
PAIRS = ((2, 2), (2, 2), (0, 0))  # kernel, stride and pad of windows of 2 x 2 side by side


def workspace(window: Window, image: Sizes, pooled: Sizes) -> int:
    """Elements of work that the functions below share among the threads of the CPU; (h, w) and (oh, ow)."""
    lines, across = (
        (o - 1) * s + k for o, s, k in zip(pooled, window.stride, window.kernel, strict=True)
    )
    return (5 * lines * max(across, image[1]) + pooled[1]) * threads.count()


def seen(window: Window, image: Sizes, pooled: Sizes) -> Window:
    """The window without those elements of its kernel that meet no pixel, whatever the output.

    >>> seen(Window((101,), pad=(50,)), (3,), (3,))
    Window(kernel=(5,), stride=(1,), pad=(2,), dilation=(1,))
    """
    kernel, pad = [], []
    given = zip(image, pooled, window.kernel, window.stride, window.pad, strict=True)
    for size, count, k, s, p in given:
        pad.append(min(p, (count - 1) * s))
        kernel.append(min(k - p + pad[-1], size + pad[-1]))
    return Window(tuple(kernel), window.stride, tuple(pad), window.dilation)


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
    if on_cuda(x):
        launch(
            "pool.cu", "max_pool", math.prod(out.shape), out, x, *_sizes(x, window, out), out, which
        )
        return out
    fast = loops("pool", x.dtype)
    if fast is not None:
        image, sizes, pooled = _tuples(x, window, out)
        planes = len(x) * x.shape[1]
        to = out.reshape(-1), which.reshape(-1) if keep else NO_NAMES
        if halves := _halves(window, image, pooled, x.dtype):
            run(halves.max_halve, planes, x.reshape(-1), image, pooled, keep, *to)
        else:
            room = Piece(_work(work, window, x, out))
            source = x.reshape(-1), image, sizes, pooled, room
            if keep:
                run(fast.max_pool, planes, *source, *to)
            else:
                run(fast.largest, planes, *source, to[0])
        return out

    return maxima.forward(x, window, out, which, better, work, keep)


def max_pool_gradient(dy: Any, which: Any, window: Window, out: Any, won: Any, share: Any) -> Any:
    """dx[i] = sum of dy over the windows that i won; `won` and `share` are scratch of dy's shape.

    >>> dy, which = np.full((1, 1, 1, 1), 5.0), np.full((1, 1, 1, 1), 1, np.int32)
    >>> scratch = np.empty(dy.shape, bool), np.empty(dy.shape)
    >>> max_pool_gradient(dy, which, Window((2, 2)), np.empty((1, 1, 2, 2)), *scratch).tolist()
    [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    if on_cuda(dy):
        given = out, dy, which, *_sizes(out, window, dy), None, out
        launch("pool.cu", "max_pool_gradient", math.prod(out.shape), *given)
        return out
    fast = loops("pool", dy.dtype)
    if fast is not None:
        image, sizes, pooled = _tuples(out, window, dy)
        planes, given = math.prod(out.shape[:2]), (dy.reshape(-1), which.reshape(-1), image)
        if halves := _halves(window, image, pooled, dy.dtype):
            run(halves.max_halve_gradient, planes, *given, pooled, out.reshape(-1))
        else:
            offsets = _offsets(window.kernel, image[1])
            run(fast.max_pool_gradient, planes, *given, sizes, pooled, offsets, out.reshape(-1))
        return out

    return maxima.gradient(dy, which, window, out, won, share)


def ave_pool(x: Any, window: Window, out: Any, work: Any = None) -> Any:
    """y[o] = sum of x over window o / the window's size clipped to the padded image; `work` as above.

    The zeros of the padding count, what lies beyond the padding does not; a window wholly past the
    image is 0, in Caffe 0/0. Source: Caffe's PoolingLayer.

    >>> ave_pool(np.array([[[[1.0, 4.0], [3.0, 2.0]]]]), Window((2, 2)), np.empty((1, 1, 1, 1))).item()
    2.5
    """
    if on_cuda(x):
        launch("pool.cu", "ave_pool", math.prod(out.shape), out, x, *_sizes(x, window, out), out)
        return out
    rows, columns = (_divisors(axis, x, window, out) for axis in (0, 1))
    fast = loops("ave_pool", x.dtype)
    if fast is not None:
        window = seen(window, x.shape[2:], out.shape[2:])
        given = x.reshape(-1), *_tuples(x, window, out), rows.reshape(-1), columns.reshape(-1)
        planes = math.prod(x.shape[:2])
        run(fast.ave_pool, planes, *given, Piece(_work(work, window, x, out)), out.reshape(-1))
        return out

    def part(first: int, last: int, _: Any) -> None:
        y = out[first:last]
        do(np.copyto, y, 0)
        for _, (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
            here = y[:, :, oy, ox]
            do(np.add, here, x[first:last, :, iy, ix], out=here)
        do(np.divide, y, rows, out=y)
        do(np.divide, y, columns, out=y)

    in_slices(part, len(x), noted=True, **maxima.sizes(out))
    return out


def ave_pool_gradient(dy: Any, window: Window, out: Any, share: Any, work: Any = None) -> Any:
    """dx[i] = sum over the windows that hold i of dy / window size; `share` is scratch of dy's shape.

    `work` is as above.

    >>> dy = np.full((1, 1, 1, 1), 4.0)
    >>> ave_pool_gradient(dy, Window((2, 2)), np.empty((1, 1, 2, 2)), np.empty_like(dy)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    if on_cuda(dy):
        given = out, dy, *_sizes(out, window, dy), None, out
        launch("pool.cu", "ave_pool_gradient", math.prod(out.shape), *given)
        return out
    rows, columns = (_divisors(axis, out, window, dy) for axis in (0, 1))
    fast = loops("ave_pool", dy.dtype)
    if fast is not None:
        window = seen(window, out.shape[2:], dy.shape[2:])
        given = dy.reshape(-1), *_tuples(out, window, dy), rows.reshape(-1), columns.reshape(-1)
        planes = math.prod(out.shape[:2])
        run(
            fast.ave_pool_gradient,
            planes,
            *given,
            Piece(_work(work, window, out, dy)),
            out.reshape(-1),
        )
        return out

    def part(first: int, last: int, _: Any) -> None:
        dx, part_of_dy = out[first:last], share[first:last]
        do(np.divide, dy[first:last], rows, out=part_of_dy)
        do(np.divide, part_of_dy, columns, out=part_of_dy)
        do(np.copyto, dx, 0)
        for _, (oy, ox), (iy, ix) in window.elements(out.shape[2:], dy.shape[2:]):
            here = dx[:, :, iy, ix]
            do(np.add, here, part_of_dy[:, :, oy, ox], out=here)

    in_slices(part, len(dy), noted=True, **maxima.sizes(dy))
    return out


def _divisors(axis: int, image: Any, window: Window, pooled: Any) -> Any:
    return _column_of_sizes(
        axis, image.shape[2 + axis], pooled.shape[2 + axis], window, pooled.dtype
    )


@functools.cache
def _column_of_sizes(axis: int, size: int, count: int, window: Window, dtype: Any) -> Any:
    sizes = window_sizes(size, count, window.kernel[axis], window.stride[axis], window.pad[axis])
    return np.maximum(sizes, 1).astype(dtype).reshape((-1, 1) if axis == 0 else (1, -1))


@functools.cache
def _offsets(kernel: Sizes, width: int) -> Any:
    """Of each kernel element how far it is from the window's corner."""
    return np.ravel(np.arange(kernel[0])[:, None] * width + np.arange(kernel[1]))


def _halves(window: Window, image: Sizes, pooled: Sizes, dtype: Any) -> Any:
    """The loops for windows of 2 x 2 side by side, if these are such."""
    pairs = (window.kernel, window.stride, window.pad) == PAIRS
    return loops("max_pool_2x2", dtype) if pairs and image == tuple(2 * o for o in pooled) else None


def _work(work: Any, window: Window, image: Any, pooled: Any) -> Any:
    size = workspace(window, image.shape[2:], pooled.shape[2:])
    return np.empty(size, image.dtype) if work is None else work[:size]


def _tuples(image: Any, window: Window, pooled: Any) -> tuple[Any, ...]:
    return image.shape[2:], (window.kernel, window.stride, window.pad), pooled.shape[2:]


def _sizes(image: Any, window: Window, pooled: Any) -> tuple[int, ...]:
    return (*image.shape[2:], *window.kernel, *window.pad, *window.stride, *pooled.shape[2:])
