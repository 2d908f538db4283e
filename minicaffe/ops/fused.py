"""What CUDA is asked for in a graph, where two kernels can be one: the same values, to the bit, in less time.

    y = weight x + bias                     y = max(0, weight x + bias)
    y = max(0, y)                    ->

    dx = gradient of a pooling of dy        dx = gradient of a pooling of dy, where y > 0
    dx = dx where y > 0              ->

    y = (x - mean) rate                     y = (x - mean) rate,  z = a y + b,  s = max(0, z + other)
    z = a y + b                      ->
    s = z + other
    s = max(0, s)

    da += sum of dz y, db += sum of dz      da, db, dy and dx in one
    dy = a dz                        ->
    dx = gradient of a BatchNorm of dy

    part = weight' dz                       dx += weight' dz
    dx += part                       ->

All that is written is written as before, but for the `part` of the last. Layers know nothing of this: they
ask for their kernels, and one is held back until it is known what comes next. What CuPy does behind such a
kernel must be asked for as well, as ops.arrays does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.kernels import Asked, heard, hearing, parameters

FIRST = {  # what can be one with what comes next, and where it is from
    "implicit": "implicit.cu",
    "scale": "channels.cu",
    "moments": "normalize.cu",
    "normalise": "normalize.cu",
    "gradients": "normalize.cu",
    "max_pool_gradient": "pool.cu",
    "ave_pool_gradient": "pool.cu",
    "dropout_gradient": "random.cu",
}
FILES = {**FIRST, "elementwise": "elementwise.cu", "elementwise_gradient": "elementwise.cu"}
NORMALISED = ("moments", "normalise")


class Joined:
    """Hears what is asked for while it `holds`: of two that can be one the first is not done alone."""

    def __init__(self) -> None:
        self.outer, self.holds = hearing(), True
        self.held: Asked | None = None

    def host(self, why: str) -> None:
        """What no graph can hold."""
        if self.outer is not None:
            self.outer.host(why)

    def launched(self, asked: Asked) -> bool:
        """Whether it is to be done now."""
        one = together(self.held, asked) if self.held is not None else None
        if one is None:
            self.end()
        if one is None and not (self.holds and asked.name in FIRST):
            return True
        self.held = one or asked
        return False

    def end(self) -> None:
        """Have done what is held back: nothing that comes is to be one with it."""
        held, self.held = self.held, None
        if held is not None:
            held.do(held.args)


@contextlib.contextmanager
def joined() -> Iterator[Joined]:
    """Within it two kernels are one wherever they can be."""
    with heard(Joined()) as by:
        yield by
        by.end()


def may_begin(launches: Sequence[Any]) -> bool:
    """Whether some work, as a recording has it, may be one with what comes before it."""
    return any(name in SECOND for name, *_ in launches[:1])


def together(first: Asked, then: Asked) -> Asked | None:
    """What does all that two do, to the bit, if something can.

    Of arrays that one of them is given and one the other, none reaches into the other: blocks of one kernel do
    not wait for each other, and a buffer may lie where another was no longer needed. They may be the same.
    """
    join = SECOND.get(then.name)
    one = None if join is None else join(first, then)
    both = ([arg for arg in asked.args if on_cuda(arg)] for asked in (first, then))
    return one if one is None or all(_clear(a, b) for a, b in itertools.product(*both)) else None


def _relu(first: Asked, then: Asked) -> Asked | None:
    """A ReLU in place is the end of what writes its bottom."""
    x, y = _of(then, "x", "y")
    able = then.types.endswith(", ReLU") and _same(x, y) and _same(y, _written(first))
    return _with(first, relu=np.int32(1)) if able and _free(first, "relu") else None


def _masked(first: Asked, then: Asked) -> Asked | None:
    """So is its gradient of what writes that of its top."""
    x, dy, dx = _of(then, "x", "dy", "dx")
    able = then.types.endswith(", ReLU") and _same(dy, dx) and _same(dx, _written(first))
    able = able and not _same(x, dx)
    return _with(first, mask=x) if able and _free(first, "mask") else None


def _scaled(first: Asked, then: Asked) -> Asked | None:
    """A Scale of what is normalised."""
    x, a, b, f, p, y = _of(then, "x", "a", "b", "f", "p", "y")
    able = a is not None and _free(then, "whole", "relu") and _same(x, _written(first))
    able = able and not _same(x, a) and not _same(x, b)
    if first.name not in NORMALISED or not able or not _free(first, "z", "relu"):
        return None
    return _with(first, scale=a, bias=b, features=f, places=p, z=y)


def _added(first: Asked, then: Asked) -> Asked | None:
    """A sum with something else, of what was scaled; or with what a gradient is added to."""
    a, b, out = then.args
    if not all(_alike(array, out) for array in (a, b)):
        return None
    if first.name in NORMALISED:
        y, z = _of(first, "y", "z")
        of_z, other = (a, b) if _same(a, z) else (b, a)
        new = _same(other, y) or _same(other, z)  # it is read before any of them is written
        able = _same(of_z, z) and not new and _free(first, "sum", "relu")
        return _with(first, other=other, sum=out) if able else None
    if first.name != "implicit" or not (_same(a, out) and _same(b, _of(first, "out")[0])):
        return None
    as_it_is = _free(first, "add", "relu", "mask") and not _same(a, b)
    return _with(first, out=out, add=np.int32(1)) if as_it_is and out.itemsize > 2 else None


def _normalised_before(first: Asked, then: Asked) -> Asked | None:
    """The gradient of what was normalised, where that was then scaled."""
    same = "count", "s_outer", "s_kept", "s_inner", "wide"
    if (
        first.name != "gradients"
        or first.grid != then.grid
        or _of(first, *same) != _of(then, *same)
    ):
        return None
    (x, dz, g), (dy, mean) = _of(first, "x", "dy", "g"), _of(then, "dy", "mean")
    if not _free(first, "mean", "means") or not _same(dy, g) or mean is None or _same(dz, g):
        return None
    if not _free(then, "scale", "dscale", "dbias", "g"):
        return None
    taken = "dy", "scale", "features", "places", "dscale", "dbias", "g"
    return _with(then, y=x, **dict(zip(taken, _of(first, *taken), strict=True)))


SECOND: dict[str, Callable[[Asked, Asked], Asked | None]] = {
    "elementwise": _relu,
    "elementwise_gradient": _masked,
    "scale": _scaled,
    "add": _added,
    "gradients": _normalised_before,
}


def _written(asked: Asked) -> Any:
    """The array that another may go on with."""
    if asked.name in NORMALISED:
        return next((array for array in _of(asked, "sum", "z", "y") if array is not None), None)
    names = parameters(FILES[asked.name], asked.name)
    return next(asked.args[names[name]] for name in ("out", "y", "dx") if name in names)


def _of(asked: Asked, *names: str) -> list[Any]:
    """Arguments by name; what a kernel has no such argument for is not among them."""
    at = parameters(FILES[asked.name], asked.name)
    return [asked.args[at[name]] for name in names if name in at]


def _free(asked: Asked, *names: str) -> bool:
    """Whether a kernel has all such arguments, and is given nothing for them, or zero."""
    given = _of(asked, *names)
    nothing = (arg is None or (isinstance(arg, np.integer) and arg == 0) for arg in given)
    return len(given) == len(names) and all(nothing)


def _with(asked: Asked, **values: Any) -> Asked:
    """The same with other arguments."""
    args, at = list(asked.args), parameters(FILES[asked.name], asked.name)
    for name, value in values.items():
        args[at[name]] = value
    return asked._replace(args=tuple(args))


def _alike(array: Any, other: Any) -> bool:
    """Whether both are arrays of as many entries of one type, one behind the other."""
    if not (on_cuda(array) and on_cuda(other)):
        return False
    flat = array.flags.c_contiguous and other.flags.c_contiguous
    return bool(flat and array.size == other.size and array.dtype == other.dtype)


def _clear(array: Any, other: Any) -> bool:
    """Whether two arrays begin and end together, or have no memory in common."""
    (begin, end), (first, last) = (
        (one.data.ptr, one.data.ptr + one.nbytes) for one in (array, other)
    )
    return bool((begin, end) == (first, last) or end <= first or last <= begin)


def _same(array: Any, other: Any) -> bool:
    """Whether both are one array, whatever its shape."""
    return _alike(array, other) and bool(array.data.ptr == other.data.ptr)
