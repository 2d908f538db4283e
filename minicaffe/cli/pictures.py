"""Reading a user's picture: PGM, PPM and .npy by itself, PNG, JPEG and the rest through Pillow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from minicaffe.checkpoint import check_regular, read_npy
from minicaffe.errors import CheckpointError, DataError

LARGEST = 1 << 26  # pixels


def read_picture(
    path: str, shape: tuple[int, int, int], digit: bool = False
) -> tuple[np.ndarray, list[str]]:
    """A picture as uint8 (c, h, w) of the net's shape, and what was done to it, in words.

    Colours become grey for a net of one channel. A grey picture with a light border is inverted: the
    nets' digits are white on black. A picture of another size is scaled to fit and centred; with
    `digit` it is prepared as MNIST was: cropped to the ink, scaled to 20 of 28 pixels, centred by mass.
    """
    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"{path}: the net takes {channels} channels; pictures have 1 or 3")
    pixels, notes = _read(path), []
    if channels == 1 and pixels.ndim == 3:
        pixels = np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    if channels == 3 and pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    if channels == 1 and float(np.median(border)) > 127:
        pixels, border = 255 - pixels, 255 - border
        notes.append("inverted")
    if pixels.shape[:2] != (height, width):
        even = channels == 1 and float(np.std(border)) < 20
        if digit and even and int(pixels.max()) - float(np.median(border)) > 40:
            pixels = _as_mnist(pixels, float(np.median(border)), height, width, path)
            notes.append("cropped to the digit")
        else:
            pixels = _place(_scaled(pixels, height, width, path), height, width)
    if channels == 1 and int(pixels.max()) - int(pixels.min()) < 16:
        notes.append("nothing in it")
    return pixels.reshape(height, width, channels).transpose(2, 0, 1), notes


def _read(path: str) -> np.ndarray:
    """Pixels (h, w) or (h, w, 3), uint8."""
    try:
        check_regular(path)
        head = Path(path).read_bytes()[:8]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(b"\x93NUMPY"):
        return _read_npy(path)
    if head[:2] in (b"P5", b"P6"):
        return _read_netpbm(path)
    image = _pillow(path)
    image.MAX_IMAGE_PIXELS = None  # the limit is told below, by the header
    try:
        with image.open(path) as opened:
            if opened.size[0] * opened.size[1] > LARGEST:
                raise DataError(
                    f"{path}: {opened.size[0]} x {opened.size[1]} pixels are too many (at most {LARGEST})"
                )
            picture = _upright(opened)
            if picture.mode in ("RGBA", "LA", "PA", "P"):
                ground = image.new("RGBA", picture.size, "white")
                picture = image.alpha_composite(ground, picture.convert("RGBA"))
            if picture.mode.startswith("I"):  # 16 bits, whatever Pillow holds them in
                return (np.clip(np.asarray(picture), 0, 65535) // 257).astype(np.uint8)
            if picture.mode == "F":
                raise DataError(
                    f"{path}: expected 8 or 16 bits a pixel, got floating-point numbers"
                )
            return np.array(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: is not a picture that can be read: {error}") from None


def _upright(picture):  # type: ignore[no-untyped-def]
    """A photograph turned as its EXIF orientation says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(picture)


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
    try:
        pixels = read_npy(path)
    except CheckpointError as error:
        raise DataError(str(error)) from None
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


def _scaled(pixels: np.ndarray, height: int, width: int, path: str) -> np.ndarray:
    """Scaled to fit into height x width, the aspect kept."""
    image = _pillow(path)
    factor = min(height / pixels.shape[0], width / pixels.shape[1])
    rows, columns = (max(1, round(size * factor)) for size in pixels.shape[:2])
    return np.array(image.fromarray(pixels).resize((columns, rows), image.Resampling.LANCZOS))


def _place(
    small: np.ndarray, height: int, width: int, middle: tuple[float, float] | None = None
) -> np.ndarray:
    """On black, `middle` (default: the middle of the pixels) in the middle of height x width."""
    rows, columns = small.shape[:2]
    y, x = ((rows - 1) / 2, (columns - 1) / 2) if middle is None else middle
    top = min(max(round((height - 1) / 2 - y), 0), height - rows)
    left = min(max(round((width - 1) / 2 - x), 0), width - columns)
    result = np.zeros((height, width, *small.shape[2:]), np.uint8)
    result[top : top + rows, left : left + columns] = small
    return result


def _as_mnist(pixels: np.ndarray, ground: float, height: int, width: int, path: str) -> np.ndarray:
    """The ink of a light digit on an even dark ground, as MNIST has it (LeCun et al. 1998)."""
    ink = np.clip(pixels - ground, 0, None)
    ink = np.round(ink * (255 / ink.max())).astype(np.uint8)
    ys, xs = np.nonzero(ink > 64)
    ink = ink[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    small = _scaled(ink, round(height * 20 / 28), round(width * 20 / 28), path)
    if not small.any():  # specks that vanish
        return _place(small, height, width)
    mass = small.astype(float)
    y = mass.sum(axis=1) @ np.arange(mass.shape[0]) / mass.sum()
    x = mass.sum(axis=0) @ np.arange(mass.shape[1]) / mass.sum()
    return _place(small, height, width, (y, x))
