"""A batch out of a data set: gather images and labels, crop, mirror, subtract the mean, scale."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op


@op(traced=False)
def gather(
    images: Any, labels: Any, places: Any, mean: Any, scale: float, out: Any, out_labels: Any
) -> Any:
    """out[b] = crop of (images[entry] - mean) scale, mirrored where asked; out_labels[b] = labels[entry].

    images (count, c, h, w) uint8, labels (count,); places (4, n) int64: for each b the entry, top and left of
    the crop, if it is mirrored; mean (c, h, w), of out's type, or float32 for one of 16 bits; out (n, c, oh,
    ow), whose size is the crop's. Labels may be None, both or neither. Source: Caffe's DataTransformer.

    >>> images = np.array([[[[0, 10]]], [[[20, 30]]]], dtype=np.uint8)
    >>> places, mean = np.array([[1], [0], [0], [1]]), np.zeros((1, 1, 2))
    >>> gather(images, None, places, mean, 0.1, np.empty((1, 1, 1, 2)), None).ravel()
    array([3., 2.])
    """
    if labels is not None:
        take_labels(labels, places[0], out_labels)
    crop(images, places.T, mean, scale, out)


@op(by_calls=True)
def take_labels(labels: Any, entries: Any, out: Any) -> Any:
    """out[b] = labels[entries[b]]."""
    np.take(labels, entries, out=out, mode="clip")


@op(samples="out places", grain=2**12)
def crop(images: Any, places: Any, mean: Any, scale: float, out: Any) -> Any:
    """The images of `gather`, of places (n, 4)."""
    rows, columns = out.shape[2:]
    for b, (entry, top, left, flip) in enumerate(places):
        window = (slice(None), slice(top, top + rows), slice(left, left + columns))
        np.subtract(images[entry][window], mean[window], out=out[b, ..., ::-1] if flip else out[b])
    np.multiply(out, scale, out=out)
