"""The allocator: places buffers that are not all in use at the same time in one block of memory.

    step        0  1  2  3  4          offset
    conv1       #  #                   0        the largest comes first
    conv2          #  #                640      behind conv1, which it meets in step 1
    pool2             #  #             0        conv1 is over
    ip                   #  #          256      behind pool2; conv2 is over

It computes with integers only, and allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

ALIGNED = 64  # bytes: a cache line of the CPU; enough for every load of a GPU


@dataclass(frozen=True)
class Life:
    """A buffer of `size` bytes, in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are in use in some step."""
        return self.first <= other.last and other.first <= self.last

    def longer(self, steps: int) -> Life:
        """The same, in use for that many steps longer in a backward pass.

        >>> Life(640, 1, 2).longer(2)
        Life(size=640, first=0, last=2)
        """
        return replace(self, first=max(0, self.first - steps))

    def covers(self, step: int) -> bool:
        """Whether it is in use in a step."""
        return self.first <= step <= self.last


def place(lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offset of each buffer, and the bytes of the whole block.

    Buffers that meet do not overlap. The largest is placed first; each is placed in the smallest sufficient
    gap among the placed buffers that it meets, else after them. Offsets are multiples
    of ALIGNED. Source: "greedy by size" of Y. Pisarchyk, J. Lee, Efficient Memory Management for Deep
    Neural Net Inference, 2020.

    >>> place([Life(640, 0, 1), Life(320, 1, 2), Life(256, 2, 3), Life(64, 3, 4)])
    ([0, 640, 0, 256], 960)
    """
    offsets, whole = [0] * len(lives), 0
    placed: list[tuple[int, int, int]] = []
    order = sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first, i))
    for i in order:
        size = -(-lives[i].size // ALIGNED) * ALIGNED
        best, smallest, end = None, None, 0
        for start, stop in sorted((a, b) for a, b, j in placed if lives[i].meets(lives[j])):
            gap = start - end
            if gap >= size and (smallest is None or gap < smallest):
                best, smallest = end, gap
            end = max(end, stop)
        offsets[i] = end if best is None else best
        placed.append((offsets[i], offsets[i] + size, i))
        whole = max(whole, offsets[i] + size)
    return offsets, whole
