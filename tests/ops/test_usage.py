"""Memory that a process uses, as the log tells it."""

from __future__ import annotations

import builtins

import numpy as np

from minicaffe import backend
from minicaffe.ops.usage import memory_used


def test_memory_grows_with_what_is_taken(device):
    with device.current():
        before = memory_used(device)
        taken = device.xp.ones(8 << 20, np.float32)
        assert memory_used(device) - before >= 0.9 * taken.nbytes


def test_without_proc_it_is_the_most_there_was(monkeypatch):
    cpu, opened = backend.device("cpu"), builtins.open

    def no_proc(path, *args, **kwargs):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return opened(path, *args, **kwargs)

    now = memory_used(cpu)
    monkeypatch.setattr(builtins, "open", no_proc)
    assert memory_used(cpu) >= 0.9 * now
