"""Memory that a process uses, as the log tells it."""

from __future__ import annotations

import builtins
import mmap

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.tools.training.speed import memory_used

SIZE = 32 << 20  # bytes


def test_memory_grows_with_what_is_taken():
    """Of the system: NumPy may give an array memory that was let go and is still the process's."""
    cpu = backend.device("cpu")
    before = memory_used(cpu)
    with mmap.mmap(-1, SIZE) as taken:
        taken.write(b"1" * SIZE)
        assert memory_used(cpu) - before >= 0.9 * SIZE


def test_memory_of_a_device_grows_with_what_is_taken(cuda):
    with cuda.current():
        cuda.xp.get_default_memory_pool().free_all_blocks()
        before = memory_used(cuda)
        taken = cuda.xp.ones(SIZE, np.uint8)
        assert memory_used(cuda) - before >= taken.nbytes


def test_without_proc_it_is_the_most_there_was(monkeypatch):
    cpu, opened = backend.device("cpu"), builtins.open

    def no_proc(path, *args, **kwargs):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return opened(path, *args, **kwargs)

    now = memory_used(cpu)
    monkeypatch.setattr(builtins, "open", no_proc)
    assert memory_used(cpu) >= 0.9 * now
