"""What the ranks of a run say to each other, under MPI's names, and what all do or none.

This is the form of a process that is alone; those of several, and what their solvers do together, are in
tools/parallel/. An error of one rank is raised by all, with a line that names the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from minicaffe import errors
from minicaffe.backends.device import Device, device
from minicaffe.errors import MinicaffeError, note

Work = Callable[[], object]
T = TypeVar("T")


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
        return lambda: None

    def allreduce_init(self, array: Any) -> Work:
        """What `allreduce` does with this array, whenever it is called, as MPI-4's persistent collectives.

        This one, and the two below, all ranks must ask for together: it may take memory that they share.
        """
        return partial(self.allreduce, array)

    def reduce_scatter_init(self, array: Any) -> Work:
        """What makes, of a flat array, the part of this rank that of the sum; the rest stays as it was.

        Part r of n entries are those from n r / size, rounded down, to n (r + 1) / size: `bounds`.
        """
        return lambda: None

    def allgather_init(self, array: Any) -> Work:
        """What makes, of a flat array, each part what the rank has there whose part it is."""
        return lambda: None

    def bounds(self, n: int) -> list[int]:
        """Where the ranks' parts of n entries begin, and the last one's end."""
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

    def note(self, text: str) -> None:
        """Print what a rank beside the first reports of its data."""
        note(f"rank {self.rank}: {text}")

    def abort(self, code: int) -> None:
        """End all ranks at once, wherever they are."""
        raise SystemExit(code)

    def on(self, device: Device) -> Communicator:
        """The same ranks for arrays of a device."""
        return self

    def check_net(self, net: Any, built: Any) -> None:
        """Raise SpecError, on all ranks, for a net of which each cannot compute a part of the batch."""

    def solver_ranks(self, net: Any, laid: Any, watch: Any, late: bool, dtype: Any) -> OneRank:
        """Returns what the solvers of all ranks do together."""
        if self.size > 1:
            raise NotImplementedError(f"{type(self).__name__}: ranks that train nothing together")
        return OneRank()


ALONE = Communicator()


def together(communicator: Communicator, work: Callable[[], T]) -> T:
    """Returns what the work gives, once all ranks have done it; raises the first failure on all of them."""
    if communicator.size == 1:
        return work()
    error, result = None, []
    try:
        result.append(work())
    except MinicaffeError as raised:
        error = raised
    agree(communicator, error)
    return result[0]


def agree(communicator: Communicator, error: MinicaffeError | None) -> None:
    """Raise, on all ranks, the error of the first rank that has one; it is `everywhere` then."""
    if error is not None and (error.everywhere or communicator.size == 1):
        raise error
    mine = None if error is None else (type(error).__name__, str(error))
    by_rank = communicator.allgather_obj(mine)
    bad = [rank for rank, one in enumerate(by_rank) if one is not None]
    if not bad:
        return
    name, text = by_rank[bad[0]]
    if any(one != by_rank[0] for one in by_rank):
        text = f"rank {bad[0]}: {text}"
    if bad[0] == communicator.rank and error is not None and str(error) == text:
        raised = error
    else:
        raised = getattr(errors, name, MinicaffeError)(text)
    raised.everywhere = True
    raise raised from error


def one_by_one(communicator: Communicator, work: Callable[[], T]) -> T:
    """As `together`, the first rank of each machine before the others: they find what it has measured."""
    if communicator.size == 1:
        return work()
    results: list[T] = []
    for turn in (True, False):
        if (communicator.local_rank == 0) == turn:
            together(communicator, lambda: results.append(work()))
        else:
            together(communicator, lambda: None)
    return results[0]


def device_of(asked: str | None, communicator: Communicator) -> Device:
    """The device asked for, or found; where that is CUDA, and no GPU is named, the GPU of this rank."""
    default = device(asked)
    if communicator.size == 1 or not default.is_cuda or asked not in (None, "cuda"):
        return default
    return device(f"cuda:{communicator.local_rank}")


class Parts:
    """The parts of an iteration, each of which is done at once."""

    def do(self, what: str, work: Callable[[], Any]) -> None:
        """Do a part, which has a name."""
        work()

    def sum(
        self, work: Callable[[], Any], what: str = "a sum over ranks", restores: bool = False
    ) -> None:
        """Sum over ranks. `restores`: the work looks at which gradients are stale."""
        work()


class OneRank:
    """What one rank alone does with others: nothing. Of several see tools/parallel/ranks.py."""

    several = False
    late = True  # whether gradients are summed after the backward pass
    shared: Any = None  # this rank's part of a sharded update: `gradients`, and `stretches`
    signals: Any = None  # they may ask this rank to stop or to save

    def check_alike(self, solver: Any) -> None:
        """Raise SpecError, on all ranks, unless all have the same model, data and settings."""

    def begin_alike(self, solver: Any) -> None:
        """Send rank 0's state to all ranks, once."""
        solver._alike = True

    def asked(self, solver: Any) -> bool:
        """True if any rank was asked for a snapshot; also notes whether any was asked to stop."""
        solver._asked_to_stop = self.signals is not None and self.signals.asked
        return self.signals is not None and self.signals.snapshot_asked()

    def iterate(self, work: Callable[[], None]) -> None:
        """Do a whole iteration on all ranks. An error on one rank is raised on all."""
        work()

    def run(self, work: Callable[[], None]) -> None:
        """Do the passes of an iteration on all ranks. An error on one rank is raised on all."""
        work()

    def agree(self) -> None:
        """Exchange requests and errors. An error on one rank is raised on all."""

    def agree_between(self, iteration: Any) -> None:
        """Agree on the CPU, between passes and update, whether to go on."""

    def then(self, step: Any) -> Callable[[], Any] | None:
        """Called after a layer has run backward: starts the sums that can start."""
        return None

    def reduce(self, iteration: Any) -> None:
        """Sum gradients and loss over the ranks, part by part of an iteration."""

    def step(self, iteration: Any) -> None:
        """Do the rule's step, of this rank's part of a sharded update."""
        iteration.do(iteration.spec.type, iteration.rule.step)

    def share_no_more(self) -> None:
        """From now on each rank does the whole update."""

    def before_snapshot(self) -> None:
        """Collect all that a snapshot holds on this rank."""
