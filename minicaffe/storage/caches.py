"""The user's folder for what would else be made again: plans, compiled loops, drawn digits.

What lies there may be damaged, old, or gone at any time: who reads it checks it. And what is left, there or
anywhere, of files that were never finished.
"""

import glob
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tmp"  # what a file's or folder's name ends with until it is whole
OLD = 3600  # seconds after which nobody still writes to one


def folder() -> Path:
    """$MINICAFFE_CACHE, else $XDG_CACHE_HOME/minicaffe, else ~/.cache/minicaffe; there or not."""
    named = os.environ.get("MINICAFFE_CACHE")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # so says the XDG specification
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):  # nobody's home: nothing can be kept
        base = os.devnull
    return Path(base, "minicaffe")


def obstacle(home: Path) -> str:
    """Why nothing can be kept in a folder, or '': tried with a file."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=home).close()
    except OSError as error:
        return f"{_cannot(home, error)}; MINICAFFE_CACHE names another"
    return ""


def keep(file: Path, content: bytes) -> str:
    """Write a file, whole or not at all: '' or, if it cannot be written, why."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}{TEMPORARY}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        forget_left(file)
        try:
            beside.write_bytes(content)
            os.replace(beside, file)
        finally:
            with suppress(OSError):
                os.unlink(beside)
    except OSError as error:
        return _cannot(file.parent, error)
    return ""


def forget_left(path: Path) -> None:
    """Remove what processes that were killed, or whose power was cut, left beside a file or folder."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{TEMPORARY}"):
        with suppress(OSError):  # another process does so too
            if time.time() - left.stat().st_mtime > OLD:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _cannot(home: Path, error: OSError) -> str:
    return f"{home} cannot be written: {error.strerror or error}"
