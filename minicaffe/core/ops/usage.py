"""How much memory this process uses."""

from __future__ import annotations

import os
import resource
import sys

from minicaffe.backends.device import Device


def memory_used(device: Device) -> int:
    """Bytes: on CUDA what CuPy has taken of the device, on the CPU what the process has in memory.

    Where the system does not tell that (no /proc), the most that it has had.
    """
    if device.is_cuda:
        with device.current():
            return int(device.xp.get_default_memory_pool().total_bytes())
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
