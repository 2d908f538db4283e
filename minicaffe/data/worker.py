"""What a worker process does: make pieces of batches, until nobody wants any."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection

from minicaffe.data.crew import made
from minicaffe.data.processes import Shared
from minicaffe.errors import MinicaffeError, TrainingError, raised_at

LOOK = 2  # seconds after which it looks whether its parent is still there


def main(pipe: int, file: int) -> None:
    """Serve the other end of a socket; the pictures go into a file of memory that both map.

    It ends when the socket is closed, or when who started it is gone, though another holds the socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    with Connection(pipe) as there, contextlib.suppress(EOFError, OSError):
        try:
            maker, shape, dtype, labels = there.recv()  # which opens the data set
        except MinicaffeError as error:
            there.send((None, _told(error)))
            return
        wanted, *room = Shared(file, shape, dtype, labels).views
        while True:
            while not there.poll(LOOK):
                if os.getppid() != parent:
                    return
            place, found = made(maker, there.recv(), *room, wanted)
            there.send((place, _told(found) if isinstance(found, BaseException) else found))


def _told(error: BaseException) -> tuple[str, str]:
    """An error as two words that a socket carries: its class, and what it says."""
    if isinstance(error, MinicaffeError):
        return type(error).__name__, str(error)
    return TrainingError.__name__, f"a worker process: {raised_at(error)}"
