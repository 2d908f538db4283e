"""A run's folder: its name, what lies in it and what is read from it; and its log, one JSON object a line."""

import contextlib
import errno
import functools
import itertools
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.core.solver import snapshots
from minicaffe.errors import CheckpointError, note, raised_as
from minicaffe.storage import checkpoint
from minicaffe.storage.checkpoint import check_regular
from minicaffe.storage.file_kinds import reading

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
        remedy = "; choose another folder with --run"
        with raised_as(CheckpointError, f"{self.file}: cannot be written", remedy=remedy):
            self.handle = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666)
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
    """What run.json of a run's folder says, checked. Raises CheckpointError, also if there is none."""
    file = Path(folder, RUN)
    if not file.exists():
        raise CheckpointError(f"{folder}: is no run's folder: there is no {RUN} in it")
    run = {"tests_on": [], **_object(_bytes(file), str(file))}  # which older runs do not say
    _check(run, ABOUT, str(file))
    return run


def write(folder: Path, about: dict[str, Any]) -> None:
    """Write run.json. Raises CheckpointError."""
    checkpoint.replace(folder / RUN, json.dumps(plain(about), indent=2).encode() + b"\n")


def seen_from(folder: Path, path: str | Path) -> str:
    """A file as the record in a folder names it: by its name if it lies there, else by its whole path."""
    whole = os.path.abspath(path)
    return os.path.basename(whole) if os.path.dirname(whole) == os.path.abspath(folder) else whole


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
    """Make a new run's folder, runs/NAME-YYYYMMDD-HHMMSS, or -2, ... where that is. Raises CheckpointError."""
    for one in numbered(f"{name}-{datetime.now():%Y%m%d-%H%M%S}"):
        path = Path(RUNS, one)
        with _making(path):
            path.parent.mkdir(exist_ok=True)
            try:
                path.mkdir()
                break
            except FileExistsError:  # by another process, perhaps
                if not path.is_dir():
                    raise
    for home in (path.parent, path.parent.parent):
        checkpoint.flush_folder(home)  # so that it survives a power cut
    return path


def numbered(name: str) -> Iterator[str]:
    """Yields a name and, for as long as they are taken, NAME-2, NAME-3, ..."""
    yield name
    yield from (f"{name}-{count}" for count in itertools.count(2))


def make(path: Path) -> None:
    """Make a folder, unless it is there, so that it survives a power cut. Raises CheckpointError."""
    new = [one for one in (path, *path.parents) if not one.exists()]
    with _making(path):
        path.mkdir(parents=True, exist_ok=True)
    for one in new:
        checkpoint.flush_folder(one.parent)


def _making(path: Path) -> contextlib.AbstractContextManager[None]:
    what, remedy = f"{path}: the run's folder cannot be made", "; choose another with --run"
    return raised_as(CheckpointError, what, remedy=remedy)


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


