"""Signals: Ctrl-C and SIGTERM stop after the iteration, SIGHUP takes a snapshot and goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

STOPS, SNAPSHOTS = ("SIGINT", "SIGTERM"), ("SIGHUP",)  # as in Caffe; Windows has no SIGHUP
STOPPING = b"\nstopping after this iteration, with a snapshot; press again to stop now, without a snapshot\n"
SAVING = b"\ntaking a snapshot after this iteration, and going on\n"


class Signals:
    """A context in which the first stopping signal sets `asked`; a second has its usual effect.

    A signal that was ignored before, as under nohup, stays ignored.
    """

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.asked = False  # to stop
        self._save = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for names, act in ((STOPS, self._stop), (SNAPSHOTS, self._snapshot)):
                for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
                    if signal.getsignal(number) not in (signal.SIG_IGN, None):
                        self.before[number] = signal.signal(number, act)
        return self

    def snapshot_asked(self) -> bool:
        """Whether a snapshot was requested since the last call."""
        asked, self._save = self._save, False
        return asked

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._say(STOPPING)
        signal.signal(number, self.before[number])

    def _snapshot(self, number: int, frame: FrameType | None) -> None:
        self._save = True
        self._say(SAVING)

    def _say(self, text: bytes) -> None:
        """Write a line to stderr by a call that signal handlers may use; ignores a closed terminal."""
        if not self.silent:
            with contextlib.suppress(OSError):
                os.write(2, text)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
