"""A crew of processes. What they make lies in memory that has no name, so that nothing of it can stay behind.

    this process   -- pieces -->   a socket for each worker   -- what was damaged, errors -->   this process
                        pictures and labels, in one mapping of one unnamed file of memory

A worker is a Python of its own, not a fork of this one: threads and CUDA survive no fork. It ends when its
socket is closed, which the system does for a process that was killed. No lock is shared: one that is killed
holds nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any

import numpy as np

from minicaffe import errors
from minicaffe.data.crew import PATIENCE, Result
from minicaffe.data.making import Maker, Piece
from minicaffe.errors import DataError

HEAD = 64  # bytes before the pictures: from which batch on they are wanted
LEAVE = 2  # seconds that a worker has to end by itself
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from minicaffe.data import worker; worker.main(*map(int, sys.argv[2:]))"
)
_ALONE = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Processes:
    """Processes of their own, which share memory with this one."""

    def __init__(
        self, count: int, maker: Maker, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype
    ):
        self.count = count
        self.memory = Shared(None, shape, dtype, labels)
        self.wanted, self.pictures, self.labels = self.memory.views
        self.pipes: list[Any] = []
        self.unsent = [deque[Piece]() for _ in range(count)]
        self.workers: list[subprocess.Popen[bytes]] = []
        given = self.wanted, self.pipes, self.workers
        self.close = weakref.finalize(self, _close, os.getpid(), *given)
        try:
            for _ in range(count):
                self._start()
            for pipe in self.pipes:
                pipe.send((maker, shape, dtype, labels))
        except OSError as error:
            self.close()
            raise DataError(f"a worker process could not be started: {error}") from None
        finally:
            os.close(self.memory.file)

    def _start(self) -> None:
        mine, theirs = socket.socketpair()
        with theirs:
            self.pipes.append(connection.Connection(mine.detach()))
            given = theirs.fileno(), self.memory.file
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, given)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=given,
                    env={**os.environ, **_ALONE},
                    start_new_session=True,  # Ctrl-C is for the program that trains
                )
            )

    def give(self, member: int, piece: Piece) -> None:
        """Hand over a piece; it goes out now, or when its socket has room for it."""
        self.unsent[member].append(piece)
        self._send()

    def _send(self) -> None:
        """Send what there is room for: to wait for room could be for ever, since a member may wait as well."""
        for member, pieces in enumerate(self.unsent):
            try:
                while pieces and _has_room(self.pipes[member]):
                    self.pipes[member].send(pieces.popleft())
            except OSError:
                raise self._died(member) from None

    def take(self) -> Result:
        """A piece that is made; waits for it. Raises DataError for a worker that died, or does not answer."""
        self._send()
        ready = connection.wait(self.pipes, PATIENCE)
        if not ready:
            raise DataError(f"no pictures came for {PATIENCE} s: the data set does not answer")
        pipe: Any = ready[0]
        try:
            place, found = pipe.recv()
        except (OSError, EOFError):
            raise self._died(self.pipes.index(pipe)) from None
        if isinstance(found, tuple):
            kind, said = found
            found = getattr(errors, kind)(said)
        if place is None:
            raise found
        return place, found

    def _died(self, member: int) -> DataError:
        """The error for a worker whose socket is closed."""
        worker = self.workers[member]
        try:
            code = worker.wait(LEAVE)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"killed by signal {-code}" if code < 0 else f"with exit status {code}"
        return DataError(
            f"a worker process that reads pictures (pid {worker.pid}) ended, {how}"
            "; feed: threads, or workers: 0, reads them in this process"
        )


def _has_room(pipe: Any) -> bool:
    """Whether a socket takes what is sent through it at once."""
    looked = select.poll()
    looked.register(pipe, select.POLLOUT)
    return bool(looked.poll(0))


def _close(
    owner: int, wanted: np.ndarray, pipes: list[Any], workers: list[subprocess.Popen[bytes]]
) -> None:
    """End the workers after the sample they are at; a process forked off only lets go of the sockets."""
    if os.getpid() == owner:
        wanted[0] = np.iinfo(np.int64).max
    for pipe in pipes:
        pipe.close()
    for worker in workers:
        if os.getpid() != owner:
            worker.returncode = 0  # no child of this process
            continue
        try:
            worker.wait(LEAVE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


class Shared:
    """The mapping that all share: of a new file without a name, or of the one given. Raises DataError."""

    def __init__(self, file: int | None, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype):
        sizes = math.prod(shape) * dtype.itemsize, math.prod(shape[:2]) * labels.itemsize
        count = math.prod((*shape[:2], *labels.shape))
        middle = HEAD + -(-sizes[0] // HEAD) * HEAD
        size = middle + sizes[1]
        try:
            self.file = _unnamed() if file is None else file
            with _closed_if_it_fails(self.file):
                if file is None:
                    os.ftruncate(self.file, size)
                mapped = memoryview(mmap.mmap(self.file, size))
        except OSError as error:
            raise DataError(f"no memory of {size} bytes to share with processes: {error}") from None
        self.views: tuple[np.ndarray, np.ndarray, np.ndarray] = (
            np.frombuffer(mapped, np.int64, 1),
            np.frombuffer(mapped, dtype, math.prod(shape), HEAD).reshape(shape),
            np.frombuffer(mapped, labels.base, count, middle).reshape(*shape[:2], *labels.shape),
        )


def _unnamed() -> int:
    """An empty file that is gone when no process holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("minicaffe")
    with tempfile.TemporaryFile() as made:
        return os.dup(made.fileno())


@contextlib.contextmanager
def _closed_if_it_fails(file: int) -> Iterator[None]:
    try:
        yield
    except OSError:
        os.close(file)
        raise
