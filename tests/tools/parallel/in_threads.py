"""Ranks that are threads of one process: a communicator to test with where there is no MPI, and many times."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minicaffe.tools.parallel import Communicator
from minicaffe.tools.parallel.ranks import Several


class Room:
    """Where so many ranks meet."""

    def __init__(self, size: int):
        self.size, self.barrier = size, threading.Barrier(size, timeout=600)
        self.brought: list[Any] = [None] * size

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        """What all have brought."""
        self.brought[rank] = thing
        self.barrier.wait()
        found = list(self.brought)
        self.barrier.wait()
        return found


class Threaded(Several):
    """A rank that is a thread. What is summed is summed in the order of the ranks, and not before it is waited for."""

    name = "threads"

    def __init__(self, room: Room, rank: int, overlaps: bool = True):
        self.room, self.rank, self.size = room, rank, room.size
        self.overlaps = overlaps
        self.local_rank, self.local_size = rank, room.size
        self.calls: list[str] = []  # what was asked for, in order
        self.under_way = 0

    def allreduce(self, array: Any) -> Any:
        self.calls.append(f"sum of {array.size}")
        return self._sum(array)

    def _sum(self, array: Any) -> Any:
        arrays = self.room.exchange(self.rank, array)
        assert len({one.shape for one in arrays}) == 1, "ranks sum arrays of different shapes"
        total = sum(np.array(one) for one in arrays)
        self.room.barrier.wait()
        array[...] = total
        return array

    def iallreduce(self, array: Any) -> Callable[[], object]:
        self.calls.append(f"begin {array.size}")
        self.under_way += 1
        before = array.tobytes()

        def wait() -> None:
            assert array.tobytes() == before, "an array was written while it was summed"
            self.under_way -= 1
            self._sum(array)

        return wait

    def reduce_scatter_init(self, array: Any) -> Callable[[], object]:
        return partial(self._reduce_scatter, array)

    def _reduce_scatter(self, array: Any) -> None:
        self.calls.append(f"part of {array.size}")
        first, last = self.bounds(array.size)[self.rank : self.rank + 2]
        total = sum(np.array(one[first:last]) for one in self.room.exchange(self.rank, array))
        self.room.barrier.wait()
        array[array != 0] = np.nan  # nobody is to read the rest, of which zeros stay what they are
        array[first:last] = total

    def allgather_init(self, array: Any) -> Callable[[], object]:
        return partial(self._allgather, array)

    def _allgather(self, array: Any) -> None:
        self.calls.append(f"gather {array.size}")
        bounds = self.bounds(array.size)
        for rank, part in enumerate([one.copy() for one in self.room.exchange(self.rank, array)]):
            here = slice(*bounds[rank : rank + 2])
            array[here] = part[here]
        self.room.barrier.wait()

    def bcast(self, array: Any) -> Any:
        array[...] = np.array(self.room.exchange(self.rank, array)[0])
        self.room.barrier.wait()
        return array

    def bcast_obj(self, thing: Any) -> Any:
        return self.room.exchange(self.rank, thing)[0]

    def allgather_obj(self, thing: Any) -> list[Any]:
        return self.room.exchange(self.rank, thing)

    def barrier(self) -> None:
        self.room.barrier.wait()

    def abort(self, code: int) -> None:
        self.room.barrier.abort()
        raise SystemExit(code)


def on_ranks(size: int, work: Callable[[Communicator], Any], overlaps: bool = True) -> list[Any]:
    """What `work` gives on each of so many ranks; raises what it raises on the first that it does."""
    room = Room(size)
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = work(Threaded(room, rank, overlaps))
        except BaseException as error:
            errors[rank] = error
            if not getattr(error, "everywhere", False):
                room.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [
        error for error in errors.values() if not isinstance(error, threading.BrokenBarrierError)
    ]
    if real or errors:
        raise (real or list(errors.values()))[0]
    return results
