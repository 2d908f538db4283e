"""Signals: Ctrl-C and SIGTERM stop `solve` after the iteration, SIGHUP saves; all others wait for its end."""

from __future__ import annotations

import _signal  # without the enums of `signal`, which take 30 us: a step may take 12
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

STOPS, SNAPSHOTS = ("SIGINT", "SIGTERM"), ("SIGHUP",)  # as in Caffe; Windows has no SIGHUP
STOPPING = b"\nstopping after this iteration, with a snapshot; press again to stop now, without a snapshot\n"
SAVING = b"\ntaking a snapshot after this iteration, and going on\n"

NAMES = "INT TERM HUP ALRM VTALRM PROF USR1 USR2 QUIT CHLD WINCH CONT TSTP BREAK".split()  # noqa: SIM905
# Those that a handler of Python's may have; the others end the process, or are of no system
HELD = [getattr(signal, f"SIG{name}") for name in NAMES if hasattr(signal, f"SIG{name}")]
_before: dict[int, Any] = {}  # the handlers that wait, while a Held is entered
waiting: list[tuple[int, FrameType | None]] = []  # signals that came meanwhile
# The frame whose `with` holds them; it may have been left by a signal
_holding: list[FrameType] = []


class Held:
    """A context in which signals wait for `deliver` or its end: no handler raises an exception within it.

    A second signal of one kind does not wait: what takes too long can be left. Within another Held, and in
    other threads, which run no handlers, it changes nothing. Those of Signals raise nothing: they do not wait.
    """

    outermost = False

    def __enter__(self) -> Held:
        frame, main = sys._getframe(1), threading.current_thread() is threading.main_thread()
        self.outermost = main and not (_holding and _is_held(frame))
        try:
            if self.outermost:
                if _before or _holding:
                    _let_go()
                waiting.clear()
                _holding[:] = [frame]
            for number in HELD if self.outermost else ():
                handler = _signal.getsignal(number)
                if callable(handler) and not isinstance(getattr(handler, "__self__", 0), Signals):
                    _before[number] = handler
                    _signal.signal(number, _hold)
        except BaseException:
            _let_go()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        if self.outermost:
            try:
                _let_go()
            finally:
                if waiting:
                    deliver()


def deliver() -> None:
    """Call the handlers of the signals that wait; they may raise anything."""
    while waiting and threading.current_thread() is threading.main_thread():
        number, frame = waiting.pop(0)
        handler = _before.get(number) or signal.getsignal(number)
        if callable(handler):
            handler(number, frame)


def _hold(number: int, frame: FrameType | None) -> None:
    handler = _before[number]
    if not _is_held(frame):
        _let_go()
        handler(number, frame)
    elif any(number == one for one, _ in waiting):
        handler(number, frame)
    else:
        waiting.append((number, frame))


def _is_held(frame: FrameType | None) -> bool:
    """True if the `with` that holds signals is around what a frame runs."""
    while frame is not None and _holding and frame not in _holding:
        frame = frame.f_back
    return frame is not None and bool(_holding)


def _let_go() -> None:
    """Put the handlers back: all, whatever a signal raises that comes meanwhile."""
    try:
        for number, handler in [*_before.items()]:
            if _signal.getsignal(number) is _hold:
                _signal.signal(number, handler)
            del _before[number]
        _holding.clear()
    except BaseException:
        _let_go()
        raise


class Signals:
    """A context: a first stopping signal sets `asked`, a second acts as usual; one ignored before stays so."""

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

    def __exit__(self, *raised: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
