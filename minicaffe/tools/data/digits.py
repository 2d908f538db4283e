"""Handwritten-looking digits drawn by the program: a stand-in for MNIST without a network.

A digit is a pen's path through control points. Each sample moves the points, bends, slants, turns
and scales the path, inks every pixel by its distance to the path, and dirties the picture.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from minicaffe.errors import DataError

SIDE = 28
CHUNK = 250  # samples that share one random stream
STEP = 2.2  # pixels of path between two sampled points
PEN_UP = 0.01  # radius of a pen that leaves no ink
# weights of 4 neighbouring points, by powers of u, at u of the way from the second to the third
CATMULL_ROM = np.array([[0, -1, 2, -1], [2, 0, -5, 3], [0, 1, 4, -3], [0, 0, -1, 1]]) / 2

# x,y in pixels of a 20 x 20 box, y down; `!` ends a curve in a corner, `/` lifts the pen. A line is a digit,
# from 0 on, with `;` between the ways to write it.
_LINES = """
10,0 5,3 4,10 6,17 10,20 14,17 16,10 14,3 9,0; 13,1 8,1 5,6 5,14 9,20 14,17 16,9 13,2 9,0
11,0 10,10 9,20; 7,4 11,0! 11,10 10,20; 7,4 11,0! 10,20 / 5,20 15,20
4,5 7,1 12,0 15,4 13,9 8,15 4,20! 10,19 16,20; 4,5 8,0 14,2 14,8 9,16 5,19 4,16 7,16 11,19 16,18
4,3 8,0 13,1 14,5 12,8 8,9! 13,11 15,15 12,19 7,20 3,17; 4,1 15,0! 9,8! 14,10 15,15 11,20 6,20 3,17
6,0 5,6 3,12! 16,12 / 13,4 12,12 12,20; 12,20 12,10 13,0! 3,13! 17,13; 4,1 4,9 8,11 14,9 / 15,0 14,10 12,20
15,0 6,0! 5,8! 10,7 15,10 15,16 10,20 4,18; 6,1 5,9! 11,8 15,12 13,18 8,20 4,18 / 6,1 16,0
13,0 8,4 5,10 5,16 9,20 14,18 15,13 11,10 6,13; 11,0 6,9 4,15 8,20 14,19 15,14 11,11 5,15
4,1 16,1! 11,9 8,20; 4,1 16,1! 11,9 9,20 / 6,11 15,10; 4,4 4,1! 10,2 15,0! 13,9 11,20
14,3 10,0 6,3 8,8 13,12 14,17 10,20 5,17 7,12 12,8 14,2;\
    10,0 6,3 7,8 13,8 14,3 10,0 / 10,9 5,13 6,19 14,19 15,13 10,9
15,4 11,0 6,2 5,7 9,10 14,7 15,3! 14,12 13,20; 14,3 9,0 5,4 7,9 12,9 15,4 15,11 12,17 7,20 4,18
"""
GLYPHS = [line.split(";") for line in _LINES.strip().split("\n")]


def _path(glyph: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Control points (k, 2), the basis (p, k) that samples their curve, and pen (p - 1,).

    The curve is a Catmull-Rom spline between corners; pen is 1 where a segment inks, 0 between strokes.

    >>> control, basis, pen = _path("0,0 0,4 / 9,9 9,9")
    >>> (basis @ control).tolist(), pen.tolist()
    ([[0.0, 0.0], [0.0, 2.0], [0.0, 4.0], [9.0, 9.0], [9.0, 9.0]], [1.0, 1.0, 0.0, 1.0])
    """
    words = glyph.replace("/", "").split()
    control = np.array([word.rstrip("!").split(",") for word in words], np.float32)
    one = np.eye(len(words))
    rows: list[np.ndarray] = []
    pen: list[float] = []
    first = 0
    for stroke in glyph.split("/"):
        size = len(stroke.split())
        pen += [0.0] * bool(rows)
        rows.append(one[first])
        corners = [i for i in range(first, first + size - 1) if i == first or "!" in words[i]]
        for lo, hi in zip(corners, [*corners[1:], first + size - 1], strict=True):
            for i in range(lo, hi):
                steps = max(1, round(float(np.hypot(*(control[i + 1] - control[i]))) / STEP))
                for u in np.arange(1, steps + 1) / steps:
                    near = np.clip(np.arange(i - 1, i + 3), lo, hi)
                    rows.append(CATMULL_ROM @ u ** np.arange(4) @ one[near])
                    pen.append(1.0)
        first += size
    return control, np.array(rows, np.float32), np.array(pen, np.float32)


@cache
def _alphabet() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every glyph's path, padded alike: control (g, k, 2), basis (g, p, k), pen (g, p - 1)."""
    paths = [_path(glyph) for variants in GLYPHS for glyph in variants]
    k, p = np.max([basis.shape[::-1] for _, basis, _ in paths], axis=0)
    control = np.stack([np.pad(c, ((0, k - len(c)), (0, 0))) for c, _, _ in paths])
    even = [np.pad(b, ((0, p - len(b)), (0, 0)), "edge") for _, b, _ in paths]
    basis = np.stack([np.pad(b, ((0, 0), (0, k - b.shape[1]))) for b in even])
    return control, basis, np.stack([np.pad(s, (0, p - 1 - len(s))) for _, _, s in paths])


