"""From a picture as it was read to what a net sees of it, given the random numbers of the sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data import augment

# which of a sample's random numbers decides what: they stay what they are when others are not used
_PLACE, _MIRROR, _ANGLE, _COLOUR, _AREA = (
    slice(0, 2),
    2,
    3,
    slice(4, 8),
    slice(8, 8 + augment.TRIES),
)
COUNT = _AREA.stop
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is done to each picture: resize, turn, cut and scale, colours, mean, scale, mirror, in this order.

    `chance` tells whether it is done at random, as in TRAIN: without it there are no turns and no colours,
    and the cut is central. `crop` is the side of the square that is cut out, or None; of a part whose
    share of the area is in `share` and whose width / height is in `ratio`, scaled to it, where they are given.
    `jitter` are the most that brightness, contrast, saturation and hue change. Where `finished`, mean and
    scale come in as well; else they are left to who takes the bytes.
    """

    chance: bool
    resize: int | None = None
    degrees: float = 0
    fill: float = 0
    crop: int | None = None
    share: Range | None = None
    ratio: Range = (1, 1)
    jitter: tuple[float, float, float, float] | None = None
    mirror: bool = False
    mean: np.ndarray | None = None
    scale: float = 1
    finished: bool = False
    blue_first: bool = False
    sized_by: str = "resize"  # the key that makes pictures of several sizes one, for errors

    @property
    def numbers(self) -> int:
        """How many random numbers of a sample it looks at, at most."""
        more = self.chance and (self.degrees or self.share is not None or self.jitter is not None)
        return COUNT if more else _ANGLE

    def whole(self, h: int, w: int) -> tuple[int, int]:
        """The size of a picture of h x w that the crop is cut out of."""
        by_area = self.chance and self.share is not None
        return (h, w) if self.resize is None or by_area else augment.shorter(h, w, self.resize)

    def sample(self, picture: np.ndarray, label: Any, chance: np.ndarray, out: np.ndarray) -> Any:
        """Write what the net sees of a picture into `out`; returns the label that belongs to it."""
        self.make(picture, chance, out)
        return label

    def make(self, picture: np.ndarray, chance: np.ndarray, out: np.ndarray) -> None:
        """Write what the net sees of a picture (c, h, w) into `out`; `chance` are `numbers` of [0, 1).

        Raises DataError if it does not fit.
        """
        if out.dtype == np.uint8 != picture.dtype:
            raise DataError(f"expected bytes, as in the first picture, got {picture.dtype}")
        picture = augment.scale(picture, *self.whole(*picture.shape[1:]))
        if self.chance and self.degrees:
            picture = augment.turn(picture, (2 * chance[_ANGLE] - 1) * self.degrees, self.fill)
        whole = picture.shape
        top, left, rows, columns = self.part(whole, out.shape, chance)
        seen = np.s_[:, top : top + rows, left : left + columns]
        picture = augment.scale(picture[seen], *out.shape[1:])
        if self.chance and self.jitter is not None:
            picture = augment.colours(picture, self._factors(chance[_COLOUR]), self.blue_first)
        mirrored = self.mirror and chance[_MIRROR] < 0.5
        target = out[..., ::-1] if mirrored else out
        if not self.finished:
            target[...] = picture
            return
        mean = np.zeros((1, 1, 1), out.dtype) if self.mean is None else self.mean
        if mean.shape[1:] != (1, 1):
            if mean.shape != whole:
                raise DataError(f"is of {whole}, the mean image of {mean.shape}")
            mean = mean[seen]
        np.subtract(picture, mean, out=target)
        np.multiply(out, self.scale, out=out)

    def part(
        self, whole: tuple[int, ...], out: tuple[int, ...], chance: np.ndarray
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of what is cut out of a picture."""
        (c, h, w), (channels, oh, ow) = whole, out
        by_area = self.chance and self.share is not None
        fits = by_area or (h, w) == (oh, ow) or (self.crop and h >= oh and w >= ow)
        if c != channels or not fits:
            least = "at least " if self.crop else ""
            sized = self.sized_by
            remedy = f"transform: {sized}" if self.crop else f"transform: crop_size, and {sized}"
            raise DataError(
                f"expected a picture of {channels} channels and {least}{oh} x {ow}, "
                f"got {c} channels of {h} x {w}"
                + (f"; {remedy}, makes pictures of several sizes one" if c == channels else "")
            )
        if by_area:
            assert self.share is not None
            return augment.area(h, w, self.share, self.ratio, chance[_PLACE], chance[_AREA])
        spare = h - oh, w - ow
        down, right = chance[_PLACE] if self.chance else (None, None)
        if down is None or right is None:
            return spare[0] // 2, spare[1] // 2, oh, ow
        return int(down * (spare[0] + 1)), int(right * (spare[1] + 1)), oh, ow

    def _factors(self, chance: np.ndarray) -> tuple[float, float, float, float]:
        """How brightness, contrast and saturation are multiplied, and how far hue is turned."""
        assert self.jitter is not None
        *most, hue = self.jitter
        *times, turns = 2 * chance - 1
        bright, contrast, saturation = (
            max(0.0, 1 - m) + (t + 1) / 2 * (1 + m - max(0.0, 1 - m))
            for m, t in zip(most, times, strict=True)
        )
        return bright, contrast, saturation, float(turns * hue)
