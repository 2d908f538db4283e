"""One pass over all entries: y = y(x), and dx = dy y'(x), for each row of formulas.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backend import launch, on_cuda
from minicaffe.ops import record
from minicaffe.ops.activation import LONG, run_loop
from minicaffe.ops.formulas import FORMULAS, on_blocks
from minicaffe.ops.loops import loops
from minicaffe.ops.threads import in_slices

BLOCK = 2048  # entries that NumPy evaluates a formula on at a time, so that they stay in the cache
LIGHT = 8 * BLOCK  # where all that is in between is whether an entry passes, a byte
NUMBERS = 3  # that a CUDA row takes


def forward(name: str, x: Any, numbers: tuple[float, ...], out: Any) -> Any:
    """out = y(x, *numbers), for the formula `name`. `out` may be x itself.

    >>> forward("Clip", np.array([-7.0, 0.5, 7.0]), (0, 6), np.empty(3))
    array([0. , 0.5, 6. ])
    """
    if on_cuda(x):
        given = x, *_three(x, numbers), out
        launch("elementwise.cu", "elementwise", x.size, x, *given, of=(name,))
        return out
    numbers = _typed(numbers, x.dtype)
    loop = _loop(name, "y", x.dtype)
    if loop is not None:
        run_loop(loop, out, x, numbers)
        return out
    y, whole = on_blocks(name, "y", x.dtype), FORMULAS[name].whole
    if whole is not None and out.size < LONG:
        return whole(x, *numbers, out=out)
    x, flat = x.reshape(-1), out.reshape(-1)

    def part(block: slice) -> None:
        if whole is None:
            flat[block] = y(x[block], *numbers)
        else:
            whole(x[block], *numbers, out=flat[block])

    _in_blocks(part, out.size, BLOCK if whole is None else out.size)
    return out


def gradient(name: str, dy: Any, x: Any, y: Any, numbers: tuple[float, ...], out: Any) -> Any:
    """dx = dy slope(x, y, *numbers), for the formula `name`. `out` may be dy itself.

    >>> y = np.array([0.5])
    >>> gradient("Sigmoid", np.ones(1), y, y, (), np.empty(1))
    array([0.25])
    """
    if on_cuda(x):
        given = dy, x, y, *_three(x, numbers), out
        launch("elementwise.cu", "elementwise_gradient", x.size, x, *given, of=(name,))
        return out
    numbers = _typed(numbers, x.dtype)
    loop = _loop(name, "slope", x.dtype)
    if loop is not None:
        run_loop(loop, out, dy, x, y, numbers)
        return out
    slope, light = on_blocks(name, "slope", x.dtype), FORMULAS[name].whole is not None
    if light and out.size < LIGHT:
        return np.multiply(dy, slope(x, y, *numbers), out=out)
    dy, x, y, flat = (array.reshape(-1) for array in (dy, x, y, out))

    def part(block: slice) -> None:
        np.multiply(dy[block], slope(x[block], y[block], *numbers), out=flat[block])

    _in_blocks(part, out.size, LIGHT if light else BLOCK)
    return out


def _loop(name: str, part: str, dtype: np.dtype) -> Any:
    """A formula's compiled loop; None where NumPy has to compute it, which no program can."""
    fast = loops("elementwise", dtype)
    if fast is None:
        record.host(f"{name} of {dtype} by NumPy")
        return None
    return fast.formula(name, part, dtype)


@functools.lru_cache(256)
def _typed(numbers: tuple[float, ...], dtype: np.dtype) -> tuple[Any, ...]:
    return tuple(map(dtype.type, numbers))


def _three(x: Any, numbers: tuple[float, ...]) -> list[Any]:
    """The numbers in the type that a kernel computes in, and zeros up to what it takes."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    return [kind(number) for number in (*numbers, *[0] * (NUMBERS - len(numbers)))]


def _in_blocks(part: Callable[[slice], None], size: int, block: int) -> None:
    """Run a function over blocks of 0..size, on the host. Infinities and NaNs are none's fault."""

    def slices(first: int, last: int, _: Any) -> None:
        with np.errstate(all="ignore"):
            for start in range(first, last, block):
                part(slice(start, min(start + block, last)))

    if size < LONG:
        slices(0, size, None)
    else:
        in_slices(slices, size)
