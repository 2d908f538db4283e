"""Fetching a data set because a net asks for it: the network is tried once in a while, not at each run.

Of an attempt that failed a note is kept in the cache, one for each data set and folder: a file that
holds the reason and is as old as the attempt. `minicaffe fetch` always tries.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from minicaffe import caches
from minicaffe.data import fetch
from minicaffe.errors import DataError, note

PAUSE = 3600  # seconds from an attempt that failed to the next

OFFLINE = "MINICAFFE_OFFLINE is set"

_failed: dict[tuple[str, str], str] = {}  # (name, folder) -> why


def offline() -> bool:
    """Whether nothing is to be fetched but by `minicaffe fetch`."""
    return os.environ.get("MINICAFFE_OFFLINE", "0") not in ("", "0")


def fetched(name: str) -> str:
    """Fetch a known data set: '' or, if that failed now or lately, why.

    A process asks only once, for the split that is loaded second must not differ in kind from the
    first.
    """
    folder = fetch.data_folder()
    key = name, str(folder.absolute())
    if key not in _failed and (why := _attempt(name, folder, _note(*key))):
        _failed[key] = why
    return _failed.get(key, "")


def _attempt(name: str, folder: Path, kept: Path) -> str:
    """Fetch, unless that is refused or failed lately: '' or why not."""
    if offline():
        return OFFLINE
    if why := _noted(kept):
        return why
    note(f"minicaffe: fetching {name} into {folder / name}")
    try:
        fetch.fetch(name, folder)
    except DataError as error:
        why = str(error).removeprefix(f"cannot fetch {name}").lstrip(": ")
        if error.__cause__ is None:  # else it is the folder's fault, not the network's
            caches.keep(kept, why.encode("utf-8", "replace"))
        return _noted(kept) or why
    return ""


def _note(name: str, folder: str) -> Path:
    digest = hashlib.blake2b(os.fsencode(folder), digest_size=6).hexdigest()
    return caches.folder() / f"unfetched-{name}-{digest}"


def _noted(note: Path) -> str:
    """When and why fetching failed, and when it is tried again; '' if that was long ago or never."""
    try:
        when = note.stat().st_mtime
        reason = " ".join(note.read_bytes()[:1000].decode("utf-8", "replace").split())
    except OSError:
        return ""
    if abs(time.time() - when) >= PAUSE or not reason:
        return ""
    tried, again = (time.strftime("%H:%M", time.localtime(t)) for t in (when, when + PAUSE))
    return f"tried at {tried}, again after {again}: {reason}"
