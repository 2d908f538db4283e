"""Pictures made into what a net's input takes, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minicaffe.core.layers.blob import numbers
from minicaffe.errors import UnknownNameError, did_you_mean
from minicaffe.interop.pycaffe.arrays import ArrayError
from minicaffe.interop.pycaffe.images import resize_image


class Transformer:
    """What is done to the pictures for each input of a net, given by name and shape.

    In this order: resized to the input's height and width; `transpose`, (2, 0, 1) for pictures (h, w, c);
    `channel_swap`, (2, 1, 0) for blue first; times `raw_scale`, 255 for pictures from 0 to 1; minus `mean`;
    times `input_scale`. What is not set is not done.

    >>> transformer = Transformer({"data": (1, 3, 2, 2)})
    >>> transformer.set_transpose("data", (2, 0, 1))
    >>> transformer.set_raw_scale("data", 255)
    >>> transformer.set_mean("data", np.array([104.0, 117.0, 123.0]))
    >>> transformer.preprocess("data", np.ones((4, 4, 3)))[:, 0, 0]
    array([151., 138., 132.], dtype=float32)
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, Any] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, Any] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """A picture (h, w, c) as the input `in_` takes one, (c, h, w) of float32; `data` stays as it is."""
        size = self._shape(in_)[2:]
        found = np.array(numbers(data, in_, self.inputs[in_]), np.float32)
        if found.shape[:2] != size:
            found = resize_image(found, size)
        if in_ in self.transpose:
            if found.ndim != len(self.transpose[in_]):
                axes = len(self.transpose[in_])
                raise ArrayError(f"{in_}: expected a picture of {axes} axes, got {found.shape}")
            found = found.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            if len(found) != len(self.channel_swap[in_]):
                channels = len(self.channel_swap[in_])
                raise ArrayError(f"{in_}: expected {channels} channels, got {len(found)}")
            found = found[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            found = found * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            found = found - self.mean[in_]
        if in_ in self.input_scale:
            found = found * np.float32(self.input_scale[in_])
        return found.astype(np.float32, copy=False)

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """What `preprocess` gave, or a batch of one such, as a picture again, of the input's size."""
        found = np.array(data)
        if found.ndim == len(self._shape(in_)) and len(found) == 1:
            found = found[0]
        if in_ in self.input_scale:
            found = found / self.input_scale[in_]
        if in_ in self.mean:
            found = found + self.mean[in_]
        if in_ in self.raw_scale:
            found = found / self.raw_scale[in_]
        if in_ in self.channel_swap:
            found = found[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            found = found.transpose(np.argsort(self.transpose[in_]))
        return found

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set which axis of a picture each axis of the input (without the batch) is."""
        self.transpose[in_] = self._order(in_, order, len(self._shape(in_)) - 1, "axes")

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set which channel of a picture each channel of the input is, once transposed."""
        self.channel_swap[in_] = self._order(in_, order, self._shape(in_)[1], "channels")

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set what a picture is multiplied by before the mean is taken off."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Set what is taken off: a number per channel, or an array (c, h, w), resized if it must be."""
        shape, mean = self._shape(in_), np.asarray(mean)
        if mean.ndim == 2:
            mean = mean[None]
        if mean.ndim not in (1, 3):
            raise ArrayError(f"{in_}: a mean has the shape (c,) or (c, h, w), got {mean.shape}")
        if mean.shape[0] != shape[1]:
            raise ArrayError(f"{in_}: expected a mean of {shape[1]} channels, got {mean.shape[0]}")
        if mean.ndim == 1:
            mean = mean[:, None, None]
        elif mean.shape != shape[1:]:
            mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set what all is multiplied by in the end."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def _shape(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise UnknownNameError(
                f"{in_!r} is not one of the net's inputs: {', '.join(self.inputs)}"
                f"{did_you_mean(str(in_), self.inputs)}"
            )
        return self.inputs[in_]

    def _order(self, in_: str, order: Sequence[int], count: int, what: str) -> Sequence[int]:
        if sorted(order) != list(range(count)):
            raise ArrayError(f"{in_}: expected an order of {count} {what}, got {tuple(order)}")
        return order


def for_pictures(
    inputs: Mapping[str, Sequence[int]],
    mean: np.ndarray | None,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: Sequence[int] | None,
) -> Transformer:
    """The Transformer of pictures (h, w, c) for a net's first input, (n, c, h, w). Raises ArrayError."""
    if not inputs:
        raise ArrayError(
            "the net has no input for pictures: give the deploy net, not one that reads data"
        )
    name, shape = next(iter(inputs.items()))
    if len(shape) != 4:
        raise ArrayError(
            f"{name}: expected an input for pictures, (n, c, h, w), got {tuple(shape)}"
        )
    found = Transformer({name: shape})
    found.set_transpose(name, (2, 0, 1))
    if mean is not None:
        found.set_mean(name, mean)
    if input_scale is not None:
        found.set_input_scale(name, input_scale)
    if raw_scale is not None:
        found.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        found.set_channel_swap(name, channel_swap)
    return found
