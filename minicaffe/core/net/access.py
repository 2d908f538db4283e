"""One pass of a net at a time, whichever thread it is of, and to each thread its own answers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Access:
    """Who may run a net's passes: the holder of `lock`. `shared`: not only the main thread has run one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.shared = False


def in_turns(work: F) -> F:
    """A method of what has an `access`; arrays by name that it returns are copies once that is shared."""

    @functools.wraps(work)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        access = self.access
        with access.lock:
            access.shared |= threading.current_thread() is not threading.main_thread()
            answers = work(self, *args, **kwargs)
            if access.shared and isinstance(answers, dict):
                return {name: array.copy() for name, array in answers.items()}
            return answers

    return cast(F, alone)
