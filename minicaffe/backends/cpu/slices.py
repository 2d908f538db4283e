"""NumPy on the CPU's threads: an op's function, or any other, over slices of a batch."""

import functools
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

import numpy as np

from minicaffe.backends.aligned import ENTRIES
from minicaffe.backends.cpu import threads
from minicaffe.backends.device import on_cuda
from minicaffe.backends.dispatch import Op
from minicaffe.backends.thread_state import inside, state


def in_slices(
    part: Callable[..., None],
    n: int,
    work: Any = None,
    grain: int = 1,
    worth: int = 1,
    noted: bool = False,
) -> list[Any]:
    """Run part(first, last, work) over slices of 0..n, one per thread; returns the pieces of `work` used.

    There are min(n, share(work)) slices, of at least `grain` units if there is more than one. Waking a thread
    and waiting for Python's lock take longer than a little work: if n is less than `worth`, this thread runs
    all slices. Each has an equal piece of the flat buffer `work`. The slices depend only on n, grain and the
    number of threads, so that sums over them are always in one order. A call within a slice runs as one slice,
    so work is split only once; so does a call whose work is on CUDA. BLAS has one thread
    meanwhile. With `noted`, a part calls ops only, so it can be replayed.

    >>> parts = []
    >>> len(in_slices(lambda first, last, work: parts.append(last - first), 5)) == min(threads.count(), 5)
    True
    >>> sum(parts)
    5
    """
    if inside.get():
        if n:
            part(0, n, work)
        return [work] * min(n, 1)
    trace = state.trace
    recorded = noted and trace is not None
    if trace is not None and not (on_cuda(work) or recorded):
        trace.host(getattr(part, "__qualname__", repr(part)))
    slices = min(n, max(1, min(n // grain, threads.share(work))))
    apart = 0 if work is None or not slices else work.size // slices
    size = apart
    if (each := state.longest_piece) is not None:
        apart -= apart % ENTRIES
        size = min(apart, each)
    pieces = [None if work is None else work[i * apart :][:size] for i in range(slices)]
    if slices == 1:
        part(0, n, pieces[0])
    if slices <= 1:
        return pieces
    calls = [
        functools.partial(part, n * i // slices, n * (i + 1) // slices, piece)
        for i, piece in enumerate(pieces)
    ]
    if recorded or n < worth:
        _alone(calls)
        return pieces
    with threads.OneThread():
        errors = threads.crew(threads.count()).run(calls)
    for error in errors:
        if error:
            raise error
    return pieces


def by_numpy(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call an op's NumPy function, in slices if it has any, and record these calls if this thread records."""
    trace = state.trace
    if trace is not None and not op.replays:
        trace.host(f"{op.name} by NumPy")
    if not op.slices and (trace is None or not op.replays):
        op.function(*args, **kwargs)
        return
    arguments = op.named(args, kwargs)
    sliced = _sliced(op, arguments)

    def part(first: int, last: int, piece: Any) -> None:
        here = {name: _cut(array, first, last) for name, array in sliced.items()}
        if op.scratch:
            here[op.scratch] = piece
        now = {**arguments, **here}
        if trace is None or not op.replays:
            op.function(**now)
        elif op.by_calls:
            _recorded(op.function)(**now)
        else:
            trace.called(call := functools.partial(op.function, **now))
            call()

    if not sliced:
        part(0, 0, None)
        return
    if (work := arguments.get(op.scratch)) is not None:
        work = work.reshape(-1)
    n = len(next(iter(sliced.values())))
    each = max(1, max(getattr(array, "size", 0) for array in sliced.values()) // max(1, n))
    grain = op.grain if each == 1 else min(threads.FEW, 1 + op.grain // each)
    in_slices(part, n, work, grain, 1 + op.worth // each, op.replays)


@functools.cache
def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, and its module's, for which `np` records each call that writes an array."""
    home = function.__module__
    names: dict[str, Any] = dict(vars(sys.modules[home]), np=_NumPy())
    for name, value in [*names.items(), ("", function)]:
        own = isinstance(value, FunctionType) and value.__module__ == home
        if own and not hasattr(value, "op"):
            copy = FunctionType(value.__code__, names, value.__name__, value.__defaults__)
            copy.__kwdefaults__ = value.__kwdefaults__
            names[name] = copy
    return cast(Callable[..., Any], names[""])


class _NumPy:
    """NumPy, or a function of it: calls with `out`, and np.copyto, are recorded by this thread's trace."""

    def __init__(self, of: Any = np):
        self.of = of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.of, name)
        return _NumPy(value) if callable(value) and not isinstance(value, type) else value

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        call = functools.partial(self.of, *args, **keywords)
        if "out" in keywords or self.of is np.copyto:
            state.trace.called(call)
        return call()


def _cut(array: Any, first: int, last: int) -> Any:
    """A slice of an array, or of each of several."""
    if isinstance(array, (list, tuple)):
        return tuple([one[first:last] for one in array])
    return array[first:last]


def _sliced(op: Op, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments to be sliced, if the first has an axis; entries are flat where that axis is short."""
    arrays = {
        name: array
        for name in op.slices
        if hasattr(array := arguments[name], "ndim") or isinstance(array, (list, tuple))
    }
    first = arrays.get(next(iter(op.slices), ""))
    if first is None or first.ndim == 0:
        return {}
    if not op.entries:
        return arrays
    try:
        for name, array in arrays.items():
            if hasattr(array, "ndim") and array.shape != first.shape:
                arrays[name] = np.broadcast_to(array, first.shape)
    except ValueError:  # which NumPy's function says better
        return {}
    short = first.ndim < 2 or len(first) < threads.share()
    if short and first.ndim > 1 and all(a.flags.c_contiguous for a in arrays.values()):
        return {name: array.reshape(-1) for name, array in arrays.items()}
    return arrays


def _alone(calls: Sequence[Callable[[], None]]) -> None:
    token = inside.set(True)
    try:
        if state.trace is None:
            for call in calls:
                call()
        else:
            state.trace.apart(calls)
    finally:
        inside.reset(token)
