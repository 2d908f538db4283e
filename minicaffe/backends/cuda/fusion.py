"""What CUDA is asked for in a graph, where two kernels can be one: the same values, to the bit, in less time.

    y = weight x + bias                     y = max(0, weight x + bias)
    y = max(0, y)                    ->

    y = max(0, weight x + bias)             y = max(0, weight x + bias)
    z = max of 2 x 2 pixels of y     ->     z = max of 2 x 2 pixels of y

    dx = gradient of a pooling of dy        dx = gradient of a pooling of dy, where y > 0
    dx = dx where y > 0              ->

    y = (x - mean) rate                     y = (x - mean) rate,  z = a y + b,  s = max(0, z + other)
    z = a y + b                      ->
    s = z + other
    s = max(0, s)

    da += sum of dz y, db += sum of dz      da, db, dy and dx in one
    dy = a dz                        ->
    dx = gradient of a BatchNorm of dy

    loss of the softmax of x                loss and dx in one, where the normalizer is known
    dx = gradient of the loss        ->

    part = weight' dz                       dx += weight' dz
    dx += part                       ->

All that is written is written as before, but for the `part` of the last. Layers know nothing of this: they
ask for their kernels, and one is held back until it is known what comes next. What CuPy does behind such a
kernel must be asked for as well, as ops.arrays does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from minicaffe.backends.cuda.fusion_rules import FILL, FIRST, SECOND, apart, clear
from minicaffe.backends.launch_listener import Asked, heard, hearing


class Joined:
    """Hears what is asked for while it `holds`: of two that can be one the first is not done alone."""

    def __init__(self) -> None:
        self.outer, self.holds = hearing(), True
        self.held: Asked | None = None

    def host(self, why: str) -> None:
        """What no graph can hold."""
        if self.outer is not None:
            self.outer.host(why)

    def launched(self, asked: Asked) -> bool:
        """Whether it is to be done now."""
        if self.held is not None and asked.name == FILL and apart(self.held, asked):
            held, self.held = self.held, None  # it may as well come before
            asked.do(asked.args)
            self.held = held
            return False
        one = together(self.held, asked) if self.held is not None else None
        if one is None:
            self.end()
        if one is None and not (self.holds and asked.name in FIRST):
            return True
        self.held = one or asked
        return False

    def end(self) -> None:
        """Have done what is held back: nothing that comes is to be one with it."""
        held, self.held = self.held, None
        if held is not None:
            held.do(held.args)


@contextlib.contextmanager
def joined() -> Iterator[Joined]:
    """Within it two kernels are one wherever they can be."""
    with heard(Joined()) as by:
        yield by
        by.end()


def may_begin(launches: Sequence[Any]) -> bool:
    """Whether some work, as a recording has it, may be one with what comes before it."""
    begin = [name for name, *_ in launches if name != FILL]
    return any(name in SECOND for name in begin[:1])


def together(first: Asked, then: Asked) -> Asked | None:
    """What does all that two do, to the bit, if something can.

    Of arrays that one of them is given and one the other, none reaches into the other: blocks of one kernel do
    not wait for each other, and a buffer may lie where another was no longer needed. They may be the same.
    """
    join = SECOND.get(then.name)
    one = None if join is None else join(first, then)
    return one if one is None or clear(first, then) else None
