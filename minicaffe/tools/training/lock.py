"""Who trains in a folder: one process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from datetime import datetime
from pathlib import Path

from minicaffe.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows has none: there nobody is told apart
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


class Lock:
    """Held by the process that trains in a folder; it goes with the process, however that ends."""

    def __init__(self, folder: Path):
        """Take the lock. Raises CheckpointError, which names the process that holds it."""
        self.file, self.handle = folder / LOCK, -1
        self.take()
        if hasattr(os, "register_at_fork"):  # a worker that outlives us must not hold it
            os.register_at_fork(after_in_child=self.release)

    def take(self) -> None:
        """Take it, again if the folder is another of the same name now. Raises CheckpointError."""
        self.release()
        try:
            self.handle = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(
                f"{self.file}: cannot be written: {error.strerror}; choose another folder with --run"
            ) from None
        if not _try(self.handle, exclusive=True):
            held = _holder(self.file)
            self.release()
            raise CheckpointError(
                f"{self.file.parent}: {held} trains in this folder; choose another with --run, or end that one"
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        with contextlib.suppress(OSError):  # who is refused then hears of "another process"
            os.ftruncate(self.handle, 0)
            os.write(self.handle, json.dumps(holder).encode())

    def release(self) -> None:
        """Let it go."""
        if self.handle >= 0:
            with contextlib.suppress(OSError):  # it is closed all the same
                os.close(self.handle)
            self.handle = -1


def in_use(folder: str | Path) -> bool:
    """Whether a process trains in a folder."""
    try:
        handle = os.open(Path(folder, LOCK), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try(handle, exclusive=False)
    finally:
        os.close(handle)


def _try(handle: int, exclusive: bool) -> bool:
    if fcntl is None:
        return True
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    for _ in range(5):  # who only looks whether it is held holds it for an instant
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # a file system without locks: nobody can be told apart
            return True
    return False


def _holder(file: Path) -> str:
    """Who holds a lock, as its file says."""
    try:
        told = json.loads(file.read_bytes()[:1000])
        text = f"process {int(told['pid'])} on {told['host']}, since {told['since']},"
        return text if text.isprintable() else "another process"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"


def now() -> str:
    """The time as run.json has it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
