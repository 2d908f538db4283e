"""What ranks say to each other, under MPI's names: the form of a process that is alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Work = Callable[[], object]


class Communicator:
    """The ranks of a run, of which this process is `rank`, from 0 to `size` - 1; here the only one.

    Arrays and Python objects go apart, as in MPI. All ranks must call the same in the same order.

    >>> one = Communicator()
    >>> one.rank, one.size, one.bcast_obj("from rank 0"), one.allgather_obj(7)
    (0, 1, 'from rank 0', [7])
    """

    rank, size = 0, 1
    local_rank, local_size = 0, 1  # among the ranks of this machine
    name = "none"
    overlaps = True  # whether a sum that has begun goes on while the ranks compute

    def allreduce(self, array: Any) -> Any:
        """The array, in place the sum of all ranks' arrays: the same bits on each."""
        return array

    def iallreduce(self, array: Any) -> Work:
        """Begin `allreduce`; the array is untouched by others until what is given back, called, returns."""
        return _nothing

    def allreduce_init(self, array: Any) -> Work:
        """What `allreduce` does with this array, whenever it is called, as MPI-4's persistent collectives.

        This one, and the two below, all ranks must ask for together: it may take memory that they share.
        """
        return partial(self.allreduce, array)

    def reduce_scatter_init(self, array: Any) -> Work:
        """What makes, of a flat array, the part of this rank that of the sum; the rest stays as it was.

        Part r of n entries are those from n r / size, rounded down, to n (r + 1) / size: `bounds`.
        """
        return _nothing

    def allgather_init(self, array: Any) -> Work:
        """What makes, of a flat array, each part what the rank has there whose part it is."""
        return _nothing

    def bounds(self, n: int) -> list[int]:
        """Where the ranks' parts of n entries begin, and the last one's end.

        >>> Communicator().bounds(9)
        [0, 9]
        """
        return [n * rank // self.size for rank in range(self.size + 1)]

    def progress(self) -> None:
        """Have what is under way go on, where the library needs to be called for that."""

    def bcast(self, array: Any) -> Any:
        """The array, in place that of rank 0."""
        return array

    def bcast_obj(self, thing: Any) -> Any:
        """A Python object of rank 0."""
        return thing

    def allgather_obj(self, thing: Any) -> list[Any]:
        """The objects of all ranks, by rank."""
        return [thing]

    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def abort(self, code: int) -> None:
        """End all ranks at once, wherever they are."""
        raise SystemExit(code)


def _nothing() -> None:
    """An array of one rank is its sum."""


ALONE = Communicator()
