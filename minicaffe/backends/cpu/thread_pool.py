"""The threads beside the one that asks: they walk tables of compiled loops, or run calls of Python's."""

import contextvars
import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from minicaffe.backends.thread_state import inside

PATIENCE = 400, 2000  # times to look awake, some us; to give way to others before sleep, some ms
OF_MANY = 20, 100  # where there are more threads than cores, one that waits is in the others' way

Call = Callable[[], None]


class Job:
    """A call of Python's, run by whichever thread gets to it first."""

    def __init__(self, call: Call):
        self._call: Call | None = call
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._begun, self._ended = threading.Lock(), threading.Lock()
        self._ended.acquire()

    def run(self) -> None:
        """Run the call, unless it has been begun."""
        if self._begun.acquire(blocking=False):
            assert self._call is not None
            self._error = self._context.run(_error_of, self._call)
            self._call = None
            self._ended.release()

    def drop(self) -> None:
        """See to it that the call is not running, nor will be."""
        if self._begun.acquire(blocking=False):
            self._call = None
        else:
            with self._ended:
                pass

    def error(self) -> BaseException | None:
        """Run the call here, or wait for it to end; returns what it raised."""
        self.run()
        with self._ended:
            return self._error


def _error_of(call: Call) -> BaseException | None:
    inside.set(True)  # in the context of the job, which ends with it
    try:
        call()
    except BaseException as error:  # raised again by who asked for the call
        return error
    return None


class Crew:
    """So many threads, the asking one among them. Without Numba they run calls of Python's only."""

    def __init__(self, threads: int):
        self._queues: list[SimpleQueue[Job]] = [SimpleQueue() for _ in range(1, threads)]
        for t, queue in enumerate(self._queues, 1):
            args, name = (t, queue), f"minicaffe_{t}"
            threading.Thread(target=self._life, args=args, name=name, daemon=True).start()

    def run(
        self, calls: Sequence[Call], given_up: Call | None = None
    ) -> list[BaseException | None]:
        """What each call raises: the first is run here, the others beside it, or here, should nobody come.

        `given_up` is called where this ends before they do, by Ctrl-C, should they wait for each other.
        """
        first, *others = jobs = [Job(call) for call in calls]
        try:
            for t, (job, queue) in enumerate(zip(others, self._queues, strict=False), 1):
                queue.put(job)
                self._wake(t)
            first.run()
            return [job.error() for job in jobs]
        except BaseException:
            if given_up is not None:
                given_up()
            raise
        finally:  # also after Ctrl-C
            for job in jobs:
                job.drop()

    def _wake(self, t: int) -> None:
        """A thread that waits for its queue needs no more."""

    def _life(self, t: int, queue: SimpleQueue[Job]) -> None:
        while True:
            queue.get().run()


class CompiledCrew(Crew):
    """Threads that wait in compiled code, without the GIL, and walk tables there."""

    def __init__(self, threads: int, replay: Any):
        self._replay, self.lead = replay, replay.lead
        self._memory = np.zeros((3 + 2 * threads) * replay.LINE // 8, np.int64)
        start = self._memory.ctypes.data
        self.where = start + -start % replay.LINE
        looks, yields = OF_MANY if threads > (os.cpu_count() or 1) else PATIENCE
        self._set(replay.LOOKS, looks)
        self._set(replay.YIELDS, yields)
        system: Any = ctypes.CDLL("kernel32" if os.name == "nt" else None)
        for place, function in (
            (replay.YIELD, system.SwitchToThread if os.name == "nt" else system.sched_yield),
            (replay.ACQUIRE, ctypes.pythonapi.PyThread_acquire_lock),
            (replay.NAP, ctypes.pythonapi.PyThread_acquire_lock_timed),
            (replay.RELEASE, ctypes.pythonapi.PyThread_release_lock),
        ):
            self._set(place, ctypes.cast(function, ctypes.c_void_p).value or 0)
        for t in range(threads):
            self._set(replay.LINE * (2 + 2 * t) + replay.LOCK, _lock())
        super().__init__(threads)

    def _set(self, place: int, value: int) -> None:
        self._memory[(self.where - self._memory.ctypes.data + place) // 8] = value

    def _wake(self, t: int) -> None:
        self._replay.ring(self.where, t)

    def _life(self, t: int, queue: SimpleQueue[Job]) -> None:
        while True:
            self._replay.serve(self.where, t)
            while not queue.empty():
                queue.get().run()


def _lock() -> int:
    """A lock of Python's for threads without the GIL, taken: its address, for good."""
    make, take = ctypes.pythonapi.PyThread_allocate_lock, ctypes.pythonapi.PyThread_acquire_lock
    make.restype, take.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
    lock: int = make()
    take(lock, 1)
    return lock
