"""The folder that a run leaves while a Solver trains, by `train` or Solver(run=...), and the record in it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.model import MODEL, text
from minicaffe.core.net.sources import with_classes
from minicaffe.core.plugins import STATES, format_of
from minicaffe.core.solver import snapshots
from minicaffe.core.solver.report import Mute
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.core.solver.snapshots import WANTED
from minicaffe.errors import CheckpointError, MinicaffeError, TrainingError, raised_as
from minicaffe.storage import checkpoint
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.divergence import FILE
from minicaffe.tools.training.folder import LOCK, Lock, LogFile, RunRecord, json_line, now, plain
from minicaffe.tools.training.progress import Together
from minicaffe.tools.training.speed import Speed, epochs, facts, images_per_iteration, memory_used

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
        lock: Lock,
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
        for early in self.early:
            self.event(early)

    def again(self) -> None:
        """Training goes on, after it had ended or in the midst of it. Raises CheckpointError."""
        if self.ended:
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
        try:
            self._have_folder()
            self.log.add(line, durable=kind == "snapshot")
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
        for hearer in self.hearers:
            hearer(line)

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
            memory_mib=round(memory_used(solver.device) / 2**20, 1) or None,
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
        self.add("snapshot", self.solver.iteration, seconds=self.seconds(), path=name, best=best)
        try:
            self._write_run("running")  # how far the run is
        except CheckpointError as error:
            self.failed(f"{error}; training goes on, and it is tried again at the next snapshot")

    def event(self, text: str) -> None:
        """Something happened, or did not succeed."""
        if self.solver is None:
            self.early.append(text)
            return
        self.add("event", self.solver.iteration, seconds=self.seconds(), text=text)

    failed = event

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
        self.lock.take()
        self._write_files("running")
        text = f"{self.folder}: had gone, and is made again; what was in it is lost"
        self.tell(text)
        self.event(text)

    def _write_files(self, state: str) -> None:
        checkpoint.replace(self.folder / run_folder.MODEL, self.model.encode("utf-8"))
        self._write_run(state)  # the last: it makes the folder that of a run

    def _write_run(self, state: str) -> None:
        self.ended = state != "running"
        content = {**self.about, "state": state, "iteration": self.solver.iteration}
        run_folder.write(self.folder, content)


WEIGHTS = (".caffemodel", ".caffemodel.h5", ".safetensors")


def newest(model: str, name: str, prefix: str | None) -> tuple[Path | None, Path]:
    """The newest snapshot of a model's runs under runs/, or of `prefix`: the run's folder, and the file.

    With a prefix only runs are meant whose snapshots bear it; without one all, and `name`_iter_N in the
    current folder. Raises CheckpointError if there is none.
    """
    candidates: list[tuple[int, bool, Path | None, Path]] = []
    for folder in run_folder.runs():
        record = RunRecord(folder, run_folder.about(folder))
        file = record.newest
        meant = same(record.model_given, model) and (prefix is None or same(record.prefix, prefix))
        if file is not None and meant:
            candidates.append((file.stat().st_mtime_ns, True, folder, file))
    bare = prefix or name
    if snapshots.listed(bare):
        file = snapshots.latest(bare)
        candidates.append((file.stat().st_mtime_ns, False, None, file))
    if not candidates:
        run = f"there is no run of {model} with a snapshot in {run_folder.RUNS}/, and "
        raise CheckpointError(
            f"{'' if prefix else run}there is no snapshot {bare}_iter_*.npz to resume from"
        )
    return max(candidates, key=lambda one: one[:2])[2:]


def model_of(path: str) -> Path:
    """What holds the model to go on with from a run's folder, or a snapshot: the run's folder, else the
    snapshot itself. Raises CheckpointError for what is neither."""
    if os.path.isdir(path):
        return RunRecord(Path(path), run_folder.about(path)).folder
    file = with_state(path)
    if (folder := run_of(file)) is not None:
        return folder
    if format_of(STATES, path) is None:
        with checkpoint.Reader(file, WANTED) as reader:
            if MODEL in reader.shapes:
                return file
    raise CheckpointError(f"{path}: does not hold its net's text: train MODEL --resume {path}")


def with_state(path: str) -> Path:
    """A file that may be a snapshot. Raises CheckpointError for one that is not there, or of weights alone."""
    if path.lower().endswith(WEIGHTS):
        raise CheckpointError(f"{path}: holds weights and no solver's state; try --weights")
    if not os.path.exists(path):
        raise CheckpointError(f"{path}: no such file")
    return Path(path)


def run_of(snapshot: Path) -> Path | None:
    """The folder of the run that a snapshot is of, if it is known: the one it lies in, or one under runs/."""
    if run_folder.is_run(snapshot.parent):
        return snapshot.parent
    prefix = snapshot.parent / re.sub(run_folder.SNAPSHOT, "", snapshot.name)
    for folder in reversed(run_folder.runs()):
        if same(RunRecord(folder, run_folder.about(folder)).prefix, prefix):
            return folder
    return None


def same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths are of the same thing."""
    return os.path.realpath(one) == os.path.realpath(other)


