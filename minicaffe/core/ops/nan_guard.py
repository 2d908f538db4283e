"""Whether a gradient and a loss are finite numbers, found where they are; and how large a gradient is."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op, threads

BAD, SKIP, STOP, DONE, PASSED = range(5)  # the flags, see watch.cu
FLAGS = 6  # int32, so that they end where a float64 may begin
PARTS = 256  # of sums of squares that serve, at the most
ALONE = 2**21  # entries up to which one thread is as quick as many, with NumPy,
PART = 2**20  # and that one of several has at least


@op(traced=False)
def squares(x: Any, out: Any, parts: Any, bad: Any, add: bool = False) -> Any:
    """out = sum of x^2, plus what it was with `add`; bad = 1 if any of x is no finite number.

    x is flat; out (), in float64, is finite if x is, but for a float64 above 1e154; `bad` is one int32,
    `parts` scratch of float64, up to 256 of which serve.

    >>> bad = np.zeros(1, np.int32)
    >>> squares(np.array([3.0, 4.0]), np.array(0.0), np.empty(8), bad), bad
    (array(25.), array([0], dtype=int32))
    """
    count = max(1, min(x.size // PART, threads(), parts.size) if x.size >= ALONE else 1)
    for i in range(count):
        of_part(x[x.size * i // count : x.size * (i + 1) // count], parts[i : i + 1], bad)
    together(parts[:count], add, out)


@op("out bad")
def of_part(x: Any, out: Any, bad: Any) -> Any:
    """The sum of squares of a part; whether all are finite, into `bad`."""
    with np.errstate(all="ignore"):
        out[0] = np.dot(x, x)
        if not math.isfinite(out[0]):  # or too large a sum for the type: rare, so looked at again
            if not np.isfinite(x).all():
                bad[0] = 1
            out[0] = np.square(x.astype(np.float64)).sum()


@op()
def together(parts: Any, add: bool, out: Any) -> Any:
    """out = the sum of parts, one by one, plus what it was with `add`."""
    out[...] = sum(parts) + (out if add else 0)


@op("flags", traced=False)
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
    >>> _ = judge(loss, [gradient], square, np.empty(8), 1.0, False, *last)
    >>> float(square), flags[[SKIP, DONE]], float(factor)
    (25.0, array([0, 1], dtype=int32), 0.2)
    """
    bad_here = flags[BAD : BAD + 1]
    for i, gradient in enumerate(gradients):
        squares(gradient, square, parts, bad_here, add=i > 0)
    decide(loss, square, limit, pass_over, flags, going, factor, refused)


@op("flags going factor")
def decide(
    loss: Any,
    square: Any,
    limit: float,
    pass_over: bool,
    flags: Any,
    going: Any,
    factor: Any,
    refused: Any,
) -> Any:
    """The decision of `judge`, all gradients having been looked at."""
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
