"""Random numbers that are a function of a key, here and on CUDA: the same bits on every device."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda

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
    low, high = random_key(seed, *names)
    return np.random.Generator(np.random.Philox(key=np.array([low, high], dtype=np.uint64)))


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
    if on_cuda(out):
        low, high = random_key(seed, *names)
        given = np.uint64(low), np.uint64(high), np.uint64(first), out.size, out
        launch("random.cu", "uniform", blocks_of(out.size, first), out, *given)
        return out
    stream = random_stream(seed, *names)
    if first:
        bits: Any = stream.bit_generator
        bits.advance(first // BLOCK)
        stream.random(first % BLOCK, dtype=out.dtype)
    return stream.random(out=out, dtype=out.dtype)


def blocks_of(count: int, first: int = 0) -> int:
    """How many of the stream's blocks hold so many numbers from the `first` on.

    >>> blocks_of(8), blocks_of(8, first=7)
    (1, 2)
    """
    return (first % BLOCK + count + BLOCK - 1) // BLOCK
