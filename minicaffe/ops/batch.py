"""A batch out of a data set: gather, crop, mirror, subtract the mean, scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backend import launch, on_cuda
from minicaffe.ops.loops import loops


def gather(
    images: Any, index: Any, crop: Any, mirror: Any, mean: Any, scale: float, out: Any
) -> Any:
    """out[b] = crop of (images[index[b]] - mean) scale, mirrored where mirror[b].

    images (count, c, h, w) uint8; index (n,) int64, crop (n, 2) top and left, mirror (n,) int32; mean
    (c, h, w), of out's type, or float32 for one of 16 bits; out (n, c, oh, ow), whose size is the crop's.
    Source: Caffe's DataTransformer.

    >>> images = np.array([[[[0, 10]]], [[[20, 30]]]], dtype=np.uint8)
    >>> index, crop, mirror = np.array([1]), np.zeros((1, 2), int), np.array([1])
    >>> gather(images, index, crop, mirror, np.zeros((1, 1, 2)), 0.1, np.empty((1, 1, 1, 2))).ravel()
    array([3., 2.])
    """
    if on_cuda(images):
        sizes = (*images.shape[1:], *out.shape[2:])
        scaling = mean.dtype.type(scale)
        launch(
            "batch.cu",
            "gather",
            out.size,
            out,
            images,
            index,
            crop,
            mirror,
            mean,
            scaling,
            *sizes,
            out,
        )
        return out
    fast = loops("elementwise", out.dtype)
    if fast is not None and images.flags.c_contiguous:
        flat = [array.reshape(-1) for array in (images, index, crop, mirror, mean)]
        sizes = (*images.shape[1:], *out.shape[2:])
        fast.gather(*flat, out.dtype.type(scale), sizes, out.reshape(-1), 0, len(index))
        return out
    rows, columns = out.shape[2:]
    for b, (which, (top, left), flip) in enumerate(zip(index, crop, mirror, strict=True)):
        area = (slice(None), slice(top, top + rows), slice(left, left + columns))
        np.subtract(images[which][area], mean[area], out=out[b, ..., ::-1] if flip else out[b])
    return np.multiply(out, scale, out=out)
