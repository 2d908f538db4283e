"""Convolution, Deconvolution and Im2col along any number of axes, tap by tap."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.points import of_axes


def taps(layer, image):
    """The size of what reads such an image, and the taps (place, tap, pixel) that lie on it."""
    names = ("kernel", "stride", "pad", "dilation")
    kernel, stride, pad, dilation = (of_axes(layer, name, len(image)) for name in names)
    every = list(zip(kernel, stride, pad, dilation, strict=True))
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, s, p, d) in zip(image, every, strict=True)
    ]
    found = []
    for place in np.ndindex(*sizes):
        for tap in np.ndindex(*kernel):
            pixel = tuple(
                o * s - p + t * d for o, t, (_, s, p, d) in zip(place, tap, every, strict=True)
            )
            if all(0 <= at < n for at, n in zip(pixel, image, strict=True)):
                found.append((place, tap, pixel))
    return sizes, found


def samples(layer, x):
    """Axes before the channels are the batch."""
    axis = layer.axis % x.ndim
    return x.shape[:axis], x.reshape(-1, *x.shape[axis:])


def parts(layer, weight, channels):
    """The channels of each group, and the rows of the weight that are its."""
    both = (np.split(np.arange(n), layer.group) for n in (channels, len(weight)))
    return list(zip(*both, strict=True))


def whole(layer, lead, y):
    """The top, with the axes before its channels and its bias."""
    bias = layer.params[1:] or [np.zeros(1)]
    return (y + np.reshape(bias[0], (-1, *[1] * (y.ndim - 2)))).reshape(*lead, *y.shape[1:])


def Convolution(layer, *xs):
    weight, tops = layer.params[0], []
    for x in xs:
        lead, rows = samples(layer, x)
        sizes, found = taps(layer, rows.shape[2:])
        y = np.zeros((len(rows), len(weight), *sizes))
        for place, tap, pixel in found:
            for c, f in parts(layer, weight, rows.shape[1]):
                one = weight[(f, slice(None), *tap)]
                y[(slice(None), f, *place)] += rows[(slice(None), c, *pixel)] @ one.T
        tops.append(whole(layer, lead, y))
    return tuple(tops)


def Deconvolution(layer, *xs):
    weight, tops = layer.params[0], []
    for x in xs:
        lead, rows = samples(layer, x)
        names, count = ("kernel", "stride", "pad", "dilation"), rows.ndim - 2
        windows = zip(rows.shape[2:], *(of_axes(layer, name, count) for name in names), strict=True)
        sizes = [s * (n - 1) + d * (k - 1) + 1 - 2 * p for n, k, s, p, d in windows]
        y = np.zeros((len(rows), layer.num_output, *sizes))
        for place, tap, pixel in taps(layer, sizes)[1]:
            for f, c in parts(layer, weight, layer.num_output):
                one = weight[(c, slice(None), *tap)]
                y[(slice(None), f, *pixel)] += rows[(slice(None), c, *place)] @ one
        tops.append(whole(layer, lead, y))
    return tuple(tops)


def Im2col(layer, x):
    lead, rows = samples(layer, x)
    kernel = of_axes(layer, "kernel", rows.ndim - 2)
    sizes, found = taps(layer, rows.shape[2:])
    y = np.zeros((*rows.shape[:2], *kernel, *sizes))
    for place, tap, pixel in found:
        y[(slice(None), slice(None), *tap, *place)] = rows[(slice(None), slice(None), *pixel)]
    return y.reshape(*lead, rows.shape[1] * math.prod(kernel), *sizes)
