"""A picture of one's own made ready for a net: grey, inverted, scaled, or its digit as MNIST has it."""

import glob
import os
import re
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minicaffe.errors import CheckpointError, DataError
from minicaffe.storage.checkpoint import check_regular, read_npy
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import augment, picture_files
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.data.picture_files import pillow
from minicaffe.tools.data.pictures.digit import Doubt, find_digit
from minicaffe.tools.data.reader.picture_set import pictures_below

NETPBM = re.compile(
    rb"P([56])(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+255\s"
)
Fit = Literal["contain", "cover", "stretch"]  # the whole on black, the centre, or out of shape


def is_picture(picture: Any) -> bool:
    """Whether something is a path, an image of Pillow's or an array of bytes (h, w, channels) or (h, w)."""
    if isinstance(picture, np.ndarray):
        colours = picture.ndim == 3 and picture.shape[2] in (1, 3, 4)
        return picture.dtype == np.uint8 and picture.size > 0 and (colours or picture.ndim == 2)
    pil = sys.modules.get("PIL.Image")
    return isinstance(picture, (str, Path) if pil is None else (str, Path, pil.Image))


def pixels_in(picture: Any) -> tuple[np.ndarray, str]:
    """The pixels of what `is_picture`, uint8 (h, w) or (h, w, 3), and what errors call it."""
    if isinstance(picture, (str, Path)):
        return read(str(picture)), str(picture)
    if not isinstance(picture, np.ndarray):
        return opened(picture, "picture"), "picture"
    name = f"picture of {picture.shape}"
    if picture.ndim == 3 and picture.shape[2] == 4:
        return opened(pillow(name).fromarray(picture), name), name
    return picture[:, :, 0] if picture.shape[2:] == (1,) else picture, name


def prepared(
    pixels: np.ndarray,
    shape: tuple[int, int, int],
    digit: bool = False,
    path: str = "picture",
    fit: Fit = "contain",
    crop: int = 0,
    invert: bool = True,
) -> tuple[np.ndarray, list[str]]:
    """Pixels (h, w) or (h, w, 3) as uint8 (c, h, w) of the net's shape, and notes: what was done, each Doubt.

    Colours become grey for a net of one channel. With `invert` a grey picture with a light border is
    inverted: nets for digits want them white on black. A picture of another size is scaled to fit and
    centred (`contain`), scaled to the net's height and width (`stretch`), or its shorter side is scaled to
    theirs (`cover`), so that a central `crop` is that of the picture; the last two as the data layers do.
    With `digit` its digit is looked for, and is as MNIST has its digits. Errors call the picture `path`.
    """
    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"{path}: the net takes {channels} channels; pictures have 1 or 3")
    notes: list[str] = []
    if digit and channels == 1 and pixels.shape[:2] != (height, width):
        pillow(path)
        ink, notes = find_digit(pixels)
        return _as_mnist(ink, height, width, path)[None], notes
    if channels == 1 and pixels.ndim == 3:
        pixels = np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    if channels == 3 and pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    if invert and channels == 1 and float(np.median(border)) > 127:
        pixels = 255 - pixels
        notes.append("inverted")
    if pixels.shape[:2] != (height, width) and fit == "stretch":
        pixels = bilinear(pixels.reshape(*pixels.shape[:2], channels), height, width)
    elif pixels.shape[:2] != (height, width) and fit == "cover":
        pixels = _covering(pixels.reshape(*pixels.shape[:2], channels), height, width, crop)
    elif pixels.shape[:2] != (height, width):
        pixels = _place(_scaled(pixels, height, width, path), height, width)
    if channels == 1 and int(pixels.max()) - int(pixels.min()) < 16:
        notes.append(Doubt("nothing in it"))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1), notes


