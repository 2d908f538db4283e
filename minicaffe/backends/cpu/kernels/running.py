"""The running sums of channels' statistics: added to, and read as averages, for channels first..last."""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled, helper
from minicaffe.backends.cpu.kernels.normalize import rate_of


@compiled
def remember(found, spread, fraction, correction, mean, variance, batches, first, last):
    """sum = fraction sum + what is found, of means, of corrected variances, and of batches."""
    for k in range(first, last):
        mean[k] = mean[k] * fraction + found[k]
        variance[k] = variance[k] * fraction + spread[k] * correction
    if first == 0:
        batches[0] = batches[0] * fraction + 1


@helper
def recalled(k, mean, variance, batches, eps, found, spread, rate):
    """`recall` of channel k."""
    share = 1 / batches[0] if batches[0] != 0 else batches[0]
    found[k] = mean[k] * share
    spread[k] = variance[k] * share
    rate[k] = rate_of(spread[k], 0, eps)


@compiled
def recall(mean, variance, batches, eps, found, spread, rate, first, last):
    """The averages of running sums, 0 where nothing is remembered."""
    for k in range(first, last):
        recalled(k, mean, variance, batches, eps, found, spread, rate)


@compiled
def chain(mean, variance, batches, eps, found, spread, rate, seen, affine, y, first, last):
    """`recall`, then y = (y - mean) rate, factor y + term if it `scales`, 0 where less if it is `rectified`.

    In place; of channels first..last, each of which has a factor and a term, if there are any. `affine` is
    (scales, factors, terms, rectified).
    """
    (outer, kept, inner), (scales, factors, terms, rectified) = seen, affine
    kind = y.dtype.type
    one, zero = kind(1), kind(0)
    for row in range(first, last):
        recalled(row, mean, variance, batches, eps, found, spread, rate)
        middle, many = found[row], rate[row]
        factor = factors[row] if len(factors) else one
        term = terms[row] if len(terms) else zero
        for o in range(outer):
            here = (o * kept + row) * inner
            if not scales:
                for i in range(here, here + inner):
                    y[at(i)] = (y[at(i)] - middle) * many
            elif not rectified:
                for i in range(here, here + inner):
                    y[at(i)] = kind((y[at(i)] - middle) * many) * factor + term
            else:
                for i in range(here, here + inner):
                    value = kind((y[at(i)] - middle) * many) * factor + term
                    y[at(i)] = zero if value <= zero else value
