"""Random numbers that belong to a sample: a function of a key, an epoch and an entry alone."""

from __future__ import annotations

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


def draws(key: int, epochs: np.ndarray, entries: np.ndarray, count: int) -> np.ndarray:
    """(n, count) numbers of [0, 1): row i is a function of (key, epochs[i], entries[i]), column by column.

    Whatever else is in the batch, and however many columns are asked for, a number stays what it is. Key,
    epoch, entry and column are counted into a state one after the other, mixed by SplitMix64's function.
    Source: G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.

    >>> epochs, entries = np.array([0, 0, 1]), np.array([7, 8, 7])
    >>> bool((draws(1, epochs, entries, 3)[1] == draws(1, epochs[1:2], entries[1:2], 5)[0, :3]).all())
    True
    """
    state = _mixed(np.full(len(entries), key & (2**64 - 1), np.uint64))
    for number in (epochs, entries):
        state = _mixed(state + (number.astype(np.uint64) + np.uint64(1)) * _STEP)
    columns = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    return (_mixed(state[:, None] + columns) >> np.uint64(11)) * 2.0**-53


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Each of 64 bits of what comes out depends on each that goes in."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
