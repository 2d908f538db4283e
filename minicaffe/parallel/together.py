"""What all ranks do or none: an error of one is raised by all, with a line that names the rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minicaffe import errors
from minicaffe.errors import MinicaffeError
from minicaffe.parallel.communicator import Communicator

T = TypeVar("T")


def together(communicator: Communicator, work: Callable[[], T]) -> T:
    """Returns the result of the work. If it fails on a rank, raises the first such MinicaffeError on all.

    No rank goes on before all have done it.
    """
    if communicator.size == 1:
        return work()
    error, result = None, []
    try:
        result.append(work())
    except MinicaffeError as found:
        error = found
    agree(communicator, error)
    return result[0]


def agree(communicator: Communicator, error: MinicaffeError | None) -> None:
    """Raise, on all ranks, the error of the first rank that has one; it is `everywhere` then."""
    if error is not None and (error.everywhere or communicator.size == 1):
        raise error
    told = None if error is None else (type(error).__name__, str(error))
    found = communicator.allgather_obj(told)
    bad = [rank for rank, one in enumerate(found) if one is not None]
    if not bad:
        return
    name, text = found[bad[0]]
    if any(one != found[0] for one in found):
        text = f"rank {bad[0]}: {text}"
    if bad[0] == communicator.rank and error is not None and str(error) == text:
        raised = error
    else:
        raised = getattr(errors, name, MinicaffeError)(text)
    raised.everywhere = True
    raise raised from error


def one_by_one(communicator: Communicator, work: Callable[[], T]) -> T:
    """As `together`, but the first rank of each machine does it before the others.

    So what it measures, and remembers on disk, it measures alone, and the others find it.
    """
    if communicator.size == 1:
        return work()
    found: list[T] = []
    for turn in (True, False):
        if (communicator.local_rank == 0) == turn:
            together(communicator, lambda: found.append(work()))
        else:
            together(communicator, lambda: None)
    return found[0]
