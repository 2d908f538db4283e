"""Ranks that MPI started: mpi4py, on any MPI that it was built for; between GPUs NCCL adds, by way of CuPy."""

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from minicaffe.backends.device import Device, on_cuda
from minicaffe.backends.launch_listener import ask
from minicaffe.core.communicator import Communicator, Work
from minicaffe.errors import DeviceError
from minicaffe.tools.parallel.ranks import Several

try:
    from mpi4py import MPI
except RuntimeError as error:  # it finds no library of MPI
    raise ImportError(str(error)) from None

LENT = 2**21  # bytes that a rank lends at a time, so that they stay in the caches,
TOGETHER = 2**24  # and all ranks of a machine
KNOWN = 4  # pieces of an array of which it is known beforehand what lies where
WORTH = 2**16  # bytes of an array from which messages take longer than memory that is shared
PASSED_ON = 0.2  # seconds in which mpiexec reads what a rank has said, and passes it on
Places = Sequence[tuple[int, int, Any]]  # whose memory, which part of it, and an array of its kind
Make = Callable[[list[Any]], Work]


class Window:
    """What each rank lends the others: a part of an array for each of them.

    Of a sum each rank adds one part, which the others then read: the same bits on all, and whenever it is
    taken anew, for rank r adds in the order r, r + 1, ..., size - 1, 0, ..., r - 1. MPI has the ranks meet
    once behind what is lent; what is lent next goes into the other half of the memory, and behind that
    meeting the first is free again. All must call the same in the same order, with arrays of one size.
    Source: T. Hoefler et al., MPI + MPI: a new hybrid approach to parallel programming with MPI plus shared
    memory, Computing 95, 2013.
    """

    def __init__(self, comm: Any):
        self.rank, size = comm.Get_rank(), comm.Get_size()
        self.others = [rank % size for rank in range(self.rank + 1, self.rank + size)]
        self.each = max(64, min(LENT, TOGETHER // size) // size // 64 * 64)  # bytes of a part
        self.window = MPI.Win.Allocate_shared(2 * self.each * size, 1, comm=comm)
        memories = (np.asarray(self.window.Shared_query(rank)[0]) for rank in range(size))
        self.halves = [one.view(np.uint8).reshape(2, size, self.each) for one in memories]
        self.half = 0

    def adding(self, array: Any, bounds: Sequence[int], share: bool = False) -> Work:
        """What makes the part of this rank that of the sum; and `share` it, so that the array is the sum."""
        return self._in_pieces(array, bounds, [self._adds] + [self._shares] * share)

    def sharing(self, array: Any, bounds: Sequence[int]) -> Work:
        """What has each part from the rank whose it is."""
        return self._in_pieces(array, bounds, [self._shares])

    def _in_pieces(self, array: Any, bounds: Sequence[int], works: Sequence[Make]) -> Work:
        """Works on as much of the part of each rank as is lent at a time, piece by piece."""
        parts, count = [array[a:b] for a, b in pairwise(bounds)], self.each // array.itemsize
        pieces = [
            [part[start : start + count] for part in parts]
            for start in range(0, max(part.size for part in parts), count)
        ]
        known = [work(piece) for piece in pieces[:KNOWN] for work in works]

        def do() -> None:
            for work in known:
                work()
            for piece in pieces[KNOWN:]:
                for make in works:
                    make(piece)()

        return do

    def _adds(self, parts: list[Any]) -> Work:
        lent = [(self.rank, rank, parts[rank]) for rank in self.others]
        read = [(rank, self.rank, parts[self.rank]) for rank in self.others]
        return self._exchange(lent, read, lambda theirs, part: np.add(part, theirs, out=part))

    def _shares(self, parts: list[Any]) -> Work:
        lent = [(self.rank, self.rank, parts[self.rank])]
        read = [(rank, rank, parts[rank]) for rank in self.others]
        return self._exchange(lent, read, lambda theirs, part: np.copyto(part, theirs))

    def _exchange(self, lends: Places, reads: Places, take: Callable[[Any, Any], Any]) -> Work:
        """What lends parts to the others, and takes theirs."""
        lent, read = self._lent(lends), self._lent(reads)

        def exchange() -> None:
            self.half = half = 1 - self.half
            for memory, part in lent[half]:
                memory[...] = part
            self.window.Fence()
            with np.errstate(all="ignore"):  # MPI's sums say nothing either
                for memory, part in read[half]:
                    take(memory, part)

        return exchange

    def _lent(self, places: Places) -> list[list[tuple[Any, Any]]]:
        """By half: what a rank lends of a part, each beside the array it is as long as, and of whose type."""

        def lent(half: int, rank: int, part: int, like: Any) -> tuple[Any, Any]:
            return self.halves[rank][half, part, : like.nbytes].view(like.dtype), like

        return [[lent(half, *place) for place in places] for half in (0, 1)]


class Mpi(Several):
    """The ranks of an MPI communicator, all of them unless another is given; arrays are NumPy's, contiguous.

    Between machines sums are messages: of so many ranks they have the same bits each time where MPI's library
    adds in one order, as MPICH and Open MPI do between the same places. Long arrays of ranks of one machine
    are summed in memory that they share (see `Window`). A sum `overlaps` work where there are several
    machines: in the memory of one it is work of the same processors, and takes longer in between
    (docs/scale.md).
    """

    def __init__(self, comm: Any = None):
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        beside = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = beside.Get_rank(), beside.Get_size()
        beside.Free()
        self.overlaps = self.local_size < self.size
        self.node = MPI.Get_processor_name()
        self.under_way: list[Any] = []
        if self.size > 1:
            sys.excepthook = partial(self._ends, sys.excepthook)

    def _ends(self, before: Callable[..., Any], *error: Any) -> None:
        """Nobody waits for a rank that an exception has ended."""
        before(*error)
        sys.stderr.flush()
        self.abort(1)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The library, in its own words."""
        return library()

    @functools.cached_property
    def window(self) -> Window:
        """The memory that all ranks share. Made by all of them together."""
        return Window(self.comm)

    def _lies_near(self, array: Any) -> bool:
        """Whether an array is taken through memory that all ranks share, not in messages."""
        near = self.local_size == self.size > 1 and isinstance(array, np.ndarray)
        return near and array.nbytes >= WORTH and array.flags.c_contiguous

    def on(self, device: Device) -> Communicator:
        """The same ranks for arrays of a device: on GPUs NCCL sums."""
        return Nccl(device, self.comm) if self.size > 1 and device.is_cuda else self

    def allreduce(self, array: Any) -> Any:
        """MPI_Allreduce, in place; or through the window."""
        self.allreduce_init(array)()
        return array

    def allreduce_init(self, array: Any) -> Work:
        """As `allreduce`."""
        if self._lies_near(array):
            flat = array.reshape(-1)
            return self.window.adding(flat, self.bounds(flat.size), share=True)
        return partial(self.comm.Allreduce, MPI.IN_PLACE, _host(array), MPI.SUM)

    def iallreduce(self, array: Any) -> Work:
        """MPI_Iallreduce, in place."""
        request = self.comm.Iallreduce(MPI.IN_PLACE, _host(array), MPI.SUM)
        self.under_way.append(request)

        def wait() -> None:
            request.Wait()
            self.under_way.remove(request)

        return wait

    def reduce_scatter_init(self, array: Any) -> Work:
        """MPI_Reduce_scatter; or through the window."""
        if self._lies_near(array):
            return self.window.adding(array, self.bounds(array.size))
        bounds = self.bounds(array.size)
        part = array[bounds[self.rank] : bounds[self.rank + 1]]
        total = np.empty_like(part)

        def sum_part() -> None:
            self.comm.Reduce_scatter(_host(array), _host(total), self._counts(array), MPI.SUM)
            part[...] = total

        return sum_part

    def allgather_init(self, array: Any) -> Work:
        """MPI_Allgather, in place, or MPI_Allgatherv, which is slower; or through the window."""
        if self._lies_near(array):
            return self.window.sharing(array, self.bounds(array.size))
        if array.size % self.size == 0:
            return partial(self.comm.Allgather, MPI.IN_PLACE, _host(array))
        return partial(self.comm.Allgatherv, MPI.IN_PLACE, [_host(array), self._counts(array)])

    def _counts(self, array: Any) -> list[int]:
        return [end - start for start, end in pairwise(self.bounds(array.size))]

    def progress(self) -> None:
        """Test the first that is under way: MPI goes on where it is called."""
        for request in self.under_way:
            if request != MPI.REQUEST_NULL:
                request.Test()
                return

    def bcast(self, array: Any) -> Any:
        """MPI_Bcast from rank 0."""
        self.comm.Bcast(_host(array), 0)
        return array

    def bcast_obj(self, thing: Any) -> Any:
        """MPI_Bcast of a pickled object."""
        return self.comm.bcast(thing, 0)

    def allgather_obj(self, thing: Any) -> list[Any]:
        """MPI_Allgather of pickled objects."""
        return self.comm.allgather(thing)

    def barrier(self) -> None:
        """MPI_Barrier."""
        self.comm.Barrier()

    def abort(self, code: int) -> None:
        """MPI_Abort, once mpiexec has read what stderr has, and the end of this process in any case."""
        time.sleep(PASSED_ON)
        self.comm.Abort(code)
        os._exit(code)


def library() -> str:
    """The library's name and version, and its transport where it tells of that, as MPICH does."""
    lines = [" ".join(line.strip("\0").split()) for line in MPI.Get_library_version().splitlines()]
    sends = [line.partition(":")[2].strip() for line in lines if line.startswith("MPICH Device")]
    return ", ".join([lines[0], *(f"by {one}" for one in sends)])


def _host(array: Any) -> Any:
    """An array as MPI reads and writes it. Raises DeviceError for one that it cannot."""
    if not isinstance(array, np.ndarray):
        raise DeviceError("MPI adds arrays of the host; those of GPUs are NCCL's")
    if array.dtype != np.float16:
        return array
    half = getattr(MPI, "FLOAT16_T", MPI.DATATYPE_NULL)
    if half == MPI.DATATYPE_NULL:
        remedy = "leave --reduce-dtype out (MPICH 5 does)"
        raise DeviceError(f"this MPI knows no numbers of 16 bits: {remedy}")
    return [array, half]


TYPES = {"float16": "NCCL_FLOAT16", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64"}
TYPES |= {"bfloat16": "NCCL_BFLOAT16"}


class Nccl(Mpi):
    """The ranks of an MPI communicator, each on a `device` of its own; arrays are the device's, or the host's.

    What `iallreduce` begins is done in a stream beside: it waits for what was asked for before, and what
    follows the end waits for it. All of it may be captured into a graph. The host waits for nothing.
    Not yet measured. Raises DeviceError where CuPy finds no NCCL, or two ranks have one GPU.
    """

    def __init__(self, device: Device, comm: Any = None):
        super().__init__(comm)
        self.overlaps = True
        self.device, self.nccl = device, device.xp.cuda.nccl
        self._current = device.xp.cuda.get_current_stream
        self._event = partial(device.xp.cuda.Event, disable_timing=True)
        if not self.nccl.available:
            remedy = "pip install nvidia-nccl-cu12 (-cu13)"
            raise DeviceError(f"CuPy finds no NCCL, which several GPUs need: {remedy}")
        places = self.allgather_obj((self.node, device.number))
        if len(set(places)) < len(places):
            node, gpu = max(places, key=places.count)
            raise DeviceError(f"several ranks have cuda:{gpu} of {node}: NCCL takes a GPU a rank")
        identity = self.bcast_obj(self.nccl.get_unique_id() if self.rank == 0 else None)
        with device.current():
            self.ranks = self.nccl.NcclCommunicator(self.size, identity, self.rank)
            self.beside = device.xp.cuda.Stream(non_blocking=True)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The version, and MPI's."""
        return f"NCCL {self.nccl.get_version()}, {super().name}"

    def allreduce(self, array: Any) -> Any:
        """ncclAllReduce, in place, in the current stream."""
        if not on_cuda(array):
            return super().allreduce(array)
        ask("all_reduce", "", (), (array,), lambda asked: self._sum(asked.args[0], self._current()))
        return array

    def allreduce_init(self, array: Any) -> Work:
        """As `allreduce`."""
        return partial(self.allreduce, array) if on_cuda(array) else super().allreduce_init(array)

    def iallreduce(self, array: Any) -> Work:
        """ncclAllReduce, in place, in a stream beside the current one."""
        if not on_cuda(array):
            return super().iallreduce(array)
        ask("all_reduce beside", "", (), (array,), lambda asked: self._begin(*asked.args))
        return self._end

    def bcast(self, array: Any) -> Any:
        """ncclBroadcast from rank 0, in place, byte by byte."""
        if not on_cuda(array):
            return super().bcast(array)
        with self.device.current():
            source = array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, 0
            self.ranks.bcast(*source, self._current().ptr)
        return array

    def _begin(self, array: Any) -> None:
        self.beside.wait_event(self._current().record(self._event()))
        self._sum(array, self.beside)

    def _end(self) -> None:
        self._current().wait_event(self.beside.record(self._event()))

    def _sum(self, array: Any, stream: Any) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("NCCL sums C-contiguous arrays only")
        kind = getattr(self.nccl, TYPES[np.dtype(array.dtype).name])
        place = array.data.ptr
        self.ranks.allReduce(place, place, array.size, kind, self.nccl.NCCL_SUM, stream.ptr)
