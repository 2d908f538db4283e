"""What a file is, by its name and by its first bytes: told where it is not what was wanted."""

import contextlib
import errno
import os
import re
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

from minicaffe.errors import DataError, MinicaffeError, reason

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


def foreign(path: str | os.PathLike[str], wanted: str) -> str | None:
    """What a file of other software is, by its name, and that `wanted` was; None for any other file.

    >>> foreign("net.onnx", "models in .yaml and .prototxt")
    'net.onnx: is a net in the ONNX format; minicaffe reads models in .yaml and .prototxt'
    """
    what, readable = FOREIGN.get(os.path.splitext(path)[1].lower()), f"minicaffe reads {wanted}"
    return what and f"{path}: is {what}; {readable}"


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
        why = f"it is {kind}" if kind else reason(failure)
        raise error(f"{path}: is not a whole {what}: {why}") from None


class ReadAt:
    """The bytes of a file at any place, for several threads at once and for processes forked off.

    It is not mapped: a mapped file that somebody cuts short while it is read ends the process. `len` is its
    size when it was opened. Raises OSError for what cannot be opened, or is no file.
    """

    def __init__(self, path: str | Path):
        # Of a pipe, to open it may wait for ever
        self.number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.close = weakref.finalize(self, os.close, self.number)
        about = os.fstat(self.number)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "Is no file")
        self.size = about.st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: slice) -> bytes:
        """The bytes from a place to another. Raises ValueError where they are not there any more."""
        start, stop, _ = place.indices(self.size)
        data = os.pread(self.number, stop - start, start)
        if len(data) < stop - start:
            raise ValueError("it was cut short while it was read")
        return data
