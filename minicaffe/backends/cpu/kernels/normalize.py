"""Rows first..last of x (batch, outer, features, inner), normalised and back; sums in float64.

Each comes in two forms: along rows, and across them, where a row's entries lie apart (inner 1) and so LANES
rows are taken side by side. Of channels' statistics there are running sums, which are read as averages.

Functions with a number for each channel are over rows of p places, row r being of channel r % f.

Local response normalisation is of images x (m, h, w); windows reach `up` rows and `side` columns either way. A
unit is a strip of an image, of `wide` columns, whose rows are read again out of the cache: all columns where
windows reach to the side. Units are counted strip by strip, then image by image.
"""

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper
from minicaffe.backends.cpu.kernels import maths

DEVIATION, MEAN, LENGTH = 1, 2, 3  # core/ops/rows.py's KINDS; 0 is the variance
LEAST = 1e-7  # the share of a deviation in itself and eps, at the least
LANES = 64


@helper
def rate_of(spread, kind, eps):
    """What a row is multiplied by."""
    if kind == MEAN:
        return 1.0
    if kind == DEVIATION:
        return 1.0 / (math.sqrt(spread) + eps)
    return 1.0 / math.sqrt(spread + eps)


@helper
def part_of_y(rate, kind, eps, length):
    """What of (sum of g y) y a row's gradient loses, y being normalised x."""
    if kind == DEVIATION:  # its share of deviation + eps
        share = 1 - rate * eps
        return 1 / length / (share if share > LEAST else LEAST)
    return 0.0 if kind == MEAN else (1.0 if kind == LENGTH else 1 / length)


