"""Normalisations of a sample and of its groups, row by row."""
# ruff: noqa: N802

import numpy as np
from core.layers.references.draws import drawn


def normal(layer, rows, length=False):
    """Rows less their mean by their deviation, or by their length."""
    middle = [0 if length else row.sum() / row.size for row in rows]
    ways = [row - mean for row, mean in zip(rows, middle, strict=True)]
    spread = [(way * way).sum() / (1 if length else way.size) for way in ways]
    return [way * (one + layer.eps) ** -0.5 for way, one in zip(ways, spread, strict=True)]


def LayerNorm(layer, x):
    rows = x.reshape(int(np.prod(x.shape[: layer.axis % x.ndim])), -1)
    scale, bias = (*layer.params, *[1, 0][len(layer.params) :])
    return np.reshape(normal(layer, rows), x.shape) * scale + bias


def of_channels(values, x):
    """Numbers of each channel, for each entry."""
    return np.reshape(values, (1, -1, *[1] * (x.ndim - 2)))


def GroupNorm(layer, x):
    rows = x.reshape(len(x) * layer.num_groups, -1)
    scale, bias = (of_channels(one, x) for one in layer.params or ([1], [0]))
    return np.reshape(normal(layer, rows), x.shape) * scale + bias


def Normalize(layer, x):
    """By the length of a sample, or of the channels at each place."""
    rows = x.reshape(len(x), -1)
    if not layer.across_spatial:
        rows = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    y = np.reshape(normal(layer, rows, length=True), (-1, rows.shape[1]))
    if not layer.across_spatial:
        y = np.moveaxis(y.reshape(len(x), *x.shape[2:], x.shape[1]), -1, 1)
    return y.reshape(x.shape) * of_channels(layer.params[0], x)


SHAPES = [(3, 4), (1, 2, 5), (2, 1, 3), (2, 3, 1, 4), (5, 2, 3, 3), (2, 3, 2, 1, 2), (1, 5)]
EITHER = [False, True]


@drawn("LayerNorm", shape=SHAPES, at=(0, 9), affine=EITHER, bias_term=EITHER, count=40)
def layer_case(random, shape, at, **keys):
    axis = at % len(shape) - len(shape) * (at % 2)
    return keys | {"axis": axis, "eps": 0.01}, [random.normal(size=shape)]


@drawn("GroupNorm", shape=SHAPES, num_groups=(1, 3), affine=EITHER, count=40)
def group_case(random, shape, num_groups, **keys):
    n, c, *rest = shape
    x = random.normal(size=(n, c * num_groups, *rest))
    return keys | {"num_groups": num_groups, "eps": 1e-3}, [x]


@drawn("Normalize", shape=SHAPES, across_spatial=EITHER, channel_shared=EITHER, count=40)
def length_case(random, shape, **keys):
    return keys | {"eps": 0.02}, [random.normal(size=shape)]
