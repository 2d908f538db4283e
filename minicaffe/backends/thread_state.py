"""The one ambient state: what holds for all that a thread computes within a block.

Ops are functions of their arguments. Five things would have to be passed through each of them, down to every
kernel, and are kept here instead; each is set by one context manager, and read in the file beside it.
"""

import contextvars
import threading
from typing import Any


class ThreadState(threading.local):
    """The state of a thread; another thread has its own, with these defaults."""

    trace: Any = None  # what ops report to, while a step is traced: replay.command_buffer.recording
    listener: Any = None  # who hears what CUDA is asked for: listener.heard
    precision: str = "highest"  # of float32 that CUDA multiplies: backend.Device.current
    most_threads: int | None = None  # of the CPU, for one op: cpu.threads.at_most
    longest_piece: int | None = None  # elements of work that each of them gets at most: the same


state = ThreadState()
inside = contextvars.ContextVar("inside", default=False)  # whether this is a slice of something
