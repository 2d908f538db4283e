"""What is said on stderr, by Caffe's levels 0 INFO, 1 WARNING, 2 ERROR; GLOG_minloglevel is the least."""

from __future__ import annotations

import os
from collections.abc import Sequence

from minicaffe.core.solver import Report
from minicaffe.core.solver.report import banner
from minicaffe.errors import note

INFO, WARNING, ERROR = range(3)


class _Least:
    """The least level that is shown; None: what the environment says."""

    level: int | None = None


def shown(level: int) -> bool:
    """Whether lines of a level are shown."""
    if _Least.level is not None:
        return level >= _Least.level
    said = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112 (glog's own)
    return level >= (int(said) if said.isdecimal() else INFO)


def init_log(level: int = INFO, stderr: bool = True) -> None:
    """Show lines of a level and above from now on. They go to stderr, whatever `stderr` says: no files."""
    _Least.level = level


def log(text: str) -> None:
    """Show a line of the level INFO."""
    if shown(INFO):
        note(text)


class Glog(Report):
    """A solver's lines, as far as their level is shown."""

    def line(self, text: str) -> None:
        """A line of the level INFO."""
        if shown(INFO):
            super().line(text)

    def started(self, warnings: Sequence[str]) -> None:
        """Training starts."""
        if shown(WARNING):
            for warning in warnings:
                Report.line(self, banner(warning))

    def failed(self, text: str) -> None:
        """Something did not succeed, and training went on."""
        if shown(ERROR):
            Report.line(self, text)
