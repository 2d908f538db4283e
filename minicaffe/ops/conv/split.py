"""Into how many parts work is cut, so that all threads have as much of it."""

from __future__ import annotations

ENOUGH = 4  # units a thread, from which on a last one that is alone matters little


def even(units: int, threads: int) -> bool:
    """Whether slices of so many units are of nearly one size.

    >>> even(3, 2), even(4, 2), even(9, 2)
    (False, True, True)
    """
    return units % threads == 0 or units >= ENOUGH * threads


def parts(units: int, threads: int, most: int, least: int = 1) -> int:
    """Into how many parts each unit is cut, `least` to `most`, so that the threads have as much to do.

    >>> parts(1, 2, 16), parts(8, 2, 16), parts(3, 2, 1), parts(1, 2, 3, least=3)
    (2, 1, 1, 3)
    """
    for count in range(least, max(least, most) + 1):
        if even(units * count, threads):
            return count
    return max(least, most)
