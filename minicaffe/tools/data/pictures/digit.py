"""Finding the digit in a photograph, on any paper and in any light.

In every colour plane, for dark ink and for light ink, a closing gives the ground behind the ink, and
Otsu's threshold parts the two by the share of light that is missing: a shadow or a lamp at the side
changes the light, not that share. Of the connected parts of ink the largest and clearest is taken, and
what speaks against it is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

SIDE = 400  # larger pictures are searched at this size
BLACK = 24  # what a camera may give for black, added before light is compared
WIDEST = 0.25  # a stroke's width, as a share of the picture's shorter side
GAP = 0.25  # between the strokes of a digit, as a share of its size
FAINTEST = 0.05  # less missing light than this is no ink
BLOB = "a blob, no strokes"
Box = tuple[int, int, int, int]  # top, left, bottom, right


@dataclass(frozen=True, eq=False)
class Component:
    """Ink that belongs together, in a window a little larger than its box.

    mask (h, w); ink (h, w): the share of the ground's light that is missing; `contrast`: its median under
    the mask; `clearness`: how many times that is what the ground beside it varies by; `doubts`: what
    speaks against its being a digit.
    """

    mask: np.ndarray
    ink: np.ndarray
    box: Box
    dark: bool
    contrast: float
    clearness: float
    doubts: tuple[str, ...]

    @property
    def size(self) -> int:
        """The longer side of the box."""
        return max(self.box[2] - self.box[0], self.box[3] - self.box[1])

    def rank(self) -> tuple[int, float]:
        """The greater, the likelier this is the digit."""
        return -len(self.doubts), self.size * min(self.clearness, 8)

    def within(self, other: Component) -> bool:
        """Whether the other's box holds this one's."""
        (top, left, bottom, right), outer = self.box, other.box
        return outer[0] <= top and outer[1] <= left and bottom <= outer[2] and right <= outer[3]

    def meets(self, other: Component) -> bool:
        """Whether the boxes overlap."""
        (top, left, bottom, right), its = self.box, other.box
        return top < its[2] and its[0] < bottom and left < its[3] and its[1] < right


def find_parts(mask: np.ndarray, ink: np.ndarray, light: np.ndarray, dark: bool) -> list[Component]:
    """The largest parts of a mask (h, w), each with the smaller ones near it: a digit of several strokes.

    `ink` (h, w) is the missing light, `light` (h, w) what there is, logarithmic.
    """
    labels = components(mask)
    area = np.bincount(labels.ravel())
    area[0] = 0
    largest = [int(label) for label in np.argsort(-area)[:40] if area[label]]
    boxes = {label: _box(labels == label) for label in largest}
    parts: list[Component] = []
    taken: set[int] = set()
    for first in largest[:6]:
        part = None if first in taken else _judge(labels == first, ink, light, dark)
        if part is None:
            continue
        group = new = {first}
        while new:
            near = dilate(np.isin(labels, list(group)), odd(2 * GAP * part.size))
            touched = np.bincount(labels[near], minlength=len(area)) > 0
            new = {
                label
                for label in largest
                if touched[label] and label not in group and area[label] > 0.02 * area[first]
                if not _side_by_side(part.box, boxes[label])
            }
            grown = _judge(np.isin(labels, list(group | new)), ink, light, dark) if new else None
            if grown is None:
                break
            part, group = grown, group | new
        taken |= group
        parts.append(part)
    return parts


def _judge(mask: np.ndarray, ink: np.ndarray, light: np.ndarray, dark: bool) -> Component | None:
    """What is under the mask (h, w) as a part, with doubts; None if it is no ink."""
    top, left, bottom, right = box = _box(mask)
    height, width = bottom - top, right - left
    size = max(height, width)
    frame = int(mask[0].sum() + mask[-1].sum() + mask[:, 0].sum() + mask[:, -1].sum())
    if size < max(4, 0.04 * max(mask.shape)) or frame > height + width:
        return None
    margin = max(3, size // 10)
    rows = slice(max(0, top - margin), bottom + margin)
    columns = slice(max(0, left - margin), right + margin)
    mask, ink, light = mask[rows, columns], ink[rows, columns], light[rows, columns]
    contrast = float(np.median(ink[mask]))
    beside = max(2, size // 16)
    ground = ink[~dilate(mask, odd(beside))]
    spread = float(np.percentile(ground, 90)) if ground.size else 0.0
    if contrast < max(FAINTEST, 1.5 * spread):
        return None
    # where the light beside it is that of the ink itself, it is the edge of something wide, no stroke
    ring = dilate(mask, 2 * beside + 1) & ~dilate(mask, 2 * beside - 1)
    nearest = erode(np.where(mask, light, np.inf), 4 * beside + 1)
    if ring.any() and np.mean((light - nearest)[ring] < -0.5 * np.log(1 - contrast)) > 0.15:
        return None
    blob = odd(0.4 * size)
    doubts = {
        "cut by the frame": frame > 0,
        "faint ink": contrast < 0.12,
        "uneven ground": contrast < 2.5 * spread,
        BLOB: erode(np.pad(mask, blob), blob).sum() > 0.05 * mask.sum(),
    }
    reasons = tuple(text for text, so in doubts.items() if so)
    return Component(mask, ink, box, dark, contrast, contrast / (spread + 0.02), reasons)


def _side_by_side(one: Box, other: Box) -> bool:
    """As high as each other and next to each other, as the digits of a number are."""
    shared = min(one[2], other[2]) - max(one[0], other[0])
    whole = max(one[2], other[2]) - min(one[0], other[0])
    return shared > 0.7 * whole and (one[3] <= other[1] or other[3] <= one[1])


def _box(mask: np.ndarray) -> Box:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1


def odd(size: float) -> int:
    """`size` without its fraction, or the next number where that is even."""
    return int(size) // 2 * 2 + 1


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
    """
    edges = np.diff(np.pad(mask, [(0, 0), (1, 1)]).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    line = mask.shape[1] + 2  # so that runs of all rows stand one behind the other
    first = np.searchsorted(rows * line + ends, (rows + 1) * line + starts, "left")
    count = np.searchsorted(rows * line + starts, (rows + 1) * line + ends, "right") - first
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


class Doubt(str):
    """A note on a picture that says why what is read in it may be wrong."""


def find_digit(pixels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The ink of the digit in uint8 (h, w) or (h, w, 3), and notes on it. Needs Pillow.

    The ink is uint8, cropped to the strokes: 255 in them, 0 beside them; a single 0 if there is none.
    """
    planes = _planes(pixels)
    views = list(_search(planes, WIDEST))
    if all(BLOB in part.doubts for part in itertools.chain(*views)):
        views = list(_search(planes, 1.0))  # strokes may be as wide as the picture
    best = max(itertools.chain(*views), key=Component.rank, default=None)
    if best is None:
        return np.zeros((1, 1), np.uint8), [Doubt("nothing in it")]
    doubts = list(best.doubts)
    top, left, bottom, right = best.box
    if right - left > 1.75 * (bottom - top):
        doubts.append("wider than high")
    alike = _alike(best, next(view for view in views if best in view))
    if len(alike) > 1:
        doubts.append(f"{len(alike)} ink-like parts, took the largest")
    notes = ["inverted", "cropped to the digit"] if best.dark else ["cropped to the digit"]
    return _cropped(best), notes + [Doubt(text) for text in doubts]


def _planes(pixels: np.ndarray) -> list[np.ndarray]:
    """Grey, and of a coloured picture red, green and blue: float32 (h, w), at most SIDE, noise smoothed."""
    from PIL import Image, ImageFilter

    image = Image.fromarray(pixels)
    factor = min(1, SIDE / max(image.size))
    columns, rows = (max(1, round(size * factor)) for size in image.size)
    image = image.resize((columns, rows), Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(0.8))
    planes = [image.convert("L"), *(image.split() if pixels.ndim == 3 else ())]
    return [np.asarray(plane, np.float32) for plane in planes]


def _search(planes: list[np.ndarray], widest: float) -> Iterator[list[Component]]:
    """The parts of dark ink, and those of light ink, in each plane."""
    for plane in planes:
        size = max(7, odd(widest * min(plane.shape)))
        light = np.log(plane + BLACK)
        dark, bright = _parts(light, size, True), _parts(-light, size, False)
        yield [part for part in dark if not any(_is_hole(part, other) for other in bright)]
        yield [part for part in bright if not any(_is_hole(part, other) for other in dark)]


def _parts(light: np.ndarray, size: int, dark: bool) -> list[Component]:
    """Ink narrower than `size`, where light (h, w), logarithmic, is less than around it.

    Of two thresholds the second, higher one parts ink from fainter lines that it touches.
    """
    ink = 1 - np.exp(light - closing(light, size))
    first = otsu(ink)
    thresholds = (first, otsu(ink[ink > first]))
    parts = (find_parts(ink > threshold, ink, light, dark) for threshold in thresholds)
    return list(itertools.chain(*parts))


def _is_hole(part: Component, other: Component) -> bool:
    """Whether it is but ground that the other's strokes enclose."""
    strokes = BLOB not in other.doubts
    return strokes and other.contrast > 0.5 * part.contrast and part.within(other)


def _alike(best: Component, parts: list[Component]) -> list[Component]:
    """The best, and those that might as well be the digit and lie elsewhere."""
    alike = [best]
    for part in sorted(parts, key=Component.rank, reverse=True):
        as_much = part.mask.sum() > 0.3 * best.mask.sum() and part.contrast > 0.5 * best.contrast
        if as_much and not part.doubts and not any(part.meets(one) for one in alike):
            alike.append(part)
    return alike


def _cropped(part: Component) -> np.ndarray:
    """The ink of a part alone, from 0 beside its strokes to 255 in them, cropped to them."""
    near = dilate(part.mask, max(3, odd(part.size / 10)))
    ink = np.clip((part.ink / part.contrast - 0.15) / 0.7, 0, 1) * near
    rows, columns = np.nonzero(ink > 0.25)
    ink = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return np.round(255 * ink).astype(np.uint8)
