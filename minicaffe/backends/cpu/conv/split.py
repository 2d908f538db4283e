"""Partition: into how many parts work is cut, so that all threads have equally much."""

from __future__ import annotations

import functools

ENOUGH = 4  # units for each thread from which on one thread with a unit more matters little


@functools.lru_cache(maxsize=4096)
def even(units: int, threads: int) -> bool:
    """Whether `units` split over threads into slices of nearly one size.

    >>> even(3, 2), even(4, 2), even(9, 2)
    (False, True, True)
    """
    return units % threads == 0 or units >= ENOUGH * threads


@functools.lru_cache(maxsize=4096)
def parts(units: int, threads: int, most: int, least: int = 1) -> int:
    """Returns into how many parts to cut each unit, `least` to `most`, so that threads have equally much.

    >>> parts(1, 2, 16), parts(8, 2, 16), parts(3, 2, 1), parts(1, 2, 3, least=3)
    (2, 1, 1, 3)
    """
    for count in range(least, max(least, most) + 1):
        if even(units * count, threads):
            return count
    return max(least, most)
