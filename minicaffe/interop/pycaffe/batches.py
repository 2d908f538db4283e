"""Running any number of samples through a net of a fixed batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from minicaffe.core.layers.blob import numbers
from minicaffe.errors import ShapeError

Arrays = Mapping[str, Any]


def batches(net: Any, arrays: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """Arrays cut into batches of the net's size, that of its first blob; the last is filled up with zeros.

    Raises ShapeError for an array of another number of axes, such as one sample.
    """
    for name in [name for name in arrays if name in net.blobs]:
        wanted = net.blobs[name].shape
        got = numbers(arrays[name], f"blob {name!r}", wanted).shape
        if len(got) != len(wanted):
            told = f"expected samples of {wanted[1:]} along a first axis"
            raise ShapeError(f"{name}: {told}, got an array of {got}")
    size = next(iter(net.blobs.values())).shape[0]
    for first in range(0, _count(arrays), size):
        batch = {name: np.asarray(array[first : first + size]) for name, array in arrays.items()}
        for name, part in batch.items():
            if len(part) < size:
                padding = np.zeros((size - len(part), *part.shape[1:]), part.dtype)
                batch[name] = np.concatenate([part, padding])
        yield batch


def forward_all(net: Any, blobs: Sequence[str], inputs: Arrays) -> dict[str, np.ndarray]:
    """The outputs, and `blobs`, of all samples. Raises ShapeError without any, or of unequal numbers."""
    found: dict[str, list[Any]] = {}
    with net.net.lock:
        for batch in batches(net, inputs):
            _keep(found, net.forward(blobs=blobs, **batch))
    if not _count(inputs):
        found = _none_of(net, [*net.outputs, *blobs])
    return _whole(found, _count(inputs))


def _none_of(net: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Of each blob no sample, as Caffe's forward_all returns it."""
    return {name: [np.empty((0, *net.blobs[name].shape[1:]), np.float32)] for name in names}


def forward_backward_all(
    net: Any, blobs: Sequence[str], diffs: Sequence[str], given: Arrays
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The outputs and `blobs`, the inputs' gradients and `diffs`, of all samples.

    `given` are inputs, and gradients of outputs, by name.
    """
    data: dict[str, list[Any]] = {}
    gradients: dict[str, list[Any]] = {}
    parts = [{k: given[k] for k in names if k in given} for names in (net.inputs, net.outputs)]
    ways = [batches(net, part) if part else iter(()) for part in parts]
    with net.net.lock:
        for forward, backward in zip_longest(*ways, fillvalue={}):
            _keep(data, net.forward(blobs=blobs, **forward))
            _keep(gradients, net.backward(diffs=diffs, **backward))
    count = _count(given)
    if not count:
        data = _none_of(net, [*net.outputs, *blobs])
        gradients = _none_of(net, [*net.inputs, *diffs])
    return _whole(data, count), _whole(gradients, count)


def _count(arrays: Arrays) -> int:
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ShapeError(f"expected arrays of as many samples each, got {told or 'none'}")
    return next(iter(counts.values()))


def _keep(found: dict[str, list[Any]], arrays: Arrays) -> None:
    for name, array in arrays.items():
        found.setdefault(name, []).append(np.atleast_1d(array).copy())


def _whole(found: dict[str, list[Any]], count: int) -> dict[str, np.ndarray]:
    """Batches put together, what was computed of padding left out."""
    return {name: np.concatenate(parts)[:count] for name, parts in found.items()}
