"""The record that a run leaves in its folder: run.json, and a line of log.jsonl for all that happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.solver.report import Mute
from minicaffe.errors import CheckpointError
from minicaffe.storage import checkpoint
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import Lock, LogFile, plain
from minicaffe.tools.training.speed import Speed, epochs, images_per_iteration, memory_used

LARGEST = 1000  # numbers of an output of the training net that stand in a line
Line = dict[str, Any]


class Record(Mute):
    """Writes what it is told into a run's folder; shows nothing.

    What cannot be written is told to `failed`, once, and tried again with what comes next; training goes on.
    Each of `hearers` is given every line too.
    """

    def __init__(self, failed: Callable[[str], None], hearers: list[Callable[[Line], None]]):
        self.tell, self.hearers = failed, hearers
        self.solver: Any = None
        self.early: list[str] = []  # events before the run's folder is there
        self.trouble: str | None = None  # why what waits could not be written

    def begin(
        self,
        solver: Any,
        folder: Path,
        about: Mapping[str, Any],
        model: str,
        seconds: float,
        lock: Lock | None = None,
    ) -> None:
        """Training starts, `seconds` after the run's beginning. Raises CheckpointError.

        `about` is what run.json says beside what is known here, `model` the text of model.yaml, `lock` what
        holds the folder.
        """
        self.lock = lock
        self.solver, self.images = solver, images_per_iteration(solver)
        self.folder, self.about, self.model = folder, about, model
        self.log = LogFile(folder / run_folder.LOG)
        self.speed, self.before, self.since = Speed(solver.iteration), seconds, time.perf_counter()
        self._write_files("running")
        for text in self.early:
            self.event(text)

    def again(self) -> None:
        """Training goes on, after it had ended or in the midst of it. Raises CheckpointError."""
        if self.ended:
            if self.lock is not None:
                self.lock.take()
            self._write_files("running")

    def end(self, state: str) -> None:
        """Training has ended. Raises CheckpointError if the record lacks anything."""
        try:
            self._write_files(state)
            if self.log.waiting:
                self.log.write()
        except OSError as error:
            self.trouble = f"{self.log.path}: {error.strerror or error}"
        except CheckpointError as error:
            self.trouble = str(error)
        else:
            return
        count = len(self.log.waiting)
        lacks = f"the last {count} lines of the run's log are lost; " if count else ""
        raise CheckpointError(f"the record is not whole: {lacks}{self.trouble}")

    def add(self, kind: str, iteration: int, **rest: Any) -> None:
        """Write a line, which waits for the next if it cannot be written, and tell it to whoever hears."""
        line = {"kind": kind, "iteration": iteration, **plain(rest)}
        self._write(line)
        for hearer in self.hearers:
            hearer(line)

    def _write(self, line: Line) -> None:
        try:
            self._have_folder()
            self.log.add(line, durable=line["kind"] == "snapshot")
        except (OSError, CheckpointError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if self.trouble is None:
                then = "training goes on, and it is tried again with the next line"
                self.tell(f"{self.log.path}: cannot be written: {why}; {then}")
            self.trouble = why
        else:
            if self.trouble is not None:
                self.trouble = None
                self.tell(f"{self.log.path}: is written again, and lacks nothing")

    def seconds(self) -> float:
        """Since the run began; what was done before a resume is added."""
        return round(self.before + time.perf_counter() - self.since, 3)

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """The loss was read back."""
        solver, speed = self.solver, self.speed.at(iteration)
        gradient, weights = solver.norms()
        blobs = {name: solver.net.blobs[name].data for name in solver.net.outputs}
        host = solver.device.to_host
        small = {name: host(data) for name, data in blobs.items() if data.size <= LARGEST}
        self.add(
            "train",
            iteration,
            epoch=epochs(solver),
            loss=loss,
            outputs={name: data.astype(np.float64).tolist() for name, data in small.items()},
            lr=rate,
            images_per_s=round(speed * self.images, 1) or None,
            seconds=self.seconds(),
            memory_mib=round(memory_used(solver.device) / 2**20, 1),
            gradient_norm=gradient,
            weight_norm=weights,
        )

    def testing(self, iteration: int) -> None:
        """A test begins."""
        self.speed.at(iteration)

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done."""
        epoch, seconds = epochs(self.solver), self.seconds()
        self.add("test", iteration, epoch=epoch, seconds=seconds, outputs=scores)
        self.speed.skip(iteration)

    def saving(self, path: str) -> None:
        """A snapshot is about to be written: it needs its folder, and the log is to survive as it does."""
        with contextlib.suppress(CheckpointError, OSError):  # told when it is written, or is not
            self._have_folder()
            self.log.write(durable=True)

    def saved(self, path: str, best: bool = False) -> None:
        """A snapshot was written."""
        name = run_folder.seen_from(self.folder, path)
        at = self.solver.iteration
        self.add("snapshot", at, seconds=self.seconds(), path=name, best=best)
        try:
            self._write_run("running")  # how far the run is
        except CheckpointError as error:
            self.failed(f"{error}; training goes on, and it is tried again at the next snapshot")

    def failed(self, text: str) -> None:
        """Something did not succeed."""
        self.event(text)

    def event(self, text: str) -> None:
        """Something happened."""
        if self.solver is None:
            self.early.append(text)
            return
        self.add("event", self.solver.iteration, seconds=self.seconds(), text=text)

    def started(self, warnings: Sequence[str]) -> None:
        """Training starts, with what the user must know."""
        for warning in warnings:
            self.event(warning)

    def finished(self, warnings: Sequence[str]) -> None:
        """Training has ended."""

    def _have_folder(self) -> None:
        """Make the run's folder again if it has gone. Raises CheckpointError if it cannot be made."""
        if self.folder.is_dir():
            return
        run_folder.make(self.folder)
        if self.lock is not None:
            self.lock.take()
        self._write_files("running")
        text = f"{self.folder}: had gone, and is made again; what was in it is lost"
        self.tell(text)
        self.event(text)

    def _write_files(self, state: str) -> None:
        data = self.model.encode("utf-8")
        checkpoint.replace(self.folder / run_folder.MODEL, lambda file: file.write(data))
        self._write_run(state)  # the last: it makes the folder that of a run

    def _write_run(self, state: str) -> None:
        self.ended = state != "running"
        content = {**self.about, "state": state, "iteration": self.solver.iteration}
        run_folder.write(self.folder, content)
