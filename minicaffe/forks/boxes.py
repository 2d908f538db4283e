"""Boxes (x0, y0, x1, y1) of the SSD detector, on the host: made, decoded, thinned out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def aspect_ratios(given: Sequence[float], flip: bool) -> list[float]:
    """1, then each ratio that is not there yet and, with flip, its inverse.

    >>> aspect_ratios([2.0, 1.0, 2.0], True)
    [1.0, 2.0, 0.5]
    """
    ratios = [1.0]
    for ratio in given:
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return ratios


def sizes(least: Sequence[float], most: Sequence[float], ratios: Sequence[float]) -> np.ndarray:
    """Width and height of the boxes at each place, in pixels; sizes count by their whole part.

    Of each pair of sizes: a square of the least, one of the geometric mean, and the least stretched to each
    ratio but 1. Source: PriorBoxLayer of W. Liu's SSD.

    >>> sizes([4], [9], [1, 4])
    array([[4., 4.],
           [6., 6.],
           [8., 2.]])
    """
    made: list[tuple[float, float]] = []
    for i, size in enumerate(map(int, least)):
        made.append((size, size))
        if most:
            made.append((math.sqrt(size * int(most[i])),) * 2)
        stretch = [math.sqrt(ratio) for ratio in ratios if abs(ratio - 1) >= 1e-6]
        made += [(size * root, size / root) for root in stretch]
    return np.array(made, np.float64)


def priors(
    area: tuple[int, int], image: tuple[int, int], step: tuple[float, float], offset: float, boxes: Any
) -> np.ndarray:  # fmt: skip
    """The boxes (h w count, 4) of a map of `area` (h, w), as shares of the image: row by row.

    Those at (y, x) have the middle ((x + offset) step, (y + offset) step) and the sizes `boxes` (count, 2).

    >>> priors((1, 2), (8, 16), (8, 8), 0.5, np.array([[4.0, 2.0]]))
    array([[0.125, 0.375, 0.375, 0.625],
           [0.625, 0.375, 0.875, 0.625]])
    """
    middles = [(np.arange(n) + offset) * s for n, s in zip(area, step, strict=True)]
    y, x = np.meshgrid(*middles, indexing="ij")
    middle, half = np.stack([x, y], axis=-1).reshape(-1, 1, 2), boxes / 2
    corners = np.concatenate([middle - half, middle + half], axis=-1)
    return (corners / np.array([*image[::-1], *image[::-1]])).reshape(-1, 4)


def decode(code: str, given: Any, prior: Any, variance: Any) -> Any:
    """Predicted boxes (..., p, 4) from what was predicted for each prior box (p, 4).

    CORNER: prior + v given. CORNER_SIZE: prior + v given (w, h, w, h) of the prior. CENTER_SIZE: the prior's
    middle moved by v given[:2] (w, h), its size times exp(v given[2:]). `variance` (p, 4) is v, None is 1.

    >>> decode("CENTER_SIZE", np.array([[0.5, 0, np.log(2), 0]]), np.array([[0, 0, 0.5, 0.5]]), None)
    array([[0. , 0. , 1. , 0.5]])
    """
    moved = given if variance is None else given * variance
    if code == "CORNER":
        return prior + moved
    size = prior[:, 2:] - prior[:, :2]
    if code == "CORNER_SIZE":
        return prior + moved * np.concatenate([size, size], axis=-1)
    with np.errstate(over="ignore"):
        half = np.exp(moved[..., 2:]) * size / 2
    middle = moved[..., :2] * size + (prior[:, :2] + prior[:, 2:]) / 2
    return np.concatenate([middle - half, middle + half], axis=-1)


def overlap(box: Any, others: Any) -> Any:
    """What two boxes share over what they cover together, of a box and each of `others` (k, 4).

    >>> overlap(np.array([0.0, 0, 2, 1]), np.array([[1.0, 0, 3, 1], [2, 0, 3, 1]]))
    array([0.33333333, 0.        ])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
        inside = np.where((shared > 0).all(axis=1), shared[:, 0] * shared[:, 1], 0)
        union = _areas(box[None]) + _areas(others) - inside
        return np.divide(inside, union, out=np.zeros_like(inside), where=inside != 0)


def _areas(boxes: Any) -> Any:
    size = boxes[:, 2:] - boxes[:, :2]
    return np.where((size < 0).any(axis=1), 0, size[:, 0] * size[:, 1])


def suppress(boxes: Any, threshold: float, eta: float = 1.0) -> list[int]:
    """Which of boxes (k, 4), best first, are kept: those that overlap none kept before by over `threshold`.

    With eta below 1 a threshold above 0.5 is multiplied by it after each that is kept. Source: ApplyNMSFast
    of W. Liu's SSD.

    >>> suppress(np.array([[0.0, 0, 2, 1], [0.1, 0, 2, 1], [1.5, 0, 3, 1]]), 0.5)
    [0, 2]
    """
    kept: list[int] = []
    most = np.zeros(len(boxes), boxes.dtype)  # of what each overlaps one that is kept
    at = 0
    while at < len(boxes):
        free = np.flatnonzero(most[at:] <= threshold)
        if not len(free):
            break
        at += int(free[0])
        kept.append(at)
        at += 1
        np.maximum(most[at:], overlap(boxes[at - 1], boxes[at:]), out=most[at:])
        if eta < 1 and threshold > 0.5:
            threshold *= eta
    return kept
