"""Pictures for models that find QR codes and enlarge them: (n, 1, h, w) from 0 to 1, drawn by chance.

Each function gives the pictures, and of each where its code is, without the white around it: (x0, y0, x1, y1)
in shares of the picture, None where there is none.
"""

import cv2
import numpy as np

QUIET = 2  # modules of white that are drawn around a code
Random = np.random.Generator
Shape = tuple[int, int, int, int]
Found = tuple[np.ndarray, list[tuple[float, ...] | None]]


def noise(shape: Shape, rng: Random) -> Found:
    """Each pixel by itself."""
    return rng.random(shape, np.float32), [None] * shape[0]


def blank(shape: Shape, rng: Random) -> Found:
    """One grey."""
    return np.full(shape, 0.5, np.float32), [None] * shape[0]


def code(shape: Shape, rng: Random) -> Found:
    """A code as it is printed, upright, with white around it."""
    h, w = shape[2:]
    side = min(h, w) * 3 // 4
    top, left = (h - side) // 2, (w - side) // 2
    pictures, boxes = np.ones(shape, np.float32), []
    for picture in pictures[:, 0]:
        modules = _modules(rng)
        drawn = cv2.resize(modules, (side, side), interpolation=cv2.INTER_AREA)
        picture[top : top + side, left : left + side] = drawn
        x, y, inner = left, top, side * QUIET / len(modules)
        ends = (x + inner, y + inner, x + side - inner, y + side - inner)
        boxes.append(tuple(end / size for end, size in zip(ends, (w, h, w, h), strict=True)))
    return pictures, boxes


def scene(shape: Shape, rng: Random) -> Found:
    """A code on a sticker on a wall, turned, seen from the side, unevenly lit, blurred, with noise."""
    h, w = shape[2:]
    pictures, boxes = np.empty(shape, np.float32), []
    for picture in pictures[:, 0]:
        sticker = np.pad(_modules(rng), 1, constant_values=1)
        sticker = cv2.resize(sticker, None, fx=16, fy=16, interpolation=cv2.INTER_NEAREST)
        corners = _corners(h, w, rng)
        view = cv2.getPerspectiveTransform(_square(0, len(sticker)), corners.astype(np.float32))
        there = cv2.warpPerspective(np.ones_like(sticker), view, (w, h), flags=cv2.INTER_AREA)
        seen = cv2.warpPerspective(sticker, view, (w, h), flags=cv2.INTER_AREA)
        wall = 0.45 + 0.3 * _smooth(h, w, 7, rng) + 0.1 * _smooth(h, w, 40, rng)
        paint = (1 - there) * wall + there * (0.1 + 0.8 * seen)
        light = cv2.GaussianBlur(paint * (0.8 + 0.2 * _smooth(h, w, 3, rng)), None, 0.7)
        picture[:] = np.clip(light + 0.01 * rng.standard_normal((h, w)), 0, 1)
        code = _square(16 * (QUIET + 1), len(sticker) - 16 * (QUIET + 1))
        ends = cv2.perspectiveTransform(code[:, None], view)[:, 0] / (w, h)
        boxes.append((*ends.min(axis=0), *ends.max(axis=0)))
    return pictures, boxes


PICTURES = {"noise": noise, "blank": blank, "code": code, "scene": scene}


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The area of two boxes' intersection over that of their union.

    >>> overlap((0, 0, 1, 1), (0.5, 0, 1.5, 1))
    0.3333333333333333
    """
    w, h = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    whole = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)) - w * h
    return w * h / whole


def _modules(rng: Random) -> np.ndarray:
    """A QR code of a number, a pixel a module, with its quiet zone."""
    text = f"https://example.org/{rng.integers(10**9)}"
    return cv2.QRCodeEncoder.create().encode(text).astype(np.float32) / 255


def _corners(h: int, w: int, rng: Random) -> np.ndarray:
    """Where the corners of a sticker come to lie: (4, 2) of x and y."""
    side, turn = rng.uniform(0.3, 0.5) * min(h, w), rng.uniform(-0.5, 0.5)
    middle = np.array([w, h]) * rng.uniform(0.4, 0.6, 2)
    turned = _square(-side / 2, side / 2) @ np.array(
        [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    )
    return middle + turned + rng.uniform(-0.04, 0.04, (4, 2)) * side


def _square(low: float, high: float) -> np.ndarray:
    """The corners of a square, (4, 2) of x and y."""
    return np.array([[low, low], [high, low], [high, high], [low, high]], np.float32)


def _smooth(h: int, w: int, count: int, rng: Random) -> np.ndarray:
    """Chance (h, w) from -1 to 1, smooth between count x count values."""
    chance = rng.uniform(-1, 1, (count, count)).astype(np.float32)
    return cv2.resize(chance, (w, h), interpolation=cv2.INTER_LINEAR)
