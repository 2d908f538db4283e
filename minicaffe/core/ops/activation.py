"""Dropout, and how a compiled loop runs over all entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import aligned, loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.step_constants import Slots
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.arrays import GRAIN
from minicaffe.core.ops.random import blocks_of, random_key, uniform
from minicaffe.core.ops.typed import number
from minicaffe.errors import ShapeError

LONG = 2**17  # elements from which threads pay NumPy


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


def dropout(x: Any, mask: Mask, ratio: float, out: Any) -> Any:
    """y = x / (1 - ratio) where the mask that was drawn keeps an entry, 0 elsewhere.

    >>> from minicaffe.backends.device import device
    >>> mask, x = Mask(Slots(device("cpu")), (4,)), np.ones(4)
    >>> mask.draw(0.5, 1, "drop", 0)
    >>> bool((dropout(x, mask, 0.5, np.empty(4)) == 2 * mask.kept).all())
    True
    """
    if on_cuda(x):
        scale = number(1 / (1 - ratio), x)
        told = mask.key.there, np.uint64(mask.first), x.size, np.float32(ratio), scale
        blocks = blocks_of(x.size, mask.first)
        launch("random.cu", "dropout", blocks, x, *told, x, mask.kept, out)
        return out
    return _masked(x, mask.kept, 1 / (1 - ratio), out)


def dropout_gradient(dy: Any, mask: Mask, ratio: float, out: Any) -> Any:
    """dx = dy / (1 - ratio) where the mask keeps an entry, 0 elsewhere."""
    if on_cuda(dy):
        given = dy, mask.kept, number(1 / (1 - ratio), dy), None, out
        launch("random.cu", "dropout_gradient", dy.size, dy, *given)
        return out
    return _masked(dy, mask.kept, 1 / (1 - ratio), out)


def _masked(x: Any, kept: Any, scale: float, out: Any) -> Any:
    fast = loops("elementwise", x.dtype)
    if fast is not None:
        run_loop(fast.dropout, out, x, kept, x.dtype.type(scale))
        return out
    do(np.multiply, x, kept, out=out)
    return do(np.multiply, out, scale, out=out)


def run_loop(loop: Any, out: Any, *args: Any) -> None:
    """Run a compiled element-wise loop over all of `out`: arrays go flat, numbers as they are."""
    sizes = {arg.size for arg in args if isinstance(arg, np.ndarray)}
    if sizes != {out.size}:  # a loop does not look where an array ends
        raise ShapeError(f"arrays of {sorted(sizes | {out.size})} elements do not go together")
    flat = [arg.reshape(-1) if isinstance(arg, np.ndarray) else arg for arg in (*args, out)]
    run(loop, out.size, *flat, grain=GRAIN)
