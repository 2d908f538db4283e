"""Writing an LMDB database, first key to last, as LMDB's library and Caffe read it; see lmdb_file.py.

Values go into leaves, or, where two would not fit on a page, onto pages of their own; the branches above the
leaves are written last, and the page that says where the tree begins when all else is on the disk.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from minicaffe.data import lmdb_file

PAGE = 4096
KEY = 511  # bytes of a key that LMDB takes
_HEAD = 16
_LARGEST = (PAGE - _HEAD) // 2 - 2  # bytes of a node: two fit on a page
_INTEGER_KEYS = 8  # of the tree of free pages
_NONE = 2**64 - 1


class Writer:
    """A database in a folder that is there; `put` adds what has a greater key than all before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Writer(folder) as out:
    ...         out.put(b"a", b"first")
    ...         out.put(b"b", b"second" * 1000)
    ...     found = lmdb_file.Lmdb(folder)
    ...     len(found), bytes(found[0]), len(found[1])
    (2, b'first', 6000)
    """

    def __init__(self, folder: str | Path):
        self.file = open(Path(folder) / lmdb_file.FILE, "xb")  # noqa: SIM115 (__exit__ closes it)
        self.file.write(bytes(2 * PAGE))
        self.next = 2  # the page that is written next
        self.entries = self.overflow = self.leaves = self.branches = 0
        self.last = b""
        self.page = _Page()
        self.pages: list[tuple[bytes, int]] = []  # the first key of each leaf, and its number

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._finish()
        self.file.close()

    def put(self, key: bytes, value: bytes) -> None:
        """Add an entry."""
        assert self.last < key and len(key) <= KEY, "keys come in order"
        self.last, big = key, 8 + len(key) + len(value) > _LARGEST
        node = struct.pack("<4H", len(value) & 0xFFFF, len(value) >> 16, int(big), len(key)) + key
        if not self.page.takes(node + (bytes(8) if big else value)):
            self._flush_leaf()
        if big:  # its page's number stands for it
            count = (_HEAD - 1 + len(value)) // PAGE + 1
            self._write(struct.pack("<QHHI", self.next, 0, 4, count) + value, count)
            self.overflow += count
            value = struct.pack("<Q", self.next - count)
        self.page.add(key, node + value)
        self.entries += 1

    def _finish(self) -> None:
        """Write what is left: the last leaf, the branches, and where the tree begins."""
        if self.entries:
            self._flush_leaf()
        depth, level = min(1, len(self.pages)), self.pages
        while len(level) > 1:
            level, depth = self._branches(level), depth + 1
        root = level[0][1] if level else _NONE
        self._sync()
        self.file.seek(0)
        for number, tree in enumerate((None, (depth, root))):
            self.file.write(self._meta(number, tree))
        self._sync()

    def _branches(self, below: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Write the pages above those given; (first key, number) of each."""
        found: list[tuple[bytes, int]] = []
        page = _Page()
        for key, number in below:
            low, middle, top = number & 0xFFFF, number >> 16 & 0xFFFF, number >> 32
            if not page.takes(bytes(8 + len(key))):
                found.append((page.first, self._write(page.packed(self.next, 1))))
                page = _Page()
            told = key if page.nodes else b""  # the first of a page stands for all that is less
            page.add(key, struct.pack("<4H", low, middle, top, len(told)) + told)
        found.append((page.first, self._write(page.packed(self.next, 1))))
        self.branches += len(found)
        return found

    def _flush_leaf(self) -> None:
        self.pages.append((self.page.first, self._write(self.page.packed(self.next, 2))))
        self.page = _Page()
        self.leaves += 1

    def _write(self, data: bytes, count: int = 1) -> int:
        """Write so many pages; the number of the first."""
        self.file.write(data)
        self.file.write(bytes(count * PAGE - len(data)))
        self.next += count
        return self.next - count

    def _meta(self, number: int, tree: tuple[int, int] | None) -> bytes:
        """Page 0 or 1: the state before anything was written, and that after it."""
        size = -(-self.next * PAGE >> 20) << 20
        parts = [
            struct.pack("<QHHI", number, 0, 8, 0),
            struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, size),
        ]
        parts.append(struct.pack("<IHH5Q", PAGE, _INTEGER_KEYS, 0, 0, 0, 0, 0, _NONE))
        if tree is None:
            parts.append(struct.pack("<IHH5Q", 0, 0, 0, 0, 0, 0, 0, _NONE))
        else:
            counts = self.branches, self.leaves, self.overflow, self.entries
            parts.append(struct.pack("<IHH5Q", 0, 0, tree[0], *counts, tree[1]))
        parts.append(struct.pack("<QQ", 1 if tree is None else self.next - 1, number))
        return b"".join(parts).ljust(PAGE, b"\0")

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


class _Page:
    """The nodes of a page of the tree, in the order of their keys."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.first = b""
        self.free = PAGE - _HEAD

    def takes(self, node: bytes) -> bool:
        """Whether there is room for a node, which begins at an even place, and its offset."""
        return len(node) + len(node) % 2 + 2 <= self.free

    def add(self, key: bytes, node: bytes) -> None:
        """Take a node; `key` is the first key that lies under it."""
        self.first = self.first if self.nodes else key
        self.nodes.append(node + bytes(len(node) % 2))
        self.free -= len(self.nodes[-1]) + 2

    def packed(self, number: int, flags: int) -> bytes:
        """The page: offsets from the front, nodes from the back."""
        at, offsets = PAGE, []
        for node in self.nodes:
            at -= len(node)
            offsets.append(at)
        lower = _HEAD + 2 * len(offsets)
        head = struct.pack("<Q4H", number, 0, flags, lower, at) + struct.pack(
            f"<{len(offsets)}H", *offsets
        )
        return head + bytes(at - lower) + b"".join(reversed(self.nodes))
