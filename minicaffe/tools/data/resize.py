"""Scaling a picture as OpenCV's resize does, which Caffe calls: bilinear, in whole numbers."""

from __future__ import annotations

import numpy as np

_ONE = 1 << 11  # OpenCV's weights are of 11 bits


def bilinear(picture: np.ndarray, height: int, width: int, step: float | None = None) -> np.ndarray:
    """A picture (h, w, channels), uint8, of another size.

    Output y reads the rows about (y + 1/2) step - 1/2, weighted by how near they are, the edge's at the edge;
    columns likewise. The step is h / height for rows and w / width for columns unless one is given for both.
    Halved, a pixel is the mean of four. Source: OpenCV's INTER_LINEAR, bit for bit.

    >>> bilinear(np.array([[[0], [100]]], np.uint8), 1, 4).ravel()
    array([  0,  25,  75, 100], dtype=uint8)
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
