"""The one reader of pictures in files: upright, on white, in 8 bits, as viewers show them.

Training, tests, `predict`, conversion and pycaffe read by it. A photograph is turned as its EXIF orientation
says, as OpenCV's imread does; where it is transparent, white shows; of 16 bits a channel the upper 8 are
kept, as by imread.
"""

import functools
import io
import logging
import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minicaffe.errors import DataError, needed, pip_install, reason
from minicaffe.storage.file_kinds import reading, recognised

# own: grey or colours, as the picture has them; as it is: and transparency, a fourth channel;
# labels: numbers of a palette, else grey
Colour = Literal["colour", "grey", "own", "as it is", "labels"]
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "GIF", "TIFF", "WEBP")  # none that has a program run
LARGEST = 1 << 26  # pixels
ENDS = {  # of whole files, by how they begin; behind them may lie some bytes of a camera
    b"\xff\xd8": b"\xff\xd9",
    b"\x89PNG": b"IEND",
}
TAIL = 1 << 12  # bytes
ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")  # Pillow's modes with a channel of transparency
ORDERS: dict[str, Any] = {"RGB": slice(None, None, -1), "RGBA": [2, 1, 0, 3]}  # blue first
ORIENTATION = 0x0112  # EXIF's tag
# By EXIF's orientation: whether rows and columns are exchanged, then rows reversed, then columns
TURNS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def read(path: str | Path, colour: Colour) -> np.ndarray:
    """Returns the picture in a file, (h, w, channels), uint8, blue before green before red.

    Raises DataError, in one line, for a file that is none.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file")
    return _decoded(path, str(path), colour)


def check(path: str | Path) -> None:
    """Raise what `read` would for a damaged picture, as far as its header and its end show it."""
    with reading(path, "picture"), open(path, "rb") as file:
        head, size = file.read(4), os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        tail = file.read()
        file.seek(0)
        end = next((end for start, end in ENDS.items() if head.startswith(start)), b"")
        _decoded(file, str(path), "own", header=end in tail)


def decode(data: bytes | memoryview, where: str, colour: Colour) -> np.ndarray:
    """Returns the picture in the bytes of a file; `where` they lie, for errors."""
    return _decoded(io.BytesIO(data), where, colour)


def orientation(path: str | Path) -> int:
    """Returns how EXIF says to turn a picture that `read` could read, a key of TURNS; 1: not at all."""
    with pillow(str(path)).open(path, formats=FORMATS) as image:
        return _orientation(image)


def pillow(where: str) -> Any:
    """Returns Pillow's Image, for the picture or the work `where`. Raises DataError without Pillow."""
    with needed(DataError(f"{where}: needs Pillow: {pip_install('image')}")):
        from PIL import Image
    Image.MAX_IMAGE_PIXELS = None  # the limit is told below, by the header
    _quieten()
    return Image


def pixels_of(image: Any, where: str, colour: Colour) -> np.ndarray:
    """Returns the pixels of Pillow's image as `read` does. Raises DataError, or what Pillow raises."""
    held, mode = image.mode, {"colour": "RGB", "grey": "L"}.get(colour)
    if colour == "labels":
        if held not in ("1", "L", "P"):
            problem = f"expected a mask of grey values or of a palette, found {held}"
            raise DataError(f"{where}: {problem}")
        mode = "P" if held == "P" else "L"
    elif held == "F":
        raise DataError(f"{where}: expected 8 or 16 bits a pixel, found floating-point numbers")
    elif mode is None:
        mode = "L" if held in ("1", "L") or held.startswith("I") else "RGB"
        mode = "RGBA" if colour == "as it is" and held in ALPHA else mode
    if mode == "L":  # a JPEG's brightness, as it is stored
        image.draft("L", image.size)
    image.load()
    turn = _orientation(image)
    if held.startswith("I"):  # 16 bits, whatever Pillow holds them in
        numbers = np.asarray(image)
        if numbers.min() < 0 or numbers.max() > 65535:
            raise DataError(f"{where}: expected 8 or 16 bits a pixel, found larger numbers")
        image = pillow(where).fromarray((numbers >> 8).astype(np.uint8))
    elif image.has_transparency_data and mode in ("RGB", "L") and colour != "labels":
        image = (image.convert("LA") if held == "La" else image).convert("RGBA")
        white = pillow(where).new("RGBA", image.size, "white")
        image = pillow(where).alpha_composite(white, image).convert("RGB")
    pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    pixels = pixels.reshape(*pixels.shape[:2], -1)[:, :, ORDERS.get(mode, slice(None))]
    return turned(pixels, turn)


def turned(pixels: np.ndarray, turn: int) -> np.ndarray:
    """Returns pixels (h, w, ...) turned as EXIF's orientation says."""
    if turn not in TURNS:
        return pixels
    exchanged, rows, columns = TURNS[turn]
    pixels = pixels.swapaxes(0, 1) if exchanged else pixels
    return pixels[:: -1 if rows else 1, :: -1 if columns else 1]


def turned_box(sides: np.ndarray, turn: int) -> np.ndarray:
    """Returns x0, y0, x1, y1, fractions of a picture, turned with it."""
    if turn not in TURNS:
        return sides
    exchanged, rows, columns = TURNS[turn]
    x, y = sides[[0, 2]], sides[[1, 3]]
    x, y = (y, x) if exchanged else (x, y)
    x, y = (1 - x[::-1] if columns else x), (1 - y[::-1] if rows else y)
    return np.array([x[0], y[0], x[1], y[1]])


def _orientation(image: Any) -> int:
    """Returns EXIF's orientation of Pillow's image; 1 where there is none, or none that can be read."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # whatever damaged EXIF has Pillow raise: the picture itself may be whole
        return 1


def _decoded(file: Any, where: str, colour: Colour, header: bool = False) -> np.ndarray:
    try:
        with pillow(where).open(file, formats=FORMATS) as image:
            width, height = image.size
            if not 0 < width * height <= LARGEST:
                raise DataError(f"{where}: a picture of {width} x {height} pixels is not read")
            if header and image.mode != "F":
                return np.empty((0, 0, 0), np.uint8)
            return pixels_of(image, where, colour)
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, MemoryError, Warning) as error:
        if not isinstance(file, (str, Path)):
            file.seek(0)
            file = file.read(1024)
        kind = recognised(file, "picture")
        said = f"it is {kind}" if kind else reason(error)
        said = "it is none that Pillow reads" if "<_io." in said else said
        raise DataError(f"{where}: is not a picture that can be read: {said}") from None


@functools.cache
def _quieten() -> None:
    """Have Pillow print nothing of its own: what is wrong with a picture is told once, in one line."""
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
