"""How much work something is, on any machine: the functions that it calls, which no clock need tell."""

import sys
from collections.abc import Callable
from typing import Any


def calls(work: Callable[..., object], *args: Any) -> int:
    """Returns how often work(*args) enters or leaves a function, of Python's or of C's."""
    count = 0

    def add(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(add)
    try:
        work(*args)
    finally:
        sys.setprofile(None)
    return count
