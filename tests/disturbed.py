"""Others that take all cores now and then, to see who waits for whom."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

BUSY = "import time\nend = time.time() + 0.3\nwhile time.time() < end: pass"


@contextlib.contextmanager
def others_take_the_cores(pause: float = 0.5) -> Iterator[None]:
    """In the midst of what is in the block: busy processes, one a core, and then a pause of so many seconds."""
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            for one in [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores())]:
                one.wait()
            done.wait(pause)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        yield
    finally:
        done.set()
        disturber.join()


def cores() -> int:
    """How many there are."""
    return os.cpu_count() or 1
