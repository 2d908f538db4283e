"""Max and average pooling by compiled loops, a plane of the blob at a time."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, by_loops, loops, threads
from minicaffe.backends.cpu.run import run

NO_NAMES = np.empty(0, np.int32)
PAIRS = ((2, 2), (2, 2), (0, 0))  # kernel, stride and pad of windows of 2 x 2 side by side


@by_loops("pool")
def max_pool(
    compiled: Any,
    x: Any,
    window: Any,
    out: Any,
    which: Any,
    _: Any,
    work: Any = None,
    keep: Any = True,
) -> None:
    """Windows of 2 x 2 side by side have a loop of their own."""
    image, sizes, pooled = _tuples(x, window, out)
    planes, flat = math.prod(x.shape[:2]), x.reshape(-1)
    to = out.reshape(-1), which.reshape(-1) if keep else NO_NAMES
    if halves := _halves(sizes, image, pooled, x.dtype):
        run(halves.max_halve, planes, flat, image, pooled, keep, *to)
        return
    given = flat, image, sizes, pooled, _work(work, window, x, out)
    if keep:
        run(compiled.max_pool, planes, *given, *to)
    else:
        run(compiled.largest, planes, *given, to[0])


@by_loops("pool")
def max_pool_gradient(compiled: Any, dy: Any, which: Any, window: Any, out: Any, *_: Any) -> None:
    """The same windows likewise."""
    image, sizes, pooled = _tuples(out, window, dy)
    planes, given = math.prod(out.shape[:2]), (dy.reshape(-1), which.reshape(-1), image)
    if halves := _halves(sizes, image, pooled, dy.dtype):
        run(halves.max_halve_gradient, planes, *given, pooled, out.reshape(-1))
    else:
        offsets = _offsets(window.kernel, image[1])
        run(compiled.max_pool_gradient, planes, *given, sizes, pooled, offsets, out.reshape(-1))


@by_loops("ave_pool")
def ave_pool(compiled: Any, x: Any, window: Any, out: Any, work: Any = None) -> None:
    """What the windows of each row hold is summed first."""
    _average(compiled.ave_pool, x, x, window, out, work, out)


@by_loops("ave_pool")
def ave_pool_gradient(
    compiled: Any, dy: Any, window: Any, out: Any, _: Any, work: Any = None
) -> None:
    """What each row is of is spread last."""
    _average(compiled.ave_pool_gradient, dy, out, window, dy, work, out)


def _average(
    loop: Any, source: Any, image: Any, window: Any, pooled: Any, work: Any, out: Any
) -> None:
    divisors = (divisor.reshape(-1) for divisor in window.divisors(image, pooled))
    window = window.seen(image.shape[2:], pooled.shape[2:])
    given = source.reshape(-1), *_tuples(image, window, pooled), *divisors
    room = _work(work, window, image, pooled)
    run(loop, math.prod(image.shape[:2]), *given, room, out.reshape(-1))


def _halves(sizes: Any, image: Any, pooled: Any, dtype: Any) -> Any:
    """The loops for windows of 2 x 2 side by side, if these are such."""
    if sizes == PAIRS and image == tuple(2 * o for o in pooled):
        return loops("max_pool_2x2", dtype)
    return None


@functools.cache
def _offsets(kernel: tuple[int, ...], width: int) -> Any:
    """Of each kernel element how far it is from the window's corner."""
    return np.ravel(np.arange(kernel[0])[:, None] * width + np.arange(kernel[1]))


def _work(work: Any, window: Any, image: Any, pooled: Any) -> Piece:
    size = window.workspace(image.shape[2:], pooled.shape[2:]) * threads.count()
    return Piece(np.empty(size, image.dtype) if work is None else work[:size])


def _tuples(image: Any, window: Any, pooled: Any) -> tuple[Any, ...]:
    return image.shape[2:], (window.kernel, window.stride, window.pad), pooled.shape[2:]
