"""Boxes (x0, y0, x1, y1) of the SSD detector, on the host: made, matched, encoded, decoded, thinned out."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.errors import DataError


def check_classes(rows: np.ndarray, count: int, background: int, any_class: bool = False) -> None:
    """Raise DataError for a true box (k, 8) of the background or, but with `any_class`, from `count` on."""
    for row in rows:
        box = f"a box of picture {int(row[0])} of the batch is of class {row[1]:g}"
        if not 0 <= row[1] < count and not any_class:
            raise DataError(f"{box}; expected 0 to {count - 1}")
        if row[1] == background:
            raise DataError(f"{box}, the background")


def aspect_ratios(numbers: Sequence[float], flip: bool) -> list[float]:
    """1, then each ratio that is not there yet and, with flip, its inverse."""
    ratios = [1.0]
    for ratio in numbers:
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return ratios


def sizes(least: Sequence[float], most: Sequence[float], ratios: Sequence[float]) -> np.ndarray:
    """Width and height of the boxes at each place, in pixels; sizes count by their whole part.

    Of each pair of sizes: a square of the least, one of the geometric mean, and the least stretched to each
    ratio but 1. Source: PriorBoxLayer of W. Liu's SSD.

    >>> sizes([4], [9], [1, 4]).tolist()
    [[4.0, 4.0], [6.0, 6.0], [8.0, 2.0]]
    """
    shapes: list[tuple[float, float]] = []
    for i, size in enumerate(map(int, least)):
        shapes.append((size, size))
        if most:
            shapes.append((math.sqrt(size * int(most[i])),) * 2)
        stretch = [math.sqrt(ratio) for ratio in ratios if abs(ratio - 1) >= 1e-6]
        shapes += [(size * root, size / root) for root in stretch]
    return np.array(shapes, np.float64)


def priors(
    area: tuple[int, int], image: tuple[int, int], step: tuple[float, float], offset: float, boxes: Any
) -> np.ndarray:  # fmt: skip
    """The boxes (h w count, 4) of a map of `area` (h, w), as shares of the image: row by row.

    Those at (y, x) have the middle ((x + offset) step, (y + offset) step) and the sizes `boxes` (count, 2).
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
    with np.errstate(over="ignore", invalid="ignore"):  # weights may have diverged
        moved = given if variance is None else given * variance
        if code == "CORNER":
            return prior + moved
        size = prior[:, 2:] - prior[:, :2]
        if code == "CORNER_SIZE":
            return prior + moved * np.concatenate([size, size], axis=-1)
        half = np.exp(moved[..., 2:]) * size / 2
        middle = moved[..., :2] * size + (prior[:, :2] + prior[:, 2:]) / 2
        return np.concatenate([middle - half, middle + half], axis=-1)


def encode(code: str, boxes: Any, prior: Any, variance: Any) -> Any:
    """What is to be predicted of boxes (..., 4) by prior boxes (..., 4): the inverse of `decode`."""
    size = prior[..., 2:] - prior[..., :2]
    if code == "CENTER_SIZE":
        middles = [(one[..., :2] + one[..., 2:]) / 2 for one in (boxes, prior)]
        moved = (middles[0] - middles[1]) / size
        moved = np.concatenate([moved, np.log((boxes[..., 2:] - boxes[..., :2]) / size)], axis=-1)
    else:
        moved = boxes - prior
        if code == "CORNER_SIZE":
            moved = moved / np.concatenate([size, size], axis=-1)
    return moved if variance is None else moved / variance


def overlap(boxes: Any, others: Any) -> Any:
    """What two boxes share over what they cover together, of boxes (..., 4) and others, pair by pair."""
    with np.errstate(invalid="ignore", over="ignore"):
        return share(boxes, others, lambda inside: areas(boxes) + areas(others) - inside)


def share(boxes: Any, others: Any, whole: Callable[[Any], Any]) -> Any:
    """The area that boxes share over another, `whole` of it; 0 where one is empty."""
    side = np.minimum(boxes[..., 2:], others[..., 2:]) - np.maximum(boxes[..., :2], others[..., :2])
    inside = np.where((side > 0).all(axis=-1), side[..., 0] * side[..., 1], 0)
    return np.divide(inside, whole(inside), out=np.zeros_like(inside), where=inside != 0)


def areas(boxes: Any) -> Any:
    """The areas of boxes (..., 4); 0 of those whose sides are negative."""
    size = boxes[..., 2:] - boxes[..., :2]
    return np.where((size < 0).any(axis=-1), 0, size[..., 0] * size[..., 1])


def match(overlaps: Any, threshold: float | None) -> Any:
    """Which true box each of p boxes is matched with, of overlaps (p, k); -1 is none.

    First the pair that overlaps most, then the best pair of those that remain, until each true box has one;
    with a threshold also each box that is left, with the true box that it overlaps most, if by so much.
    Source: MatchBBox of W. Liu's SSD (BIPARTITE, PER_PREDICTION).

    >>> match(np.array([[0.9, 0.6], [0.7, 0.0], [0.1, 0.2]]), 0.5)
    array([0, 0, 1])
    """
    matched = np.full(len(overlaps), -1)
    left = np.where(overlaps > 1e-6, overlaps, -1.0)
    waiting = np.arange(left.shape[1]) if len(left) else np.arange(0)
    best = left.argmax(axis=0) if len(waiting) else waiting
    while len(waiting):
        most = left[best[waiting], waiting]
        if most.max() <= 0:
            break
        ties = waiting[most == most.max()]
        one = ties[best[ties].argmin()]
        row = best[one]
        matched[row] = one
        left[row] = -1
        waiting = waiting[waiting != one]
        again = waiting[best[waiting] == row]
        best[again] = left[:, again].argmax(axis=0)
    if threshold is not None and left.shape[1]:
        most = left.max(axis=1)
        rest = (matched < 0) & (most > 0) & (most >= threshold)
        matched[rest] = left[rest].argmax(axis=1)
    return matched


def suppress(
    boxes: Any, threshold: float, eta: float = 1.0, measure: Callable[[Any, Any], Any] = overlap
) -> list[int]:
    """Which of boxes (k, 4), best first, are kept: those that overlap none kept before by over `threshold`.

    `measure` says by how much one that is kept overlaps others. With eta below 1 a threshold above 0.5 is
    multiplied by it after each that is kept. Source: ApplyNMSFast of W. Liu's SSD.

    >>> suppress(np.array([[0.0, 0, 2, 1], [0.1, 0, 2, 1], [1.5, 0, 3, 1]]), 0.5)
    [0, 2]
    """
    best: list[int] = []
    most = np.zeros(len(boxes), boxes.dtype)  # of what each overlaps one that is kept
    at = 0
    while at < len(boxes):
        free = np.flatnonzero(most[at:] <= threshold)
        if not len(free):
            break
        at += int(free[0])
        best.append(at)
        at += 1
        np.maximum(most[at:], measure(boxes[at - 1], boxes[at:]), out=most[at:])
        if eta < 1 and threshold > 0.5:
            threshold *= eta
    return best


def detected(image: int, kind: Any, scores: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Rows (k, 7) of detections: image, class, score, x0, y0, x1, y1."""
    rows = np.empty((len(boxes), 7), scores.dtype)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:] = image, kind, scores, boxes
    return rows


def detections(images: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all images; if nothing is found a row an image: its number, and -1."""
    rows = np.concatenate(images)
    if not len(rows):
        rows = np.full((len(images), 7), -1, rows.dtype)
        rows[:, 0] = np.arange(len(images))
    return rows
