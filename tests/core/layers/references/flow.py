"""Layers of forks that read images between pixels, compare them, or move what they hold."""
# ruff: noqa: N802

import itertools
import math

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import between, of_axes


def FlowWarp(layer, x, flow):
    y = np.full(x.shape, math.nan if layer.fill_value == "NOT_A_NUMBER" else 0.0)
    for n, k, i, j in np.ndindex(x.shape):
        a, b = i + flow[n, 1, i, j], j + flow[n, 0, i, j]
        if 0 <= a < x.shape[2] and 0 <= b < x.shape[3]:
            y[n, k, i, j] = between(x[n, k], a, b)
    return y


FEW = ((1, 2), (1, 3), (1, 5), (1, 5))


@drawn(
    "FlowWarp", shape=FEW, fill_value=["ZERO", "NOT_A_NUMBER"], whole=[False, True], sloped=False
)
def warp_case(random, shape, whole, **keys):
    flow = 2 * random.normal(size=(shape[0], 2, *shape[2:]))
    return keys, [random.normal(size=shape), np.round(flow) if whole else flow]


def Correlation(layer, a, b):
    pad, most, size = layer.pad, layer.max_displacement, layer.kernel_size
    wide = [np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) for x in (a, b)]
    radius = most // layer.stride_2
    moves = [k * layer.stride_2 for k in range(-radius, radius + 1)]
    border = 2 * (most + size // 2)
    out = [math.ceil((n + 2 * pad - border) / layer.stride_1) for n in a.shape[2:]]
    top = np.zeros((len(a), len(moves) ** 2, *out))
    for n, k, i, j in np.ndindex(top.shape):
        y, x = (layer.stride_1 * at + most for at in (i, j))  # of a patch's first pixel
        p, o = list(itertools.product(moves, moves))[k]
        one = wide[0][n, :, y : y + size, x : x + size]
        other = wide[1][n, :, y + p : y + p + size, x + o : x + o + size]
        multiplies = layer.correlation_type == "MULTIPLY"
        top[n, k, i, j] = (one * other if multiplies else abs(one - other)).mean()
    return top


@drawn(
    "Correlation", shape=((1, 2), (1, 3), (5, 7), (5, 8)), pad=(0, 2), kernel_size=[1, 3],
    max_displacement=(0, 1), stride_1=(1, 2), stride_2=(1, 2),
    correlation_type=["MULTIPLY", "SUBTRACT"]
)  # fmt: skip
def correlation_case(random, shape, **keys):
    return keys, random.normal(size=(2, *shape))


def BilinearInterpolation(layer, x, *like):
    h, w = x.shape[2:]
    factor = layer.interpolation_factor
    oh, ow = like[0].shape[2:] if like else (factor * h, factor * w)
    y = np.zeros((*x.shape[:2], oh, ow))
    for n, k, i, j in np.ndindex(y.shape):
        y[n, k, i, j] = between(x[n, k], i * (h - 1) / max(oh - 1, 1), j * (w - 1) / max(ow - 1, 1))
    return y


@drawn("BilinearInterpolation", shape=FEW, factor=[1, 2, 3, None], size=((1, 6), (1, 6)), count=20)
def interpolation_case(random, shape, factor, size):
    x = random.normal(size=shape)
    if factor:
        return {"interpolation_factor": factor}, [x]
    return {}, [x, np.zeros((1, 1, *size))]


def c_random(count):
    """The first numbers of rand() of GNU's C library, after srand(1)."""
    r = [1]
    for i in range(1, 31):
        r.append(16807 * r[i - 1] % (2**31 - 1))
    for i in range(31, 344 + count):
        r.append(r[i - 31] if i < 34 else (r[i - 3] + r[i - 31]) % 2**32)
    return [v >> 1 for v in r[344:]]


def CompactBilinear(layer, a, b):
    d, (c, other) = layer.num_output, (a.shape[1], b.shape[1])
    numbers = iter(c_random(2 * (c + other)))
    h1, s1, h2, s2 = ([next(numbers) for _ in range(n)] for n in (c, c, other, other))
    y = np.zeros((len(a), d, *a.shape[2:]))
    for i, j in np.ndindex(c, other):
        sign = (2 * (s1[i] % 2) - 1) * (2 * (s2[j] % 2) - 1)
        y[:, (h1[i] % d + h2[j] % d) % d] += sign * a[:, i] * b[:, j]
    return y.sum(axis=(2, 3), keepdims=True) if layer.sum_pool else y


@drawn(
    "CompactBilinear", shape=((1, 2), (1, 4), (1, 3), (1, 3)), other=[1, 2, 3, 60], d=(1, 9),
    sum_pool=[False, True]
)  # fmt: skip
def bilinear_case(random, shape, other, d, **keys):
    n, _, h, w = shape
    bottoms = [random.normal(size=shape), random.normal(size=(n, other, h, w))]
    return keys | {"num_output": d}, bottoms


def DeformableConvolution(layer, x, offset):
    weight, *bias = layer.params
    f, per, kh, kw = weight.shape
    stride, pad, dilation = (of_axes(layer, name) for name in ("stride", "pad", "dilation"))
    y = np.zeros((len(x), f, *offset.shape[2:]))
    for n, k, i, j in np.ndindex(y.shape):
        for c, v, u in np.ndindex(per, kh, kw):
            channel = k // (f // layer.group) * per + c
            at = 2 * (channel // (x.shape[1] // layer.deformable_group) * kh * kw + v * kw + u)
            a = i * stride[0] - pad[0] + v * dilation[0] + offset[n, at, i, j]
            b = j * stride[1] - pad[1] + u * dilation[1] + offset[n, at + 1, i, j]
            if 0 <= a < x.shape[2] and 0 <= b < x.shape[3]:
                y[n, k, i, j] += weight[k, c, v, u] * between(x[n, channel], a, b)
        y[n, k, i, j] += bias[0][k] if bias else 0
    return y


@drawn(
    "DeformableConvolution", sizes=((1, 2), (3, 6), (3, 6)), kernel=((1, 3), (1, 3)),
    how=((1, 2), (0, 2), (1, 2)), group=(1, 2), deformable_group=[1, 2, 4],
    bias_term=[False, True], count=25
)  # fmt: skip
def deformable_case(random, sizes, kernel, how, **keys):
    keys |= dict(zip(("stride", "pad", "dilation"), how, strict=True))
    keys |= {"num_output": 2, "kernel_h": kernel[0], "kernel_w": kernel[1]}
    spans = [
        size + 2 * how[1] - how[2] * (k - 1) - 1 for size, k in zip(sizes[1:], kernel, strict=True)
    ]
    if min(spans) < 0:
        return None
    out = [span // how[0] + 1 for span in spans]
    offset = (sizes[0], 2 * keys["deformable_group"] * math.prod(kernel), *out)
    return keys, [random.normal(size=(sizes[0], 4, *sizes[1:])), 1.5 * random.normal(size=offset)]


def Reorg(layer, x):
    """Darknet's, on flat memory."""
    (n, c, h, w), s, flat = x.shape, layer.stride, x.ravel()
    out, few = np.zeros_like(flat), c // s**2
    for b, k, j, i in np.ndindex(n, c, h, w):
        here = i + w * (j + h * (k + c * b))
        row, column = j * s + k // few // s, i * s + k // few % s
        there = column + w * s * (row + h * s * (k % few + few * b))
        if layer.reverse:
            out[there] = flat[here]
        else:
            out[here] = flat[there]
    return out.reshape((n, few, h * s, w * s) if layer.reverse else (n, c * s**2, h // s, w // s))


@drawn("Reorg", shape=[(2, 8, 4, 6), (1, 9, 3, 6), (1, 3, 2, 2)], reverse=[False, True], count=9)
def reorg_case(random, shape, reverse):
    return {"stride": {8: 2, 9: 3, 3: 1}[shape[1]], "reverse": reverse}, [random.normal(size=shape)]