def _scaled(pixels: np.ndarray, height: int, width: int, path: str) -> np.ndarray:
    """Scaled to fit into height x width, the aspect kept."""
    image = pillow(path)
    factor = min(height / pixels.shape[0], width / pixels.shape[1])
    rows, columns = (max(1, round(size * factor)) for size in pixels.shape[:2])
    return np.array(image.fromarray(pixels).resize((columns, rows), image.Resampling.LANCZOS))


def _covering(pixels: np.ndarray, height: int, width: int, crop: int) -> np.ndarray:
    """Its shorter side scaled to theirs; what hangs over height x width is cut off, what lacks is black."""
    size = augment.shorter(pixels.shape[0], pixels.shape[1], min(height, width))
    scaled = augment.scale(pixels.transpose(2, 0, 1), *size).transpose(1, 2, 0)
    result = np.zeros((height, width, pixels.shape[2]), np.uint8)
    begin, end = [], []
    for whole, own in zip((height, width), size, strict=True):
        part = crop or min(whole, own)
        begin.append((whole - part) // 2 - (own - part) // 2)  # where the picture begins
        end.append(min(whole, begin[-1] + own))
    (y, x), (y1, x1) = begin, end
    result[max(y, 0) : y1, max(x, 0) : x1] = scaled[max(-y, 0) : y1 - y, max(-x, 0) : x1 - x]
    return result


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


def _as_mnist(ink: np.ndarray, height: int, width: int, path: str) -> np.ndarray:
    """Scaled to 20 of 28 pixels, centred by mass (LeCun et al. 1998); thin strokes shine as thick ones."""
    small = _scaled(ink, round(height * 20 / 28), round(width * 20 / 28), path).astype(float)
    if not small.any():
        return _place(small, height, width)
    small = np.clip(small * (255 / np.percentile(small[small > small.max() / 4], 90)), 0, 255)
    y = small.sum(axis=1) @ np.arange(small.shape[0]) / small.sum()
    x = small.sum(axis=0) @ np.arange(small.shape[1]) / small.sum()
    return _place(np.round(small), height, width, (y, x))


def read(path: str) -> np.ndarray:
    """Pixels (h, w) or (h, w, 3), red first, uint8. Raises DataError for a file that is no picture."""
    with reading(path, "picture"):
        check_regular(path)
        data = Path(path).read_bytes()
    if data.startswith(b"\x93NUMPY"):
        return _read_npy(path)
    plain = NETPBM.match(data)
    if plain is not None:
        return _netpbm(path, plain, data[plain.end() :])
    return red_first(picture_files.decode(data, path, "own"))


def opened(image: Any, name: str) -> np.ndarray:
    """Pixels as `read` returns them of Pillow's image, which errors call `name`."""
    return red_first(picture_files.pixels_of(image, name, "own"))


def red_first(pixels: np.ndarray) -> np.ndarray:
    """Pixels (h, w) or (h, w, 3), red first, of those (h, w, 1) or (h, w, 3) with blue first."""
    return pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels[:, :, ::-1])


def named(word: str) -> list[str]:
    """The pictures that a word names: itself, those in a folder, or those that fit a pattern (*, ?, [], **).

    Raises DataError for a folder without pictures, and for a pattern that nothing fits.
    """
    if os.path.isdir(word):
        return pictures_below(Path(word))
    if os.path.exists(word) or not glob.has_magic(word):
        return [word]
    paths = sorted(path for path in glob.glob(word, recursive=True) if os.path.isfile(path))
    if not paths:
        raise DataError(f"{word}: no file fits this pattern")
    return paths


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


def _netpbm(path: str, header: re.Match[bytes], body: bytes) -> np.ndarray:
    width, height, depth = int(header[2]), int(header[3]), 1 if header[1] == b"5" else 3
    size = width * height * depth
    if not size or len(body) < size:
        raise DataError(f"{path}: expected {size} bytes of pixels, got {len(body)}")
    shape = (height, width) if depth == 1 else (height, width, 3)
    return np.frombuffer(body, np.uint8, size).reshape(shape)
