"""Work that threads share: each has a piece of it."""

from __future__ import annotations

from typing import Any


class Piece:
    """An argument of a loop: a flat buffer, of which each slice gets an equal piece of its own."""

    def __init__(self, work: Any):
        self.work = work
