"""What pictures (c, h, w) become before a net sees them: scaled, turned, cut, coloured. Pure functions.

`bilinear` scales as OpenCV's resize does, which Caffe calls; else scaling and turning are Pillow's: bytes
(uint8) stay bytes, rounded to the nearest; other pictures, and all colours, are computed in float32.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.picture_files import pillow

_ONE = 1 << 11  # OpenCV's weights are of 11 bits
GREY = np.array([0.299, 0.587, 0.114])  # of red, green, blue
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # four plain channels: with RGBA Pillow weighs by the last
_YIQ = np.array([GREY, [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
_TRIES = 10
TRIES = 2 * _TRIES  # random numbers that `area` takes
# which of a sample's random numbers decides what: they stay what they are when others are not used
_PLACE, _MIRROR, _ANGLE = slice(0, 2), 2, 3
_COLOUR, _AREA = slice(4, 8), slice(8, 8 + TRIES)
COUNT = _AREA.stop
Range = tuple[float, float]


def bilinear(picture: np.ndarray, height: int, width: int, step: float | None = None) -> np.ndarray:
    """A picture (h, w, channels), uint8, of another size.

    Output y reads the rows about (y + 1/2) step - 1/2, weighted by how near they are, the edge's at the edge;
    columns likewise. The step is h / height for rows and w / width for columns unless one is given for both.
    Halved, a pixel is the mean of four. Source: OpenCV's INTER_LINEAR, bit for bit.
    """
    h, w = picture.shape[:2]
    if (h, w) == (height, width):
        return picture
    if (h, w) == (2 * height, 2 * width):
        four = picture.reshape(height, 2, width, 2, -1).sum(axis=(1, 3), dtype=np.int32)
        return ((four + 2) >> 2).astype(np.uint8)
    top, below, rows = _taps(h, height, step or h / height, True)
    left, right, columns = _taps(w, width, step or w / width, False)
    first, second = columns[:, :, None]
    pixels = picture.astype(np.int32)
    across = pixels[:, left] * first + pixels[:, right] * second
    (upper, lower), across = rows[:, :, None, None], across >> 4
    summed = (across[top] * upper >> 16) + (across[below] * lower >> 16)
    return ((summed + 2) >> 2).clip(0, 255).astype(np.uint8)


def nearest(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture (h, w, ...) of another size, each pixel one of it. Source: OpenCV's INTER_NEAREST.

    >>> nearest(np.array([[0, 1]]), 2, 4).tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1]]
    """
    h, w = picture.shape[:2]
    return picture[np.arange(height)[:, None] * h // height, np.arange(width) * w // width]


def _taps(
    size: int, wanted: int, step: float, rows: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each output the two inputs that it reads, and their weights (2, wanted).

    Past the edge the two are one: of columns it has all the weight then, of rows both parts, rounded each.
    """
    at = ((np.arange(wanted) + 0.5) * step - 0.5).astype(np.float32)
    first = np.floor(at).astype(np.int64)
    share = at - first
    if not rows:
        share[(first < 0) | (first >= size - 1)] = 0
    second = np.rint(share * _ONE).astype(np.int32)
    weights = np.stack([np.rint((1 - share) * np.float32(_ONE)).astype(np.int32), second])
    return first.clip(0, size - 1), (first + 1).clip(0, size - 1), weights


def shorter(h: int, w: int, size: int) -> tuple[int, int]:
    """The size of a picture of h x w whose shorter side is made `size`, the other in proportion."""
    return (size, max(1, size * w // h)) if h <= w else (max(1, size * h // w), size)


def scale(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture of another size, by a triangle filter as wide as two pixels of the smaller picture.

    Enlarged, that is bilinear; made smaller, every pixel counts. Source: Pillow's BILINEAR.
    """
    if picture.shape[1:] == (height, width):
        return picture
    return resampled(picture, height, width, "BILINEAR")


def resampled(picture: np.ndarray, height: int, width: int, how: str) -> np.ndarray:
    """A picture of another size by a filter of Pillow's: BILINEAR, BOX, BICUBIC or LANCZOS."""
    named = pillow("scaling, turning or cutting by area").Resampling[how]
    return _each(picture, lambda plane: plane.resize((width, height), named))


def turn(picture: np.ndarray, degrees: float, fill: float) -> np.ndarray:
    """A picture turned about its middle, counter-clockwise; bilinear, `fill` where nothing was."""
    how = pillow("scaling, turning or cutting by area").Resampling.BILINEAR
    bands = picture.shape[0] if picture.dtype == np.uint8 and picture.shape[0] in _MODES else 1
    value: Any = fill if picture.dtype != np.uint8 else (round(fill),) * bands
    return _each(picture, lambda plane: plane.rotate(degrees, how, fillcolor=value))


def area(
    h: int, w: int, share: Range, ratio: Range, place: np.ndarray, tries: np.ndarray
) -> tuple[int, int, int, int]:
    """Top, left, height, width of a part of a picture of h x w, from numbers of [0, 1).

    Its share of the picture's area is even in `share`, the logarithm of its width / height in `ratio`; of
    ten tries the first that fits is taken, else the largest part in the middle whose ratio is allowed.
    `place` says where it lies. Source: C. Szegedy et al., Going Deeper with Convolutions, CVPR 2015, as
    torchvision does it.
    """
    least, most = (math.log(bound) for bound in ratio)
    for much, wide in tries.reshape(-1, 2):
        size = h * w * (share[0] + much * (share[1] - share[0]))
        broad = math.exp(least + wide * (most - least))
        columns, rows = round(math.sqrt(size * broad)), round(math.sqrt(size / broad))
        if 0 < columns <= w and 0 < rows <= h:
            top, left = place[0] * (h - rows + 1), place[1] * (w - columns + 1)
            return int(top), int(left), rows, columns
    broad = min(max(w / h, ratio[0]), ratio[1])
    rows, columns = min(h, max(1, round(w / broad))), min(w, max(1, round(h * broad)))
    return (h - rows) // 2, (w - columns) // 2, rows, columns


def colours(
    picture: np.ndarray, factors: tuple[float, float, float, float], blue_first: bool
) -> np.ndarray:
    """A picture in other colours, float32: brightness, contrast, saturation times a factor, hue turned.

    x b, then the mean grey + (x - mean grey) c, then grey + (x - grey) s, then chroma turned in the plane of I
    and Q by `hue` turns: all in one matrix, without rounding between; of bytes the result is held to 0..255.
    One channel has no saturation and no hue. Source: T. Owens and the NTSC's YIQ for hue; GREY for grey.
    """
    bright, contrast, saturation, hue = factors
    x = picture.astype(np.float32)
    if len(x) == 1:
        matrix, grey = np.eye(1), float(x.mean(dtype=np.float64))
    else:
        cos, sin = math.cos(2 * math.pi * hue), math.sin(2 * math.pi * hue)
        chroma = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
        matrix = np.linalg.inv(_YIQ) @ chroma @ _YIQ
        matrix = matrix @ (saturation * np.eye(3) + (1 - saturation) * GREY)
        means = x.mean(axis=(1, 2), dtype=np.float64)
        matrix = matrix[::-1, ::-1] if blue_first else matrix
        grey = float((GREY[::-1] if blue_first else GREY) @ means)
    matrix = (matrix * (bright * contrast)).astype(np.float32)
    offset = np.float32((1 - contrast) * bright * grey)
    out = np.empty_like(x)
    for row, channel in zip(matrix, out, strict=True):
        np.multiply(x[0], row[0], out=channel)
        for weight, other in zip(row[1:], x[1:], strict=True):
            channel += other * weight
        channel += offset
    return out.clip(0, 255, out=out) if picture.dtype == np.uint8 else out


def _each(picture: np.ndarray, change: Any) -> np.ndarray:
    """A picture whose planes were changed by Pillow: as one of bytes, or each channel by itself."""
    image, c = pillow("scaling, turning or cutting by area"), len(picture)
    if picture.dtype == np.uint8 and c in _MODES:
        pixels = np.ascontiguousarray(picture.transpose(1, 2, 0))
        how = pixels.shape[1::-1], pixels, "raw", _MODES[c], 0, 1
        plane = image.fromarray(pixels[:, :, 0]) if c == 1 else image.frombuffer(_MODES[c], *how)
        changed = np.asarray(change(plane))
        return changed[None] if c == 1 else changed.transpose(2, 0, 1)
    kind = np.uint8 if picture.dtype == np.uint8 else np.float32
    planes = [np.ascontiguousarray(channel, kind) for channel in picture]
    return np.stack([np.asarray(change(image.fromarray(plane))) for plane in planes])


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
        return (h, w) if self.resize is None or by_area else shorter(h, w, self.resize)

    def sample(self, picture: np.ndarray, label: Any, chance: np.ndarray, out: np.ndarray) -> Any:
        """Write what the net sees of a picture into `out`; returns the label that belongs to it."""
        self.make(picture, chance, out)
        return label

    def make(self, picture: np.ndarray, chance: np.ndarray, out: np.ndarray) -> None:
        """Write what the net sees of a picture (c, h, w) into `out`. Raises DataError if it does not fit."""
        if out.dtype == np.uint8 != picture.dtype:
            raise DataError(f"expected bytes, as in the first picture, got {picture.dtype}")
        picture = scale(picture, *self.whole(*picture.shape[1:]))
        if self.chance and self.degrees:
            picture = turn(picture, (2 * chance[_ANGLE] - 1) * self.degrees, self.fill)
        whole = picture.shape
        top, left, rows, columns = self.part(whole, out.shape, chance)
        seen = np.s_[:, top : top + rows, left : left + columns]
        picture = scale(picture[seen], *out.shape[1:])
        if self.chance and self.jitter is not None:
            picture = colours(picture, self._factors(chance[_COLOUR]), self.blue_first)
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
        share = self.share if self.chance else None
        fits = share is not None or (h, w) == (oh, ow) or (self.crop and h >= oh and w >= ow)
        if c != channels or not fits:
            least, first = ("at least ", "") if self.crop else ("", "crop_size, and ")
            remedy = f"transform: {first}{self.sized_by}"
            raise DataError(
                f"expected a picture of {channels} channels and {least}{oh} x {ow}, "
                f"got {c} channels of {h} x {w}"
                + (f"; {remedy}, makes pictures of several sizes one" if c == channels else "")
            )
        if share is not None:
            return area(h, w, share, self.ratio, chance[_PLACE], chance[_AREA])
        spare = h - oh, w - ow
        if not self.chance:
            return spare[0] // 2, spare[1] // 2, oh, ow
        down, right = chance[_PLACE]
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
