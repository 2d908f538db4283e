"""Connected parts of ink: which belong together, and which are none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minicaffe.tools.data.pictures.segment import components, dilate, erode

GAP = 0.25  # between the strokes of a digit, as a share of its size
FAINTEST = 0.05  # less missing light than this is no ink
BLOB = "a blob, no strokes"

Box = tuple[int, int, int, int]  # top, left, bottom, right


@dataclass(frozen=True, eq=False)
class Part:
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

    def within(self, other: Part) -> bool:
        """Whether the other's box holds this one's."""
        (top, left, bottom, right), outer = self.box, other.box
        return outer[0] <= top and outer[1] <= left and bottom <= outer[2] and right <= outer[3]

    def meets(self, other: Part) -> bool:
        """Whether the boxes overlap."""
        (top, left, bottom, right), its = self.box, other.box
        return top < its[2] and its[0] < bottom and left < its[3] and its[1] < right


def find_parts(mask: np.ndarray, ink: np.ndarray, light: np.ndarray, dark: bool) -> list[Part]:
    """The largest parts of a mask (h, w), each with the smaller ones near it: a digit of several strokes.

    `ink` (h, w) is the missing light, `light` (h, w) what there is, logarithmic.
    """
    labels = components(mask)
    area = np.bincount(labels.ravel())
    area[0] = 0
    largest = [int(label) for label in np.argsort(-area)[:40] if area[label]]
    boxes = {label: _box(labels == label) for label in largest}
    found: list[Part] = []
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
        found.append(part)
    return found


def _judge(mask: np.ndarray, ink: np.ndarray, light: np.ndarray, dark: bool) -> Part | None:
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
    told = tuple(text for text, so in doubts.items() if so)
    return Part(mask, ink, box, dark, contrast, contrast / (spread + 0.02), told)


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
