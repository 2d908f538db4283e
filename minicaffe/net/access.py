"""One pass of a net at a time, whichever thread it is of, and to each thread its own answers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Access:
    """Who may run a net's passes: the holder of `lock`, which threads take in turns.

    `shared`: another thread than the main one has run a pass, so that what a pass returns must be copies.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.shared = False


def in_turns(work: F) -> F:
    """A method, of what has an `access`, that runs a pass and returns arrays by name, or None."""

    @functools.wraps(work)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        access = self.access
        with access.lock:
            access.shared |= threading.current_thread() is not threading.main_thread()
            answers = work(self, *args, **kwargs)
            if access.shared and answers is not None:
                return {name: array.copy() for name, array in answers.items()}
            return answers

    return cast(F, alone)
