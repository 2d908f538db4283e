"""Files of weights of every kind, told by the endings of their names: ours, safetensors', Caffe's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from minicaffe.core.config.tree import MAX_BYTES
from minicaffe.core.plugins import WEIGHTS, format_of
from minicaffe.errors import CheckpointError
from minicaffe.storage import checkpoint, safetensors_file
from minicaffe.storage.checkpoint import ArrayFile
from minicaffe.storage.safetensors_file import MODEL

OURS = (".npz", safetensors_file.ENDING)


def is_ours(path: Any) -> bool:
    """Whether a name is that of a file which may hold the net's text beside its weights.

    >>> is_ours("lenet_iter_500.npz"), is_ours("lenet.caffemodel"), is_ours("lenet.yaml")
    (True, False, False)
    """
    return isinstance(path, (str, Path)) and str(path).lower().endswith(OURS)


def opened(path: str | Path) -> ArrayFile:
    """The arrays of a file by name; their shapes are known before any is read. Raises CheckpointError."""
    if (plugged := format_of(WEIGHTS, path)) is not None:
        return cast(ArrayFile, plugged.Reader(path))
    if safetensors_file.is_one(path):
        return safetensors_file.Reader(path)
    return checkpoint.Reader(path)


def write(path: str | Path, arrays: Mapping[str, Any], net: str = "") -> None:
    """Write arrays by name to an .npz or .safetensors file, atomically. Raises CheckpointError."""
    if safetensors_file.is_one(path):
        data = safetensors_file.encoded(arrays, net)
        checkpoint.replace(path, lambda file: file.write(data))
    else:
        checkpoint.write(path, arrays)


def text_in(path: str | Path) -> str:
    """The text of the net that a file of ours holds beside its weights. Raises CheckpointError."""
    with opened(path) as reader:
        if MODEL not in reader.shapes:
            raise CheckpointError(
                f"{path}: does not hold its net's text ({MODEL}): "
                "give the model file, and this one by --weights"
            )
        return text_among(reader, reader.shapes, path)


def text_among(arrays: Any, shapes: Mapping[str, tuple[int, ...]], path: str | Path) -> str:
    """The text in the entry `@model` of a file's arrays. Raises CheckpointError for what is none."""
    if len(shapes[MODEL]) != 1 or shapes[MODEL][0] > MAX_BYTES:
        raise CheckpointError(
            f"{path}: entry {MODEL!r} of shape {shapes[MODEL]} is no model's text"
        )
    entry = np.asarray(arrays[MODEL])
    if entry.dtype != np.uint8:
        raise CheckpointError(f"{path}: entry {MODEL!r} holds {entry.dtype}, expected bytes")
    try:
        return entry.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"(byte {error.start})"
        raise CheckpointError(f"{path}: entry {MODEL!r} is not UTF-8 text {where}") from None
