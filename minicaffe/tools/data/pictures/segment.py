"""Parting ink from ground: closing, Otsu's threshold, connected components. NumPy only."""

from __future__ import annotations

import numpy as np


def dilate(values: np.ndarray, size: int) -> np.ndarray:
    """The largest of each size x size window of (h, w), size odd; the edges are repeated."""
    return _extreme(values, size, np.maximum)


def erode(values: np.ndarray, size: int) -> np.ndarray:
    """The smallest of each size x size window of (h, w), size odd; the edges are repeated."""
    return _extreme(values, size, np.minimum)


def _extreme(values: np.ndarray, size: int, pick: np.ufunc) -> np.ndarray:
    """Windows double until they are `size` wide: that takes log2(size) steps an axis."""
    for _ in range(2):
        values, done = np.pad(values, [(size // 2, size // 2), (0, 0)], "edge"), 1
        while done < size:
            step = min(done, size - done)
            values = pick(values[:-step], values[step:])
            done += step
        values = values.T
    return values


def closing(values: np.ndarray, size: int) -> np.ndarray:
    """(h, w) with what is darker than its surroundings and narrower than `size`, odd, filled up.

    What touches an edge goes on behind it, so a slope stays as it is.
    """
    half = size // 2
    rows, columns = (slice(half, half + length) for length in values.shape)
    return erode(dilate(np.pad(values, half, "edge"), size), size)[rows, columns]


def otsu(values: np.ndarray) -> float:
    """The threshold that parts numbers from 0 to 1 best into two classes (Otsu 1979); 1 if there is none.

    >>> round(otsu(np.array([0.1, 0.1, 0.2, 0.8, 0.9])), 1)
    0.5
    """
    count, edges = np.histogram(values, 256, (0, 1))
    below = np.cumsum(count)
    above = below[-1] - below
    total = np.cumsum(count * (edges[:-1] + edges[1:]) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = below * above * np.square(total / below - (total[-1] - total) / above)
    if np.isnan(apart).all():
        return 1.0
    best = np.flatnonzero(apart >= np.nanmax(apart) * (1 - 1e-9))
    return float((edges[best[0] + 1] + edges[best[-1] + 1]) / 2)


def components(mask: np.ndarray) -> np.ndarray:
    """Which 8-connected part of a mask (h, w) each pixel belongs to: 1, 2, ...; 0 off the mask.

    Runs along the rows that touch runs of the row below are united.

    >>> components(np.array([[1, 1, 0, 0, 1], [0, 0, 1, 0, 1], [1, 0, 0, 0, 1]], bool))
    array([[1, 1, 0, 0, 2],
           [0, 0, 1, 0, 2],
           [3, 0, 0, 0, 2]])
    """
    edges = np.diff(np.pad(mask, [(0, 0), (1, 1)]).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    line = mask.shape[1] + 2  # so that runs of all rows stand one behind the other
    first = np.searchsorted(rows * line + ends, (rows + 1) * line + starts, "left")
    last = np.searchsorted(rows * line + starts, (rows + 1) * line + ends, "right")
    count = last - first
    upper = np.repeat(np.arange(len(rows)), count)
    lower = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    parent = np.arange(len(rows))
    while True:
        small, large = np.sort([parent[upper], parent[lower]], axis=0)
        if (small == large).all():
            break
        np.minimum.at(parent, large, small)
        while (parent != parent[parent]).any():
            parent = parent[parent]
    labels = np.zeros(mask.shape, np.intp)
    labels[mask] = np.repeat(np.unique(parent, return_inverse=True)[1] + 1, ends - starts)
    return labels
