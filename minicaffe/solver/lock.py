"""Who trains in a folder: one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from datetime import datetime
from pathlib import Path

from minicaffe.errors import CheckpointError

LOCK = "lock"


class Lock:
    """Held by the process that trains in a folder; it goes with the process, however that ends."""

    def __init__(self, folder: Path):
        """Take the lock. Raises CheckpointError, which names the process that holds it."""
        file = folder / LOCK
        try:
            self.handle: int | None = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be written: {error.strerror}") from None
        os.register_at_fork(
            after_in_child=self.release
        )  # a worker that outlives us must not hold it
        if not _try(self.handle, fcntl.LOCK_EX):
            held = _holder(file)
            self.release()
            raise CheckpointError(
                f"{folder}: {held} trains in this folder; choose another with --run, or end that one"
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Let it go."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def in_use(folder: str | Path) -> bool:
    """Whether a process trains in a folder."""
    try:
        handle = os.open(Path(folder, LOCK), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, kind: int) -> bool:
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
