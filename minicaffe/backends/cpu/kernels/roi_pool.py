"""Max pooling of regions of interest, region by region, and its gradient, channel by channel."""

from __future__ import annotations

import math

import numpy as np

from minicaffe.backends.cpu import at, compiled

FAR = 1 << 28


@compiled
def pixel(value):
    """The nearest whole number, of two the one away from 0; what is far off is FAR."""
    if not (value > -FAR and value < FAR):
        return FAR if value > 0 else -FAR
    size = math.floor(abs(value))
    whole = int(size) + (1 if abs(value) - size >= 0.5 else 0)
    return whole if value > 0 else -whole


@compiled
def within(value, limit):
    """The nearest of 0..limit."""
    return 0 if value < 0 else (value if value < limit else limit)


@compiled
def roi_pool(x, rois, image, out, scale, y, which, refused, first, last):
    """The bins of channels first..last, region by region; an image that is not there sets `refused`."""
    (n, c, h, w), (oh, ow) = image, out
    one = scale * 0 + 1  # in its type, as are the lengths of bins
    for unit in range(first, last):
        r, k = unit // c, unit % c
        x0, y0 = pixel(rois[r * 5 + 1] * scale), pixel(rois[r * 5 + 2] * scale)
        x1, y1 = pixel(rois[r * 5 + 3] * scale), pixel(rois[r * 5 + 4] * scale)
        bin_h = one * max(y1 - y0 + 1, 1) / (one * oh)
        bin_w = one * max(x1 - x0 + 1, 1) / (one * ow)
        if not (rois[r * 5] > -1 and rois[r * 5] < n):
            refused[0] = 1
            for here in range(unit * oh * ow, (unit + 1) * oh * ow):
                y[at(here)] = np.nan
                which[at(here)] = -1
            continue
        plane = (int(rois[r * 5]) * c + k) * h * w
        for p in range(oh):
            top = within(math.floor(one * p * bin_h) + y0, h)
            bottom = within(math.ceil(one * (p + 1) * bin_h) + y0, h)
            for q in range(ow):
                left = within(math.floor(one * q * bin_w) + x0, w)
                right = within(math.ceil(one * (q + 1) * bin_w) + x0, w)
                best, winner = -np.inf, -1
                if bottom <= top or right <= left:
                    best = 0.0
                for i in range(top, bottom):
                    for j in range(left, right):
                        value = x[at(plane + i * w + j)]
                        if value > best:
                            best, winner = value, i * w + j
                here = ((r * c + k) * oh + p) * ow + q
                y[at(here)] = best
                which[at(here)] = winner


@compiled
def roi_pool_gradient(dy, which, rois, shape, bins, dx, first, last):
    """The gradient of channels first..last of all images."""
    n, c, h, w = shape
    for image in range(n):
        for i in range((image * c + first) * h * w, (image * c + last) * h * w):
            dx[at(i)] = 0
    for r in range(len(rois) // 5):
        for k in range(first, last):
            plane = (int(rois[r * 5]) * c + k) * h * w
            for b in range((r * c + k) * bins, (r * c + k + 1) * bins):
                if which[at(b)] >= 0:
                    dx[at(plane + which[at(b)])] += dy[at(b)]
