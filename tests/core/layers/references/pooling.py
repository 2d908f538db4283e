"""Poolings along any number of axes, window by window."""
# ruff: noqa: N802

import itertools
import math

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import of_axes


def windows(layer, image):
    """The top's size, and of each window how many places it counts, and its pixels."""
    names, count = ("kernel", "stride", "pad", "dilation"), len(image)
    kernel, stride, pad, dilation = (of_axes(layer, name, count) for name in names)
    if getattr(layer, "global_pooling", False):
        kernel = image
    out, clips = [], [*map(bool, pad[:-2]), *[any(pad[-2:])] * 2]
    for n, k, s, p, d, clip in zip(image, kernel, stride, pad, dilation, clips, strict=True):
        steps = (n + 2 * p - d * (k - 1) - 1) / s
        size = int(np.floor(steps) if layer.round_mode == "FLOOR" else np.ceil(steps)) + 1
        out.append(size - (clip and (size - 1) * s >= n + p))
    found = {}
    for place in np.ndindex(*out):
        axes = [
            [o * s - p + k * d for k in range(ks)]
            for o, ks, s, p, d in zip(place, kernel, stride, pad, dilation, strict=True)
        ]
        number = math.prod(
            sum(at < n + p for at in one) for one, n, p in zip(axes, image, pad, strict=True)
        )
        inside = [[at for at in one if 0 <= at < n] for one, n in zip(axes, image, strict=True)]
        found[place] = number, list(itertools.product(*inside))
    return out, found


def pooled(layer, x):
    """The top, and where in its plane the largest of each window is; of equal ones the first."""
    out, every = windows(layer, x.shape[2:])
    y, places = np.zeros((2, *x.shape[:2], *out))
    for (i, c, *place), _ in np.ndenumerate(y):
        number, pixels = every[tuple(place)]
        at = (i, c, *place)
        values = [x[(i, c, *pixel)] for pixel in pixels] or [0]
        y[at] = sum(values) / (number or 1) if layer.pool == "AVE" else max(values)
        places[at] = (
            np.ravel_multi_index(pixels[values.index(max(values))], x.shape[2:]) if pixels else -1
        )
    return y, places


def Pooling(layer, x):
    return pooled(layer, x)


Pooling.takes = lambda keys: keys.get("pool") != "STOCHASTIC"  # whose draws have tests of their own


def DilatedPooling(layer, x):
    return pooled(layer, x)[0]


def Pooling_gradient(layer, pulls, x):
    """The largest has it; of equal ones the first."""
    dx, every = np.zeros(x.shape), windows(layer, x.shape[2:])[1]
    for (i, c, *place), pull in np.ndenumerate(pulls[0]):
        number, pixels = every[tuple(place)]
        largest = sorted(pixels, key=lambda pixel: -x[(i, c, *pixel)])[:1]
        for pixel in pixels if layer.pool == "AVE" else largest:
            dx[(i, c, *pixel)] += pull / number if layer.pool == "AVE" else pull
    return [dx]


DilatedPooling_gradient = Pooling_gradient


@drawn(
    "Pooling", axes=(2, 3), pool=["MAX", "AVE"], padded=[0, 1], round_mode=["CEIL", "FLOOR"],
    masked=[0, 1], count=120
)  # fmt: skip
def pooling_case(random, axes, padded, masked, **keys):
    """Of three axes no window is empty, where each kind has rules of its own; some pixels are equal."""
    size, kernel, stride = random.integers(
        [[2], [1], [1]], [[6], [4], [4]], size=(3, axes)
    ).tolist()
    pad = [(k - 1) // 2 * padded for k in kernel]
    spans = list(zip(size, kernel, stride, pad, strict=True))
    past = [(n + 2 * p - k + s - 1) // s * s >= n + p for n, k, s, p in spans]
    if any(k > n + 2 * p for n, k, _, p in spans) or (
        axes == 3 and (any(past) or bool(pad[1]) != bool(pad[2]))
    ):
        return None
    keys |= {"kernel_size": kernel, "stride": stride, "pad": pad}
    tops = ["y", "m"] if masked and axes == 2 and keys["pool"] == "MAX" else ["y"]
    return keys | {"top": tops}, [random.integers(-9, 9, size=(2, 2, *size)) / 2]


@drawn(
    "DilatedPooling", pool=["MAX", "AVE"],
    **dict.fromkeys(("kernel_size", "stride", "dilation"), ((1, 4), (1, 4))),
    pad=((0, 3), (0, 3)), round_mode=["CEIL", "FLOOR"], image=((1, 9), (1, 9)), count=60
)  # fmt: skip
def dilated_case(random, image, **keys):
    keys = {name: [*key] if type(key) is tuple else key for name, key in keys.items()}
    axes = zip(image, keys["kernel_size"], keys["dilation"], keys["pad"], strict=True)
    for size, kernel, dilation, pad in axes:
        span = dilation * (kernel - 1) + 1
        if pad >= span or size + 2 * pad < span:
            return None
    return keys, [random.integers(-9, 9, size=(2, 1, *image)) / 2]
