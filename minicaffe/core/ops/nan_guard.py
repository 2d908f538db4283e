"""Whether a gradient and a loss are finite numbers, found where they are; and how large a gradient is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cuda.launch import THREADS, launch_blocks
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.arrays import GRAIN
from minicaffe.core.ops.sums import BLOCKS, EACH, total

BAD, SKIP, STOP, DONE, PASSED = range(5)  # the flags, see watch.cu
FLAGS = 6  # int32, so that they end where a float64 may begin
FILE = "watch.cu"
ALONE = 2**21  # entries up to which one thread is as quick as many, with NumPy,
PART = 2**20  # and that one of several has at least


def squares(x: Any, out: Any, parts: Any, bad: Any, add: bool = False) -> Any:
    """out = sum of x^2, plus what it was with `add`; bad = 1 if any of x is no finite number.

    x is flat; out (), in float64, is finite if x is, but for a float64 above 1e154; `bad` is one int32,
    `parts` scratch of float64, up to BLOCKS of which serve.

    >>> bad = np.zeros(1, np.int32)
    >>> squares(np.array([3.0, 4.0]), np.array(0.0), np.empty(8), bad), bad
    (array(25.), array([0], dtype=int32))
    """
    if on_cuda(x):
        return total(parts[: _squares(x, parts, bad)], out, add=add)
    fast: Any = loops("nan_guard", x.dtype)
    if fast is not None:
        grain = max(GRAIN, x.size // parts.size + 1)
        slices = run(fast.squares, x.size, x, Piece(parts), grain=grain)
        each = parts.size // max(slices, 1)
        run(fast.together, 1, parts, each, slices, add, bad, out.reshape(1))
        return out

    def part(first: int, last: int, piece: Any) -> None:
        do(_sum, x[first:last], out=(piece, bad))

    grain = max(PART, -(-x.size // parts.size))
    pieces = in_slices(part, x.size, parts, grain=grain, worth=ALONE, noted=True)
    return do(_together, tuple(pieces), add, out=out)


def _squares(x: Any, parts: Any, bad: Any) -> int:
    """Sums of x^2, on CUDA a block's each, into `parts`; how many there are."""
    blocks = max(1, min(BLOCKS, parts.size, x.size // (EACH * THREADS)))
    launch_blocks(FILE, "squares", (blocks,), (x,), x.size, x, parts, bad)
    return blocks


def _sum(x: Any, out: Any) -> None:
    """The sum of squares of a slice into the first of its part; whether all are finite, into `bad`."""
    part, bad = out
    with np.errstate(all="ignore"):
        part[0] = np.dot(x, x)
        if not math.isfinite(
            part[0]
        ):  # or but too large a sum for the type: rare, so looked at again
            if not np.isfinite(x).all():
                bad[0] = 1
            part[0] = np.square(x.astype(np.float64)).sum()


def _together(pieces: Any, add: bool, out: Any) -> Any:
    out[...] = sum(piece[0] for piece in pieces) + (out if add else 0)
    return out


def judge(
    loss: Any,
    gradients: Sequence[Any],
    square: Any,
    parts: Any,
    limit: float,
    pass_over: bool,
    flags: Any,
    going: Any,
    factor: Any,
    refused: Any,
) -> None:
    """Decide whether an update is taken, from a loss and flat gradients, whose squares sum to `square`.

    flags[SKIP] says no; so do all after it once flags[STOP] is 1, as a loss that is no finite number makes
    it, and a bad gradient, or flags[BAD], unless such are to be passed over. Where any of `refused`, flags on
    the host, is set, the iteration does not count, and its update is not taken. flags[DONE] counts the
    iterations that did not stop, flags[PASSED] those of them that were passed over; flags[BAD] is 0 again.
    `going`, one bool, is not STOP; `factor` is what shortens a gradient to a norm of `limit`, 1 if it is
    below 0. `parts` is as in `squares`, an entry for each gradient at the least.

    >>> flags, going, factor = np.zeros(FLAGS, np.int32), np.array(True), np.array(0.0)
    >>> loss, gradient, square = np.array([0.5]), np.array([3.0, 4.0]), np.array(0.0)
    >>> last = flags, going, factor, np.zeros(0, np.int32)
    >>> judge(loss, [gradient], square, np.empty(8), 1.0, False, *last)
    >>> float(square), flags[[SKIP, DONE]], float(factor)
    (25.0, array([0, 1], dtype=int32), 0.2)
    """
    bad_here = flags[BAD : BAD + 1]
    if on_cuda(loss):
        count, share = 0, parts.size // max(1, len(gradients))
        for gradient in gradients:
            count += _squares(gradient, parts[count : count + share], bad_here)
        given = np.float64(limit), int(pass_over), flags, going, factor
        launch_blocks(FILE, "judge", (1,), (loss,), loss, parts, count, square, *given)
        return
    for i, gradient in enumerate(gradients):
        squares(gradient, square, parts, bad_here, add=i > 0)
    fast: Any = loops("nan_guard", square.dtype)
    if fast is not None:
        ones = going.reshape(1), factor.reshape(1)
        run(fast.judge, 1, loss, square.reshape(1), float(limit), pass_over, flags, *ones, refused)
        return
    do(_judge, loss, square, limit, pass_over, refused, out=(flags, going, factor))


def _judge(loss: Any, square: Any, limit: float, pass_over: bool, refused: Any, out: Any) -> None:
    flags, going, factor = out
    bad, norm = int(flags[BAD]), math.sqrt(square)
    none = bool(refused.any())
    if not none and (not math.isfinite(loss[0]) or (bad and not pass_over)):
        flags[STOP] = 1
    stop = int(flags[STOP])
    flags[SKIP] = stop or bad or none
    flags[DONE] += not (stop or none)
    flags[PASSED] += bad and not (stop or none)
    flags[BAD], going[...] = 0, not stop
    factor[...] = limit / norm if 0 <= limit < norm else 1
