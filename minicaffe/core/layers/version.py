"""A version of what passes assume: each change of it makes another; the guards of replays compare it."""

from __future__ import annotations

import itertools
import operator
from typing import Any, ClassVar

_numbers = itertools.count(1)


class Versioned:
    """The base of what passes assume: setting a field of the dataclass, or one of `_assumed`, is a change.

    `version` is one for all objects, so that a guard compares one number. No two changes have the same, also
    of several threads.

    >>> class Scale(Versioned):
    ...     _assumed = frozenset({"factor"})
    >>> scale, before = Scale(), Versioned.version
    >>> scale.other = 1
    >>> Versioned.version == before
    True
    >>> scale.factor = 2
    >>> Versioned.version == before
    False
    """

    version: ClassVar[int] = 0
    _assumed: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        self._changed(name)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._changed(name)

    def _changed(self, name: str) -> None:
        if name in self._assumed or name in getattr(self, "__dataclass_fields__", ()):
            another()


def another() -> None:
    """Make another version: something that passes assume has just been changed."""
    Versioned.version = next(_numbers)


def assumed(name: str) -> Any:
    """A property that is held in the attribute `name`; setting it makes another version."""

    def change(self: Any, value: Any) -> None:
        setattr(self, name, value)
        another()

    return property(operator.attrgetter(name), change)
