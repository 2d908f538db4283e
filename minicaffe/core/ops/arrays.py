"""What is done entry by entry beside the ops, on either device: fill, copy, add, subtract, multiply, scale.

Arrays may be views, of other types, and are stretched as NumPy does. On the CPU all goes through one compiled
loop, which walks the axes that are left once neighbours have been joined.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cuda import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.launch_listener import ask
from minicaffe.backends.replay.trace import do

GRAIN = 2**13  # entries that a thread is worth waking for
LONG = 2**20  # those from which it pays to wake some for NumPy
RANKS = (1, 4, 8)  # axes that the loop is compiled for
KINDS = "fdbBhHiIlLqQ?"  # types of entries that it knows


def fill(x: Any, value: float) -> Any:
    """x = value, everywhere.

    >>> fill(np.empty((2, 2)), 3)[0]
    array([3., 3.])
    """
    if on_cuda(x):
        launch.fill(x, value)
        return x
    return _apply("copy", x, _number(value, x.dtype), x)


def copy(x: Any, out: Any) -> Any:
    """out = x.

    >>> copy(np.array([1.0, 2.0])[:, None], np.empty((2, 3)))
    array([[1., 1., 1.],
           [2., 2., 2.]])
    """
    if on_cuda(out):
        # It is CuPy's own, as are the functions below.
        ask("copy", "", (), (x, out), lambda given: np.copyto(given[1], given[0]))
        return out
    return _apply("copy", out, x, out)


def add(x: Any, out: Any) -> Any:
    """out += x.

    >>> add(np.array([1.0, 2.0]), np.ones(2))
    array([2., 3.])
    """
    return _apply("add", out, x, out)


def plus(a: Any, b: Any, out: Any) -> Any:
    """out = a + b.

    >>> plus(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([4., 5.])
    """
    return _apply("add", a, b, out)


def minus(a: Any, b: Any, out: Any) -> Any:
    """out = a - b.

    >>> minus(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([-2., -1.])
    """
    return _apply("subtract", a, b, out)


def multiply(x: Any, factor: Any, out: Any) -> Any:
    """out = x factor, both of them arrays.

    >>> multiply(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([3., 6.])
    """
    return _apply("multiply", x, factor, out)


def divide(x: Any, by: Any, out: Any) -> Any:
    """out = x / by, both of them arrays.

    >>> divide(np.array([1.0, 2.0]), np.array(2.0), np.empty(2))
    array([0.5, 1. ])
    """
    return _apply("divide", x, by, out)


def at_least(x: Any, value: float) -> Any:
    """x = max(x, value); NaN stays.

    >>> at_least(np.array([0.5, 2.0]), 1)
    array([1., 2.])
    """
    return _apply("maximum", x, value if on_cuda(x) else _number(value, x.dtype), x)


def scale(x: Any, factor: float, out: Any) -> Any:
    """out = factor x, with a number that is the same in every step.

    >>> scale(np.array([1.0, 2.0]), 2, np.empty(2))
    array([2., 4.])
    """
    if factor == 1 and x is not out:
        return copy(x, out)
    return _apply("multiply", x, factor if on_cuda(x) else _number(factor, x.dtype), out)


def _apply(name: str, a: Any, b: Any, out: Any) -> Any:
    """out = f(a, b), f being one of backends/cpu/kernels/arrays.py; on CUDA CuPy's own."""
    if on_cuda(out):
        ask(name, "", (), (a, b, out), lambda given: getattr(np, name)(*given[:2], out=given[2]))
        return out
    fast, given = loops("arrays", np.float64), (a, b, out)
    known = fast is not None and all(array.dtype.char in KINDS for array in given)
    if known and (walk := _walk(out.shape, *map(_steps, given))) is not None:
        sizes, (first, second, third) = walk
        flat = _flat(a), first, _flat(b), second, sizes, _flat(out), third
        run(cast(Any, fast).function(name), out.size, *flat, grain=GRAIN)
        return out

    return _by_numpy(name, a, b, out)


def _by_numpy(name: str, a: Any, b: Any, out: Any) -> Any:
    """The same by NumPy, in slices of the first axis."""
    function = np.copyto if name == "copy" else getattr(np, name)
    given = (b,) if name == "copy" else (a, b)

    def part(first: int, last: int, _: Any) -> None:
        here = [x[first:last] if x.ndim == out.ndim and len(x) == len(out) else x for x in given]
        if name == "copy":
            do(function, out[first:last], *here, casting="same_kind")
        else:
            do(function, *here, out=out[first:last])

    if out.ndim:
        each = max(1, out.size // max(1, len(out)))
        in_slices(part, len(out), grain=1 + GRAIN // each, worth=1 + LONG // each, noted=True)
    elif name == "copy":
        do(function, out, *given, casting="same_kind")
    else:
        do(function, *given, out=out)
    return out


def _steps(array: Any) -> tuple[tuple[int, int], ...]:
    """Of each axis its size and how many entries lie between neighbours."""
    return tuple(
        (n, step // array.itemsize) for n, step in zip(array.shape, array.strides, strict=True)
    )


@functools.lru_cache(4096)
def _walk(shape: tuple[int, ...], *arrays: tuple[tuple[int, int], ...]) -> Any:
    """The sizes of a walk over all entries, and each array's steps in it; None for too many axes."""
    stretched = [
        [(0, 0)] * (len(shape) - len(axes)) + [(n, 0 if n == 1 else step) for n, step in axes]
        for axes in arrays
    ]
    walk: list[tuple[int, ...]] = []  # of each axis its size and the steps
    for size, *of_each in zip(shape, *stretched, strict=True):
        steps = [step for _, step in of_each]
        if any(n not in (0, 1, size) for n, _ in of_each):
            shapes = [tuple(n for n, _ in axes) for axes in arrays]
            raise ValueError(f"arrays of shapes {shapes} do not go into one of {shape}")
        if size == 1:
            continue
        if walk and all(far == size * step for far, step in zip(walk[-1][1:], steps, strict=True)):
            walk[-1] = (walk[-1][0] * size, *steps)
        else:
            walk.append((size, *steps))
    rank = next((rank for rank in RANKS if rank >= len(walk)), None)
    if rank is None or any(step < 0 for _, *steps in walk for step in steps):
        return None
    sizes, *steps_of = zip(*[(1,) * (1 + len(arrays))] * (rank - len(walk)), *walk, strict=True)
    return sizes, steps_of


def _flat(array: Any) -> Any:
    """The entries of an array, and for a view all that lies between its first and its last."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    span = 1 + sum((n - 1) * step for n, step in _steps(array))
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))


@functools.lru_cache(1024)
def _number(value: float, dtype: np.dtype) -> Any:
    return np.array(value, dtype)
