"""Max pooling by NumPy, kernel element by kernel element: the form that `pool` has without compiled loops."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backends.replay.dispatch import in_slices
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.geometry import Window

BLOCK = 2**16  # outputs that are computed at a time; for half of them it pays to wake a thread
LEAST = 2**13  # that a thread has


def sizes(pooled: Any) -> dict[str, int]:
    """How many samples of a pooled blob a slice has at least, and are worth waking threads for.

    >>> sizes(np.empty((2, 1, 256, 256)))
    {'grain': 1, 'worth': 1}
    """
    each = max(1, math.prod(pooled.shape[1:]))
    return {"grain": 1 + LEAST // each, "worth": 1 + BLOCK // (2 * each)}


def forward(
    x: Any, window: Window, out: Any, which: Any, better: Any, work: Any, keep: bool
) -> Any:
    """As `pool.max_pool`; `work` holds two arrays of out's shape."""
    each = max(1, math.prod(out.shape[1:]))
    room = np.empty(2 * out.size, x.dtype) if work is None and keep else work
    side_by_side = keep and _cover(window, x, out)
    takes = 2 * each  # of the work, for a sample
    if side_by_side:  # what all elements see, the maximum, and bytes for them
        takes = each * (1 + math.prod(window.kernel)) + -(
            -each * math.prod(window.kernel) // x.itemsize
        )

    def part(first: int, last: int, piece: Any) -> None:
        for here in _blocks(first, last, out, max(1, piece.size // takes) if keep else last):
            y, size = out[here], out[here].size
            if side_by_side and piece.size >= takes:
                _first_of_equal(x[here], window, y, which[here], piece)
                continue
            if keep:
                seen, number = piece[:size].reshape(y.shape), which[here]
                if math.prod(window.kernel) < 256:
                    number = piece[size : 2 * size].view(np.uint8)[:size].reshape(y.shape)
                _with_winners(x[here], window, y, better[here], seen, number)
                do(np.subtract, number, 1, out=which[here], dtype=which.dtype)
            else:
                _maxima(x[here], window, y)
            _empty(x.shape[2:], window, y)

    in_slices(part, len(x), room, noted=True, **sizes(out))
    return out


def gradient(dy: Any, which: Any, window: Window, out: Any, won: Any, share: Any) -> Any:
    """As `pool.max_pool_gradient`."""
    apart = all(k <= s for k, s in zip(window.kernel, window.stride, strict=True))
    few = _cover(window, out, dy) and math.prod(window.kernel) <= dy.itemsize
    each = max(1, math.prod(dy.shape[1:]))

    def part(first: int, last: int, piece: Any) -> None:
        for here in _blocks(first, last, dy, max(1, piece.size // each)):
            if few:
                _back_to_first(dy[here], which[here], window, out[here], piece)
                continue
            dx, wins, part_of_dy = (
                out[here],
                won[here],
                piece[: dy[here].size].reshape(dy[here].shape),
            )
            do(np.copyto, dx, 0)
            for (i, j), (oy, ox), (iy, ix) in window.elements(out.shape[2:], dy.shape[2:]):
                do(np.equal, which[here], i * window.kernel[1] + j, out=wins)
                if apart:  # no pixel is in two windows: nothing to add to
                    to = dx[:, :, iy, ix]
                    do(np.multiply, dy[here][:, :, oy, ox], wins[:, :, oy, ox], out=to)
                    continue
                do(np.multiply, dy[here], wins, out=part_of_dy)
                to = dx[:, :, iy, ix]
                do(np.add, to, part_of_dy[:, :, oy, ox], out=to)

    in_slices(part, len(dy), share.reshape(-1), noted=True, **sizes(dy))
    return out


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
    """The maxima of windows side by side, and which element of each is the first to be it; -1 if none is.

    All elements are taken at once: of those that are not the maximum the number becomes 255.
    """
    count, size, kind = math.prod(window.kernel), out.size, x.dtype.type
    seen, most = work[: count * size].reshape(count, size), work[count * size :][:size]
    do(np.copyto, seen.reshape(*window.kernel, *out.shape), _elements(x, window, out))
    do(np.fmax.reduce, seen, axis=0, out=out.reshape(-1), initial=kind(-np.inf))
    do(np.maximum, out.reshape(-1), np.finfo(x.dtype).min, out=most)  # -inf is no maximum
    rest = work[(count + 1) * size :].view(np.uint8)
    number = rest[: count * size].reshape(count, size)
    do(np.not_equal, seen, most, out=number.view(np.bool_))
    do(np.negative, number, out=number)  # 0, or 255
    do(np.bitwise_or, number, _numbers(count, np.uint8)[:, None], out=number)
    do(np.minimum.reduce, number, axis=0, out=number[0])
    do(np.copyto, which.reshape(-1), number[0].view(np.int8))


def _back_to_first(dy: Any, which: Any, window: Window, out: Any, work: Any) -> None:
    """The gradient, back to the elements that won; `work` is flat, as long as dy."""
    count = math.prod(window.kernel)
    won = work.view(np.bool_)[: count * dy.size].reshape(*window.kernel, *dy.shape)
    numbers = _numbers(count, np.int32).reshape(*window.kernel, 1, 1, 1, 1)
    do(np.equal, which, numbers, out=won)
    do(np.multiply, dy, won, out=_elements(out, window, dy))


def _blocks(first: int, last: int, pooled: Any, most: int) -> Iterator[slice]:
    """Samples first..last, as many at a time as stay near the cache, `most` at the most."""
    many = min(most, max(1, BLOCK // max(1, math.prod(pooled.shape[1:]))))
    return (slice(start, min(start + many, last)) for start in range(first, last, many))


def _maxima(x: Any, window: Window, out: Any) -> None:
    do(np.copyto, out, -np.inf)
    for _, (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here = out[:, :, oy, ox]
        do(np.fmax, here, x[:, :, iy, ix], out=here)


def _with_winners(x: Any, window: Window, out: Any, better: Any, seen: Any, number: Any) -> None:
    """The maxima, and of each one more than the number of the element that won it.

    What an element sees is copied together first, for it is read twice. A later winner has a larger number,
    so that a maximum, not a branch, keeps it.
    """
    do(np.copyto, out, -np.inf)
    do(np.copyto, number, 0)
    for (i, j), (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here, value, won = out[:, :, oy, ox], seen[:, :, oy, ox], better[:, :, oy, ox]
        winner, last = i * window.kernel[1] + j + 1, number[:, :, oy, ox]
        do(np.copyto, value, x[:, :, iy, ix])
        do(np.greater, value, here, out=won)
        do(np.fmax, here, value, out=here)
        if last.itemsize == 1:
            numbers = won.view(np.uint8)
            do(np.multiply, numbers, winner, out=numbers)
            do(np.maximum, last, numbers, out=last)
        else:
            do(np.copyto, last, winner, where=won)


def _empty(image: tuple[int, ...], window: Window, out: Any) -> None:
    """0 where a window lies past the image."""
    for axis, size in enumerate(image):
        seen = [
            o * window.stride[axis] - window.pad[axis] < size for o in range(out.shape[2 + axis])
        ]
        if not all(seen):
            do(np.copyto, out[(slice(None),) * (2 + axis) + (slice(sum(seen), None),)], 0)
