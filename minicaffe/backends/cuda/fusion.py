"""What CUDA is asked for in a graph, where two kernels can be one: the same values, to the bit, in less time.

    y = weight x + bias                     y = max(0, weight x + bias)
    y = max(0, y)                    ->

    y = max(0, weight x + bias)             y = max(0, weight x + bias)
    z = max of 2 x 2 pixels of y     ->     z = max of 2 x 2 pixels of y

    dx = gradient of a pooling of dy        dx = gradient of a pooling of dy, where y > 0
    dx = dx where y > 0              ->

    y = (x - mean) rate                     y = (x - mean) rate,  z = a y + b,  s = max(0, z + other)
    z = a y + b                      ->
    s = z + other
    s = max(0, s)

    da += sum of dz y, db += sum of dz      da, db, dy and dx in one
    dy = a dz                        ->
    dx = gradient of a BatchNorm of dy      (that of a ReLU before them, too, where rows are in shared memory)

    loss of the softmax of x                loss and dx in one, where the normalizer is known
    dx = gradient of the loss        ->

    part = weight' dz                       dx += weight' dz
    dx += part                       ->

All is written as before, but for the `part` of the last. Layers know nothing of this: they ask for their
kernels, and one is held back until what comes next is known. What CuPy does behind such a kernel must be asked
for as well, as ops.arrays does. A rule passes what it can to the first kernel as optional arguments.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minicaffe.backends.cuda.launch import parameters
from minicaffe.backends.cuda.moments import PACK
from minicaffe.backends.device import on_cuda
from minicaffe.backends.launch_listener import Asked, heard, hearing

RESIDENT = "resident_moments", "resident_gradients"
NORMALISED, FILL = ("moments", RESIDENT[0], "normalise"), "fill"
# What can be one with what comes next
FIRST = {*NORMALISED, "implicit", "scale", "gradients", RESIDENT[1], "softmax_loss"}
FIRST |= {"elementwise_gradient", "dropout_gradient"}
FIRST |= {"max_pool_gradient", "max_pool_gradient_2x2", "ave_pool_gradient"}


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
        if self.held is not None and asked.name == FILL and clear(self.held, asked, same=False):
            held, self.held = self.held, None  # it may as well come before
            asked.do(asked)
            self.held = held
            return False
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
            held.do(held)


@contextlib.contextmanager
def joined() -> Iterator[Joined]:
    """Within it two kernels are one wherever they can be."""
    with heard(Joined()) as by:
        yield by
        by.end()


def may_begin(launches: Sequence[Any]) -> bool:
    """Whether some work, as a recording has it, may be one with what comes before it."""
    begin = [name for name, *_ in launches if name != FILL]
    return any(name in SECOND for name in begin[:1])


def together(first: Asked, then: Asked) -> Asked | None:
    """What does all that two do, to the bit, if something can.

    Of arrays that one of them is given and one the other, none reaches into the other: blocks of one kernel do
    not wait for each other, and a buffer may lie where another was no longer needed. They may be the same.
    """
    join = SECOND.get(then.name)
    one = None if join is None else join(first, then)
    return one if one is None or (clear(first, then) and _by_packs(one)) else None


def _by_packs(asked: Asked) -> bool:
    """Whether a kernel that reads and writes entries by packs is given no array that is not for them."""
    size = _of(asked, "x")[0].size if asked.name in RESIDENT else None
    return all(arg.data.ptr % PACK == 0 for arg in asked.args if on_cuda(arg) and arg.size == size)


def _relu(first: Asked, then: Asked) -> Asked | None:
    """A ReLU in place is the end of what writes its bottom."""
    x, y = _of(then, "x", "y")
    able = then.types.endswith(", ReLU") and _same(x, y) and _same(y, _written(first))
    return _with(first, relu=np.int32(1)) if able and _free(first, "relu") else None


def _pooled(first: Asked, then: Asked) -> Asked | None:
    """So is a max pooling of 2 x 2 pixels side by side, where a thread of a product has all four."""
    image, h, w, oh, ow, pooled, which = _of(then, "image", "h", "w", "oh", "ow", "pooled", "which")
    window = _of(then, "kh", "kw", "sh", "sw", "ph", "pw")
    if first.name != "implicit" or not _same(image, _written(first)):
        return None
    (product,), types = _of(first, "p")[0], first.types.split(", ")
    planes = *product["column"][["h", "w"]], product["out_row"]
    able = window == [2, 2, 2, 2, 0, 0] and (h, w) == (2 * oh, 2 * ow)
    able = able and planes == (h, w, h * w) and int(types[3]) % 4 == 0
    able = able and types[7] == "false"  # whether its columns are of one remainder of a stride
    able = able and image.data.ptr % (2 * image.itemsize) == 0  # for two are written at once
    free = _free(first, "mask", "add", "left_sums") and _new(first, then, "pooled", "which")
    return _with(first, pooled=pooled, which=which) if able and free else None


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
    as_it_is = _free(first, "add", "relu", "mask", "pooled") and not _same(a, b)
    return _with(first, out=out, add=np.int32(1)) if as_it_is and out.itemsize > 2 else None


def _masked_before(first: Asked, then: Asked) -> Asked | None:
    """The gradient of a ReLU of what was scaled or normalised, in shared memory; else that of the Scale."""
    if first.name != "elementwise_gradient":
        return _normalised_before(first, then)
    mask, dy, passed = _of(first, "x", "dy", "dx")
    able = first.types.endswith(", ReLU") and _same(passed, _of(then, "dy")[0])
    able = able and _free(then, "y", "mask") and not _same(mask, passed)
    return _with(then, dy=dy, mask=mask, passed=passed) if able else None


def _normalised_before(first: Asked, then: Asked) -> Asked | None:
    """The gradient of what was normalised, where that was then scaled."""
    same = "count", "outer", "kept", "inner", "s_outer", "s_kept", "s_inner", "wide"
    if first.name != then.name or first.grid != then.grid:
        return None
    if _of(first, *same) != _of(then, *same):
        return None
    (x, dz, g), (dy, mean) = _of(first, "x", "dy", "g"), _of(then, "dy", "mean")
    if not _free(first, "mean", "dx") or not _same(dy, g) or mean is None or _same(dz, g):
        return None
    if not _free(then, "scale", "dscale", "dbias", "g"):
        return None
    taken = ["dy", "scale", "features", "places", "dscale", "dbias", "g"]
    taken += ["mask", "passed"] if first.name in RESIDENT else []
    return _with(then, y=x, **dict(zip(taken, _of(first, *taken), strict=True)))


def _with_gradient(first: Asked, then: Asked) -> Asked | None:
    """A loss and its gradient, where no block waits for others to count labels."""
    same = "prob", "labels", "normalizer", "c", "s", "has_ignore", "ignore"
    if first.name != "softmax_loss" or first.types.split(", ")[1] != then.types:
        return None
    a, b = (_of(asked, *same) for asked in (first, then))
    able = all(_same(*pair) for pair in zip(a[:3], b[:3], strict=True)) and a[3:] == b[3:]
    dloss, dx = _of(then, "dloss", "dx")
    able = able and _free(first, "counts", "dx") and _new(first, then, "dloss", "dx")
    return _with(first, dloss=dloss, dx=dx) if able else None


def _written(asked: Asked) -> Any:
    """The array that another may go on with."""
    if asked.name in NORMALISED:
        return next((array for array in _of(asked, "sum", "z", "y") if array is not None), None)
    names = _places(asked)
    if "pooled" in names and not _free(asked, "pooled"):
        return None
    return next(asked.args[names[name]] for name in ("out", "y", "dx") if name in names)


def _places(asked: Asked) -> dict[str, int]:
    """The places of a kernel's arguments, by their names."""
    return parameters(asked.name)


