"""The mistakes minicaffe can name: each becomes one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class MinicaffeError(Exception):
    """A user's mistake, told in one line: where, what was expected, what came, and the remedy."""

    exit_code = 2
    everywhere = False  # all ranks of a run raise it, and one says so

    def __str__(self) -> str:
        return printable(Exception.__str__(self))  # KeyError's would put the message in quotes

    def on_all(self) -> MinicaffeError:
        """The same error, of which is known that all ranks raise it."""
        self.everywhere = True
        return self

    def at(self, place: str) -> MinicaffeError:
        """The same error with `place` (file:line:column, layer) in front of its message."""
        return type(self)(f"{place}: {self}")


class SpecError(MinicaffeError):
    """The model file says something that cannot be understood."""


class ShapeError(MinicaffeError):
    """Shapes that do not fit each other, or do not fit in memory."""


class DataError(MinicaffeError):
    """A data set or picture that is missing, damaged, or not what the net expects."""


class DeviceError(MinicaffeError):
    """The device asked for cannot be used."""


class CheckpointError(MinicaffeError):
    """A checkpoint or weight file that is missing, damaged, or of another net."""


class LayerError(MinicaffeError):
    """A layer of the user's own raised an exception."""


class TrainingError(MinicaffeError):
    """Training that cannot go on, such as a loss that is no longer a finite number."""


class DivergedError(TrainingError):
    """A loss, gradient or weight that is no finite number; `path` is the file that the step was saved in."""

    path: Path | None = None


class UnknownNameError(MinicaffeError, KeyError):
    """A name that nothing bears; also a KeyError, for it is what a mapping raises."""


class ByName(dict[str, T]):
    """A mapping by name that answers an unknown one with the nearest it has.

    >>> ByName("blob", {"conv1": 1})["con1"]
    Traceback (most recent call last):
    minicaffe.errors.UnknownNameError: there is no blob 'con1'; did you mean 'conv1'?
    """

    def __init__(self, kind: str, items: Iterable[tuple[str, T]] | dict[str, T] = ()):
        super().__init__(items)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise UnknownNameError(f"there is no {self.kind} {name!r}{did_you_mean(str(name), self)}")


@contextlib.contextmanager
def needed(error: MinicaffeError) -> Iterator[None]:
    """Within it, a package that is not installed is told by `error`."""
    try:
        yield
    except ImportError:
        raise error from None


def note(*lines: str) -> None:
    """Put lines on stderr. A reader or terminal that has gone does not hear them; that is all."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(printable(line), file=sys.stderr, flush=True)


def say(*lines: object) -> None:
    """Put lines on stdout; what a terminal would act on, in the name of a file or a class, is escaped."""
    print(*map(printable, lines), sep="\n")


def pip_install(extra: str) -> str:
    """Returns the command that installs an extra as minicaffe was installed: from a clone, or by its name."""
    clone, here = Path(__file__).parent.parent, os.path.dirname(sys.executable)
    folder = "" if os.path.dirname(shutil.which("pip") or "") == here else f"{here}/"
    what = f"-e '{clone}" if Path(clone, "setup.cfg").is_file() else "'minicaffe"
    return f"{folder}pip install {what}[{extra}]'"


def printable(text: object) -> str:
    """Returns a text as one line: what cannot be printed, such as a line's end, as Python escapes it.

    >>> print(printable("a\\x1b[31m.png"))
    a\\x1b[31m.png
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def reason(error: BaseException) -> str:
    """Returns what went wrong, in a few words on one line."""
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return printable(words) or type(error).__name__


@contextlib.contextmanager
def raised_as(
    kind: type[MinicaffeError],
    what: str,
    of: type[Exception] | tuple[type[Exception], ...] = OSError,
    remedy: str = "",
) -> Iterator[None]:
    """Within it, what is raised of other kinds is raised as an error: what could not be done, and why."""
    try:
        yield
    except of as error:
        raise kind(f"{what}: {reason(error)}{remedy}") from None


def raised_at(error: BaseException) -> str:
    """Where an exception was raised and what it says, in one line: file.py:12: NameError: ..."""
    if isinstance(error, SyntaxError):
        file, line, said = error.filename or "?", error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not _of_a_library(frame.filename)] or frames
        file, line = (own[-1].filename, own[-1].lineno) if own else ("?", 0)
        said = " ".join(str(error).split())
    if os.path.isabs(file) and os.path.relpath(file).count("..") == 0:
        file = os.path.relpath(file)
    return f"{file}:{line}: {type(error).__name__}: {said}"


def _of_a_library(file: str) -> bool:
    library = (sysconfig.get_path("stdlib"), os.path.dirname(__file__), "<")
    return "site-packages" in file or file.startswith(library)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, or nothing when none is near.

    >>> did_you_mean("num_ouput", ["num_output", "stride"])
    "; did you mean 'num_output'?"
    >>> did_you_mean("zebra", ["num_output", "stride"])
    ''
    """
    known = list(known)
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    if not near and len(word) >= 3:
        near = [name for name in lowered if name.startswith(word.lower())][:1]
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


def mib(size: int) -> str:
    """Bytes as people read them: 3.0 MiB."""
    return f"{size / 2**20:.1f} MiB"
