"""Ranks with a GPU each: NCCL adds between the GPUs, by way of CuPy, and MPI does all else."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends.device import Device, on_cuda
from minicaffe.backends.launch_listener import ask
from minicaffe.core.communicator import Work
from minicaffe.errors import DeviceError
from minicaffe.tools.parallel.mpi import Mpi

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
        if not self.nccl.available:
            raise DeviceError(
                "CuPy finds no NCCL, which several GPUs need: pip install nvidia-nccl-cu12 (-cu13)"
            )
        places = self.allgather_obj((self.node, device.number))
        if len(set(places)) < len(places):
            node, number = max(places, key=places.count)
            raise DeviceError(
                f"several ranks have cuda:{number} of {node}: NCCL takes a GPU a rank"
            )
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
        ask("all_reduce", "", (), (array,), lambda given: self._sum(given[0], self._current()))
        return array

    def allreduce_init(self, array: Any) -> Work:
        """As `allreduce`."""
        return partial(self.allreduce, array) if on_cuda(array) else super().allreduce_init(array)

    def iallreduce(self, array: Any) -> Work:
        """ncclAllReduce, in place, in a stream beside the current one."""
        if not on_cuda(array):
            return super().iallreduce(array)
        ask("all_reduce beside", "", (), (array,), lambda given: self._begin(given[0]))
        return self._end

    def bcast(self, array: Any) -> Any:
        """ncclBroadcast from rank 0, in place, byte by byte."""
        if not on_cuda(array):
            return super().bcast(array)
        with self.device.current():
            given = array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, 0
            self.ranks.bcast(*given, self._current().ptr)
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

    def _current(self) -> Any:
        return self.device.xp.cuda.get_current_stream()

    def _event(self) -> Any:
        return self.device.xp.cuda.Event(disable_timing=True)
