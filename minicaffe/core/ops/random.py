"""Random numbers that are a function of a key, here and on CUDA: the same bits on every device."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op

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
