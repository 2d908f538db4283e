"""What pictures (c, h, w) become before a net sees them: scaled, turned, cut, coloured. Pure functions.

Scaling and turning are Pillow's: bytes (uint8) stay bytes, rounded to the nearest; other pictures are computed
in float32. Colours are mixed in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.tools.data.picture_files import pillow

GREY = np.array([0.299, 0.587, 0.114])  # of red, green, blue
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # four plain channels: with RGBA Pillow weighs by the last
_YIQ = np.array([GREY, [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
_TRIES = 10
TRIES = 2 * _TRIES  # random numbers that `area` takes


def shorter(h: int, w: int, size: int) -> tuple[int, int]:
    """The size of a picture of h x w whose shorter side is made `size`, the other in proportion.

    >>> shorter(480, 640, 256)
    (256, 341)
    """
    return (size, max(1, size * w // h)) if h <= w else (max(1, size * h // w), size)


def scale(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture of another size, by a triangle filter as wide as two pixels of the smaller picture.

    Enlarged, that is bilinear; made smaller, every pixel counts. Source: Pillow's BILINEAR.

    >>> scale(np.array([[[0, 0, 90, 90]]], np.uint8), 1, 2)
    array([[[13, 77]]], dtype=uint8)
    """
    if picture.shape[1:] == (height, width):
        return picture
    how = pillow("scaling, turning or cutting by area").Resampling.BILINEAR
    return _each(picture, lambda plane: plane.resize((width, height), how))


def resampled(picture: np.ndarray, height: int, width: int, how: str) -> np.ndarray:
    """A picture of another size by a filter of Pillow's: BOX, BICUBIC or LANCZOS."""
    named = pillow("scaling, turning or cutting by area").Resampling[how]
    return _each(picture, lambda plane: plane.resize((width, height), named))


def turn(picture: np.ndarray, degrees: float, fill: float) -> np.ndarray:
    """A picture turned about its middle, counter-clockwise; bilinear, `fill` where nothing was."""
    how = pillow("scaling, turning or cutting by area").Resampling.BILINEAR
    bands = picture.shape[0] if picture.dtype == np.uint8 and picture.shape[0] in _MODES else 1
    value: Any = fill if picture.dtype != np.uint8 else (round(fill),) * bands
    return _each(picture, lambda plane: plane.rotate(degrees, how, fillcolor=value))


def area(
    h: int,
    w: int,
    share: tuple[float, float],
    ratio: tuple[float, float],
    place: np.ndarray,
    tries: np.ndarray,
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
        plane = (
            image.fromarray(pixels[:, :, 0])
            if c == 1
            else image.frombuffer(_MODES[c], pixels.shape[1::-1], pixels, "raw", _MODES[c], 0, 1)
        )
        changed = np.asarray(change(plane))
        return changed[None] if c == 1 else changed.transpose(2, 0, 1)
    kind = np.uint8 if picture.dtype == np.uint8 else np.float32
    planes = [np.ascontiguousarray(channel, kind) for channel in picture]
    return np.stack([np.asarray(change(image.fromarray(plane))) for plane in planes])
