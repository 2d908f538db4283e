"""The mistakes minicaffe can name: each becomes one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FOREIGN = {
    ".prototxt": "a net or solver as Caffe's text",
    ".caffemodel": "weights in Caffe's format",
    ".solverstate": "a solver's state in Caffe's format",
    ".binaryproto": "a mean image in Caffe's format",
    ".h5": "weights or state in HDF5, as Caffe or Keras write them",
    ".onnx": "a net in the ONNX format",
    ".pt": "PyTorch's pickle",
    ".pth": "PyTorch's pickle",
}
# What files begin with, and what they are then. A reader that wants one of these says so by words of its kind.
KINDS = {
    rb"version https://git-lfs\.": "a Git LFS pointer (git lfs pull fetches the file)",
    rb"/annex/objects/[A-Z0-9_]+-s\d+--": "a git-annex pointer (git annex get fetches the file)",
    rb"(?i)\s*(<[?!]-?[^>]*>\s*)*(<!doctype html|<html|<head|<body)": "a web page (HTML)",
    rb"\s*<\?xml": "XML",
    rb"\x1f\x8b": "a gzip archive",
    rb"BZh[1-9]1AY&SY|\xfd7zXZ\x00|\x28\xb5\x2f\xfd|Rar!\x1a\x07": "a packed archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb".{257}ustar": "a tar archive",
    rb"PK\x03\x04.{26}[^\x00]{1,250}?\.npy": "arrays of NumPy's (.npz file)",
    rb"PK\x03\x04.{26}[^\x00]{1,250}?/(data\.pkl|\.format_version)": "PyTorch's weights (.pt)",
    rb"PK(\x03\x04|\x05\x06)": "a zip archive",
    rb"\x93NUMPY": "an array of NumPy's (.npy file)",
    rb"\x89HDF\r\n\x1a\n": "an HDF5 file",
    rb".{16}\xde\xc0\xef\xbe": "an LMDB database",
    rb".{6}\x00\x00\{": "weights in a .safetensors file",
    rb"\x80[\x02-\x05]": "Python's pickle, as PyTorch writes",
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}WEBP|BM.{4}\x00{4}": "a picture",
    rb"%PDF-": "a PDF",
    rb"\x00\x00[\x08-\x0e][\x01-\x04]": "an IDX file",
    rb"\x08.{1,5}\x12.[ -~]+\.caffemodel": "a solver's state (.solverstate)",
    rb"\x08.\x10.\x18.{1,3}\x20": "a BlobProto (.binaryproto)",
    rb"\x08[\x01-\x14](\x12[\x01-\x7f][ -~]+|:)": "a net in an .onnx file",
    rb"(\n[\x01-\x7f][ -~]+)?\xa2\x06|\n[\x01-\x7f][ -~]+[\x12\x1a]": "weights in a .caffemodel",
    rb"\xff\xfe[\t\n\r -~]\x00|\xfe\xff\x00[\t\n\r -~]": "in UTF-16, not UTF-8",
    rb"[\t\n\r -~]*?\blayers?\s*\{": "the text of a prototxt",
    rb"([\t\n\r -~]*\n)?layers:": "the text of a model in YAML",
    rb"([\t\n\r -~]|[\xc2-\xf4][\x80-\xbf]*)+\Z": "text",
}


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
        """The same error with `place` (file:line:column, layer) in front of its message.

        >>> str(ShapeError("needs 4 axes").at("net.yaml:3:5"))
        'net.yaml:3:5: needs 4 axes'
        """
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


def note(text: str) -> None:
    """Put one line on stderr. A reader or terminal that has gone does not hear it; that is all."""
    with contextlib.suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def printable(text: object) -> str:
    """Returns a text as one line: what cannot be printed, such as a line's end, as Python escapes it.

    >>> print(printable("a\\x1b[31m.png"))
    a\\x1b[31m.png
    """
    text = str(text)
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    )


def reason(error: BaseException) -> str:
    """Returns what went wrong, in a few words on one line.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a.gz"))
    'No such file or directory'
    """
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return printable(words) or type(error).__name__


def recognised(source: str | os.PathLike[str] | bytes, wanted: str) -> str | None:
    """Returns what a file, or one of these bytes, is by how it begins; None if that is `wanted`, or not known.

    >>> recognised(b"<!DOCTYPE html>", ".npz file"), recognised(b"name: 'LeNet'", "text")
    ('a web page (HTML)', None)
    """
    head = source if isinstance(source, bytes) else b""
    if not isinstance(source, bytes) and os.path.isfile(source):
        with contextlib.suppress(OSError), open(source, "rb") as file:
            head = file.read(1024)
    head = head[:1024].removeprefix(b"\xef\xbb\xbf")
    kind = next((kind for start, kind in KINDS.items() if re.match(start, head, re.DOTALL)), wanted)
    return None if wanted in kind else kind


@contextlib.contextmanager
def reading(
    path: str | os.PathLike[str],
    what: str,
    error: type[MinicaffeError] = DataError,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Within it, why a file cannot be read is raised as `error`: missing, of another kind, no whole `what`.

    `also` are what its reader raises of damage beside OSError, ValueError and EOFError.
    """
    damage: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, *also)
    try:
        yield
    except MinicaffeError:
        raise
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except MemoryError:
        raise error(f"{path}: does not fit in memory") from None
    except damage as failure:
        if getattr(failure, "errno", None) is not None:
            raise error(f"{path}: cannot be read: {reason(failure)}") from None
        kind = recognised(path, what)
        told = f"it is {kind}" if kind else reason(failure)
        raise error(f"{path}: is not a whole {what}: {told}") from None


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


def foreign(path: str | os.PathLike[str], wanted: str) -> str | None:
    """What a file of other software is, by its name, and that `wanted` was; None for any other file.

    >>> foreign("net.onnx", "models in .yaml and .prototxt")
    'net.onnx: is a net in the ONNX format; minicaffe reads models in .yaml and .prototxt'
    """
    suffix = os.path.splitext(path)[1].lower()
    what, readable = FOREIGN.get(suffix), f"minicaffe reads {wanted}"
    return what and f"{path}: is {what}; {readable}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, or nothing when none is near.

    >>> did_you_mean("num_ouput", ["num_output", "stride"])
    "; did you mean 'num_output'?"
    >>> did_you_mean("crop", ["crop_size", "mirror"])
    "; did you mean 'crop_size'?"
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
    """Bytes as people read them.

    >>> mib(3 << 20)
    '3.0 MiB'
    """
    return f"{size / 2**20:.1f} MiB"
