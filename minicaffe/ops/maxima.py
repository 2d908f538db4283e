"""Max pooling by NumPy, kernel element by kernel element: the form that `pool` has without compiled loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.ops.geometry import Window
from minicaffe.ops.threads import in_slices

BLOCK = 2**18  # outputs that are computed at a time; a quarter of them is worth a thread


def grain(pooled: Any) -> int:
    """Samples of a pooled blob that are worth a thread.

    >>> grain(np.empty((2, 1, 256, 256)))
    2
    """
    return 1 + BLOCK // (4 * max(1, math.prod(pooled.shape[1:])))


def forward(
    x: Any, window: Window, out: Any, which: Any, better: Any, work: Any, keep: bool
) -> Any:
    """As `pool.max_pool`; `work` holds two arrays of out's shape."""
    room = np.empty(2 * out.size, x.dtype) if work is None and keep else work
    if keep:
        seen = room[: out.size].reshape(out.shape)
        bytes_of = room[out.size : 2 * out.size].view(np.uint8)[: out.size].reshape(out.shape)
        number = bytes_of if math.prod(window.kernel) < 256 else which

    def part(first: int, last: int, _: Any) -> None:
        for here in _blocks(first, last, out):
            if keep:
                given = better[here], seen[here], number[here]
                _with_winners(x[here], window, out[here], *given)
                np.subtract(number[here], 1, out=which[here], dtype=which.dtype)
            else:
                _maxima(x[here], window, out[here])
            _empty(x.shape[2:], window, out[here])

    in_slices(part, len(x), grain=grain(out))
    return out


def gradient(dy: Any, which: Any, window: Window, out: Any, won: Any, share: Any) -> Any:
    """As `pool.max_pool_gradient`."""
    apart = all(k <= s for k, s in zip(window.kernel, window.stride, strict=True))

    def part(first: int, last: int, _: Any) -> None:
        for here in _blocks(first, last, dy):
            dx, wins, part_of_dy = out[here], won[here], share[here]
            dx.fill(0)
            for (i, j), (oy, ox), (iy, ix) in window.elements(out.shape[2:], dy.shape[2:]):
                np.equal(which[here], i * window.kernel[1] + j, out=wins)
                if apart:  # no pixel is in two windows: nothing to add to
                    to = dx[:, :, iy, ix]
                    np.multiply(dy[here][:, :, oy, ox], wins[:, :, oy, ox], out=to)
                    continue
                np.multiply(dy[here], wins, out=part_of_dy)
                dx[:, :, iy, ix] += part_of_dy[:, :, oy, ox]

    in_slices(part, len(dy), grain=grain(dy))
    return out


def _blocks(first: int, last: int, pooled: Any) -> Iterator[slice]:
    """Samples first..last, as many at a time as stay near the cache."""
    many = max(1, BLOCK // max(1, math.prod(pooled.shape[1:])))
    return (slice(start, min(start + many, last)) for start in range(first, last, many))


def _maxima(x: Any, window: Window, out: Any) -> None:
    out.fill(-np.inf)
    for _, (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here = out[:, :, oy, ox]
        np.fmax(here, x[:, :, iy, ix], out=here)


def _with_winners(x: Any, window: Window, out: Any, better: Any, seen: Any, number: Any) -> None:
    """The maxima, and of each one more than the number of the element that won it.

    What an element sees is copied together first, for it is read twice. A later winner has a larger number,
    so that a maximum, not a branch, keeps it.
    """
    out.fill(-np.inf)
    number.fill(0)
    for (i, j), (oy, ox), (iy, ix) in window.elements(x.shape[2:], out.shape[2:]):
        here, value, won = out[:, :, oy, ox], seen[:, :, oy, ox], better[:, :, oy, ox]
        winner, last = i * window.kernel[1] + j + 1, number[:, :, oy, ox]
        np.copyto(value, x[:, :, iy, ix])
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
        seen = [
            o * window.stride[axis] - window.pad[axis] < size for o in range(out.shape[2 + axis])
        ]
        if not all(seen):
            out[(slice(None),) * (2 + axis) + (slice(sum(seen), None),)] = 0