def _write(rng: np.random.Generator, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One handwriting per label: path points (n, p, 2) in pixels, radius (n, p - 1) in pixels."""

    def uniform(low: float, high: float, *shape: int) -> np.ndarray:
        return low + (high - low) * rng.random((n, *shape), np.float32)

    n = len(labels)
    control, basis, pen = _alphabet()
    variants = np.array([len(v) for v in GLYPHS])
    glyph = (np.cumsum(variants) - variants)[labels] + rng.integers(variants[labels])
    moved = control[glyph] + 0.6 * rng.standard_normal((n, *control.shape[1:]), np.float32)
    points = np.matmul(basis[glyph], moved) - 10

    for _ in range(3):
        wave, phase = uniform(-0.28, 0.28, 2, 1), uniform(0, 6.2832, 1, 1)
        points += uniform(-1, 1, 1, 2) * np.sin(points @ wave + phase)

    turn, slant = uniform(-0.26, 0.26), uniform(-0.2, 0.45)
    wide, tall = uniform(0.65, 1.1), uniform(0.75, 1.0)
    x = wide * points[..., 0].T - slant * tall * points[..., 1].T
    y = tall * points[..., 1].T
    points = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)]).T
    low, high = points.min(axis=1, keepdims=True), points.max(axis=1, keepdims=True)
    points -= (low + high) / 2
    points *= np.minimum(1, 21 / (high - low).max(axis=2, keepdims=True))
    points += (SIDE - 1) / 2 + uniform(-1, 1, 1, 2) * 2.2

    t = np.arange(pen.shape[1], dtype=np.float32)
    pressure = 1 + 0.22 * np.sin(uniform(0.05, 0.4, 1) * t + uniform(0, 6.2832, 1))
    lifted = (np.abs(t - uniform(0, 60, 1)) < 1) & (uniform(0, 1, 1) < 0.5)
    radius = uniform(0.75, 1.75, 1) * pressure * pen[glyph] * ~lifted
    return points, np.maximum(radius, PEN_UP)


def _distance(points: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Of each pixel to the nearest segment, in that segment's radii: (n, 28, 28)."""
    grid = np.arange(SIDE, dtype=np.float32)
    best = np.full((len(points), SIDE, SIDE), np.inf, np.float32)
    along, across = np.empty_like(best), np.empty_like(best)
    for s in range(radius.shape[1]):
        start = points[:, s, :, None]
        step = points[:, s + 1, :, None] - start
        length2 = np.maximum(np.square(step).sum(axis=1, keepdims=True), 1e-6)
        gap = (grid - start) / radius[:, s, None, None]
        dot = (grid - start) * step / length2
        # |gap|^2 - t (2 dot - t) |step|^2, with t = dot held to the segment
        np.add(dot[:, 1, :, None], dot[:, 0, None, :], out=along)
        np.clip(along, 0, 1, out=across)
        along *= 2
        along -= across
        along *= across
        along *= length2 / np.square(radius[:, s, None, None])
        np.add(np.square(gap[:, 1, :, None]), np.square(gap[:, 0, None, :]), out=across)
        across -= along
        np.minimum(best, across, out=best)
    return np.sqrt(np.maximum(best, 0, out=best), out=best)


def _spots(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    """A soft spot of 1 on 0, somewhere, in that share of n pictures: (n, 28, 28)."""
    centre = rng.uniform(3, SIDE - 4, (2, n, 1)).astype(np.float32)
    width = rng.uniform(0.8, 1.6, (n, 1)).astype(np.float32)
    shown = (rng.random(n) < share).astype(np.float32)
    y, x = np.exp(-np.square((np.arange(SIDE, dtype=np.float32) - centre) / width))
    return (shown[:, None] * y)[:, :, None] * x[:, None, :]


def _chunk(seed: int, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Chunk number `index` of the stream `seed`: images (250, 28, 28), labels (250,)."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(index,))))
    labels = rng.permutation(np.arange(CHUNK, dtype=np.uint8) % 10)
    points, radius = _write(rng, labels)
    hard = rng.uniform(0.5, 1.4, (CHUNK, 1, 1)).astype(np.float32)
    image = np.clip(0.5 + hard * (1 - _distance(points, radius)), 0, 1)
    image *= rng.uniform(0.6, 1.0, (CHUNK, 1, 1)).astype(np.float32)
    image *= 1 - _spots(rng, CHUNK, 0.4)
    np.maximum(image, 0.7 * _spots(rng, CHUNK, 0.3), out=image)
    noise = 0.12 * np.square(rng.random((CHUNK, 1, 1), np.float32))
    image += noise * rng.standard_normal(image.shape, np.float32)
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8), labels


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` digits: images (count, 28, 28), white 255 on black 0, and labels (count,); uint8.

    A function of (count, seed): fewer digits of the same seed are the first of the more. Raises
    DataError for a count or seed below 0.

    >>> images, labels = draw(300, seed=1)
    >>> images.shape, images.dtype, np.unique(labels).tolist()
    ((300, 28, 28), dtype('uint8'), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    for name, value in (("count", count), ("seed", seed)):
        if value < 0:
            raise DataError(f"drawn digits: {name} must be 0 or more, not {value}")
    images = np.empty((count, SIDE, SIDE), np.uint8)
    labels = np.empty(count, np.uint8)
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        image, label = _chunk(seed, start // CHUNK)
        images[start:stop], labels[start:stop] = image[: stop - start], label[: stop - start]
    return images, labels
