"""What follows a convolution, on its outputs while they are in the cache: no pass over memory of its own.

    y = 0 where less                                             if it rectifies
    a pooling of the same outputs                                if it pools

An epilogue is (steps, (channels, outputs of each), tail); the tail, see `Tail`, is the loop of the pooling,
which needs whole channels of an image. The bits are those of one loop for each.
"""

from __future__ import annotations

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.atomics import function

RECTIFIES, POOLS = 1, 2
_call = function(0, (64, 64, 64, 64))


@helper
def finish(y, start, count, epilogue):
    """Neighbouring outputs of a channel: `count` from `start` in y."""
    if epilogue[0]:
        rectify(y, start, count, epilogue)
        pool(start, count, epilogue)


@helper
def pool(start, count, epilogue):
    """Call the tail of some neighbouring outputs, of which all else is done."""
    loop, words, size, piece = epilogue[-1]
    if epilogue[0] & POOLS:
        _call(loop, (words, start // size, (start + count) // size, piece))


@helper
def rectify(y, start, count, epilogue):
    """All but the tail."""
    zero = y.dtype.type(0)
    if epilogue[0] & RECTIFIES:
        for i in range(start, start + count):
            # as a sum, all are stored: else lane by lane on many processors
            value = y[at(i)] + zero
            y[at(i)] = zero if value <= zero else value
