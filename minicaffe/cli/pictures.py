"""Reading a user's picture: PGM, PPM and .npy by itself, PNG, JPEG and the rest through Pillow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from minicaffe.checkpoint import read_npy
from minicaffe.errors import DataError

LARGEST = 1 << 26  # pixels


def read_picture(path: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, bool]:
    """A picture as uint8 (c, h, w) of the net's shape, and whether it was inverted.

    Colours become grey for a net of one channel. A picture of another size is scaled to fit and
    centred. A grey picture with a light border is inverted: the nets' digits are white on black.
    """
    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"{path}: the net takes {channels} channels; pictures have 1 or 3")
    pixels = _read(path)
    if channels == 1 and pixels.ndim == 3:
        pixels = np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    if channels == 3 and pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    inverted = channels == 1 and float(np.median(border)) > 127
    if inverted:
        pixels = 255 - pixels
    if pixels.shape[:2] != (height, width):
        pixels = _fit(pixels, height, width, path)
    return pixels.reshape(height, width, channels).transpose(2, 0, 1), inverted


def _read(path: str) -> np.ndarray:
    """Pixels (h, w) or (h, w, 3), uint8."""
    try:
        head = Path(path).read_bytes()[:8]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(b"\x93NUMPY"):
        return _read_npy(path)
    if head[:2] in (b"P5", b"P6"):
        return _read_netpbm(path)
    image = _pillow(path)
    try:
        with image.open(path) as picture:
            if picture.size[0] * picture.size[1] > LARGEST:
                raise DataError(
                    f"{path}: {picture.size[0]} x {picture.size[1]} pixels are too many"
                )
            if picture.mode in ("RGBA", "LA", "PA", "P"):
                ground = image.new("RGBA", picture.size, "white")
                picture = image.alpha_composite(ground, picture.convert("RGBA"))
            if picture.mode.startswith("I"):  # 16 bits, whatever Pillow holds them in
                return (np.clip(np.asarray(picture), 0, 65535) // 257).astype(np.uint8)
            grey = picture.mode in ("1", "L", "F")
            return np.array(picture.convert("L" if grey else "RGB"))
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise DataError(f"{path}: is not a picture that can be read: {error}") from None


def _pillow(path: str):  # type: ignore[no-untyped-def]
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{path}: reading or scaling this picture needs Pillow: pip install 'minicaffe[image]' "
            "(PGM, PPM and .npy of the net's size need nothing)"
        ) from None
    return Image


def _read_npy(path: str) -> np.ndarray:
    pixels = read_npy(path)
    right = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not right or not pixels.size:
        raise DataError(
            f"{path}: expected uint8 of (h, w) or (h, w, 3), got {pixels.dtype} of {pixels.shape}"
        )
    return pixels


def _read_netpbm(path: str) -> np.ndarray:
    data = Path(path).read_bytes()
    match = re.match(
        rb"P([56])(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})\s",
        data,
    )
    if match is None or int(match[4]) != 255:
        raise DataError(f"{path}: is not a binary PGM or PPM of 8 bits")
    width, height, depth = int(match[2]), int(match[3]), 1 if match[1] == b"5" else 3
    body = data[match.end() :]
    if not width * height or len(body) != width * height * depth:
        raise DataError(
            f"{path}: expected {width * height * depth} bytes of pixels, got {len(body)}"
        )
    shape = (height, width) if depth == 1 else (height, width, 3)
    return np.frombuffer(body, np.uint8).reshape(shape)


def _fit(pixels: np.ndarray, height: int, width: int, path: str) -> np.ndarray:
    """Scale to fit, keeping the aspect, and centre on black."""
    image = _pillow(path)
    factor = min(height / pixels.shape[0], width / pixels.shape[1])
    rows, columns = (max(1, round(size * factor)) for size in pixels.shape[:2])
    small = np.array(image.fromarray(pixels).resize((columns, rows), image.Resampling.LANCZOS))
    result = np.zeros((height, width, *pixels.shape[2:]), np.uint8)
    top, left = (height - rows) // 2, (width - columns) // 2
    result[top : top + rows, left : left + columns] = small
    return result