def cut(lines: list[Line], name: str, iteration: int, tested_again: bool) -> list[Line]:
    """Of a log's lines those that hold for who goes on from the snapshot `name` of an iteration.

    They are those down to the line that tells of it. If that was never written, for the process was killed
    before, it is the lines of what was before it. A test of the iteration stays unless it is made again.
    """
    wanted = "snapshot", name, iteration
    events = [(line["kind"], line.get("path"), line["iteration"]) for line in lines]
    at = [i for i, one in enumerate(events) if one == wanted]
    last = {"train": iteration - 1, "test": iteration - tested_again}
    before = lines[: at[-1] + 1] if at else lines
    return [line for line in before if line["iteration"] <= last.get(line["kind"], iteration)]


def forget(folder: Path, snapshot: Path | None) -> None:
    """Have a run's folder be as when its snapshot was taken, or as new: what came of going on is forgotten.

    There is no iteration that diverged, and that snapshot is the newest, though later ones stay.
    """
    with raised_as(CheckpointError, f"{folder / FILE}: cannot be removed"):
        (folder / FILE).unlink(missing_ok=True)
    if snapshot is not None and snapshot.parent.resolve() == folder.resolve():
        with contextlib.suppress(OSError):  # another's file, say
            os.utime(snapshot)


def model_text(solver: Any, folder: Path) -> str:
    """The text of model.yaml: the net and solver as they are, but where snapshots go."""
    net = with_classes(solver.net.spec, solver.net.layers.values())
    dtype = solver.net.context.dtype.name
    prefix = net.solver.snapshot_prefix if net.solver is not None else None
    rule = dataclasses.replace(solver.spec, snapshot_prefix=prefix)
    as_it_is = {"solver": rule, "dtype": dtype, "precision": solver.net.precision}
    return text(dataclasses.replace(net, **as_it_is), folder)


