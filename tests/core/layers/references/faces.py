"""Layers of face recognition, by their authors' definitions."""
# ruff: noqa: N802

import math

import numpy as np
from core.layers.references.draws import drawn

KINDS = ["SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"]


def apart_of_centers(layer, x, labels):
    """Each sample less the center of its class."""
    centers, rows = layer.params[0], x.reshape(len(labels), -1)
    return [row - centers[int(label)] for row, label in zip(rows, labels, strict=True)]


def CenterLoss(layer, x, labels):
    return sum((row**2).sum() for row in apart_of_centers(layer, x, labels)) / (2 * len(labels))


def CenterLoss_gradient(layer, pulls, x, labels):
    """The centers' rule asks neither for the loss's weight nor for the number of samples."""
    apart = apart_of_centers(layer, x, labels)
    of_centers = np.zeros(layer.params[0].shape)
    for k, out in enumerate(of_centers):
        rows = [row for row, label in zip(apart, labels, strict=True) if label == k]
        out[...] = -sum(rows) / (1 + len(rows))
    return pulls[0] * np.reshape(apart, x.shape) / len(labels), None, of_centers


@drawn("CenterLoss", labels=[[2, 0, 2, 2, 1], [3, 3]], count=6)
def center_case(random, labels):
    return {"num_output": 4}, [random.normal(size=(len(labels), 3)), labels]


def psi(cos, m):
    """(-1)^k cos(m angle) - 2 k, as the paper writes it, and its derivative by cos(angle)."""
    angle = math.acos(cos)
    k = int(m * angle / math.pi)
    slope = (-1) ** k * m * math.sin(m * angle) / math.sin(angle)
    return (-1) ** k * math.cos(m * angle) - 2 * k, slope


def margins(layer, x):
    """x a row each, the weights of length 1, m, and the lambda of the pass."""
    weights = layer.params[0] / np.linalg.norm(layer.params[0], axis=1, keepdims=True)
    layer.params = [weights if layer.train else layer.params[0]]
    turn = layer.iteration + layer.passes + 1
    decay = layer.base * (1 + layer.gamma * turn) ** -layer.power
    rows = x.reshape(-1, weights.shape[1])
    return rows, weights, KINDS.index(layer.margin_type) + 1, max(layer.lambda_min, decay)


def MarginInnerProduct(layer, x, labels):
    rows, w, m, decay = margins(layer, x)
    y = rows @ w.T
    for row, out, label in zip(rows, y, map(int, labels), strict=True):
        if m > 1:
            length = np.linalg.norm(row)
            out[label] = length * psi(out[label] / length, m)[0] + decay * out[label]
            out[label] /= 1 + decay
    return y, [decay]


def MarginInnerProduct_gradient(layer, pulls, x, labels):
    """The part of the margin has length 1; that of the weights knows of no margin."""
    rows, w, m, decay = margins(layer, x)
    dx = pulls[0] @ w
    for i, label in enumerate(map(int, labels) if m > 1 else []):
        length = np.linalg.norm(rows[i])
        cos = rows[i] @ w[label] / length
        value, by_weight = psi(cos, m)
        by_x = (value - cos * by_weight) / length
        own = (by_weight * w[label] + by_x * rows[i]) / math.hypot(by_weight, by_x)
        dx[i] += pulls[0][i, label] * ((own + decay * w[label]) / (1 + decay) - w[label])
    return dx.reshape(x.shape), None, pulls[0].T @ rows


@drawn("MarginInnerProduct", margin_type=KINDS, phase=["TRAIN", "TEST"], iteration=(0, 2))
def margin_case(random, **keys):
    """Angles all over the range."""
    keys |= {"num_output": 5, "base": 4.0, "gamma": 0.5, "power": 2.0, "lambda_min": 0.5}
    passes = [[random.normal(size=(24, 3)), np.arange(24) % 5] for _ in range(3)]
    return keys | {"top": ["it", "lambda"]}, *passes


def rows_of(layer, others):
    """The parameter, whose rows may be scaled to length 1, or the bottom in its place."""
    rows = (*layer.params, *others)[0]
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True) + 1e-6)
    rows = rows / lengths if layer.normalize else rows
    layer.params = [rows if layer.train else param for param in layer.params]
    return rows


def InnerDistance(layer, x, *others):
    rows = rows_of(layer, others)
    axis = layer.axis % x.ndim
    flat, y = x.reshape(-1, rows.shape[1]), []
    for one in flat:
        for other in rows:
            way = one - other
            y.append(sum(abs(way)) if layer.distance_type == "L1" else sum(way**2))
    return np.reshape(y, (*x.shape[:axis], len(rows)))


def InnerDistance_gradient(layer, pulls, x, *others):
    """With `update_center_only` a row learns only of the samples with its label."""
    rows, labels = rows_of(layer, others), (others or [None])[-1]
    flat, pull = x.reshape(-1, rows.shape[1]), pulls[0].reshape(-1, len(rows))
    dx, drows = np.zeros(flat.shape), np.zeros(rows.shape)
    for m, n in np.ndindex(pull.shape):
        way = flat[m] - rows[n]
        slope = pull[m, n] * (np.sign(way) if layer.distance_type == "L1" else 2 * way)
        dx[m] += slope
        drows[n] -= slope * (not layer.update_center_only or labels[m] == n)
    of_labels = [None] * layer.update_center_only
    return dx.reshape(x.shape), *([*of_labels, drows] if layer.params else [drows, *of_labels])


@drawn(
    "InnerDistance", given=(0, 1), only=(0, 1), normalize=[False, True],
    distance_type=["L1", "L2"], phase=["TRAIN", "TEST"]
)  # fmt: skip
def distance_case(random, given, only, **keys):
    bottoms = [random.normal(size=(4, 3)), *[random.normal(size=(5, 3))] * given]
    keys |= {"update_center_only": bool(only), "normalize": keys["normalize"] and not given}
    keys |= {} if given else {"num_output": 5}
    return keys, [*bottoms, *[[1, 4, 4, 0]] * only]


def Flip(layer, x):
    y = np.zeros(x.shape)
    for h, w in np.ndindex(x.shape[2:]):
        i = x.shape[2] - 1 - h if layer.flip_height else h
        j = x.shape[3] - 1 - w if layer.flip_width else w
        y[:, :, h, w] = x[:, :, i, j]
    return y
