"""Uniform random numbers that are a function of a key: the same bits on every device."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backend import launch, on_cuda, random_key, random_stream


def uniform(out: Any, seed: int, *names: str | int) -> Any:
    """Fill `out` (float32) with numbers in [0, 1), a function of (seed, names) alone.

    NumPy's Philox4x64-10 and its conversion to float32; the kernel computes the same bits.
    Source: J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.

    >>> a, b = np.empty(5, np.float32), np.empty(5, np.float32)
    >>> bool((uniform(a, 1, "drop", 7) == uniform(b, 1, "drop", 7)).all())
    True
    """
    if on_cuda(out):
        low, high = random_key(seed, *names)
        blocks = (out.size + 7) // 8
        launch("random.cu", "uniform", blocks, out, np.uint64(low), np.uint64(high), out.size, out)
        return out
    return random_stream(seed, *names).random(out=out, dtype=out.dtype)
