"""Reading a picture's file: PGM, PPM and .npy by itself, PNG, JPEG and the rest through Pillow."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.checkpoint import check_regular, read_npy
from minicaffe.data.reader.picture_set import SUFFIXES, below
from minicaffe.errors import CheckpointError, DataError

LARGEST = 1 << 26  # pixels


def read(path: str) -> np.ndarray:
    """Pixels (h, w) or (h, w, 3), uint8. Raises DataError for a file that is no picture."""
    try:
        check_regular(path)
        head = Path(path).read_bytes()[:8]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(b"\x93NUMPY"):
        return _read_npy(path)
    if head[:2] in (b"P5", b"P6"):
        return _read_netpbm(path)
    image = pillow(path)
    image.MAX_IMAGE_PIXELS = None  # the limit is told below, by the header
    try:
        with image.open(path) as file:
            if file.size[0] * file.size[1] > LARGEST:
                raise DataError(
                    f"{path}: {file.size[0]} x {file.size[1]} pixels are too many (at most {LARGEST})"
                )
            return opened(file, path)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: is not a picture that can be read: {error}") from None


def opened(file: Any, path: str) -> np.ndarray:
    """The pixels of Pillow's image, (h, w) or (h, w, 3), uint8; what shows through is white."""
    image, picture = pillow(path), _upright(file)
    if picture.mode in ("RGBA", "LA", "PA", "P"):
        ground = image.new("RGBA", picture.size, "white")
        picture = image.alpha_composite(ground, picture.convert("RGBA"))
    if picture.mode.startswith("I"):  # 16 bits, whatever Pillow holds them in
        return (np.clip(np.asarray(picture), 0, 65535) // 257).astype(np.uint8)
    if picture.mode == "F":
        raise DataError(f"{path}: expected 8 or 16 bits a pixel, got floating-point numbers")
    return np.array(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))


def named(word: str) -> list[str]:
    """The pictures that a word names: itself, those in a folder, or those that fit a pattern (*, ?, [], **).

    Raises DataError for a folder without pictures, and for a pattern that nothing fits.
    """
    if os.path.isdir(word):
        return in_folder(Path(word))
    if os.path.exists(word) or not glob.has_magic(word):
        return [word]
    paths = sorted(path for path in glob.glob(word, recursive=True) if os.path.isfile(path))
    if not paths:
        raise DataError(f"{word}: no file fits this pattern")
    return paths


def in_folder(folder: Path) -> list[str]:
    """The pictures in a folder and below it, by name. Raises DataError if there are none."""
    paths = [path for path in below(folder) if path.lower().endswith((*SUFFIXES, ".npy"))]
    if not paths:
        raise DataError(
            f"{folder}: holds no pictures; expected files in {', '.join(SUFFIXES)}, .npy"
        )
    return paths


def _upright(picture):  # type: ignore[no-untyped-def]
    """A photograph turned as its EXIF orientation says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(picture)


def pillow(path: str):  # type: ignore[no-untyped-def]
    """Pillow's Image, for the picture in `path`. Raises DataError with the remedy without Pillow."""
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
