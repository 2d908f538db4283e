"""A run's folder: its name, what lies in it and what is read from it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from minicaffe.core.solver import snapshots
from minicaffe.errors import CheckpointError, note
from minicaffe.storage import checkpoint
from minicaffe.tools.training.log_file import plain, read_lines, read_run

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
        holder = json.loads(file.read_bytes()[:1000])
        text = f"process {int(holder['pid'])} on {holder['host']}, since {holder['since']},"
        return text if text.isprintable() else "another process"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"


def now() -> str:
    """The time as run.json has it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


RUNS = "runs"
RUN, MODEL, LOG = "run.json", "model.yaml", "log.jsonl"
OWN = ("run.json", "model.yaml", "log.jsonl", "report.html", "diverged.npz")
# In a model's text: layers that read, or once read, pictures in files of their own
PICTURES_IN_FILES = (
    r"\bnew_height: [1-9]|\btype: \w*(Image|Window|Annotated|Video|Label[Mm]ap)\w*Data\b"
)
SNAPSHOT = rf"_(iter_[0-9]+|best)({'|'.join(map(re.escape, snapshots.WRITTEN))})"


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder tells: `about` of run.json, and the lines of its log."""

    folder: Path
    about: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of a kind: train, test, snapshot, event."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def state(self) -> str:
        """running, finished, stopped, diverged, failed; or killed, if nobody holds what is said to run."""
        state = str(self.about["state"])
        return "killed" if state == "running" and not in_use(self.folder) else state

    @property
    def model(self) -> Path:
        """The file in it that holds the model as it was trained, with its solver."""
        return self.folder / MODEL

    @property
    def model_given(self) -> str:
        """The path of the model file it was begun with."""
        return os.path.join(self.about["cwd"], self.about["model"])

    @property
    def prefix(self) -> str:
        """What the names of its snapshots begin with, folder and all."""
        return near(self.folder / self.about["snapshot_prefix"])

    @property
    def newest(self) -> Path | None:
        """The snapshot it goes on from: its newest, the one it was resumed from, or of the best test."""
        if snapshots.listed(self.prefix):
            return snapshots.latest(self.prefix)
        resumed = self.about.get("resumed_from")  # and nothing was kept since
        file = near(self.folder / resumed) if isinstance(resumed, str) else ""
        return Path(file) if os.path.isfile(file) else self.best

    @property
    def best(self) -> Path | None:
        """The snapshot of its best test, if one was wanted."""
        files = [Path(f"{self.prefix}_best{ending}") for ending in snapshots.ENDINGS.values()]
        return next((file for file in files if file.is_file()), None)

    @property
    def weights(self) -> Path:
        """The file of its best weights: of the best test, else the newest. Raises CheckpointError."""
        snapshot = self.best or self.newest
        if snapshot is None:
            raise CheckpointError(f"{self.folder}: this run has no snapshot")
        return snapshots.weights_beside(snapshot)


def read(folder: str | Path) -> RunRecord:
    """What a run's folder tells, checked. Raises CheckpointError.

    Half a line at the log's end is passed over; without a log there are no lines.
    """
    folder = Path(folder)
    log = folder / LOG
    return RunRecord(folder, about(folder), read_lines(log) if log.exists() else [])


def about(folder: str | Path) -> dict[str, Any]:
    """What run.json of a run's folder says. Raises CheckpointError if it is none."""
    file = Path(folder, RUN)
    if not file.exists():
        raise CheckpointError(f"{folder}: is no run's folder: there is no {RUN} in it")
    return read_run(file)


def write(folder: Path, about: dict[str, Any]) -> None:
    """Write run.json. Raises CheckpointError."""
    data = json.dumps(plain(about), indent=2).encode() + b"\n"
    checkpoint.replace(folder / RUN, lambda file: file.write(data))


def seen_from(folder: Path, path: str | Path) -> str:
    """A file as the record in a folder names it: by its name if it lies there, else by its whole path."""
    whole = os.path.abspath(path)
    inside = os.path.dirname(whole) == os.path.abspath(folder)
    return os.path.basename(whole) if inside else whole


