"""LMDB databases, read by entry number, as Caffe's convert_imageset writes them.

LMDB's own library trusts what it maps: a damaged file ends the process. This reader looks at each number
before it follows it, and needs no package. A database is a B+ tree of pages (little-endian, 64 bits):

    every page    number 8 | pad 2 | flags 2 | lower 2 | upper 2, or (overflow) count of pages 4
    pages 0, 1    magic 4 | version 4 | address 8 | size 8 | two trees of 48 | last page 8 | transaction 8
    a tree        pad 4 (in the first: the page's size) | flags 2 | depth 2 | 8 each: branch pages, leaf
                  pages, overflow pages, entries, root
    branch, leaf  offsets of the nodes, 2 each; a node: low 2 | high 2 | flags 2 | key size 2 | key | data
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage.file_kinds import ReadAt, reading

FILE = "data.mdb"
_HEAD, _MAGIC, _VERSION = 16, 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8  # flags of a page
_BIG, _SUBTREE, _DUPLICATES = 1, 2, 4  # flags of a node
_NONE = 2**64 - 1
_TREE = struct.Struct("<IHH5Q")
_NODE = struct.Struct("<4H")


def is_one(folder: Path) -> bool:
    """Whether a folder holds an LMDB database."""
    return os.path.isfile(folder / FILE)


class Lmdb:
    """The values of a database in the order of their keys; `len` is their number, and [i] the i-th's bytes.

    Of the tree only the numbers of its leaves are kept: 16 bytes a leaf. Nobody may write to the database
    meanwhile. Raises DataError, in one line, wherever the file is not whole, or is not any more.
    """

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / FILE
        with reading(self.path, "LMDB database"):
            self.data = ReadAt(self.path)
            self.size, entries, root, pages, depth = self._newest()
            leaves = list(self._leaves(root, pages, depth))
            self.leaves = np.array([page for page, _ in leaves], np.int64)
            self.ends = np.cumsum([count for _, count in leaves], dtype=np.int64)
            held = int(self.ends[-1]) if leaves else 0
            if held != entries:
                raise ValueError(f"it promises {entries} entries, its leaves hold {held}")

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, i: int) -> memoryview:
        leaf = int(np.searchsorted(self.ends, i, side="right"))
        with reading(self.path, "LMDB database"):
            return self._value(int(self.leaves[leaf]), i - int(self.ends[leaf - 1] if leaf else 0))

    def _newest(self) -> tuple[int, int, int, int, int]:
        """Of the newer of the two states that are kept: the page's size, entries, root, pages, depth."""
        best: tuple[int, tuple[int, int, int, int, int]] | None = None
        size = 0
        for place in (0, 1):
            at = place * size + _HEAD
            if place and not size:
                continue
            if at + 136 > len(self.data):
                raise ValueError("it ends before it has begun")
            head = self.data[at : at + 136]
            magic, version = struct.unpack_from("<II", head)
            if magic != _MAGIC:
                continue
            if version != _VERSION:
                raise ValueError(f"it is of version {version}, expected {_VERSION}")
            size = size or _TREE.unpack_from(head, 24)[0]
            if size not in (2**n for n in range(9, 17)):
                raise ValueError(f"its pages are of {size} bytes")
            _, flags, depth, *counts = _TREE.unpack_from(head, 72)
            branches, leaves, _, entries, root = counts
            if flags & _DUPLICATES:
                raise ValueError("a key may have several values, which Caffe's do not")
            (transaction,) = struct.unpack_from("<Q", head, 128)
            if best is None or transaction > best[0]:
                best = transaction, (size, entries, root, branches + leaves, depth)
        if best is None:
            raise ValueError("it does not begin as one")
        return best[1]

    def _leaves(self, root: int, pages: int, depth: int) -> Iterator[tuple[int, int]]:
        """(page, entries) of each leaf in the order of the keys."""
        if pages > len(self.data) // self.size or depth > 64:
            raise ValueError(f"it promises a tree of {pages} pages, {depth} deep")
        waiting, seen = ([] if root == _NONE else [(root, 1)]), 0
        while waiting:
            page, level = waiting.pop()
            seen += 1
            if len(waiting) + seen > pages or level > depth:
                raise ValueError(
                    f"its tree is larger than the {pages} pages and {depth} levels it promises"
                )
            data, flags, count = self._page(page)
            if flags & _LEAF:
                yield page, count
                continue
            below = []
            for i in range(count):
                low, high, top, _ = self._node(data, page, i)[0]
                below.append((low | high << 16 | top << 32, level + 1))
            waiting += reversed(below)

    def _page(self, page: int) -> tuple[bytes, int, int]:
        """The bytes of a page of the tree, its kind, and how many nodes it holds."""
        at = page * self.size
        if at + self.size > len(self.data):
            raise ValueError(f"page {page} is past its end")
        data = self.data[at : at + self.size]
        number, _, flags, lower, upper = struct.unpack_from("<Q4H", data)
        kind = flags & (_BRANCH | _LEAF | _OVERFLOW | _META)
        in_tree = kind in (_BRANCH, _LEAF) and _HEAD <= lower <= upper <= self.size
        if number != page or not in_tree:
            raise ValueError(f"page {page} is no page of its tree")
        return data, kind, (lower - _HEAD) // 2

    def _node(self, data: bytes, page: int, i: int) -> tuple[tuple[int, int, int, int], int]:
        """The four numbers before the i-th node of a page, and where in it the node's data begin."""
        (offset,) = struct.unpack_from("<H", data, _HEAD + 2 * i)
        if offset + _NODE.size > self.size:
            raise ValueError(f"page {page} is damaged at entry {i}")
        numbers = _NODE.unpack_from(data, offset)
        return numbers, offset + _NODE.size + numbers[3]

    def _value(self, page: int, i: int) -> memoryview:
        data, _, count = self._page(page)
        if i >= count:
            raise ValueError(f"page {page} is damaged at entry {i}")
        (low, high, flags, _), at = self._node(data, page, i)
        size = low | high << 16
        if flags & (_SUBTREE | _DUPLICATES):
            raise ValueError("it holds databases by name, which Caffe's do not")
        if flags & _BIG:
            if at + 8 > len(data):
                raise ValueError(f"page {page} is damaged at entry {i}")
            (first,) = struct.unpack_from("<Q", data, at)
            at = first * self.size
            if at + _HEAD > len(self.data):
                raise ValueError(f"page {first} is past its end")
            data = self.data[at : at + _HEAD + size]
            number, _, kind, pages = struct.unpack_from("<QHHI", data)
            if number != first or not kind & _OVERFLOW:
                raise ValueError(f"page {first} holds no value")
            at, data = _HEAD, data[: pages * self.size]
        if at + size > len(data):
            raise ValueError(f"page {page} is damaged at entry {i}")
        return memoryview(data)[at : at + size]


def needs_leveldb(
    folder: Path, remedy: str = "convert_imageset --backend=lmdb) or four IDX files"
) -> DataError:
    """The error for a LevelDB database, which is not read."""
    return DataError(f"{folder}: LevelDB databases are not read; make an LMDB of it ({remedy}")