def _of(asked: Asked, *names: str) -> list[Any]:
    """Arguments by name; what a kernel has no such argument for is not among them."""
    at = _places(asked)
    return [asked.args[at[name]] for name in names if name in at]


def _new(first: Asked, then: Asked, *names: str) -> bool:
    """Whether some arrays of the second are none of the first's, which its blocks may yet read or write."""
    known = {array.data.ptr for array in first.args if on_cuda(array)}
    return not known & {array.data.ptr for array in _of(then, *names)}


def _free(asked: Asked, *names: str) -> bool:
    """Whether a kernel has all such arguments, and is given nothing for them, or zero."""
    arguments = _of(asked, *names)
    nothing = (arg is None or (isinstance(arg, np.integer) and arg == 0) for arg in arguments)
    return len(arguments) == len(names) and all(nothing)


def _with(asked: Asked, **values: Any) -> Asked:
    """The same with other arguments."""
    args, at = list(asked.args), _places(asked)
    for name, value in values.items():
        args[at[name]] = value
    return asked._replace(args=tuple(args))


def _alike(array: Any, other: Any) -> bool:
    """Whether both are arrays of as many entries of one type, one behind the other."""
    if not (on_cuda(array) and on_cuda(other)):
        return False
    flat = array.flags.c_contiguous and other.flags.c_contiguous
    return bool(flat and array.size == other.size and array.dtype == other.dtype)


def clear(first: Asked, then: Asked, same: bool = True) -> bool:
    """Whether of their arrays no two have memory in common; with `same` two may begin and end together."""
    pairs = itertools.product(_lie(first), _lie(then))
    return all((same and a == b) or a[1] <= b[0] or b[1] <= a[0] for a, b in pairs)


def _lie(asked: Asked) -> list[tuple[int, int]]:
    """Where its arrays begin, and end with their last entries, whatever lies between them."""
    lie = []
    for array in filter(on_cuda, asked.args):
        steps = zip(array.shape, array.strides, strict=True)
        last = sum((count - 1) * step for count, step in steps) if array.size else -array.itemsize
        lie.append((array.data.ptr, array.data.ptr + last + array.itemsize))
    return lie


def _same(array: Any, other: Any) -> bool:
    """Whether both are one array, whatever its shape."""
    return _alike(array, other) and bool(array.data.ptr == other.data.ptr)


SECOND: dict[str, Callable[[Asked, Asked], Asked | None]] = {
    "elementwise": _relu,
    "elementwise_gradient": _masked,
    "max_pool": _pooled,
    "softmax_loss_gradient": _with_gradient,
    "scale": _scaled,
    "add": _added,
    "gradients": _normalised_before,
    RESIDENT[1]: _masked_before,
}