class LogFile:
    """Adds lines to a log, which is opened for each: one that has gone, or is full, is noticed at once.

    `waiting` are the lines that could not be written so far; they are written later.
    """

    def __init__(self, path: Path):
        self.path, self.waiting = path, list[bytes]()
        self.size = path.stat().st_size if path.exists() else 0  # of whole lines

    def add(self, line: Mapping[str, Any], durable: bool = False) -> None:
        """Add a line after those that wait; have all survive a power cut, too, if they are to be `durable`.

        Raises OSError if it cannot be done; then it is tried again with the next line.
        """
        self.waiting.append(json_line(line).encode() + b"\n")
        self.write(durable)

    def write(self, durable: bool = False) -> None:
        """Write what waits. Raises OSError; the file then ends with a whole line, if it still can be."""
        data = b"".join(self.waiting)
        with open(self.path, "ab", buffering=0) as file:
            if file.tell() != self.size:  # half a line of a failed attempt, or another's work
                self.size = file.truncate(min(self.size, file.tell()))
            if file.write(data) != len(data):
                file.truncate(self.size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self.size += len(data)
            self.waiting.clear()
            if durable:
                os.fsync(file.fileno())


def json_line(value: Any) -> str:
    """A value as strict JSON in one line: arrays as lists, what is no finite number as null.

    >>> json_line({"loss": float("inf"), "per_class": np.array([0.5, 1], np.float32)})
    '{"loss": null, "per_class": [0.5, 1.0]}'
    """
    return json.dumps(plain(value), allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


LARGEST = 2**30  # bytes of a log that is read
Check = tuple[Callable[[Any], bool], str]  # of a value, and what is expected in words


def _is_number(value: Any) -> bool:
    """True for a finite number, or null where there was none."""
    return value is None or (type(value) in (int, float) and abs(value) < math.inf)


def _are_numbers(value: Any) -> bool:
    """True for numbers, or lists of them in any depth, by name."""
    todo = [*value.values()] if isinstance(value, dict) else [value]
    while todo:  # no recursion: lists in lists may be deeper than Python's stack
        item = todo.pop()
        if isinstance(item, list):
            todo += item
        elif not _is_number(item):
            return False
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


NUMBER: Check = (_is_number, "a number")
COUNT: Check = (lambda value: type(value) is int and 0 <= value < 2**62, "a count")  # an iteration
TEXT: Check = (lambda value: isinstance(value, str), "a text")
OUTPUTS: Check = (_are_numbers, "numbers by name")
BEST: Check = (lambda value: isinstance(value, bool), "true or false")
NEEDED: dict[str, dict[str, Check]] = {
    "train": {"outputs": OUTPUTS},
    "test": {"outputs": OUTPUTS},
    "snapshot": {"path": TEXT, "best": BEST},
    "event": {"text": TEXT},
}
NUMBERS = {
    "train": (
        *("epoch", "loss", "lr", "images_per_s", "seconds"),
        *("memory_mib", "gradient_norm", "weight_norm"),
    ),
    "test": ("epoch", "seconds"),
    "snapshot": ("seconds",),
    "event": ("seconds",),
}
ABOUT = dict.fromkeys(("name", "model", "started", "state", "cwd", "snapshot_prefix"), TEXT)
ABOUT |= dict.fromkeys(("command", "imports", "tests_on"), (_are_texts, "a list of texts"))
ABOUT["iteration"] = COUNT


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a log, each checked; numbers that one lacks are None.

    A truncated or zero-filled last line is ignored: whoever wrote it was stopped. Keys that are not known
    stay. Raises CheckpointError, with the line's number, for a line that is not as `docs/runs.md` has it.
    """
    whole, _, _ = _bytes(file).rstrip(b"\0").rpartition(b"\n")
    return [_line(line, f"{file}:{n}") for n, line in enumerate(whole.split(b"\n"), 1) if line]


def _bytes(file: Path) -> bytes:
    with reading(file, "log", CheckpointError):
        check_regular(file)
        if file.stat().st_size > LARGEST:
            raise CheckpointError(
                f"{file}: is larger than a log that can be read ({LARGEST} bytes)"
            )
        return file.read_bytes().removeprefix(b"\xef\xbb\xbf")  # that Notepad writes


def _line(text: bytes, where: str) -> dict[str, Any]:
    line = _object(text, where)
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in NEEDED:
        known = ", ".join(NEEDED)
        raise CheckpointError(f"{where}: kind: expected one of {known}, got {shown(kind)}")
    line |= {key: line.get(key) for key in NUMBERS[kind]}
    numbers = dict.fromkeys(NUMBERS[kind], NUMBER)
    _check(line, {"iteration": COUNT, **numbers, **NEEDED[kind]}, where)
    return line


def _object(text: bytes, where: str) -> dict[str, Any]:
    def no_number(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number of JSON's")

    try:
        value = json.loads(text.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        problem = getattr(error, "msg", None) or str(error)
        raise CheckpointError(f"{where}: is no JSON: {problem}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected an object of JSON's, got {type(value).__name__}")
    return value


def shown(value: Any) -> str:
    """A value in an error: what it is, if it is long.

    >>> shown("a"), shown([[1]])
    ("'a'", 'list')
    """
    return type(value).__name__ if isinstance(value, (list, dict)) else f"{value!r:.60}"


def _check(values: Mapping[str, Any], wanted: Mapping[str, Check], where: str) -> None:
    for key, (right, what) in wanted.items():
        if key not in values:
            raise CheckpointError(f"{where}: has no {key!r}; expected {what}")
        if not right(values[key]):
            raise CheckpointError(f"{where}: {key}: expected {what}, got {shown(values[key])}")
