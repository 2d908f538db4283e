"""Finding the digit in a photograph, on any paper and in any light.

In every colour plane, for dark ink and for light ink, a closing gives the ground behind the ink, and
Otsu's threshold parts the two by the share of light that is missing: a shadow or a lamp at the side
changes the light, not that share. Of the connected parts of ink the largest and clearest is taken, and
what speaks against it is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from minicaffe.tools.data.pictures.parts import BLOB, Part, find_parts, odd
from minicaffe.tools.data.pictures.segment import closing, dilate, otsu

SIDE = 400  # larger pictures are searched at this size
BLACK = 24  # what a camera may give for black, added before light is compared
WIDEST = 0.25  # a stroke's width, as a share of the picture's shorter side


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
    best = max(itertools.chain(*views), key=Part.rank, default=None)
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


def _search(planes: list[np.ndarray], widest: float) -> Iterator[list[Part]]:
    """The parts of dark ink, and those of light ink, in each plane."""
    for plane in planes:
        size = max(7, odd(widest * min(plane.shape)))
        light = np.log(plane + BLACK)
        dark, bright = _parts(light, size, True), _parts(-light, size, False)
        yield [part for part in dark if not any(_is_hole(part, other) for other in bright)]
        yield [part for part in bright if not any(_is_hole(part, other) for other in dark)]


def _parts(light: np.ndarray, size: int, dark: bool) -> list[Part]:
    """Ink narrower than `size`, where light (h, w), logarithmic, is less than around it.

    Of two thresholds the second, higher one parts ink from fainter lines that it touches.
    """
    ink = 1 - np.exp(light - closing(light, size))
    first = otsu(ink)
    thresholds = (first, otsu(ink[ink > first]))
    found = (find_parts(ink > threshold, ink, light, dark) for threshold in thresholds)
    return list(itertools.chain(*found))


def _is_hole(part: Part, other: Part) -> bool:
    """Whether it is but ground that the other's strokes enclose."""
    strokes = BLOB not in other.doubts
    return strokes and other.contrast > 0.5 * part.contrast and part.within(other)


def _alike(best: Part, parts: list[Part]) -> list[Part]:
    """The best, and those that might as well be the digit and lie elsewhere."""
    found = [best]
    for part in sorted(parts, key=Part.rank, reverse=True):
        as_much = part.mask.sum() > 0.3 * best.mask.sum() and part.contrast > 0.5 * best.contrast
        if as_much and not part.doubts and not any(part.meets(one) for one in found):
            found.append(part)
    return found


def _cropped(part: Part) -> np.ndarray:
    """The ink of a part alone, from 0 beside its strokes to 255 in them, cropped to them."""
    near = dilate(part.mask, max(3, odd(part.size / 10)))
    ink = np.clip((part.ink / part.contrast - 0.15) / 0.7, 0, 1) * near
    rows, columns = np.nonzero(ink > 0.25)
    ink = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return np.round(255 * ink).astype(np.uint8)
