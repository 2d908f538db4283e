"""Pictures as arrays (h, w, c) of float32: read from a file, resized, cut into ten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaffe.core.layers.blob import numbers
from minicaffe.errors import SpecError
from minicaffe.interop.pycaffe.arrays import ArrayError
from minicaffe.tools.data import picture_files

LUMA = np.array([0.2125, 0.7154, 0.0721])  # of red, green and blue, as scikit-image weighs them


def load_image(filename: str | Path, color: bool = True) -> np.ndarray:
    """A picture from 0 to 1: (h, w, 3), red first, or for `color=False` its brightness, (h, w, 1).

    A grey picture is given three times for `color=True`; white shows where it is transparent. Raises
    DataError for a file that is no picture.
    """
    pixels = picture_files.read(filename, "colour" if color else "own")
    picture = np.float32(pixels[:, :, 2::-1] / 255)
    return picture if color or picture.shape[2] == 1 else np.float32(picture @ LUMA)[:, :, None]


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """A picture (h, w, c) at another height and width, bilinear, or nearest for `interp_order=0`; float32.

    As Caffe, which leaves pictures of 1 and 3 channels to scikit-image and all others to SciPy's zoom, it
    maps the middle of pixels onto the middle of pixels for the former and the outermost pixels onto the
    outermost for the latter; nothing is smoothed before it is made smaller. Beyond the border lies the
    border's own pixel.

    >>> resize_image(np.array([[[0.0], [1.0]]]), (1, 4))[0, :, 0]
    array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    >>> resize_image(np.array([[[0.0, 0.0], [1.0, 1.0]]]), (1, 3))[0, :, 0]
    array([0. , 0.5, 1. ], dtype=float32)
    """
    im = numbers(im, "a picture", "(h, w, c)")
    sizes = tuple(int(size) for size in new_dims)
    if im.ndim != 3 or len(sizes) != 2 or min(*sizes, *im.shape) < 1:
        raise ArrayError(f"expected (h, w, c) and (height, width), got {im.shape} and {sizes}")
    if interp_order not in (0, 1):
        raise SpecError(f"interp_order: expected 0 (nearest) or 1 (bilinear), got {interp_order}")
    middles = im.shape[2] in (1, 3)
    for axis, size in enumerate(sizes):
        had = im.shape[axis]
        if middles:
            at = ((np.arange(size) + 0.5) * had / size - 0.5).clip(0, had - 1)
        else:
            at = np.linspace(0, had - 1, size)
        if interp_order == 0:
            im = im.take(np.floor(at + 0.5).astype(int), axis)
            continue
        low = np.floor(at).astype(int)
        share = (at - low).reshape(-1, *(1,) * (2 - axis))
        im = (1 - share) * im.take(low, axis) + share * im.take(np.minimum(low + 1, had - 1), axis)
    return im.astype(np.float32)


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int]) -> np.ndarray:
    """Ten pieces of each picture, (10 n, h, w, c): the corners and the middle, then the same mirrored.

    The corners come in the order top left, top right, bottom left, bottom right. Raises ArrayError where
    pictures are smaller than a piece.
    """
    pieces = []
    for image in images:
        five = [*_corners(image, *crop_dims), middle(image, crop_dims)]
        pieces += [*five, *(piece[:, ::-1] for piece in five)]
    return np.array(pieces, np.float32)


def middle(image: np.ndarray, crop_dims: Sequence[int]) -> np.ndarray:
    """The piece of (height, width) in the middle of a picture. Raises ArrayError where it is smaller."""
    height, width = crop_dims
    rows, columns = image.shape[:2]
    if not (0 < height <= rows and 0 < width <= columns):
        raise ArrayError(f"no piece of {height} x {width} lies in a picture of {rows} x {columns}")
    y, x = (rows - height) // 2, (columns - width) // 2
    return image[y : y + height, x : x + width]


def _corners(image: np.ndarray, height: int, width: int) -> list[np.ndarray]:
    ends = (slice(height), slice(-height, None)), (slice(width), slice(-width, None))
    return [image[rows, columns] for rows in ends[0] for columns in ends[1]]
