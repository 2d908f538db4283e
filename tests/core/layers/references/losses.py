"""R-FCN's losses, of each region too, and Fast R-CNN's."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.draws import drawn, normalizer

WAYS = [{}, {"normalize": False}, {"normalize": True}]
WAYS += [{"normalization": way} for way in ("FULL", "VALID", "BATCH_SIZE", "NONE")]
WAYS += [{"normalization": "PRE_FIXED", "pre_fixed_normalizer": n} for n in (0.5, 3.5)]


def smooth(d, sharpness=1):
    return d * d / 2 * sharpness if abs(d) < 1 / sharpness else abs(d) - 0.5 / sharpness


def SmoothL1Loss(layer, a, b, *weights):
    """The first weights are of the difference, the second of what it costs."""
    inner, outer = (
        one.ravel() if one is not None else np.ones(a.size) for one in (*weights, None, None)[:2]
    )
    ways = inner * (a.ravel() - b.ravel())
    return sum(w * smooth(d, layer.sigma**2) for w, d in zip(outer, ways, strict=True)) / len(a)


def SmoothL1LossOHEM(layer, a, b, *weights):
    area = a.shape[2:]
    ways = ((a.reshape(b.shape) - b) * (weights[0] if weights else 1)).reshape(*a.shape[:2], -1)
    each = np.zeros((len(a), ways.shape[2]))
    for n, k, s in np.ndindex(ways.shape):
        each[n, s] += smooth(ways[n, k, s])
    by = normalizer(layer, *each.shape, each.size)
    return each.sum() / by, each.reshape(len(a), 1, *(area or (1, 1)))


@drawn(
    "SmoothL1LossOHEM", shape=[(1,), (4,), (3, 1, 1), (2, 2, 3)], n=(1, 4), weighted=(0, 1),
    way=WAYS, count=40
)  # fmt: skip
def smooth_case(random, shape, n, weighted, way):
    weights = [random.integers(0, 4, (n, *shape)) / 2] * weighted
    return {**way, "top": ["it", "each"]}, [*random.normal(size=(2, n, *shape)) * 2, *weights]


def SoftmaxWithLossOHEM(layer, x, labels):
    axis = layer.axis % x.ndim
    prob = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    rows = np.moveaxis(prob, axis, -1).reshape(-1, x.shape[axis])
    read = labels.ravel()
    each = [
        0 if label == layer.ignore_label else -math.log(row[int(label)])
        for row, label in zip(rows, read, strict=True)
    ]
    samples = math.prod(x.shape[:axis])
    by = normalizer(layer, samples, len(read) // samples, sum(read != layer.ignore_label))
    return sum(each) / by, prob, np.reshape(each, labels.shape)


@drawn(
    "SoftmaxWithLossOHEM", area=[(), (1, 1), (2, 3)], n=(1, 4), c=(1, 4), ignored=[None, 0, -1],
    way=WAYS, count=40
)  # fmt: skip
def softmax_case(random, area, n, c, ignored, way):
    labels = random.integers(-1 if ignored == -1 else 0, c, (n, 1, *area))
    keys = {**way, "top": ["it", "prob", "each"]} | (
        {} if ignored is None else {"ignore_label": ignored}
    )
    return keys, [random.normal(size=(n, c, *area)) * 3, labels]
