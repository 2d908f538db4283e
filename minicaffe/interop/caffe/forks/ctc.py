"""Connectionist temporal classification, on the host, in float64: the loss of sequences, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minicaffe.errors import DataError


def ctc(
    x: np.ndarray, labels: Sequence[Sequence[int]], lengths: Sequence[int], blank: int, merge: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The loss -log p(labels | x) of each sequence (n,), and its gradient, of x's shape (t, n, c).

    p sums over all ways to say the labels in `lengths` steps: a class a step, with the softmax of x. Of a way
    equal neighbours are merged, if `merge`, and then blanks are left out. What lies behind a sequence's steps
    has no gradient. The loss is infinite, with a gradient of softmax - 0, where no way is long enough.
    Source: A. Graves et al., Connectionist Temporal Classification, 2006, with logarithms.

    >>> loss, gradient = ctc(np.zeros((2, 1, 2)), [[1]], [2], 0, True)
    >>> np.exp(-loss), gradient[:, 0].round(3).tolist()  # of 00, 01, 10, 11 three say 1
    (array([0.75]), [[0.167, -0.167], [0.167, -0.167]])
    """
    steps, n, c = x.shape
    x = x - x.max(axis=2, keepdims=True)
    log_y = x - np.log(np.exp(x).sum(axis=2, keepdims=True))
    u = 2 * max(map(len, labels), default=0) + 1
    path = np.full((n, u), blank)  # the labels with a blank before each, and one behind
    for row, label in zip(path, labels, strict=True):
        row[1 : 2 * len(label) : 2] = label
    states = 2 * np.array(list(map(len, labels))) + 1
    there, last = np.arange(u) < states[:, None], np.array(lengths) - 1
    end = there & (np.arange(u) >= states[:, None] - 2)
    same = np.zeros((n, u), bool)
    same[:, 2:] = path[:, 2:] == path[:, :-2]
    stays = np.where((path == blank) | merge, 0.0, -np.inf)
    skips = np.where((path != blank) & ~(same & merge), 0.0, -np.inf)
    skips[:, :2] = -np.inf
    said = np.take_along_axis(log_y, np.broadcast_to(path, (steps, n, u)), axis=2)

    def before(array: np.ndarray, by: int) -> np.ndarray:
        moved = np.full_like(array, -np.inf)
        moved[:, by:] = array[:, : u - by]
        return moved

    def behind(array: np.ndarray, by: int) -> np.ndarray:
        moved = np.full_like(array, -np.inf)
        moved[:, : u - by] = array[:, by:]
        return moved

    alpha, beta = np.full((steps, n, u), -np.inf), np.full((steps, n, u), -np.inf)
    alpha[0, :, :2] = said[0, :, :2]
    for t in range(1, steps):
        a = alpha[t - 1]
        ways = np.logaddexp(a + stays, before(a, 1))
        alpha[t] = np.logaddexp(ways, before(a, 2) + skips) + said[t]
    alpha[:, ~there] = -np.inf
    for t in reversed(range(steps)):
        if t + 1 < steps:
            b = beta[t + 1] + said[t + 1]
            ways = np.logaddexp(b + stays, behind(b, 1))
            beta[t] = np.logaddexp(ways, behind(b + skips, 2))
        beta[t][(last == t)[:, None] & end] = 0
    beta[:, ~there] = -np.inf
    total = np.logaddexp.reduce(alpha[0] + beta[0], axis=1)
    some = np.isfinite(total)
    weight = np.exp(alpha + beta - np.where(some, total, 0)[:, None])
    found = np.zeros((steps, n, c))
    for k in range(u):
        found[:, np.arange(n), path[:, k]] += weight[:, :, k] * some
    inside = np.arange(steps)[:, None] <= last
    return -total, (np.exp(log_y) - found) * inside[:, :, None]


def needed(label: Sequence[int], merge: bool) -> int:
    """The fewest steps that say a label: between equal neighbours that would merge a blank stands.

    >>> needed([1, 1, 2], True)
    4
    """
    repeats = sum(a == b for a, b in zip(label[1:], label[:-1], strict=True))
    return len(label) + merge * repeats


def classes(row: np.ndarray, count: int, blank: int, what: str) -> list[int]:
    """Labels as whole numbers. Raises DataError for one that is no class, or the blank."""
    for value in row:
        if not 0 <= value < count or value == blank:
            raise DataError(
                f"{what}: label {value:g} is not one of the {count} classes 0..{count - 1} without the"
                f" blank {blank}"
            )
    return [int(value) for value in row]


def edits(a: Sequence[int], b: Sequence[int]) -> int:
    """How many entries must be put in, taken out or replaced to make one of the other.

    >>> edits([1, 2, 3], [2, 3, 3])
    2
    """
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        left, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (one != other))
    return row[-1]
