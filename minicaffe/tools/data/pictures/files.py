"""Pictures that `predict` takes: .npy, PGM and PPM without a package, others by picture_files.py."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import CheckpointError, DataError
from minicaffe.storage.checkpoint import check_regular, read_npy
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import picture_files
from minicaffe.tools.data.reader.picture_set import SUFFIXES, below

NETPBM = re.compile(
    rb"P([56])(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+(\d{1,5})(?:\s|#[^\n]*\n)+255\s"
)


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
