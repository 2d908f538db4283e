"""Whether other processes keep the processors busy, by Linux's /proc/stat; elsewhere nothing is busy."""

import functools
import os
import time
from typing import NamedTuple

LEAST = 0.05  # seconds of others' work that count: a tick of the system is 0.01
SHARE = 0.25  # of a processor that others may use, beyond those that are left to them
SAMPLE = 0.1  # seconds for which `quiet` looks


class Moment(NamedTuple):
    """Seconds since some time: of the clock, of work of all processors, and of work of this process."""

    clock: float
    work: float
    own: float


def now() -> Moment | None:
    """Returns the present moment; None if the system does not tell how much its processors work."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        work = (sum(ticks) - sum(ticks[3:5])) / os.sysconf("SC_CLK_TCK")  # but idle and iowait
    except (OSError, ValueError, AttributeError):
        return None
    return Moment(time.perf_counter(), work, time.process_time())


def busy(since: Moment | None, threads: int) -> bool:
    """Whether others have used processors that so many threads of ours need."""
    until = now()
    if since is None or until is None:
        return False
    clock, work, own = (b - a for a, b in zip(since, until, strict=True))
    left = max(0, (os.cpu_count() or threads) - threads)
    return work - own > max(LEAST, (left + SHARE) * clock)


@functools.cache
def quiet(threads: int) -> bool:
    """Whether others leave so many processors to us; this process looks once."""
    since = now()
    if since is None:
        return False
    time.sleep(SAMPLE)
    return not busy(since, threads)
