"""One pass over all entries: y = y(x), and dx = dy y'(x), for each row of formulas.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import in_slices
from minicaffe.backends.cpu.threads import FEW, share
from minicaffe.backends.cuda.emit import NUMBERS
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.formulas import FORMULAS, Function, on_blocks
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.activation import LONG, run_loop
from minicaffe.core.ops.arrays import GRAIN

BLOCK = 2048  # entries that NumPy evaluates a formula on at a time, so that they stay in the cache
LIGHT = 8 * BLOCK  # where all that is in between is whether an entry passes, a byte


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
    if whole is None:
        _on_slices(_in_blocks, out, (x,), (y, BLOCK, *numbers))
    else:
        _on_slices(whole, out, (x,), numbers)
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
    more = slope, LIGHT if light else BLOCK, *numbers
    _on_slices(_slopes_in_blocks, out, (dy, x, y), more)
    return out


def _on_slices(
    function: Callable[..., Any], out: Any, arrays: tuple[Any, ...], more: tuple[Any, ...]
) -> None:
    """Call function(*arrays, *more, out=...) on slices, of the first axis where that is long enough."""
    given, few = [*arrays, out], FEW
    if out.ndim < 2 or len(out) < share(None):
        given, few = [array.reshape(-1) for array in given], GRAIN
    each = max(1, out.size // max(1, len(given[-1])))

    def part(first: int, last: int, _: Any) -> None:
        *here, to = (array[first:last].reshape(-1) for array in given)
        do(function, *here, *more, out=to)

    grain = min(few, 1 + GRAIN // each)
    in_slices(part, len(given[-1]), grain=grain, worth=1 + LONG // each, noted=True)


def _loop(name: str, part: str, dtype: np.dtype) -> Any:
    """A formula's compiled loop; None where NumPy has to compute it."""
    fast = loops("elementwise", dtype)
    return None if fast is None else fast.formula(name, part, dtype)


@functools.lru_cache(256)
def _typed(numbers: tuple[float, ...], dtype: np.dtype) -> tuple[Any, ...]:
    return tuple(map(dtype.type, numbers))


def _three(x: Any, numbers: tuple[float, ...]) -> list[Any]:
    """The numbers in the type that a kernel computes in, and zeros up to what it takes."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    return [kind(number) for number in (*numbers, *[0] * (NUMBERS - len(numbers)))]


def _in_blocks(x: Any, y: Function, block: int, *numbers: Any, out: Any) -> None:
    """y(x), block by block. Infinities and NaNs are none's fault."""
    with np.errstate(all="ignore"):
        for start in range(0, out.size, block):
            here = slice(start, start + block)
            out[here] = y(x[here], *numbers)


def _slopes_in_blocks(
    dy: Any, x: Any, y: Any, slope: Function, block: int, *numbers: Any, out: Any
) -> None:
    """dy slope(x, y), likewise."""
    with np.errstate(all="ignore"):
        for start in range(0, out.size, block):
            here = slice(start, start + block)
            np.multiply(dy[here], slope(x[here], y[here], *numbers), out=out[here])
