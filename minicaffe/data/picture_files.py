"""Pictures as OpenCV returns them to Caffe: (h, w, channels), uint8, blue before green before red."""

from __future__ import annotations

import functools
import io
import logging
import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minicaffe.errors import DataError

Colour = Literal["colour", "grey", "as it is", "labels"]  # labels: numbers of a palette, else grey
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "GIF", "TIFF", "WEBP")  # none that has a program run
LARGEST = 1 << 26  # pixels
ENDS = {  # of whole files, by how they begin; behind them may lie some bytes of a camera
    b"\xff\xd8": b"\xff\xd9",
    b"\x89PNG": b"IEND",
}
TAIL = 1 << 12  # bytes
_MODES = {"colour": "RGB", "grey": "L", "labels": "L"}


def read(path: str | Path, colour: Colour) -> np.ndarray:
    """The picture in a file. Raises DataError, in one line, for a file that is none."""
    name = str(path) if str(path).isprintable() else repr(str(path))
    if not os.path.isfile(path):
        raise DataError(f"{name}: no such file")
    return _decoded(path, name, colour)


def check(path: str | Path) -> None:
    """Raise what `read` would for a damaged picture, as far as its header and its end show it."""
    name = str(path) if str(path).isprintable() else repr(str(path))
    try:
        with open(path, "rb") as file:
            head, size = file.read(4), os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL))
            tail = file.read()
            file.seek(0)
            end = next((end for start, end in ENDS.items() if head.startswith(start)), b"")
            _decoded(file, name, "as it is", header=end in tail)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None


def decode(data: bytes | memoryview, where: str, colour: Colour) -> np.ndarray:
    """The picture in the bytes of a file; `where` they lie, for errors."""
    return _decoded(io.BytesIO(data), where, colour)


def _decoded(file: Any, where: str, colour: Colour, header: bool = False) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{where}: pictures need the package Pillow: pip install 'minicaffe[image]'"
        ) from None
    Image.MAX_IMAGE_PIXELS = None  # the limit is told below, by the header
    _quieten()
    try:
        with Image.open(file, formats=FORMATS) as opened:
            width, height = opened.size
            if not 0 < width * height <= LARGEST:
                raise DataError(f"{where}: a picture of {width} x {height} pixels is not read")
            if opened.mode[:1] in "IF":
                raise DataError(f"{where}: expected 8 bits a pixel, found mode {opened.mode}")
            if header:
                return np.empty((0, 0, 0), np.uint8)
            mode = _MODES.get(colour) or _kept(opened)
            if colour == "labels":
                if opened.mode not in ("1", "L", "P"):
                    raise DataError(
                        f"{where}: expected a mask of grey values or of a palette, found {opened.mode}"
                    )
                mode = "P" if opened.mode == "P" else "L"
            if mode == "L":  # a JPEG's brightness, as it is stored
                opened.draft("L", opened.size)
            opened.load()
            pixels = np.asarray(opened if opened.mode == mode else opened.convert(mode))
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, MemoryError, Warning) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        said = (
            said if said.isprintable() and "<_io." not in said else "it is none that Pillow reads"
        )
        raise DataError(f"{where}: is not a picture that can be read: {said}") from None
    if mode in ("L", "P"):
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if mode == "RGB" else pixels[:, :, [2, 1, 0, 3]]


@functools.cache
def _quieten() -> None:
    """Have Pillow print nothing of its own: what is wrong with a picture is told once, in one line."""
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").addHandler(logging.NullHandler())


def _kept(opened: Any) -> str:
    """The mode for a picture's own channels: grey, colour, or colour with transparency."""
    if opened.mode in ("1", "L"):
        return "L"
    return "RGBA" if opened.mode in ("RGBA", "LA", "PA", "La", "RGBa") else "RGB"
