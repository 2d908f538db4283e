"""The one gate to CUDA: whoever listens hears what a thread asks of it, and says whether that is done now.

A graph is captured, and a step is traced, by listening here.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from minicaffe.backends.thread_state import state


class Asked(NamedTuple):
    """Work for CUDA: a kernel or a function of CuPy's, its arguments, how it is done, what it compiles."""

    name: str
    types: str
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    do: Callable[[Any], object]  # given this
    instance: tuple[str, str, int] | None = None


@contextlib.contextmanager
def heard(by: Any) -> Iterator[Any]:
    """Within it `by` hears of CUDA's work: by.launched(asked), which says if it is done now, by.host(why)."""
    before, state.listener = hearing(), by
    try:
        yield by
    finally:
        state.listener = before


def hearing() -> Any:
    """Who hears what this thread asks of CUDA; None if nobody does."""
    return state.listener


def ask(*work: Any) -> None:
    """Have some work done, which is `Asked` of these; or not, if somebody hears it who says no."""
    asked = Asked(*work)
    if (by := hearing()) is None or by.launched(asked):
        asked.do(asked)


def tell(why: str) -> None:
    """Say that CUDA is asked for what no graph can hold, if somebody hears it."""
    if (by := hearing()) is not None:
        by.host(why)
