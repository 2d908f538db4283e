"""A disk that fails: every call that changes a folder is counted, and each can be made to fail.

with Disk(folder) as disk:              # counts, and remembers what each call did
    work()
with Disk(folder, {7: Fault("EIO")}):   # the seventh call fails
    work()

Calls are those of Python: open for writing, write, truncate, fsync, close, rename, unlink, mkdir, rmdir, utime,
mmap. `short` has a write take half of its bytes. EINTR is not among the errors, since Python itself calls again
(PEP 475): see `signals`. A file that C writes, such as LMDB's, is not seen: see `full`. Needs Linux's /proc.

`cut(disk, k, state, into)` is what a power cut after the first k calls may leave of the folder.
"""

from __future__ import annotations

import _io
import builtins
import contextlib
import errno
import fcntl
import io
import mmap
import os
import resource
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minicaffe.cli import main

# What each call may fail with; every one of them with EIO, too
ERRORS = {
    "open": ("ENOSPC", "EACCES", "EROFS"),
    "write": ("ENOSPC", "short"),
    "truncate": ("ENOSPC", "EROFS"),
    "fsync": ("ENOSPC",),
    "close": (),
    "rename": ("EACCES", "ENOSPC"),
    "unlink": ("EACCES", "EROFS"),
    "mkdir": ("ENOSPC", "EACCES", "EROFS"),
    "rmdir": ("EACCES",),
    "utime": ("EACCES",),
    "mmap": ("EACCES",),
}
STATES = ("least", "named", "torn", "all")  # that a power cut may leave: see `cut`


@dataclass(frozen=True)
class Fault:
    """What a call fails with: an errno's name, or `short`. With `lasting` so do all later calls of its kind."""

    name: str
    lasting: bool = False


@dataclass(frozen=True)
class Call:
    """A call that was made: its kind, its path below the folder, and what `cut` needs to know of it."""

    kind: str
    path: str
    args: tuple[Any, ...] = ()


