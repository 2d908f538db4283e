"""Which layers can be said in ONNX, and by what: a writer for each type, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Writer = Callable[..., Any]
WRITERS: dict[str, Writer] = {}
REFUSED: dict[str, str] = {}  # why a net with such a layer cannot be written
LEFT_OUT: dict[str, str] = {}  # why a net is written without such layers
DRAWN: dict[
    tuple[str, int], Callable[..., Any]
] = {}  # what a bottom must hold for the layer to run
JUMPS: set[str] = set()  # whose tops may leap where a bottom changes by a rounding error


def writes(*types: str, jumps: bool = False) -> Callable[[Writer], Writer]:
    """Make a function the writer of layers of these types.

    It is called with the graph, the step and the names of the step's bottoms, and returns the name of its
    top, or those of its tops; it raises SpecError for keys that cannot be said. `jumps`: a rounding error in
    a bottom may become a difference of any size in a top. A writer of one's own may stand in for ours.
    """

    def register(writer: Writer) -> Writer:
        ours = writer.__module__.startswith("minicaffe.")
        assert not (ours and WRITERS.keys() & set(types)), "a type has one writer"
        WRITERS.update(dict.fromkeys(types, writer))
        JUMPS.update(types if jumps else ())
        return writer

    return register


def draws(kind: str, bottom: int) -> Callable[[Writer], Writer]:
    """Make a function that of a random generator, a step and a shape returns numbers fit for such a bottom.

    A bottom below 0 is counted from the last.
    """

    def register(draw: Writer) -> Writer:
        DRAWN[kind, bottom] = draw
        return draw

    return register


def refuses(why: str, *types: str) -> None:
    """Have layers of these types refused for a reason."""
    REFUSED.update(dict.fromkeys(types, why))


def leaves_out(why: str, *types: str) -> None:
    """Have layers of these types, and what reads their tops, left out for a reason."""
    LEFT_OUT.update(dict.fromkeys(types, why))
