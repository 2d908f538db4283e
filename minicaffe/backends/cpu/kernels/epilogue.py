"""What follows a convolution, on its outputs while they are in the cache: no pass over memory of its own.

    y = (y - mean) rate      by the averages of running sums     if it normalises
    y = factor y + term      of each channel                     if it scales
    y = y + more             of another array                    if it adds
    y = 0 where less                                             if it rectifies
    y = slope y where less                                       if it leaks
    another loop, of the same outputs                            if it calls

An epilogue is (steps, (channels, outputs of each), what `recalled` takes, (factors, terms), more, slopes,
tail), of slopes one or one a channel. The tail, see `Tail`, is a function of each number, or a pooling, which
needs whole channels of an image. The bits are those of one loop for each.
"""

from __future__ import annotations

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.atomics import function
from minicaffe.backends.cpu.kernels.running import recalled

NORMALISES, SCALES, ADDS, RECTIFIES, LEAKS, CALLS = 1, 2, 4, 8, 16, 32
_call = function(0, (64, 64, 64, 64))


@helper
def finish(y, start, count, channel, epilogue):
    """Outputs of a channel: `count` neighbours in y."""
    if epilogue[0]:
        compute(y, start, count, channel, epilogue)
        follow(start, count, epilogue)


@helper
def follow(start, count, epilogue):
    """Call the tail of some neighbouring outputs, of which all else is done."""
    loop, words, size, piece = epilogue[-1]
    if epilogue[0] & CALLS:
        _call(loop, (words, start // size, (start + count) // size, piece))


@helper
def compute(y, start, count, channel, epilogue):
    """All but the tail."""
    steps, _, past, (factors, terms), more, slopes, _ = epilogue
    mean, variance, batches, eps, found, spread, rate = past
    kind, end = y.dtype.type, start + count
    one, zero = kind(1), kind(0)
    if steps & NORMALISES:
        recalled(channel, mean, variance, batches, eps, found, spread, rate)
        middle, many = found[channel], rate[channel]
        if not steps & SCALES:
            for i in range(start, end):
                y[at(i)] = (y[at(i)] - middle) * many
    if steps & SCALES:
        factor = factors[channel] if len(factors) else one
        term = terms[channel] if len(terms) else zero
        if not steps & NORMALISES:
            for i in range(start, end):
                y[at(i)] = y[at(i)] * factor + term
        elif steps & (ADDS | RECTIFIES) != RECTIFIES:
            for i in range(start, end):
                y[at(i)] = kind((y[at(i)] - middle) * many) * factor + term
        else:
            for i in range(start, end):
                value = kind((y[at(i)] - middle) * many) * factor + term
                y[at(i)] = zero if value <= zero else value
            steps -= RECTIFIES
    if steps & ADDS and steps & RECTIFIES:
        for i in range(start, end):
            value = y[at(i)] + more[at(i)]
            y[at(i)] = zero if value <= zero else value
    elif steps & ADDS:
        for i in range(start, end):
            y[at(i)] = y[at(i)] + more[at(i)]
    elif steps & RECTIFIES:
        for i in range(
            start, end
        ):  # as a sum, all are stored: else lane by lane on many processors
            value = y[at(i)] + zero
            y[at(i)] = zero if value <= zero else value
    if steps & LEAKS:
        slope = slopes[channel] if len(slopes) > 1 else slopes[0]
        for i in range(start, end):
            y[at(i)] = y[at(i)] if y[at(i)] > zero else y[at(i)] * slope
