"""Random numbers that are a function of a key, the same bits here and on CUDA; and dropout by such numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.dispatch import op
from minicaffe.backends.step_constants import Slots

BLOCK = 8  # numbers of float32 from one step of the counter


def random_key(seed: int, *names: str | int) -> tuple[int, int]:
    """A 128-bit Philox key, as two words, that is a function of (seed, names) alone."""
    text = "\0".join(str(part) for part in (seed, *names)).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def random_stream(seed: int, *names: str | int) -> np.random.Generator:
    """NumPy's generator for (seed, names): the same stream whenever and wherever it is asked for.

    >>> random_stream(1, "conv1", 0).random() == random_stream(1, "conv1", 0).random()
    True
    """
    return _generator(random_key(seed, *names))


def uniform(out: Any, seed: int, *names: str | int, first: int = 0) -> Any:
    """Fill `out` (float32) with numbers in [0, 1), a function of (seed, names) alone, from the `first` on.

    NumPy's Philox4x64-10 and its conversion to float32; the kernel computes the same bits.
    Source: J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.

    >>> a, b = np.empty(5, np.float32), np.empty(5, np.float32)
    >>> bool((uniform(a, 1, "drop", 7) == uniform(b, 1, "drop", 7)).all())
    True
    >>> bool((uniform(b[:2], 1, "drop", 7, first=3) == a[3:]).all())
    True
    """
    return philox(out, random_key(seed, *names), first)


@op(traced=False)
def philox(out: Any, key: tuple[int, int], first: int) -> Any:
    """Fill `out` with a key's numbers from the `first` on."""
    stream = _generator(key)
    if first:
        bits: Any = stream.bit_generator
        bits.advance(first // BLOCK)
        stream.random(first % BLOCK, dtype=out.dtype)
    stream.random(out=out, dtype=out.dtype)


def _generator(key: tuple[int, int]) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))


class Mask:
    """Which entries are `kept`: those whose number, uniform in [0, 1), is `ratio` or more.

    On CUDA only the key is drawn before, into a slot; entries are with `dropout`: a graph can do it anew.

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


@op(traced=False)
def dropout_gradient(dy: Any, mask: Mask, ratio: float, out: Any) -> Any:
    """dx = dy / (1 - ratio) where the mask keeps an entry, 0 elsewhere."""
    dropout(dy, mask, ratio, out)
