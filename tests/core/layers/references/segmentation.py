"""Layers of segmentation and of edges."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.draws import drawn, normalizer

WAYS = [{"normalization": way} for way in ("VALID", "BATCH_SIZE", "FULL", "NONE")]


def SigmoidCrossEntropyBalanceLoss(layer, x, target):
    """Targets that are neither 0 nor 1 do not count; a sample without targets 1 has no loss."""
    loss = 0.0
    for row, wanted in zip(x.reshape(len(x), -1), target.reshape(len(x), -1), strict=True):
        ones, zeros = (wanted == 1).sum(), (wanted == 0).sum()
        for v, t in zip(row, wanted, strict=True):
            if t in (0, 1):
                weight = (zeros if t else ones) / (ones + zeros)
                loss += weight * math.log(1 + math.exp(-v if t else v))
    return loss / len(x)


@drawn("SigmoidCrossEntropyBalanceLoss", count=3)
def balanced_case(random):
    target = [[1, 0, 0, 0, 1, 0.5, 0, 2], [0] * 8, [1, 1, 1, 0, 1, 1, 1, 1]]
    return {}, [random.normal(size=(3, 1, 2, 4)) * 3, target]


def WeightedSoftmaxWithLoss(layer, x, labels):
    """A label counts once in the divisor, whatever its class's weight."""
    axis, loss = layer.axis % x.ndim, 0.0
    rows, read = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]), labels.reshape(-1)
    powers = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
    for p, label in zip(powers, map(int, read), strict=True):
        if label != layer.ignore_label:
            loss -= layer.class_weighting[label] * math.log(p[label])
    samples = math.prod(x.shape[:axis])
    valid = sum(read != layer.ignore_label)
    prob = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    return loss / normalizer(layer, samples, len(read) // samples, valid), prob


@drawn("WeightedSoftmaxWithLoss", ignored=[None, 1, 255], way=WAYS)
def weighted_case(random, ignored, way):
    labels = random.integers(3, size=(2, 1, 2, 4)) * 1.0
    labels[0, 0, 0, :2] = ignored or 0
    keys = {"class_weighting": [0.25, 0.0, 7.5], **way}
    keys |= {} if ignored is None else {"ignore_label": ignored}
    return keys, [random.normal(size=(2, 3, 2, 4)) * 3, labels]


def SegAccuracy(layer, x, labels):
    """Of equal classes the last is predicted; a class that is nowhere has no recall."""
    classes = x.shape[1]
    table = np.zeros((classes, classes))
    for i, h, w in np.ndindex(len(x), *x.shape[2:]):
        label = int(labels[i, 0, h, w])
        if label not in layer.ignore_label:
            table[label, max(range(classes), key=lambda k: (x[i, k, h, w], k))] += 1
    hits = [table[k, k] for k in range(classes)]
    recalls = [hits[k] / table[k].sum() for k in range(classes) if table[k].sum()]
    unions = [table[k].sum() + table[:, k].sum() - hits[k] for k in range(classes)]
    shares = [1 if u == hit else hit / u for u, hit in zip(unions, hits, strict=True)]
    return np.reshape([sum(hits) / table.sum(), np.mean(recalls), np.mean(shares)], (1, 1, 1, 3))


@drawn("SegAccuracy", ignored=[[], [255], [255, 1]], count=9)
def accuracy_case(random, ignored):
    """Many predictions are equal, and no label is class 3."""
    labels = random.integers(3, size=(2, 1, 5, 6)) * 1.0
    labels[:, :, 1:3, ::2] = ignored[0] if ignored else 0
    return {"ignore_label": ignored}, [random.integers(4, size=(2, 4, 5, 6)) / 2, labels]


def interpolated(row, at):
    """The cubic of Catmull and Rom at a place, whose neighbours beyond the edge are the edge's."""
    first = max(int(at + 1e-5), 0)
    v = [row[min(max(first + i, 0), len(row) - 1)] for i in (-1, 0, 1, 2)]
    x = at - first
    slopes = (v[2] - v[0]) / 2, (v[3] - v[1]) / 2
    hermite = 2 * x**3 - 3 * x**2 + 1, x**3 - 2 * x**2 + x, 3 * x**2 - 2 * x**3, x**3 - x**2
    return sum(a * b for a, b in zip(hermite, (v[1], slopes[0], v[2], slopes[1]), strict=True))


def ImResize(layer, x):
    """The mean of images, each cut to its scale and resized."""
    oh, ow = layer.target_spatial_height, layer.target_spatial_width
    if layer.factor:
        oh, ow = (int(size * layer.factor) for size in x.shape[2:])
    y = np.zeros((1, x.shape[1], oh, ow))
    for n in range(len(x)):
        share = 1 - layer.start_scale + n * layer.scale_gap
        ph, pw = (math.floor(size // 2 * share + 1e-6) for size in x.shape[2:])
        for c, i, j in np.ndindex(y.shape[1:]):
            image = x[n, c, ph : x.shape[2] - ph, pw : x.shape[3] - pw]
            at = (j + 0.5) * image.shape[1] / ow - 0.5
            across = [interpolated(row, at) for row in image]
            y[0, c, i, j] += interpolated(across, (i + 0.5) * len(image) / oh - 0.5) / len(x)
    return y


@drawn("ImResize", scales=[(1.0, 0.4), (0.7, 0.1)], count=4)
def resize_case(random, scales):
    keys = {"target_spatial_height": 7, "target_spatial_width": 30}
    keys |= {"start_scale": scales[0], "scale_gap": scales[1]}
    return keys, [random.normal(size=(3, 2, 9, 12))]
