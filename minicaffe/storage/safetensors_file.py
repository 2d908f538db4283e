"""Weights in .safetensors files: the names and types of an .npz, and the net's text as metadata.

The package safetensors maps a file and holds every offset and shape against its length, before memory is
taken. The entry `@model` of an .npz is the metadata's `model` here. An array of bfloat16 is read in float32,
which has each of its numbers: NumPy has no such type.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import CheckpointError, needed, pip_install
from minicaffe.storage.checkpoint import ArrayFile
from minicaffe.storage.file_kinds import reading

ENDING, MODEL = ".safetensors", "@model"


def is_one(path: str | Path) -> bool:
    """Whether a name is that of such a file."""
    return str(path).lower().endswith(ENDING)


def library() -> Any:
    """The package safetensors, with its part for NumPy. Raises CheckpointError without it."""
    need = f"needs the package safetensors: {pip_install('safetensors')}"
    with needed(CheckpointError(f"a .safetensors file {need}")):
        import safetensors.numpy
    return safetensors


def encoded(arrays: Mapping[str, Any], net: str = "") -> bytes:
    """Arrays as a file's bytes with the net's name, `@model` as metadata. Raises CheckpointError by type."""
    save, tensors = library().numpy.save, {}
    metadata = {"format": "minicaffe", **({"name": net} if net else {})}
    for name, array in arrays.items():
        if name == MODEL:
            metadata["model"] = np.asarray(array).tobytes().decode("utf-8")
            continue
        array = np.asarray(array)
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise CheckpointError(f"a .safetensors file has no place for {name!r}: {array.dtype}")
        tensors[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return save(tensors, metadata=metadata)


class Reader(ArrayFile):
    """The arrays of a file by name; `shapes` are known before any is read. Raises CheckpointError."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        opened = library().safe_open
        with self._damage_told(""):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OSError(errno.EINVAL, "Is no regular file")
            self._file = opened(str(path), framework="numpy")
        with self._damage_told(""), contextlib.ExitStack() as stack:
            stack.enter_context(self)
            parts = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
            self.shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
            self._types = {name: part.get_dtype() for name, part in parts.items()}
            text = (self._file.metadata() or {}).get("model")
            self._model = None if text is None else np.frombuffer(text.encode("utf-8"), np.uint8)
            if self._model is not None:
                self.shapes[MODEL] = self._model.shape
            stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def __getitem__(self, name: str) -> np.ndarray:
        if name == MODEL and self._model is not None:
            return self._model
        if name not in self._types:
            raise CheckpointError(f"{self.path}: has no entry {name!r}")
        with self._damage_told(f": entry {name!r} of {self._types[name]}"):
            tensor = self._file.get_tensor(name)
        return tensor.astype(np.float32) if tensor.dtype.name == "bfloat16" else tensor

    @contextlib.contextmanager
    def _damage_told(self, where: str) -> Iterator[None]:
        """Within it, what the package raises is told in one line with the file's name."""
        damage = library().SafetensorError, AttributeError
        with reading(f"{self.path}{where}", ".safetensors file", CheckpointError, damage):
            try:
                yield
            except TypeError:  # NumPy does not understand the type without ml_dtypes
                need = f"needs the package ml_dtypes: {pip_install('safetensors')}"
                raise CheckpointError(f"{self.path}{where}: {need}") from None