def near(path: Path) -> str:
    """A path as one would type it here: a whole one from the current folder, if it lies below that."""
    from_here = os.path.relpath(path)
    return from_here if path.is_absolute() and not from_here.startswith(os.pardir) else str(path)


def weights(folder: str | Path) -> Path:
    """The file of a run's best weights: of its best test, else the newest. Raises CheckpointError."""
    return RunRecord(Path(folder), about(folder)).weights


def to_go_on_from(folder: str | Path) -> Path:
    """The snapshot that a run goes on from. Raises CheckpointError."""
    snapshot = RunRecord(Path(folder), about(folder)).newest
    if snapshot is None:
        remedy = f"begin it anew with --run {folder}"
        raise CheckpointError(f"{folder}: this run has no snapshot to go on from; {remedy}")
    return snapshot


@functools.cache
def warn_of_old_reading(file: str) -> None:
    """Put a line on stderr, once, for a snapshot of a run whose pictures were read as they are stored.

    So data layers read them before version 0.2: neither turned as EXIF says nor laid on white.
    """
    folder = Path(file).parent
    if not is_run(folder) or not (folder / MODEL).is_file():
        return
    version = str(about(folder).get("versions", {}).get("minicaffe", ""))
    text = (folder / MODEL).read_text(encoding="utf-8", errors="replace")
    if version.startswith("0.1.") and re.search(PICTURES_IN_FILES, text):
        note(
            f"minicaffe: {folder}: was trained by version {version}, which took pictures as they are stored,"
            " not turned as their EXIF says and not on white; if yours have either, train anew"
        )


def is_run(folder: str | Path) -> bool:
    """Whether a folder is that of a run."""
    return Path(folder, RUN).is_file()


def fresh(name: str) -> Path:
    """Make a folder for a new run, runs/NAME-YYYYMMDD-HHMMSS, or -2, -3, ... if that is taken.

    Raises CheckpointError if it cannot be made.
    """
    base, count = Path(RUNS, f"{name}-{datetime.now():%Y%m%d-%H%M%S}"), 1
    while True:
        path = base if count == 1 else base.with_name(f"{base.name}-{count}")
        try:
            path.parent.mkdir(exist_ok=True)
            path.mkdir()
        except OSError as error:
            if not (isinstance(error, FileExistsError) and path.is_dir()):
                raise _cannot_be_made(path, error) from None
            count += 1
        else:
            for one in (path.parent, path.parent.parent):
                checkpoint.flush_folder(one)  # so that it survives a power cut
            return path


def make(path: Path) -> None:
    """Make a folder, unless it is there, so that it survives a power cut. Raises CheckpointError."""
    new = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_be_made(path, error) from None
    for one in new:
        checkpoint.flush_folder(one.parent)


def _cannot_be_made(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path}: the run's folder cannot be made: {error.strerror}; choose another with --run"
    )


def runs() -> list[Path]:
    """The folders of runs under runs/."""
    listed = os.listdir(RUNS) if os.path.isdir(RUNS) else []
    return [Path(RUNS, entry) for entry in sorted(listed) if is_run(Path(RUNS, entry))]


def clean(folder: Path, prefix: str) -> None:
    """Remove what a process left half written that was killed: files as `checkpoint.replace` calls them."""
    own = "|".join(map(re.escape, OWN))
    beside, name = os.path.split(prefix)
    places = (folder, f"{own}|.+{SNAPSHOT}"), (Path(beside or "."), f"{re.escape(name)}{SNAPSHOT}")
    for place, names in places:
        for entry in os.listdir(place) if place.is_dir() else []:
            if re.fullmatch(rf"\.({names})\.[a-z0-9_]{{8}}(\.tmp)?", entry):
                with contextlib.suppress(OSError):  # what cannot be removed stays
                    Path(place, entry).unlink()
