"""Commands: calls of compiled loops, or of NumPy's functions, on existing arrays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, Tail
from minicaffe.backends.device import on_cuda, where


@dataclass(frozen=True, eq=False)
class LoopCommand:
    """A command: loop(*args, first, last) over slices of 0..n. Keeps its arguments, compared by address."""

    loop: Callable[..., None]
    args: tuple[Any, ...]
    n: int
    slices: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoopCommand):
            return NotImplemented
        return place([*vars(self).values()]) == place([*vars(other).values()])

    @property
    def name(self) -> str:
        """The loop's file and name.

        >>> LoopCommand(print, (), 1, 1).name
        'builtins.print'
        """
        return f"{self.loop.__module__.rpartition('.')[2]}.{self.loop.__name__}"

    @property
    def bytes(self) -> int:
        """The bytes of all arrays among the arguments, each once: a lower bound of the memory traffic.

        >>> LoopCommand(print, (np.zeros(3), (np.ones(2), 5)), 1, 1).bytes
        40
        """
        return sum({id(array): array.nbytes for array in arrays(self.args)}.values())


@dataclass(frozen=True, eq=False)
class Calls:
    """A command: calls of NumPy's functions, each slice's in its thread, in order; equal as a loop's."""

    parts: list[list[partial[Any]]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calls) and place(self.parts) == place(other.parts)

    @property
    def slices(self) -> int:
        """The number of threads that share the calls."""
        return len(self.parts)

    @property
    def name(self) -> str:
        """The functions, each once.

        >>> Calls([[partial(np.add, 1, 2), partial(np.exp, 0), partial(np.add, 0, 0)]]).name
        'add, exp'
        """
        every = (call.func for part in self.parts for call in part)
        return ", ".join(dict.fromkeys(name_of(function) for function in every))

    @property
    def bytes(self) -> int:
        """The bytes of all arrays among the arguments, each once."""
        used = [array for part in self.parts for call in part for array in touched(call)]
        return sum({place(array)[:2]: array.nbytes for array in used}.values())


@dataclass(frozen=True)
class Apart:
    """A command: of each slice its own compiled loops, which its thread runs in order, and nobody else."""

    parts: list[list[LoopCommand]]

    @property
    def slices(self) -> int:
        """The number of threads that share the loops; 0 if there are none."""
        return len(self.parts) if any(self.parts) else 0

    @property
    def name(self) -> str:
        """The loops, each once."""
        names = dict.fromkeys(row.name for part in self.parts for row in part)
        return f"{self.slices} x ({', '.join(names)})"

    @property
    def bytes(self) -> int:
        """The bytes of all arrays among the arguments, each once in a loop."""
        return sum(row.bytes for part in self.parts for row in part)


Command = LoopCommand | Apart | Calls


def touched(call: partial[Any]) -> Iterator[np.ndarray]:
    """All arrays that a call reads or writes."""
    yield from arrays((*call.args, *call.keywords.values()))


def written(call: partial[Any]) -> Iterator[np.ndarray]:
    """The arrays that a call writes.

    >>> x, y = np.zeros(1), np.zeros(2)
    >>> calls = partial(np.add, x, x, out=y), partial(np.copyto, x, y)
    >>> [array.size for call in calls for array in written(call)]
    [2, 1]
    """
    names = getattr(call.func, "writes", ("out",))  # an op's, or a function's of NumPy
    outs = tuple(out for name in names if (out := call.keywords.get(name)) is not None)
    yield from arrays(outs or (call.args[0],))


def name_of(function: Any) -> str:
    """The name of a function; for a ufunc's method, with the ufunc's name."""
    of = getattr(function, "__self__", None)
    lead = f"{of.__name__}." if isinstance(of, np.ufunc) else ""
    return lead + str(getattr(function, "__name__", function)).strip("_")


def arrays(args: Any) -> Iterator[np.ndarray]:
    """All arrays among arguments.

    >>> [array.size for array in arrays((np.zeros(2), 3, (Piece(np.zeros(4)),)))]
    [2, 4]
    """
    for arg in args:
        if isinstance(arg, tuple):
            yield from arrays(arg)
        elif isinstance(arg, Piece):
            yield arg.work
        elif isinstance(arg, Tail):
            yield from arrays(arg.args)
        elif isinstance(arg, np.ndarray):
            yield arg


def place(arg: Any) -> Any:
    """The identity of an argument: of an array its address, shape and type, of a number its bits.

    >>> x = np.zeros(2)
    >>> place((x, 1)) == place((x[:], 1)), place(x) == place(x.copy()), place(1) == place(True)
    (True, False, False)
    """
    if isinstance(arg, (tuple, list)):
        return tuple(map(place, arg))
    if isinstance(arg, partial):
        return arg.func, place(arg.args), place(sorted(arg.keywords.items()))
    if isinstance(arg, Piece):
        return Piece, place(arg.work)
    if isinstance(arg, Tail):
        return Tail, arg.loop, place(arg.args), arg.size
    if isinstance(arg, np.ndarray) and arg.dtype.names:  # a struct, passed by value
        return arg.dtype, arg.tobytes()
    if isinstance(arg, np.ndarray) or on_cuda(arg):
        return where(arg)
    if isinstance(arg, np.generic):
        return type(arg), arg.tobytes()
    return type(arg), arg
