"""The compiled loops on disk, so that the next run finds them. Needs Numba.

One file a loop, signature, processor, Python and Numba, in a folder a state of these sources: a digest, then
what Numba makes of a compiled function. Unless the digest fits it is not looked at, and the loop is compiled
anew. What lies there is executed: only files of this user or of root are taken.
"""

import functools
import hashlib
import logging
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from minicaffe import __version__
from minicaffe.core.interrupt import Held
from minicaffe.storage import caches

SOURCES = 4  # states of the sources whose loops stay on disk
DIGEST = 32  # bytes
# Of these files no line is compiled
ON_THE_HOST = {"command", "ops", "skinny", "slices", "thread_pool", "threads"}
_log = logging.getLogger("minicaffe")
_told = threading.Lock()  # taken by the first loop that could not be kept, for good


class Kept(NullCache):
    """A dispatcher's cache: Numba asks it before it compiles a loop, and hands it what it compiled."""

    def __init__(self, function: Callable[..., Any], *more: Any):
        self.more = more  # what the code depends on beside the sources and the signature
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The loop for a signature as it was kept, or None: Numba then compiles it."""
        with Held():  # LLVM asks Python for the code, where an exception would be lost
            context.refresh()
            try:
                code = _read(*self._file(signature, context))
                return CompileResult._rebuild(context, *pickle.loads(code))
            except Exception:  # whatever the disk, pickle or LLVM say of it
                _can_keep()
                return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled loop, if that can be."""
        if not _can_keep() or result.library.has_dynamic_globals:  # addresses of this process
            return
        file, key = self._file(signature, result.target_context)
        code = dumps(result._reduce())
        why = caches.keep(file, digest(key, code) + code)
        if why and _told.acquire(blocking=False):
            _log.warning("compiled loops are not kept for the next run: %s", why)

    def _file(self, signature: Any, context: Any) -> tuple[Path, bytes]:
        """Where the loop for a signature is kept, and all that it depends on beside the sources."""
        machine = context.codegen().magic_tuple(), sys.version, numba.__version__
        key = repr((self.name, self.more, signature, machine)).encode()
        return folder() / f"{self.name}-{digest(key)[:8].hex()}", key


@functools.cache
def folder() -> Path:
    """Where this process finds and keeps loops: for another state of the sources it is another."""
    here = Path(__file__).parent
    files = sorted([*here.rglob("*.py"), here.parent / "formulas.py"])
    others = {*ON_THE_HOST, "conv"}  # a folder
    compiled = (file for file in files if others.isdisjoint((file.stem, file.parent.name)))
    sources = digest(*(file.read_bytes() for file in compiled))[:8].hex()
    return caches.folder() / "loops" / f"{__version__}-{sources}"


@functools.cache
def _can_keep() -> bool:
    """Whether loops can be kept; says, the first time, that compiling takes its time."""
    why = caches.obstacle(folder())
    what = f"for this run only: {why}" if why else "once; the next run finds them on disk"
    _log.warning("compiling loops for this CPU (%s) ...", what)
    if not why:
        with suppress(OSError):  # another process removes those of older states of the sources, too
            states = sorted(folder().parent.iterdir(), key=lambda state: state.stat().st_mtime)
            for state in states[:-SOURCES]:
                shutil.rmtree(state, ignore_errors=True)
    return not why


def _read(file: Path, key: bytes) -> bytes:
    """The code in a file. Raises OSError and ValueError if there is none to be trusted."""
    with open(file, "rb") as opened:
        if os.fstat(opened.fileno()).st_uid not in (0, getattr(os, "geteuid", lambda: 0)()):
            raise ValueError
        content = opened.read()
    expected, code = content[:DIGEST], content[DIGEST:]
    if expected != digest(key, code):  # damaged, or of another loop
        raise ValueError
    return code


def digest(*parts: bytes) -> bytes:
    """What tells bytes from others."""
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST).digest()
