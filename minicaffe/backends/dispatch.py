"""The one gate between an op and what computes it: a compiled loop, a CUDA kernel, or NumPy.

An op is a NumPy function. `backends/cpu/ops` and `backends/cuda/ops` hold, in files of the same names,
functions of the same names that compute it by compiled loops and by CUDA kernels. Where there is none, or
where it returns NotImplemented, the NumPy function is called: on CUDA with CuPy's arrays.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from minicaffe.backends.device import on_cuda
from minicaffe.backends.launch_listener import ask

Function = TypeVar("Function", bound=Callable[..., Any])


class Op:
    """A NumPy function, and what a backend must know to call it in slices, and to trace it.

    `writes`: the arguments that it writes, the first of which it returns. `samples`: those whose first axis is
    that of independent samples; `entries`: those of independent entries, which may be flat. `scratch`: work of
    which each slice gets a flat piece. A slice has at least `grain` entries of the largest of them, and threads
    are woken for `worth` of them. With `of_ops` it calls ops itself, which are traced instead.
    """

    def __init__(self, function: Callable[..., Any], **how: Any):
        self.function = function
        self.signature = inspect.signature(function)
        self.family, self.name = function.__module__.rpartition(".")[2], function.__name__
        names = [*self.signature.parameters]
        self.writes: list[str] = how["writes"].split()
        self.flat = bool(how["entries"])
        self.slices: list[str] = (how["samples"] or how["entries"]).split()
        self.scratch: str = how["scratch"]
        self.grain, self.worth, self.of_ops = how["grain"], how["worth"], how["of_ops"]
        assert {*self.writes, *self.slices, *self.scratch.split()} <= {*names}, names
        self.returned = names.index(self.writes[0])
        self.array = names.index(self.slices[0]) if self.slices else 0

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by their names, with the defaults of those that were left out."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    @functools.cached_property
    def loop(self) -> Callable[..., Any] | None:
        """The function of backends/cpu/ops, if there is one."""
        return _of("cpu", self)

    @functools.cached_property
    def kernel(self) -> Callable[..., Any] | None:
        """The function of backends/cuda/ops, if there is one."""
        return _of("cuda", self)

    def by_numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the NumPy function, on the CPU's threads if it has samples and there are any."""
        threads = None if self.of_ops else _module("minicaffe.backends.cpu.run")
        if threads is None:
            self.function(*args, **kwargs)
        else:
            threads.by_numpy(self, args, kwargs)

    def by_cupy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the NumPy function with CuPy's arrays."""
        if self.of_ops:
            self.function(*args, **kwargs)
            return
        count, names = len(args), tuple(kwargs)

        def do(given: tuple[Any, ...]) -> None:
            self.function(*given[:count], **dict(zip(names, given[count:], strict=True)))

        ask(self.name, "", (), (*args, *kwargs.values()), do)


def op(
    writes: str = "out",
    *,
    samples: str = "",
    entries: str = "",
    scratch: str = "",
    grain: int = 2**13,
    worth: int = 2**20,
    of_ops: bool = False,
) -> Callable[[Function], Function]:
    """Make a NumPy function an op, which a backend may compute instead: see `Op`.

    The first of its slices, or else its first argument, says on which device it is computed.

    >>> @op(entries="x out")
    ... def doubled(x, out):
    ...     np.add(x, x, out=out)
    >>> doubled(np.arange(3.0), np.empty(3))
    array([0., 2., 4.])
    """
    how = {"writes": writes, "samples": samples, "entries": entries, "scratch": scratch}

    def decorated(function: Function) -> Function:
        made = Op(function, **how, grain=grain, worth=worth, of_ops=of_ops)
        array, returned, name = made.array, made.returned, made.writes[0]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            first = args[array]
            if on_cuda(first[0] if type(first) in (list, tuple) else first):
                by = made.kernel
                if by is None or by(*args, **kwargs) is NotImplemented:
                    made.by_cupy(args, kwargs)
            else:
                by = made.loop
                if by is None or by(*args, **kwargs) is NotImplemented:
                    made.by_numpy(args, kwargs)
            return args[returned] if returned < len(args) else kwargs[name]

        vars(function)["writes"] = made.writes
        vars(call)["op"] = made
        return cast(Function, call)

    return decorated


def threads() -> int:
    """How many threads of the CPU share the work of an op: 1 without compiled loops' backend."""
    backend = _module("minicaffe.backends.cpu.threads")
    return 1 if backend is None else int(backend.count())


def _of(backend: str, op: Op) -> Callable[..., Any] | None:
    family = _module(f"minicaffe.backends.{backend}.ops.{op.family}")
    return getattr(family, op.name, None)


@functools.cache
def _module(name: str) -> Any:
    """A module of a backend, None if there is no such file or backend."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
