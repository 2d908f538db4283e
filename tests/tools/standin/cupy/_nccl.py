"""cupy.cuda.nccl for ranks that MPI has started, each a process with devices of its own.

What is summed in another stream than the current one is summed as late as may be: when a stream waits for an
event behind it. In a capture that stream must have been brought into it by an event, and led back.
"""

import ctypes

import numpy as np

from ._array import place, queue

available = True
NCCL_SUM, NCCL_UINT8, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = 0, 1, 6, 7, 8, 9
KINDS = {1: np.uint8, 6: np.float16, 7: np.float32, 8: np.float64}


def get_unique_id():
    return (7,) * 128


def get_version():
    return 22600


class NcclCommunicator:
    """cupy.cuda.nccl.NcclCommunicator(ndev, commId, rank)."""

    def __init__(self, ndev, commId, rank):
        from mpi4py import MPI

        if commId != get_unique_id():
            raise RuntimeError("NCCL_ERROR_INVALID_ARGUMENT: another id than rank 0's")
        self.MPI, self.comm, self.device = MPI, MPI.COMM_WORLD.Dup(), place.device
        assert (self.comm.size, self.comm.rank) == (ndev, rank)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):  # noqa: N802
        assert sendbuf == recvbuf and op == NCCL_SUM
        array = self._array(recvbuf, count, datatype)

        def action():
            parts = self.comm.allgather(array.tobytes())
            array[:] = sum(np.frombuffer(part, array.dtype) for part in parts)

        self._queue(action, stream)

    def bcast(self, buff, count, datatype, root, stream):
        array = self._array(buff, count, datatype)

        def action():
            array[:] = np.frombuffer(self.comm.bcast(array.tobytes(), root), array.dtype)

        self._queue(action, stream)

    def _array(self, address, count, datatype):
        """The device's memory from an address on."""
        if self.device != place.device:
            raise RuntimeError("NCCL_ERROR_INVALID_USAGE: another device is current")
        size = count * np.dtype(KINDS[datatype]).itemsize
        return np.frombuffer((ctypes.c_uint8 * size).from_address(address), KINDS[datatype])

    def _queue(self, action, stream):
        from .cuda import get_current_stream, stream_at

        if stream == get_current_stream().ptr:
            queue(action)
        else:
            stream_at(stream).later(action)
