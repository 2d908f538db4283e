"""A batch out of a data set: gather images and labels, crop, mirror, subtract the mean, scale."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.arrays import LONG

MANY = 1 << 15  # elements of a batch that a thread is worth waking for
LEAST = 1 << 12  # and that NumPy's has at least


def gather(
    images: Any, labels: Any, places: Any, mean: Any, scale: float, out: Any, out_labels: Any
) -> Any:
    """out[b] = crop of (images[entry] - mean) scale, mirrored where asked; out_labels[b] = labels[entry].

    images (count, c, h, w) uint8, labels (count,); places (4, n) int64: for each b the entry, top and left
    of the crop, and whether it is mirrored; mean (c, h, w), of out's type, or float32 for one of 16 bits;
    out (n, c, oh, ow), whose size is the crop's. Labels may be None, both or neither.
    Source: Caffe's DataTransformer.

    >>> images = np.array([[[[0, 10]]], [[[20, 30]]]], dtype=np.uint8)
    >>> places, mean = np.array([[1], [0], [0], [1]]), np.zeros((1, 1, 2))
    >>> gather(images, None, places, mean, 0.1, np.empty((1, 1, 1, 2)), None).ravel()
    array([3., 2.])
    """
    n, _, *area = out.shape
    sizes = (*images.shape[1:], *area)
    if on_cuda(images):
        scaling = mean.dtype.type(scale)
        given = images, labels, places, mean, scaling, n, *sizes, out, out_labels
        launch("batch.cu", "gather", out.size, out, *given)
        return out
    fast = loops("elementwise", out.dtype)
    if fast is not None and images.flags.c_contiguous:
        none = _none(out.dtype)
        given = (labels, out_labels) if labels is not None else (none, none)
        flat = images.reshape(-1), given[0], tuple(places), mean.reshape(-1), out.dtype.type(scale)
        grain = 1 + MANY * n // max(1, out.size)
        run(fast.gather, n, *flat, sizes, out.reshape(-1), given[1], grain=grain)
        return out
    if labels is not None:
        do(np.take, labels, places[0], out=out_labels, mode="clip")

    def part(first: int, last: int, _: Any) -> None:
        do(_gather, images, places[:, first:last], mean, scale, out=out[first:last])

    each = max(1, out.size // max(1, n))
    in_slices(part, n, grain=1 + LEAST // each, worth=1 + LONG // each, noted=True)
    return out


def _gather(images: Any, places: Any, mean: Any, scale: float, out: Any) -> None:
    rows, columns = out.shape[2:]
    for b, (entry, top, left, flip) in enumerate(places.T):
        seen = (slice(None), slice(top, top + rows), slice(left, left + columns))
        np.subtract(images[entry][seen], mean[seen], out=out[b, ..., ::-1] if flip else out[b])
    np.multiply(out, scale, out=out)


@functools.cache
def _none(dtype: np.dtype) -> np.ndarray:
    return np.empty(0, dtype)
