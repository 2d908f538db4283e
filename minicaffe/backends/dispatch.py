"""The one gate between an op and what computes it: a compiled loop, a CUDA kernel, or NumPy.

An op is a NumPy function. backends/cpu/ops.py and backends/cuda/ops.py say which loop and kernel compute it.
Without a row, or where it returns NotImplemented, the NumPy function is called, on CUDA with CuPy's arrays.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from minicaffe.backends.device import on_cuda
from minicaffe.backends.launch_listener import Asked, ask
from minicaffe.backends.thread_state import state

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)
Row = Callable[[tuple[Any, ...], dict[str, Any]], Any]  # of the arguments of an op


class OpTable:
    """The table of a backend: which function computes an op, and which of its arguments it takes, by name.

    Where `compiled(file, dtype, blas)` finds loops, the function takes first their module, and BLAS's address.
    """

    def __init__(self, compiled: Callable[[str, Any, bool], tuple[Any, ...] | None] | None = None):
        self.compiled = compiled
        self.rows: dict[str, tuple[Any, ...]] = {}

    def add(
        self, op: str, file: str | None = "", of: str = "", blas: bool = False, work: Any = None
    ) -> Callable[[Function], Function]:
        """Add a function that computes `op`, as "pool.max_pool", by the loops `file`, or by none it takes.

        `of` is the array whose type loops must serve, else the op's first; `work` a thread's workspace.
        """
        file = op.partition(".")[0] if file == "" else file

        def added(function: Function) -> Function:
            self.rows[op] = function, None if self.compiled is None else file, of, blas, work
            return function

        return added

    def of(self, op: Op) -> tuple[Any, ...]:
        """The entry of an op, which may lie with the loops of its family; Nones if there is none."""
        if self.compiled is not None and op.key not in self.rows and compiles():
            module(f"minicaffe.backends.cpu.kernels.{op.key.partition('.')[0]}")
        return self.rows.get(op.key, (None,) * 5)

    def serves(self, op: Op, dtype: Any) -> bool:
        """True if loops compute an op for a type."""
        _, file, _, blas, _ = self.of(op)
        return self.compiled is not None and bool(file and self.compiled(file, dtype, blas))

    def row(self, op: Op) -> Row | None:
        """What computes an op, of all its arguments."""
        function, file, of, blas, _ = self.of(op)
        if function is None:
            return None
        names = [*inspect.signature(function).parameters]
        taken = operator.itemgetter(*map(op.names.index, names[(1 + blas) * (file is not None) :]))
        typed, count = op.names.index(of) if of else op.array, len(op.names)
        compiled: Any = self.compiled

        def row(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if len(args) < count:
                args += op.rest(args, kwargs) if kwargs else op.defaults[len(args) :]
            if file is None:
                return function(*taken(args))
            first = compiled(file, args[typed].dtype, blas)
            return NotImplemented if first is None else function(*first, *taken(args))

        return row


class Op:
    """A NumPy function, and what a backend must know to call it in slices, and to trace it.

    `writes`: the arguments that it writes, the first of which it returns. `samples`: those whose first axis is
    that of independent samples; `entries`: those of independent entries, stretched to the shape of the first.
    `scratch`: work of which each slice gets a flat piece. A slice has at least `grain` entries of the largest
    of them, and threads are woken for `worth` of them. What calls ops, which are traced, is not `traced`
    itself. With `replays` false no replay calls it: it may raise, or does what its arguments do not say. What
    writes `by_calls` of NumPy's functions alone, to `out` or by np.copyto, is replayed by these calls.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        writes: str,
        *,
        samples: str = "",
        entries: str = "",
        scratch: str = "",
        grain: int = 2**13,
        worth: int = 2**20,
        traced: bool = True,
        replays: bool = True,
        by_calls: bool = False,
        array: str = "",
    ):
        self.function, self.scratch, self.entries = function, scratch, bool(entries)
        self.grain, self.worth, self.traced = grain, worth, traced
        self.replays, self.by_calls = replays, by_calls
        self.signature = inspect.signature(function)
        self.name = function.__name__
        self.key = f"{function.__module__.rpartition('.')[2]}.{self.name}"  # in the tables
        parameters = self.signature.parameters
        self.names = names = [*parameters]
        self.defaults = tuple(parameter.default for parameter in parameters.values())
        self.writes, self.slices = writes.split(), (samples or entries).split()
        self.writes += [scratch] * (scratch not in ("", *self.writes))
        assert {*self.writes, *self.slices, *scratch.split()} <= {*names}, names
        self.returned = names.index(self.writes[0]) if self.writes else 0
        first = names["self" in names]
        self.array = names.index(array or (self.slices or [first])[0])

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by their names, with the defaults of those that were left out."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    @functools.cached_property
    def loop(self) -> Row | None:
        """The row of the table of backends/cpu, if there is one."""
        return table("cpu").row(self)

    @functools.cached_property
    def kernel(self) -> Row | None:
        """The row of the table of backends/cuda, if there is one."""
        return table("cuda").row(self)

    def on_cuda(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True if it is computed on CUDA: its array, or the first of several, lies there."""
        array = args[self.array] if self.array < len(args) else kwargs[self.names[self.array]]
        if type(array) in (list, tuple):
            array = array[0]
        return type(array) is not np.ndarray and on_cuda(array)

    def rest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments behind those of `args`, from `kwargs` or by default."""
        pairs = zip(self.names[len(args) :], self.defaults[len(args) :], strict=True)
        return tuple([kwargs.get(name, default) for name, default in pairs])

    def by_backend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Have a backend compute it; returns whether one did."""
        row = self.kernel if self.on_cuda(args, kwargs) else self.loop
        return row is not None and row(args, kwargs) is not NotImplemented

    def by_numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the NumPy function: with CuPy's arrays, or on the CPU's threads if it has slices."""
        slices = module("minicaffe.backends.cpu.slices") if self.traced else None
        if slices is None:
            self.function(*args, **kwargs)
        elif self.on_cuda(args, kwargs):
            self._by_cupy(args, kwargs)
        else:
            slices.by_numpy(self, args, kwargs)

    def _by_cupy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        count, names = len(args), tuple(kwargs)

        def do(asked: Asked) -> None:
            every = asked.args
            self.function(*every[:count], **dict(zip(names, every[count:], strict=True)))

        ask(self.name, "", (), (*args, *kwargs.values()), do)


def op(writes: str = "out", **how: Any) -> Callable[[Function], Function]:
    """Make a NumPy function an op, which a backend may compute instead: see `Op`.

    The first of its slices, else `array` or its first argument, says where it is computed. Methods may be ops.

    >>> @op(entries="x out")
    ... def doubled(x, out):
    ...     np.add(x, x, out=out)
    >>> doubled(np.arange(3.0), np.empty(3))
    array([0., 2., 4.])
    """

    def decorated(function: Function) -> Function:
        made = Op(function, writes, **how)
        place, returned, name = made.array, made.returned, made.writes[0]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            here = len(args) > place and type(args[place]) is np.ndarray  # the common case, sooner
            row = made.loop if here or not made.on_cuda(args, kwargs) else made.kernel
            if row is None or row(args, kwargs) is NotImplemented:
                made.by_numpy(args, kwargs)
            return args[returned] if returned < len(args) else kwargs[name]

        vars(function)["writes"] = made.writes
        vars(call)["op"] = made
        return cast(Function, call)

    return decorated


def by_backend(op: Any, *args: Any) -> bool:
    """Have a backend compute an op; returns whether one did."""
    return cast(Op, op.op).by_backend(args, {})


def tried(function: Callable[..., bool]) -> Callable[..., bool]:
    """Make an op that only backends have: it returns whether one computed it."""
    made = Op(function, "")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> bool:
        return made.by_backend(args, kwargs)

    return call


def compiles() -> bool:
    """True if there is a compiler of loops for the CPU."""
    backend = module("minicaffe.backends.cpu")
    return backend is not None and bool(backend.available())


def is_compiled(op: Any, dtype: Any) -> bool:
    """True if it is an op, and compiled loops compute it for a type."""
    return hasattr(op, "op") and table("cpu").serves(op.op, dtype)


def workspace(op: Any, backend: str, *args: Any) -> int:
    """The elements of workspace that one thread of a backend needs for an op, of these arguments; else 0."""
    *_, work = table(backend).of(op.op)
    return 0 if work is None else int(work(*args))


def in_slices(
    part: Callable[..., None], n: int, work: Any = None, grain: int = 1, worth: int = 1
) -> list[Any]:
    """Call part(first, last, work) on slices of 0..n; returns the pieces of `work` that they used.

    It calls ops only. The CPU's threads share them: see backends/cpu/slices.py. CUDA is called once.
    """
    slices = module("minicaffe.backends.cpu.slices")
    if slices is not None:
        return cast(list[Any], slices.in_slices(part, n, work, grain, worth, noted=True))
    if n:
        part(0, n, work)
    return [work] * min(n, 1)


def on_the_host(why: str) -> None:
    """Tell the trace of this thread, if there is one, of work that no replay can hold."""
    if state.trace is not None:
        state.trace.host(why)


def threads() -> int:
    """How many threads of the CPU share the work of an op: 1 without compiled loops' backend."""
    backend = module("minicaffe.backends.cpu.threads")
    return 1 if backend is None else int(backend.count())


def number(value: float, like: Any) -> Any:
    """A number in the type that sums of `like` are taken in.

    >>> number(0.5, np.empty(1, np.float16))
    np.float32(0.5)
    """
    return (np.float64 if like.dtype == np.float64 else np.float32)(value)


def flag(ignore: int | None) -> tuple[int, int]:
    """A label to ignore as loops and kernels take it: whether there is one, and which."""
    return (0, 0) if ignore is None else (1, ignore)


def at_most(most: int, each: int | None = None) -> contextlib.AbstractContextManager[None]:
    """A context in which ops use at most `most` threads of the CPU, with `each` elements of work at most."""
    backend = module("minicaffe.backends.cpu.threads")
    return contextlib.nullcontext() if backend is None else backend.at_most(most, each)


def on_its_device(method: Function) -> Function:
    """Have a method run with the `device` of its object current, on the CPU with one thread of BLAS."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.device.current() if self.device.is_cuda else one_thread()():
            return method(self, *args, **kwargs)

    return cast(Function, run)


@functools.cache
def one_thread() -> Any:
    """The class of contexts in which NumPy's BLAS has one thread, beside those of the CPU's backend."""
    backend = module("minicaffe.backends.cpu.threads")
    return contextlib.nullcontext if backend is None else backend.OneThread


def replayed(what: str, ordinary: Kind) -> Kind:
    """The class of backends/replay that replays "inference" or "training"; `ordinary` if there is none."""
    backend = module(f"minicaffe.backends.replay.{what}")
    return ordinary if backend is None else cast(Kind, backend.Replayed)


def table(backend: str) -> OpTable:
    """The table of a backend, to which its engines of convolutions add; an empty one if it is not there."""
    module(f"minicaffe.backends.{backend}.conv")
    ops = module(f"minicaffe.backends.{backend}.ops")
    return OpTable() if ops is None else cast(OpTable, ops.ROWS)


@functools.cache
def module(name: str) -> Any:
    """A module of a backend, None if there is no such file or backend."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