@dataclass
class Disk:
    """Counts the calls below a folder while it is entered; `faults` says which fail, from 1 on."""

    folder: Path
    faults: Mapping[int, Fault] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = Path(os.path.realpath(self.folder))
        self.before = {
            path.relative_to(self.folder).as_posix(): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
        }

    def inside(self, path: Any) -> str | None:
        """The path of a file below the folder, or of that, by its name or its number; None for any other."""
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return None
            if not path.startswith(os.sep) or path.endswith(" (deleted)"):
                return None  # a pipe, or a file without a name
        try:
            whole = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return None
        whole = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        base = str(self.folder)
        return os.path.relpath(whole, base) if (whole + os.sep).startswith(base + os.sep) else None

    def call(self, kind: str, path: str, *args: Any) -> str | None:
        """Count a call. Raises OSError if it is to fail; returns `short` for a write of half."""
        number = len(self.calls) + 1
        fault = self.faults.get(number) or next(
            (
                fault
                for k, fault in self.faults.items()
                if fault.lasting and k < number and self.calls[k - 1].kind == kind
            ),
            None,
        )
        failed = fault is not None and fault.name != "short"
        self.calls.append(Call(kind, path, ("failed",) if failed else args))
        if fault is None or fault.name == "short":
            return fault and fault.name
        code = getattr(errno, fault.name)
        raise OSError(code, os.strerror(code), str(self.folder / path))

    def __enter__(self) -> Disk:
        self._undo = contextlib.ExitStack()
        put = self._put
        opened = io.open

        def open_(file: Any, mode: str = "r", *args: Any, **how: Any) -> Any:
            reads = not set(mode) & set("wax+")
            if reads or (
                not isinstance(file, int) and "opener" not in how and self.inside(file) is None
            ):
                return opened(file, mode, *args, **how)
            return self._open(opened, file, mode, *args, **how)

        for module in (builtins, io, _io):  # tempfile has that of _io
            put(module, "open", open_)
        of_os = os.open, os.write, os.close, os.fsync, os.replace, os.truncate, os.ftruncate
        raw_open, raw_write, raw_close, raw_fsync, raw_replace, raw_truncate, raw_ftruncate = of_os

        def os_open(path: Any, flags: int, *args: Any, **how: Any) -> int:
            inside = None if how.get("dir_fd") is not None else self.inside(path)
            if inside is not None and flags & os.O_TMPFILE == os.O_TMPFILE:
                self.call("open", f"{inside}/a file without a name", "nameless")
            elif inside is not None and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.call("open", inside, bool(flags & os.O_TRUNC))
            return raw_open(path, flags, *args, **how)

        def os_write(handle: int, data: Any) -> int:
            inside = self.inside(handle)
            if inside is None:
                return raw_write(handle, data)
            data, at = bytes(data), os.lseek(handle, 0, os.SEEK_CUR)
            if self.call("write", inside, at, data) == "short":
                data = data[: len(data) // 2]
                self._shorten(data)
            return raw_write(handle, data)

        def os_close(handle: int) -> None:
            inside = self.inside(handle)
            try:
                if inside is not None and _writes(handle):
                    self.call("close", inside)
            finally:  # Linux closes it whatever it says
                raw_close(handle)

        def os_fsync(handle: int) -> None:
            inside = self.inside(handle)
            if inside is not None:
                self.call("fsync", inside, os.path.isdir(self.folder / inside))
            raw_fsync(handle)

        def replace(source: Any, target: Any, **how: Any) -> None:
            pair = self.inside(source), self.inside(target)
            if pair[0] is not None and pair[1] is not None:
                self.call("rename", pair[1], pair[0])
            raw_replace(source, target, **how)

        def os_truncate(path: Any, length: int) -> None:
            inside = self.inside(path)
            if inside is not None:
                self.call("truncate", inside, length)
            (raw_ftruncate if isinstance(path, int) else raw_truncate)(path, length)

        put(os, "open", os_open)
        put(os, "write", os_write)
        put(os, "close", os_close)
        put(os, "fsync", os_fsync)
        put(os, "replace", replace)
        put(os, "rename", replace)
        put(os, "truncate", os_truncate)
        put(os, "ftruncate", os_truncate)
        for kind, names in {
            "unlink": ("unlink", "remove"),
            "mkdir": ("mkdir",),
            "rmdir": ("rmdir",),
            "utime": ("utime",),
        }.items():
            for name in names:
                put(os, name, self._of_path(kind, getattr(os, name)))
        put(mmap, "mmap", self._mapped(mmap.mmap))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _put(self, module: Any, name: str, value: Any) -> None:
        self._undo.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def _of_path(self, kind: str, function: Any) -> Any:
        def called(path: Any, *args: Any, **how: Any) -> Any:
            inside = None if how.get("dir_fd") is not None else self.inside(path)
            wanted = inside is not None and (kind == "mkdir") != os.path.lexists(path)
            if wanted:  # else the system refuses it anyhow, and says why
                self.call(kind, inside)
            return function(path, *args, **how)

        return called

    def _mapped(self, function: Any) -> Any:
        disk = self

        class Mapped(function):  # type: ignore[misc]
            def __new__(cls, handle: int, *args: Any, **how: Any) -> Any:
                if handle >= 0 and (inside := disk.inside(handle)) is not None:
                    disk.call("mmap", inside)
                return function.__new__(cls, handle, *args, **how)

        return Mapped

    def _shorten(self, data: bytes) -> None:
        last = self.calls[-1]
        self.calls[-1] = Call(last.kind, last.path, (last.args[0], data))

    def _open(self, opened: Any, file: Any, mode: str, buffering: int = -1, encoding: Any = None,
              errors: Any = None, newline: Any = None, closefd: bool = True, opener: Any = None) -> Any:  # fmt: skip
        """As `open`, by a file whose calls are counted."""
        inside = None if opener is not None else self.inside(file)
        if inside is None and opener is None:
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not isinstance(file, int) and opener is None:
            self.call("open", str(inside), "w" in mode)
        raw = _Counted(self, file, "".join(set(mode) & set("rwax+")), closefd, opener)
        if buffering == 0:
            return raw
        buffer: Any = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(
            raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        )
        if "b" in mode:
            return buffer
        text = io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text


class _Counted(io.FileIO):
    """A file of a disk's folder, or a file without a name, whose calls are not counted."""

    def __init__(self, disk: Disk, *how: Any):
        self.disk = disk
        super().__init__(*how)

    def write(self, data: Any) -> int:
        inside = self.disk.inside(self.fileno())
        if inside is None:
            return super().write(data)
        data = bytes(data)
        at = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
        if self.disk.call("write", inside, at, data) == "short":
            data = data[: len(data) // 2]
            self.disk._shorten(data)
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        if (inside := self.disk.inside(self.fileno())) is not None:
            self.disk.call("truncate", inside, self.tell() if size is None else size)
        return super().truncate(size)

    def close(self) -> None:
        if self.closed:
            return
        inside = self.disk.inside(self.fileno())
        try:
            if inside is not None and self.closefd:
                self.disk.call("close", inside)
        finally:
            super().close()


def _writes(handle: int) -> bool:
    try:
        return bool(fcntl.fcntl(handle, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))
    except OSError:
        return False


@contextlib.contextmanager
def full(most: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes, whoever writes it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def signals(every: float) -> Iterator[list[int]]:
    """A signal every so many seconds, which interrupts whatever the process waits for; counted."""
    count = [0]

    def heard(*_: object) -> None:
        count[0] += 1

    before = signal.signal(signal.SIGALRM, heard)
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield count
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class _File:
    """What a file holds, and what of that is sure to survive."""

    now: bytearray
    sure: bytearray


def cut(disk: Disk, k: int, state: str, into: Path) -> None:
    """Write to an empty folder what a power cut after the first k calls may leave.

    least   only what was flushed by fsync: a file's bytes, and of a folder the names in it
    named   all names, but of the files' bytes only those that were flushed
    torn    all names, and of the bytes that were not flushed the first half
    all     everything that was done
    """
    files = {
        path: _File(bytearray(data), bytearray(data))
        for path, data in disk.before.items()
        if data is not None
    }
    folders = {path for path, data in disk.before.items() if data is None}
    names: dict[str, _File | None] = {**files, **dict.fromkeys(folders)}
    flushed = dict(names)
    for call in disk.calls[:k]:
        if call.args in (("failed",), ("nameless",)):
            continue
        _do(call, names, flushed)
    chosen = flushed if state == "least" else names
    for path in sorted(chosen):
        file, parent = chosen[path], os.path.dirname(path)
        if parent and parent not in chosen:
            continue  # its folder's name is lost
        if file is None:
            (into / path).mkdir(exist_ok=True)
            continue
        data = file.now if state == "all" else file.sure
        if state == "torn" and file.now != file.sure:
            sure = len(file.sure) if file.now.startswith(file.sure) else 0  # what was appended to
            data = file.now[: sure + (len(file.now) - sure + 1) // 2]
        (into / path).write_bytes(data)


def _do(call: Call, names: dict[str, _File | None], flushed: dict[str, _File | None]) -> None:
    """Do a call to the names and files of a model of the disk."""
    path, args = call.path, call.args
    file = names.get(path)
    if call.kind == "mkdir":
        names[path] = None
    elif call.kind == "open":
        if file is None:
            names[path] = _File(bytearray(), bytearray())
        elif args[0]:
            file.now.clear()
    elif call.kind == "write" and file is not None:
        at, data = args
        file.now.extend(bytes(max(0, at - len(file.now))))
        file.now[at : at + len(data)] = data
    elif call.kind == "truncate" and file is not None:
        del file.now[args[0] :]
        file.now.extend(bytes(args[0] - len(file.now)))
    elif call.kind == "rename":
        names[path] = names.pop(args[0], None)
    elif call.kind in ("unlink", "rmdir"):
        names.pop(path, None)
    elif call.kind == "fsync" and not args[0] and file is not None:
        file.sure[:] = file.now
    elif call.kind == "fsync" and args[0]:
        base = "" if path == "." else path
        for name in [*flushed]:
            if os.path.dirname(name) == base and name not in names:
                del flushed[name]
        flushed.update({name: one for name, one in names.items() if os.path.dirname(name) == base})


def faults_of(calls: list[Call], most: int | None = None) -> list[tuple[int, str]]:
    """The number of a call and an error for it: each call with each of its errors, or about so many of them."""
    every = [(k, error) for k, call in enumerate(calls, 1) for error in (*ERRORS[call.kind], "EIO")]
    return every if most is None else every[:: max(1, len(every) // most)]


def command(
    folder: Path, words: list[str], faults: Mapping[int, Fault] | None = None
) -> tuple[int, str, Disk]:
    """A command in a folder: its exit code, what it told on stderr, and the calls that it made."""
    told, disk, before = io.StringIO(), Disk(folder, faults or {}), os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()), disk:
            code = main(words)
    finally:
        os.chdir(before)
    lines = [line for line in told.getvalue().splitlines() if line.startswith("minicaffe: ")]
    assert code in (0, 2) and len(lines) == (code == 2), told.getvalue()
    return code, told.getvalue(), disk


@contextlib.contextmanager
def noted(wrong: list[str], disk: Disk, k: int, what: str) -> Iterator[None]:
    """A mistake after the k-th call is one more line of `wrong`."""
    try:
        yield
    except (Exception, SystemExit) as problem:
        call = disk.calls[k - 1]
        told = f"{k} {call.kind} {call.path} {what}: {type(problem).__name__} {problem}"
        wrong.append(told[:600])
