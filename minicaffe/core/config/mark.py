"""A value of a model file, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mark:
    """A place in a file, by line and column from 1; in what has no lines, by the path of keys to it.

    What stands in a block has a second place, `used`: where the block, or its argument, is given.

    >>> str(Mark("net.yaml", 7, 5)), str(Mark("<mapping>", path="layers[2].name"))
    ('net.yaml:7:5', '<mapping>:layers[2].name')
    >>> str(Mark("net.yaml", 7, 5, used=Mark("net.yaml", 40, 3)))
    'net.yaml:7:5: in a block used at net.yaml:40:3'
    """

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    used: Mark | None = None

    @property
    def within(self) -> str:
        """The place as a message says it that has named the file before."""
        place = f"line {self.line}" if self.line else self.path or self.file
        return f"{place}, in a block used at {self.used.within}" if self.used else place

    @property
    def outermost(self) -> Mark:
        """The place that stands in no block: of what does, where that is used."""
        return self.used.outermost if self.used else self

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}" if self.line else self.path
        place = f"{self.file}:{place}" if place else self.file
        return f"{place}: in a block used at {self.used}" if self.used else place


@dataclass(frozen=True)
class Comment:
    """A comment without its `#`, and where it stood: alone on its line or behind something."""

    line: int
    column: int
    text: str
    alone: bool


@dataclass(frozen=True)
class Node:
    """A YAML value and its place: a scalar, a list of nodes, or a mapping of names to nodes."""

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)
