"""The slow references of normalisations: their definitions in float64, a number at a time.

Nothing here calls minicaffe. Rows are lists of indices into a flat array; a gradient is taken from the
Jacobian of one row, written out.
"""

import math

import numpy as np


def rows_of(batch, outer, kept, inner):
    """The flat indices of each row of an array (batch, outer, kept, inner)."""
    places = np.arange(batch * outer * kept * inner).reshape(batch, outer, kept, inner)
    return [places[b, :, k].reshape(-1) for b in range(batch) for k in range(kept)]


def measure(row, kind, eps):
    """Mean, spread and rate of a list of numbers."""
    row = [float(v) for v in row]
    if kind == "length":
        spread = math.fsum(v * v for v in row)
        return 0.0, spread, 1 / math.sqrt(spread + eps)
    mean = math.fsum(row) / len(row)
    spread = math.fsum((v - mean) ** 2 for v in row) / len(row)
    if kind == "mean":
        return mean, spread, 1.0
    if kind == "deviation":
        return mean, spread, 1 / (math.sqrt(spread) + eps)
    return mean, spread, 1 / math.sqrt(spread + eps)


def jacobian(row, kind, eps):
    """dy[i] / dx[j] of y = (x - mean) rate."""
    row = [float(v) for v in row]
    n, (mean, spread, rate) = len(row), measure(row, kind, eps)
    slopes = np.zeros((n, n))
    for j in range(n):
        if kind == "mean":
            drate = 0.0
        elif kind == "deviation":
            deviation = math.sqrt(spread)
            drate = -(rate**2) * (row[j] - mean) / (n * deviation) if deviation else 0.0
        elif kind == "variance":
            drate = -(rate**3) * (row[j] - mean) / n
        else:
            drate = -(rate**3) * row[j]
        for i in range(n):
            moved = (i == j) - (0 if kind == "length" else 1 / n)
            slopes[i, j] = moved * rate + (row[i] - mean) * drate
    return slopes


def forward(x, rows, kind, eps, features, scale, bias):
    """Statistics, the normalised array and y; `features` gives the feature of each flat index."""
    flat, plain = x.reshape(-1).astype(np.float64), np.zeros(x.size)
    found = [measure(flat[row], kind, eps) for row in rows]
    for row, (mean, _, rate) in zip(rows, found, strict=True):
        plain[row] = [(v - mean) * rate for v in flat[row]]
    y = np.array([v * scale[f] + bias[f] for v, f in zip(plain, features, strict=True)])
    return np.array(found).T, plain, y.reshape(x.shape)


def backward(x, dy, rows, kind, eps, features, scale):
    """dx, dscale, dbias."""
    flat, g = x.reshape(-1).astype(np.float64), dy.reshape(-1).astype(np.float64)
    _, plain, _ = forward(x, rows, kind, eps, features, scale, np.zeros(len(scale)))
    dx, dscale, dbias = np.zeros(x.size), np.zeros(len(scale)), np.zeros(len(scale))
    for i, f in enumerate(features):
        dscale[f] += g[i] * plain[i]
        dbias[f] += g[i]
    for row in rows:
        dx[row] = jacobian(flat[row], kind, eps).T @ (g[row] * np.asarray(scale)[features[row]])
    return dx.reshape(x.shape), dscale, dbias


def near(i, reach):
    return slice(max(0, i - reach), i + reach + 1)


def lrn_across(x, size, alpha, beta, k):
    """Of x (n, c, h, w): s and y."""
    s = np.zeros(x.shape)
    for c in range(x.shape[1]):
        s[:, c] = k + alpha / size * (np.float64(x[:, near(c, size // 2)]) ** 2).sum(axis=1)
    return s, x * s**-beta


def lrn_within(x, size, alpha, beta):
    s = np.zeros(x.shape)
    for h, w in np.ndindex(*x.shape[2:]):
        part = np.float64(x[:, :, near(h, size // 2), near(w, size // 2)])
        s[:, :, h, w] = 1 + alpha / size**2 * (part**2).sum(axis=(2, 3))
    return s, x * s**-beta


def slopes(function, x, dy, step=1e-5):
    """The gradient of sum of dy function(x), by differences of fourth order, one entry at a time."""
    x, dx = x.astype(np.float64), np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        values = []
        for many in (1, -1, 2, -2):
            moved = x.copy()
            moved[at] += many * step
            values.append(float((function(moved) * dy).sum()))
        one, minus, two, less = values
        dx[at] = (8 * (one - minus) - (two - less)) / (12 * step)
    return dx
