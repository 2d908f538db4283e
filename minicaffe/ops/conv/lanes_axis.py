"""One axis of a convolution, for `lanes_tables`: which elements of the kernel meet which pixels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Phase(NamedTuple):
    """Results that see the source at their bases + deltas, by these elements of the kernel."""

    results: np.ndarray
    bases: np.ndarray
    elements: np.ndarray
    deltas: np.ndarray


@dataclass(frozen=True)
class Axis:
    """`size` results, which see source pixels begin .. begin + extent, of which 0 .. source are there.

    With `least`, so many neighbours at the least make a phase, without the elements that see padding only.
    """

    size: int
    source: int
    kernel: int
    stride: int
    pad: int
    dilation: int
    turned: bool
    least: int = 0

    @functools.cached_property
    def phases(self) -> list[Phase]:
        """All of them, in the order of their remainders by the stride.

        >>> [len(phase.results) for phase in Axis(6, 4, 3, 1, 0, 1, True).phases]
        [6]
        >>> [phase.elements.tolist() for phase in Axis(6, 4, 3, 1, 0, 1, True, 1).phases]
        [[0], [0, 1], [0, 1, 2], [1, 2], [2]]
        """
        results, reach = np.arange(self.size), np.arange(self.kernel) * self.dilation
        if not self.turned:
            deltas = reach - self.pad
            return self._parts(
                Phase(results, results * self.stride, np.arange(self.kernel), deltas)
            )
        bases, remainders = np.divmod(results + self.pad, self.stride)
        found = []
        for remainder in np.unique(remainders):
            own = remainders == remainder
            elements = np.flatnonzero((reach - remainder) % self.stride == 0)
            deltas = (remainder - reach[elements]) // self.stride
            found += self._parts(Phase(results[own], bases[own], elements, deltas))
        return found

    def _parts(self, phase: Phase) -> list[Phase]:
        """A phase as neighbours that see the same elements."""
        if not self.least:
            return [phase]
        size = len(phase.results)
        count = max(1, size // self.least)
        pixels = phase.bases[:, None] + phase.deltas
        inside = (pixels >= 0) & (pixels < self.source)
        parts: list[tuple[int, int, np.ndarray]] = []
        for i in range(count):
            first, last = size * i // count, size * (i + 1) // count
            seen = inside[first:last].any(axis=0)
            if parts and (parts[-1][2] == seen).all():
                first = parts.pop()[0]
            parts.append((first, last, seen))
        results, bases, elements, deltas = phase
        return [
            Phase(results[first:last], bases[first:last], elements[seen], deltas[seen])
            for first, last, seen in parts
        ]

    @functools.cached_property
    def _range(self) -> tuple[int, int]:
        seen = [
            base + delta
            for _, bases, _, deltas in self.phases
            if deltas.size
            for base in (bases.min(), bases.max())
            for delta in (deltas.min(), deltas.max())
        ]
        return (int(min(seen)), int(max(seen)) + 1) if seen else (0, 1)

    @property
    def begin(self) -> int:
        """The first pixel that is seen; before the image there are zeros."""
        return self._range[0]

    @property
    def extent(self) -> int:
        """Pixels from the first that is seen to the last."""
        return self._range[1] - self._range[0]