@dataclass(eq=False)
class Run:
    """A run that begins, or goes on from `snapshot`; in `begun` what its folder holds, if it is one.

    `folder` is a new one if it is None; `from_newest` goes on from what is found in it. `asked` is what
    run.json says of how it was asked for: `model`, `command`, `imports`, `seed_asked`. What is in `at_end` is
    done when the record is whole. While it is entered, nobody else trains in its folder.
    Raises CheckpointError.
    """

    record: Record
    name: str
    folder: Path | None
    asked: Mapping[str, Any]
    snapshot: Path | None = None
    from_newest: bool = False
    begun: RunRecord | None = field(default=None, init=False)
    lock: Lock | None = field(default=None, init=False)
    created: Path | None = field(default=None, init=False)
    at_end: list[Callable[[], None]] = field(default_factory=list, init=False)

    def __enter__(self) -> Run:
        if self.folder is not None and run_folder.is_run(self.folder):
            self.lock = Lock(self.folder)
            try:
                self._join(run_folder.read(self.folder))
            except BaseException:
                self.lock.release()
                raise
        return self

    def _join(self, begun: RunRecord) -> None:
        """Go on in a run's folder. Raises CheckpointError if another run would be lost by that."""
        newest = begun.newest
        if self.from_newest and self.snapshot is None:
            self.snapshot = newest
        homes = begun.folder.resolve(), Path(begun.prefix).parent.resolve()
        own = self.snapshot is not None and (
            self.snapshot == newest or self.snapshot.parent.resolve() in homes
        )
        if newest is not None and not own:
            raise CheckpointError(
                f"{begun.folder}: holds another run, with snapshots; go on with that by --resume "
                f"{begun.folder}, or choose another folder with --run"
            )
        self.begun, self.name = begun, begun.about["name"]

    def seed(self) -> int | None:
        """The seed that the command asks for, or the one that began the run did."""
        asked: int | None = self.asked["seed_asked"]
        return asked if self.begun is None else self.begun.about.get("seed_asked")

    def place(self, solver: Any) -> Path:
        """Give the solver, before it is restored, its folder, and make that if it is not there."""
        if self.folder is None:
            self.folder = self.created = run_folder.fresh(self.name)
        elif not self.folder.exists():
            self.created = self.folder
        run_folder.make(self.folder)
        if self.lock is None:
            self.lock = Lock(self.folder)
            if run_folder.is_run(self.folder):  # another process made it meanwhile
                self._join(run_folder.read(self.folder))
        prefix = solver.spec.snapshot_prefix  # of the model or the command, else the run's own
        if prefix is None:
            prefix = str(self.folder / self.name) if self.begun is None else self.begun.prefix
        solver.record_folder, solver.saving.prefix = self.folder, prefix
        snapshots.check(solver.saving.prefix, solver.spec.snapshot_format, solver.net.layers)
        run_folder.clean(self.folder, solver.saving.prefix)
        return self.folder

    def begin(self, solver: Any) -> None:
        """The solver, restored, is about to train: the record begins."""
        assert self.folder is not None and self.lock is not None
        about = {"name": self.name, **facts(solver), **self.asked, "seed_asked": self.seed()}
        about |= {"started": now(), "resumed": None}
        about["resumed_from"] = self.snapshot and run_folder.seen_from(self.folder, self.snapshot)
        about["snapshot_prefix"] = run_folder.seen_from(self.folder, solver.saving.prefix)
        about["tests_on"] = list(score_suffixes(solver.test_nets, solver.net))
        lines = []
        if self.snapshot is not None and self.begun is not None:
            name = run_folder.seen_from(self.folder, self.snapshot)
            lines = cut(self.begun.lines, name, solver.iteration, solver.test_due())
            old = self.begun.about
            about |= {key: old[key] for key in ("model", "cwd", "started")}
            about["resumed"] = now()
            before, several = old.get("batch"), max(old.get("ranks", 1), about["ranks"]) > 1
            if several and before not in (None, about["batch"]):
                solver.report.event(f"a batch of {about['batch']} samples; before it was {before}")
        log = "".join(f"{json_line(line)}\n" for line in lines)
        checkpoint.replace(self.folder / run_folder.LOG, log.encode())
        seconds = float(lines[-1]["seconds"] or 0.0) if lines else 0.0
        forget(self.folder, self.snapshot)
        known = about, model_text(solver, self.folder), seconds, self.lock
        self.record.begin(solver, self.folder, *known)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if self.record.solver is not None:
                self._end(error)
                for end in self.at_end:
                    end()
            elif self.created is not None:  # and nothing came of it
                with contextlib.suppress(OSError):
                    (self.created / LOCK).unlink()
                    self.created.rmdir()
        finally:
            if self.lock is not None:
                self.lock.release()

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self.record.end("stopped" if self.record.solver.stopped else "finished")
            return
        if isinstance(error, KeyboardInterrupt):
            self.record.event("stopped at once, without a snapshot")
            state = "stopped"
        else:
            is_ours = isinstance(error, MinicaffeError)
            self.record.event(str(error) if is_ours else f"{type(error).__name__}: {error}")
            state = "diverged" if isinstance(error, TrainingError) else "failed"
        try:
            self.record.end(state)
        except CheckpointError as lacking:
            self.record.tell(str(lacking))  # beside the error that ended training


class Kept:
    """The run of Solver(run=...): it begins with the first iteration, and `solve` ends it."""

    def __init__(self, solver: Any, model: NetSpec, settings: Mapping[str, Any]):
        """From here on what the solver reports is recorded, too."""
        self.record = Record(solver.report.failed, [])
        file, seed = model.path or model.layers[0].mark.file, settings.get("random_seed")
        asked = {"model": str(file), "command": [*sys.argv], "imports": [], "seed_asked": seed}
        self.run = Run(self.record, snapshots.name(model), solver.run, asked)
        self.began = self.inside = False
        solver.record_folder = solver.run
        if solver.communicator.rank == 0:
            solver.report = Together(solver.report, self.record)

    def enter(self, solver: Any) -> None:
        """Begin, or go on with, the record. Raises CheckpointError."""
        if self.began:
            self.record.again()
            return
        if solver.iteration:
            self.run.snapshot = solver.saving.restored
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.run)
                self.run.place(solver)
                self.run.begin(solver)
                stack.pop_all()
        finally:
            self.began = self.record.solver is not None
        assert self.run.folder is not None and self.run.lock is not None
        self.at = [solver.iteration]
        weakref.finalize(solver, _leave, self.run.folder.absolute(), self.run.lock, self.at)

    def leave(self, solver: Any, error: BaseException | None, ends: bool) -> None:
        """What was entered is over: with an error, or the run's end."""
        self.at[:] = [solver.iteration]
        if error is not None or ends:
            self.run.__exit__(None, error, None)


def _leave(folder: Path, lock: Lock, at: list[int]) -> None:
    """A solver has gone: let its run, if it has not ended, say that it was stopped."""
    with contextlib.suppress(CheckpointError):  # its folder has gone, too
        about = run_folder.about(folder)
        if about["state"] == "running":
            about |= {"state": "stopped", "iteration": at[0]}
            run_folder.write(folder, about)
    lock.release()