@compiled_sums
def statistics(x, seen, kind, eps, mean, spread, rate, first, last):
    """mean = the mean of a row, spread = its variance, or 0 and the sum of squares; and the rate."""
    outer, f, inner = seen
    for row in range(first, last):
        start, middle, squares = (row // f * outer * f + row % f) * inner, 0.0, 0.0
        if kind != LENGTH:
            for o in range(outer):
                for i in range(start + o * f * inner, start + o * f * inner + inner):
                    middle += x[at(i)]
            middle /= outer * inner
        for o in range(outer):
            for i in range(start + o * f * inner, start + o * f * inner + inner):
                apart = x[at(i)] - middle
                squares += apart * apart
        mean[row] = middle
        spread[row] = squares if kind == LENGTH else squares / (outer * inner)
        rate[row] = rate_of(spread[row], kind, eps)


@compiled_sums
def statistics_across(x, seen, kind, eps, mean, spread, rate, first, last):
    """The same of rows whose entries lie apart."""
    outer, f, _ = seen
    middle, squares = np.zeros(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row, f - row % f)
        for k in range(count):
            middle[at(k)] = 0
            squares[at(k)] = 0
        if kind != LENGTH:
            for o in range(outer):
                for k in range(count):
                    middle[at(k)] += x[at(start + o * f + k)]
            for k in range(count):
                middle[at(k)] /= outer
        for o in range(outer):
            for k in range(count):
                apart = x[at(start + o * f + k)] - middle[at(k)]
                squares[at(k)] += apart * apart
        for k in range(count):
            mean[row + k] = middle[k]
            spread[row + k] = squares[k] if kind == LENGTH else squares[k] / outer
            rate[row + k] = rate_of(spread[row + k], kind, eps)
        row += count


@compiled
def normalise(x, seen, mean, rate, y, first, last):
    """y = (x - mean) rate."""
    outer, f, inner = seen
    in_place = x.ctypes.data == y.ctypes.data
    for row in range(first, last):
        start = (row // f * outer * f + row % f) * inner
        middle, factor = mean[row], rate[row]
        for o in range(outer):
            here = start + o * f * inner
            if in_place:  # as one array: of two that overlap no vectors are made
                for i in range(here, here + inner):
                    y[at(i)] = (y[at(i)] - middle) * factor
            else:
                for i in range(here, here + inner):
                    y[at(i)] = (x[at(i)] - middle) * factor


@compiled
def normalise_across(x, seen, mean, rate, y, first, last):
    """The same of rows whose entries lie apart."""
    outer, f, _ = seen
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row, f - row % f)
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                y[at(here + k)] = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
        row += count


@compiled_sums
def gradient(x, g, seen, kind, eps, mean, rate, dx, first, last):
    """dx = rate (g - mean of g - part y (sum of g y)), y = (x - mean) rate; of a length g's mean stays."""
    outer, f, inner = seen
    in_place = g.ctypes.data == dx.ctypes.data
    for row in range(first, last):
        start = (row // f * outer * f + row % f) * inner
        middle, factor, total, products = mean[row], rate[row], 0.0, 0.0
        for o in range(outer):
            for i in range(start + o * f * inner, start + o * f * inner + inner):
                total += g[at(i)]
                products += g[at(i)] * ((x[at(i)] - middle) * factor)
        ones = dx.dtype.type(0.0 if kind == LENGTH else total / (outer * inner))
        slope = dx.dtype.type(products * part_of_y(factor, kind, eps, outer * inner))
        for o in range(outer):
            here = start + o * f * inner
            if in_place:
                for i in range(here, here + inner):
                    y = (x[at(i)] - middle) * factor
                    dx[at(i)] = factor * (dx[at(i)] - ones - slope * y)
            else:
                for i in range(here, here + inner):
                    y = (x[at(i)] - middle) * factor
                    dx[at(i)] = factor * (g[at(i)] - ones - slope * y)


@compiled_sums
def gradient_across(x, g, seen, kind, eps, mean, rate, dx, first, last):
    """The same of rows whose entries lie apart."""
    outer, f, _ = seen
    ones, slope = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row, f - row % f)
        for k in range(count):
            ones[at(k)] = 0
            slope[at(k)] = 0
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                y = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
                ones[at(k)] += g[at(here + k)]
                slope[at(k)] += g[at(here + k)] * y
        for k in range(count):
            ones[k] = 0 if kind == LENGTH else ones[k] / outer
            slope[k] *= part_of_y(rate[row + k], kind, eps, outer)
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                factor = rate[at(row + k)]
                y = (x[at(here + k)] - mean[at(row + k)]) * factor
                dx[at(here + k)] = factor * (g[at(here + k)] - ones[at(k)] - slope[at(k)] * y)
        row += count


@compiled
def remember(batch_mean, spread, fraction, correction, mean, variance, batches, first, last):
    """sum = fraction sum + what a batch has, of means, of corrected variances, and of batches."""
    for k in range(first, last):
        mean[k] = mean[k] * fraction + batch_mean[k]
        variance[k] = variance[k] * fraction + spread[k] * correction
    if first == 0:
        batches[0] = batches[0] * fraction + 1


@helper
def recalled(k, mean, variance, batches, eps, mean_out, spread, rate):
    """`recall` of channel k."""
    share = 1 / batches[0] if batches[0] != 0 else batches[0]
    mean_out[k] = mean[k] * share
    spread[k] = variance[k] * share
    rate[k] = rate_of(spread[k], 0, eps)


@compiled
def recall(mean, variance, batches, eps, mean_out, spread, rate, first, last):
    """The averages of running sums, 0 where nothing is remembered."""
    for k in range(first, last):
        recalled(k, mean, variance, batches, eps, mean_out, spread, rate)


@compiled
def chain(mean, variance, batches, eps, mean_out, spread, rate, seen, affine, y, first, last):
    """`recall`, then y = (y - mean) rate, and that `scaled`, in place, of channels first..last."""
    (outer, f, inner), kind = seen, y.dtype.type
    for row in range(first, last):
        recalled(row, mean, variance, batches, eps, mean_out, spread, rate)
        middle, many, (factor, term, least) = mean_out[row], rate[row], scaled(row, affine, kind)
        for o in range(outer):
            for i in range((o * f + row) * inner, (o * f + row + 1) * inner):
                value = kind((y[at(i)] - middle) * many) * factor + term
                y[at(i)] = least if value <= least else value


@helper
def scaled(row, affine, kind):
    """Of max(factor x + term, least), a channel's numbers; least is -infinity unless it is `rectified`.

    `affine` is (scales, factors, terms, rectified); of no factors or terms all are 1 or 0, and -0, which
    changes no x, unless it `scales`.
    """
    scales, factors, terms, rectified = affine
    factor = factors[row] if len(factors) else kind(1)
    term = terms[row] if len(terms) else kind(0 if scales else -0.0)
    return factor, term, kind(0) if rectified else kind(-np.inf)


@compiled
def normalise_and_scale(x, seen, mean, rate, z, affine, y, first, last):
    """z = (x - mean) rate, and y = z `scaled`, of arrays that do not overlap."""
    (outer, f, inner), kind = seen, y.dtype.type
    for row in range(first, last):
        middle, many, (factor, term, least) = mean[row], rate[row], scaled(row, affine, kind)
        for o in range(outer):
            for i in range((o * f + row) * inner, (o * f + row + 1) * inner):
                z[at(i)] = (x[at(i)] - middle) * many
                value = z[at(i)] * factor + term
                y[at(i)] = least if value <= least else value


@compiled
def scale(x, a, b, whole, y, f, p, first, last):
    """y = a[k] x + b[k], of rows first..last; b as large as x with `whole`; a or b of no entries is none."""
    in_place = x.ctypes.data == y.ctypes.data
    for r in range(first, last):
        factor = a[at(r % f)] if len(a) else y.dtype.type(1)
        if whole:
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = x[at(i)] * factor + b[at(i)]
            continue
        term = b[at(r % f)] if len(b) else y.dtype.type(0)
        if in_place:  # as one array: of two that overlap no vectors are made
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = y[at(i)] * factor + term
        else:
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = x[at(i)] * factor + term


@compiled
def prelu(dy, x, a, dx, f, p, first, last):
    """dx = dy where x > 0, a[k] dy elsewhere."""
    for r in range(first, last):
        factor = a[at(r % f)]
        if dy.ctypes.data == dx.ctypes.data:
            for i in range(r * p, (r + 1) * p):
                dx[at(i)] = dx[at(i)] if x[at(i)] > 0 else dx[at(i)] * factor
        else:
            for i in range(r * p, (r + 1) * p):
                dx[at(i)] = dy[at(i)] if x[at(i)] > 0 else dy[at(i)] * factor


@compiled_sums
def add_sums(dy, x, way, f, p, n, out, first, last):
    """out[k] += the sum of dy (way 0), of dy x (1) or of dy min(x, 0) (2), for channels first..last."""
    if p == 1:
        sums = np.empty(LANES, np.float64)
        for start in range(first, last, LANES):
            count = min(LANES, last - start)
            for k in range(count):
                sums[at(k)] = 0
            for s in range(n):
                here = s * f + start
                if way == 0:
                    for k in range(count):
                        sums[at(k)] += dy[at(here + k)]
                else:
                    for k in range(count):
                        value = x[at(here + k)]
                        value = value * 0 if way == 2 and value > 0 else value
                        sums[at(k)] += dy[at(here + k)] * value
            for k in range(count):
                out[at(start + k)] += sums[at(k)]
        return
    for k in range(first, last):
        total = 0.0
        for s in range(n):
            here, part = (s * f + k) * p, out.dtype.type(0)
            if way == 0:
                for i in range(here, here + p):
                    part += dy[at(i)]
            elif way == 1:
                for i in range(here, here + p):
                    part += dy[at(i)] * x[at(i)]
            else:
                for i in range(here, here + p):
                    value = x[at(i)]
                    part += dy[at(i)] * (value * 0 if value > 0 else value)
            total += part
        out[at(k)] += total


@functools.cache
def lrn_of(dtype: np.dtype, root: bool) -> tuple[Any, Any]:
    """The loops for a type, forward and back; with `root` for beta = 3/4, which takes no power."""
    power, kind = maths.words(dtype)["power"], dtype.type

    @helper
    def shrunk(value, s, beta):
        """Value s^-beta."""
        if root:
            second = math.sqrt(s)
            return value / (second * math.sqrt(second))
        return value * power(s, -beta)

    @helper
    def down(x, squares, row, h, w, up, span, out):
        """out = the sum of x, or of its squares, over the rows around row `row` of all images' rows."""
        here, image, (q0, q1) = row * w, row // h * h, span
        for q in range(q0, q1):
            out[at(here + q)] = 0
        for near in range(max(image, row - up), min(image + h, row + up + 1)):
            line = near * w
            if squares:
                for q in range(q0, q1):
                    out[at(here + q)] += x[at(line + q)] * x[at(line + q)]
            else:
                for q in range(q0, q1):
                    out[at(here + q)] += x[at(line + q)]

    @helper
    def along(x, here, w, side, out):
        """out = the sum of x over the columns around each of a row."""
        for q in range(here, here + w):
            out[at(q)] = x[at(q)]
        for step in range(1, min(side, w - 1) + 1):
            for q in range(here, here + w - step):
                out[at(q)] += x[at(q + step)]
            for q in range(here + step, here + w):
                out[at(q)] += x[at(q - step)]

    def lrn(x, sizes, reach, numbers, work, s, y, first, last):
        (h, w, wide), (up, side), (base, alpha, beta) = sizes, reach, numbers
        strips = -(-w // wide)
        for unit in range(first, last):
            q0 = unit % strips * wide
            q1 = min(w, q0 + wide)
            for row in range(unit // strips * h, (unit // strips + 1) * h):
                here = row * w
                if side:
                    down(x, True, row, h, w, up, (q0, q1), work)
                    along(work, here, w, side, s)
                else:
                    down(x, True, row, h, w, up, (q0, q1), s)
                for q in range(here + q0, here + q1):
                    s[at(q)] = base + alpha * s[at(q)]
                    y[at(q)] = shrunk(x[at(q)], s[at(q)], beta)

    def lrn_gradient(x, dy, sizes, reach, numbers, s, ratio, total, dx, first, last):
        (h, w, wide), (up, side), (_, alpha, beta) = sizes, reach, numbers
        strips, factor = -(-w // wide), kind(2) * alpha * beta
        for unit in range(first, last):
            q0 = unit % strips * wide
            q1, top = min(w, q0 + wide), unit // strips * h
            for row in range(top, top + h):
                for q in range(row * w + q0, row * w + q1):
                    dx[at(q)] = shrunk(dy[at(q)], s[at(q)], beta)
                    ratio[at(q)] = dx[at(q)] * x[at(q)] / s[at(q)]
            for row in range(top, top + h):
                down(ratio, False, row, h, w, up, (q0, q1), total)
            for row in range(top, top + h):
                here = row * w
                if side:
                    along(total, here, w, side, ratio)
                    for q in range(here, here + w):
                        dx[at(q)] -= factor * x[at(q)] * ratio[at(q)]
                else:
                    for q in range(here + q0, here + q1):
                        dx[at(q)] -= factor * x[at(q)] * total[at(q)]

    for loop in (lrn, lrn_gradient):
        loop.__name__ += "_root" if root else ""  # under which it is kept
    return compiled(lrn), compiled(lrn_gradient)
