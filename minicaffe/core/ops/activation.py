"""Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.dispatch import op
from minicaffe.backends.step_constants import Slots
from minicaffe.core.ops.random import random_key, uniform


class Mask:
    """Which entries are `kept`: those whose number, uniform in [0, 1), is `ratio` or more.

    On CUDA only the numbers' key is drawn beforehand, into one of the slots: the entries are with `dropout`,
    so that a graph can do it anew.

    >>> from minicaffe.backends.device import device
    >>> mask = Mask(Slots(device("cpu")), (4,))
    >>> mask.draw(0.5, 1, "drop", 0)
    >>> mask.kept.dtype, mask.kept.shape
    (dtype('bool'), (4,))
    """

    def __init__(self, slots: Slots, shape: tuple[int, ...], first: int = 0):
        self.first = first
        device = slots.device
        self.kept, self.key = aligned.empty(device.xp, shape, np.bool_), slots.take((2,), np.uint64)
        self.noise = None if device.is_cuda else aligned.empty(np, shape, np.float32)

    def draw(self, ratio: float, seed: int, *names: str | int) -> None:
        """Draw it anew, as a function of (seed, names): of that stream the numbers from `first` on."""
        if self.noise is None:
            self.key.put(np.array(random_key(seed, *names), np.uint64))
        else:
            noise = uniform(self.noise, seed, *names, first=self.first)
            np.greater_equal(noise, np.float32(ratio), out=self.kept)


@op(by_calls=True)
def dropout(x: Any, mask: Mask, ratio: float, out: Any) -> Any:
    """y = x / (1 - ratio) where the mask that was drawn keeps an entry, 0 elsewhere.

    >>> from minicaffe.backends.device import device
    >>> mask, x = Mask(Slots(device("cpu")), (4,)), np.ones(4)
    >>> mask.draw(0.5, 1, "drop", 0)
    >>> bool((dropout(x, mask, 0.5, np.empty(4)) == 2 * mask.kept).all())
    True
    """
    np.multiply(x, mask.kept, out=out)
    np.multiply(out, 1 / (1 - ratio), out=out)


@op(by_calls=True)
def dropout_gradient(dy: Any, mask: Mask, ratio: float, out: Any) -> Any:
    """dx = dy / (1 - ratio) where the mask keeps an entry, 0 elsewhere."""
    np.multiply(dy, mask.kept, out=out)
    np.multiply(out, 1 / (1 - ratio), out=out)
