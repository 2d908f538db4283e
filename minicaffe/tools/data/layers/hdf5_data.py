"""The layers HDF5Data, which reads rows of HDF5 files, and HDF5Output, which writes blobs to one."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.context import Order
from minicaffe.core.layers.registry import register
from minicaffe.errors import DataError, ShapeError, note, raised_as, reason
from minicaffe.storage import hdf5, lists
from minicaffe.storage.caches import TEMPORARY, forget_left
from minicaffe.storage.checkpoint import flush_folder, umask
from minicaffe.tools.data import datasets

CHUNK = 1 << 18  # bytes of a chunk of HDF5Output, roughly


@register
class HDF5Data(Layer):
    """top[i] = the next batch_size rows of the dataset of the top's name.

    -> (batch_size, ...), one or more.

    `source` names a text file that lists HDF5 files, one per word, relative to the current folder or the
    list's; each holds a dataset of numbers for every top, with equal numbers of rows. Rows continue in the
    next file, and after the last in the first; with `shuffle` the files, and the rows in each, are visited in
    an order that is a function of (seed, epoch). Links out of a file and filters from plug-ins are not
    supported. Only the rows of a batch are read. Needs h5py; raises DataError for a file that is missing or
    damaged, and ShapeError if the files disagree. Source: Caffe's HDF5Data.

    Example: -> {type: HDF5Data, source: rows.txt, batch_size: 2} -> (2, 4)
    """

    source: Annotated[str, "a text file: the paths of HDF5 files"]
    batch_size: Annotated[int, "rows in a batch", AtLeast(1)]
    shuffle: Annotated[bool, "visit files, and the rows in each, in random order"] = False

    dataset = cast(Any, None)
    paths = cast(Any, None)  # of files, once the list is read

    traits = Traits(takes_share=True, inferred_as="Input")

    def setup(self) -> list[Shape]:
        self.samples = self.context.share.of(self.batch_size)[1]
        if self.paths is None:
            listed = lists.find(self.source, [self.context.folder], "source")
            folders = [listed.parent]
            self.paths = [lists.find(name, folders, f"{listed}") for name in lists.files(listed)]
            self.rows, self.tails = self._measured()
            self.open: tuple[int, Any] | None = None
        return [(self.samples, *tail) for tail in self.tails]

    def resize(self, top: str, shape: Shape) -> None:
        """Change the number of rows in a batch. Raises ShapeError for any other change."""
        tail = self.tails[self.top.index(top)]
        if shape[:1] == () or shape[1:] != tail:
            raise ShapeError(f"{top}: expected rows of shape {tail}, got {shape}")
        self.batch_size = shape[0]

    def _measured(self) -> tuple[list[int], list[Shape]]:
        """The rows of each file, and the shape of a row of each top."""
        rows, tails = [], []
        for path in self.paths:
            with hdf5.opened(path) as file:
                shapes = [tuple(hdf5.dataset(file, name).shape) for name in self.top]
            counts = {shape[:1] for shape in shapes}
            if len(counts) != 1 or () in counts:
                counted = ", ".join(f"{n} {s}" for n, s in zip(self.top, shapes, strict=True))
                raise ShapeError(f"{path}: expected as many rows of each top, got {counted}")
            rows.append(shapes[0][0])
            tails.append([shape[1:] for shape in shapes])
            if tails[-1] != tails[0]:
                raise ShapeError(
                    f"{path}: expected rows of shape {tails[0]} as in {self.paths[0]}, got {tails[-1]}"
                )
        if not sum(rows):
            raise DataError(f"{self.source}: its files hold no rows")
        return rows, tails[0]

    def allocate(self) -> None:
        ends = np.cumsum(self.rows)
        self.ends = ends
        self.order = Order(self.name, int(ends[-1]), self._shuffled if self.shuffle else None)
        self.index, self.epochs = np.zeros((2, self.samples), np.int64)
        here = not self.context.device.is_cuda
        self.staged = [top if here else np.empty(top.shape, self.sum_dtype) for top in self.out]
        self.dataset = datasets.Source(self.source, "HDF5", int(ends[-1]), "rows")

    def _shuffled(self, random: np.random.Generator, order: np.ndarray) -> None:
        at = 0
        for number in random.permutation(len(self.rows)):
            count = self.rows[number]
            order[at : at + count] = int(self.ends[number]) - count + random.permutation(count)
            at += count

    def forward(self) -> Any:
        context = self.context
        self.order.take(context.seed, context.passes, self.index, self.epochs, context.share)
        start, n = 0, self.samples
        while start < n:  # rows that follow each other in a file are read at once
            row = int(self.index[start])
            number = int(np.searchsorted(self.ends, row, side="right"))
            end = int(self.ends[number])
            count = 1
            while start + count < n and self.index[start + count] == row + count < end:
                count += 1
            self._read(number, row - end + self.rows[number], start, count)
            start += count
        for top, staged in zip(self.out, self.staged, strict=True):
            if top is not staged:
                self.context.device.copy_from_host(top, staged)
        return self.out

    def _read(self, number: int, first: int, start: int, count: int) -> None:
        """Read rows of a file into the batch; the file stays open until another is read."""
        path = self.paths[number]
        if self.open is None or self.open[0] != number:
            if self.open is not None:
                self.open[1].close()
            self.open = number, hdf5.start(path)
        file = self.open[1]
        with hdf5.damage_told(path):
            for name, staged, tail in zip(self.top, self.staged, self.tails, strict=True):
                dataset = hdf5.dataset(file, name)
                if tuple(dataset.shape) != (self.rows[number], *tail):
                    raise ValueError(f"{name!r} changed while it was read")
                source, place = np.s_[first : first + count], np.s_[start : start + count]
                dataset.read_direct(staged, source, place)

    def backward(self, *tops: Any) -> Any:
        return []


@register
class HDF5Output(Layer):
    """file_name/data = bottom 0, file_name/label = bottom 1, batch after batch.

    (n, ...), (n, ...) -> no top.

    The file is written beside `file_name` and renamed to it when the net is dropped, when the program
    ends, or by `net.layers[NAME].finish()`; the next pass begins a new one. It holds all batches since then;
    Caffe's holds the first and then stops. Needs h5py; raises DataError if it cannot be written, or if
    `file_name` exists and is no HDF5 file. Each pass waits for the device. No gradient.
    Source: Caffe's HDF5Output.

    Example: (2, 3), (2,) -> {type: HDF5Output, file_name: features.h5} ->
    """

    file_name: Annotated[str, "the HDF5 file to write"]

    traits = Traits(has_tops=False, label_bottoms=(0, 1), inferred_as="nothing")
    written = cast(Any, None)

    def setup(self, data: Shape, label: Shape) -> list[Shape]:
        if not data or not label or data[0] != label[0]:
            raise ShapeError(f"needs as many rows of data as of labels, got {data} and {label}")
        return []

    def allocate(self) -> None:
        hdf5.library()
        path = Path(self.file_name)
        is_ours = os.path.isfile(path) and (hdf5.is_one(path) or not path.stat().st_size)
        if os.path.exists(path) and not is_ours:
            raise DataError(f"file_name {path}: is there, and is no HDF5 file")
        if not os.path.isdir(path.parent):
            raise DataError(f"file_name {path}: there is no folder {str(path.parent)!r}")

    def forward(self, data: Any, label: Any) -> Any:
        if self.written is None:
            self.written = Output(self.file_name)
            self._end = weakref.finalize(self, self.written.end)
        to_host = self.context.device.to_host
        try:
            self.written.append({"data": to_host(data), "label": to_host(label)})
        except DataError:
            if self.written.lost:  # the next pass begins a new one
                self.finish()
            raise
        return []

    def finish(self) -> None:
        """Rename the file to `file_name`."""
        if self.written is not None:
            written, self.written = self.written, None
            self._end.detach()
            written.finish()

    def backward(self, *tops: Any) -> Any:
        return [None, None]


class Output:
    """A growing HDF5 file with a temporary name, renamed when it is finished; lost with a disk that fails."""

    def __init__(self, path: str):
        self.path, self.lost = Path(path), False
        forget_left(self.path)
        with raised_as(DataError, f"{path}: cannot be written"):
            name = f".{self.path.name}."
            handle, self.beside = tempfile.mkstemp(TEMPORARY, name, self.path.parent)
        self.target, self.file = hdf5.Writable(os.fdopen(handle, "w+b")), cast(Any, None)
        with self._failures_raised():
            self.file = hdf5.library().File(self.target, "w")

    def append(self, arrays: dict[str, np.ndarray]) -> None:
        """Add a batch to each dataset. Raises DataError."""
        with self._failures_raised():
            for name, array in arrays.items():
                array = array.astype(np.result_type(array.dtype, np.float32), copy=False)
                if name not in self.file:
                    row = max(1, array[:1].nbytes)
                    chunk = (max(1, min(len(array), CHUNK // row)), *array.shape[1:])
                    grows = (None, *array.shape[1:])
                    empty = (0, *array.shape[1:])
                    self.file.create_dataset(name, empty, array.dtype, maxshape=grows, chunks=chunk)
                rows = self.file[name]
                rows.resize(len(rows) + len(array), axis=0)
                rows[len(rows) - len(array) :] = array

    def finish(self) -> None:
        """Flush it and rename it, unless it is lost. Raises DataError."""
        if self.lost:  # which was told; HDF5 may write, and fail, between two batches
            return
        attempt = self.target.attempt
        with self._failures_raised():
            self.file.close()
            self.target.flush()
            attempt(os.fsync, self.target.file.fileno())
            attempt(self.target.file.close)
            attempt(os.chmod, self.beside, 0o666 & ~umask())
            attempt(os.replace, self.beside, self.path)
        flush_folder(self.path.parent)

    def end(self) -> None:
        """Finish it where nobody could catch an error: the net is dropped, or the program ends."""
        try:
            self.finish()
        except DataError as error:
            note(f"minicaffe: {error}")

    @contextmanager
    def _failures_raised(self) -> Iterator[None]:
        """Within it, what fails is raised as DataError; if that is the disk, nothing is left of the file."""
        try:
            yield
            self.target.check()
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            failure = self.target.failure or error
            if self.target.failure is not None:
                self.lost = True
                if self.file is not None:  # else HDF5 would write to it when Python has ended
                    self.file.close()
                with suppress(OSError):
                    self.target.file.close()
                with suppress(OSError):  # it stays, as where the process is killed
                    os.unlink(self.beside)
            raise DataError(f"{self.path}: cannot be written: {reason(failure)}") from None
