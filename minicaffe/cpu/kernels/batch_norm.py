"""A BatchNorm in training with the Scale and ReLU behind it, and back, channel by channel.

The loops are those of `normalize`, `running`, `channels` and of ReLU, to the bit; but one channel goes through
all of them, and stays in the cache meanwhile, before the next one does.
"""

from __future__ import annotations

from typing import Any

from minicaffe.cpu import at, compiled, helper, helper_sums
from minicaffe.cpu.kernels import channels, normalize, running

NORMALISES, SCALES, RECTIFIES = 1, 2, 4
SLOPES, TERMS, FACTORS, SCALES_BACK, NORMALISES_BACK = 1, 2, 4, 8, 16

_loops: list[Any] = [normalize.statistics, channels.add_sums, normalize.gradient]
_statistics, _add_sums, _gradient = (helper_sums(loop.py_func) for loop in _loops)
_loops = [running.remember, normalize.normalise, channels.scale]
_remember, _normalise, _scale = (helper(loop.py_func) for loop in _loops)


@compiled
def forward(steps, taken, past, hat, scaled, first, last):
    """Statistics, what is remembered of them, and as many `steps` as there are.

    taken, past and scaled are the arguments of `statistics`, `remember` and `scale`; hat is where x is
    normalised to. A ReLU works in place.
    """
    x, seen, kind, eps, mean, spread, rate = taken
    fraction, correction, means, variances, batches = past
    factors, terms, y = scaled
    outer, kept, inner = seen
    zero = y.dtype.type(0)
    for k in range(first, last):
        _statistics(x, seen, kind, eps, mean, spread, rate, k, k + 1)
        _remember(mean, spread, fraction, correction, means, variances, batches, k, k + 1)
        if steps & NORMALISES:
            _normalise(x, seen, mean, rate, hat, k, k + 1)
        if steps & SCALES:
            for o in range(outer):
                row = o * kept + k
                _scale(hat, factors, terms, False, y, kept, inner, row, row + 1)
                if steps & RECTIFIES:
                    for i in range(row * inner, row * inner + inner):
                        value = y[at(i)] + zero
                        y[at(i)] = zero if value <= zero else value


@compiled
def backward(steps, sloped, summed, scaled, back, first, last):
    """As many steps as there are: ReLU's slope, the gradients of terms and factors, those of x, and of its x.

    sloped = (dy, y, g); summed = (g, x, (kept, inner, outer), terms, factors), which are added to;
    scaled = (factors, gradient of x); back are the arguments of `gradient`.
    """
    dy, y, of_y = sloped
    g, hat, (kept, inner, outer), terms, sums = summed
    factors, of_hat = scaled
    x, of_normal, seen, kind, eps, mean, rate, dx = back
    number = g.dtype.type
    for k in range(first, last):
        for o in range(outer if steps & SLOPES else 0):
            row = (o * kept + k) * inner
            for i in range(row, row + inner):
                of_y[at(i)] = dy[at(i)] * number(y[at(i)] > 0)
        if steps & TERMS:
            _add_sums(g, hat, 0, kept, inner, outer, terms, k, k + 1)
        if steps & FACTORS:
            _add_sums(g, hat, 1, kept, inner, outer, sums, k, k + 1)
        for o in range(outer if steps & SCALES_BACK else 0):
            row = o * kept + k
            _scale(g, factors, terms[:0], False, of_hat, kept, inner, row, row + 1)
        if steps & NORMALISES_BACK:
            _gradient(x, of_normal, seen, kind, eps, mean, rate, dx, k, k + 1)
