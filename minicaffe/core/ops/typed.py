"""A CUDA kernel over entries, made for the types of several arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cuda.launch import GRID, THREADS, launch_blocks
from minicaffe.errors import ShapeError


def launch_typed(file: str, name: str, total: int, types: tuple[Any, ...], *args: Any) -> None:
    """Run kernel `name`, made for the types of some arrays, over `total` entries."""
    if total + GRID * THREADS >= 2**31:
        raise ShapeError(f"{name}: {total} elements are more than a kernel's 32-bit index reaches")
    grid = (min(-(-total // THREADS), GRID),)
    launch_blocks(file, name, grid, types, total, *args)


def number(value: float, like: Any) -> Any:
    """A number in the type that sums of `like` are taken in.

    >>> number(0.5, np.empty(1, np.float16))
    np.float32(0.5)
    """
    return (np.float64 if like.dtype == np.float64 else np.float32)(value)


def flag(ignore: int | None) -> tuple[int, int]:
    """A label to ignore as a kernel takes it: whether there is one, and which."""
    return (0, 0) if ignore is None else (1, ignore)
