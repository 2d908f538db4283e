"""The problem descriptor: a convolution to be planned, the engines that may compute it, and their order.

An engine is a candidate if it can compute the shape within the cap of workspace, and sums over samples in
float32 at least. `direct` is a candidate only if a group has few channels and filters, or if no other engine
can compute the shape. On the CPU, if a compiled engine is a candidate, then no engine that calls NumPy is.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from minicaffe.backends.aligned import LINE
from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import at_most, threads
from minicaffe.core.ops.conv import common
from minicaffe.core.ops.conv.engine import ENGINES
from minicaffe.core.ops.conv.winograd import taps
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.errors import mib

REFERENCE = "direct"
SMALL = 200_000  # multiply-adds of a batch below which a measurement is noise
# The largest relative error; of 16-bit types 1e-2. Float32 on the CPU has one for each shape: `tolerance`
TOLERANCE = {"f": 1e-5, "d": 1e-10}
ROUNDS = 3  # times as much as in the highest precision
BLOCK = 16  # channels that PyTorch sums at a time
IN_CACHE = 2**20  # elements of workspace for a thread of the CPU: about what its cache holds
FEW = 8  # channels times filters of a group up to which `direct` is a candidate
TIE = 1.02  # times within this factor of the best are equally fast
OWN = 2**26  # multiply-adds of one product on CUDA up to which the fixed rule takes our kernel
TOO_LARGE = 2**25  # entries of one product on CUDA: a second copy may not fit beside a net


@dataclass(frozen=True)
class Case:
    """A convolution `g` of arrays of `dtype` on a device, with at most `cap` bytes of workspace."""

    g: ConvGeometry
    dtype: np.dtype
    device: Device
    cap: int
    most: int | None = None  # threads, at most
    infers: bool = False  # it only runs forward, so that packed weights last

    @functools.cached_property
    def shares(self) -> int:
        """Threads to use: as many as leave each enough workspace for an engine of `_rule()` (not the last)."""
        if self.device.is_cuda:
            return 1
        g, most = self.g, threads() if self.most is None else self.most
        if not self.compiled:  # NumPy's engines split the samples only
            most = max(1, min(most, g.n))
        able = [name for name in _rule() if ENGINES[name].refuses(g) is None]
        for names in (able[:-1], able):
            for shares in range(most, 0, -1):
                if any(self._bytes(name, shares) <= self.cap for name in names):
                    return shares
        return 1

    @functools.cached_property
    def compiled(self) -> bool:
        """Whether any engine runs it as compiled loops."""
        return any(map(self.recordable, ENGINES))

    def room(self, size: int) -> tuple[slice, Callable[[], AbstractContextManager[None]]]:
        """Returns which part of a net's workspace a pass takes that needs `size` elements for all threads, and
        what makes the context in which ops use at most `shares` threads.

        NumPy's threads share all of the workspace, so that each thread always has the same piece.
        """
        if not (self.device.is_cuda or self.compiled):
            return slice(None), functools.partial(at_most, self.shares, size // self.shares)
        fewer = self.shares < threads()
        return slice(size), functools.partial(at_most, self.shares) if fewer else nullcontext

    def workspace(self, name: str, way: str = "") -> int:
        """Returns the elements of workspace of an engine, for all threads; `way` is a direction, or all."""
        return self._elements(name, self.shares, way)

    def packed(self, name: str) -> int:
        """Returns the elements of packed weights of an engine, 0 if it packs none here."""
        return ENGINES[name].packed(self.g) if self.recordable(name) else 0

    def of(self, g: ConvGeometry) -> Case:
        """The problem for another part of the batch or image, with as many threads and as much workspace."""
        return dataclasses.replace(self, g=g, most=self.shares)

    def refuses(self, name: str) -> str | None:
        """Returns why an engine cannot be used: its own reason, or workspace above the cap; None if it can."""
        reason: str | None = ENGINES[name].refuses(self.g)
        size = 0 if reason else self._bytes(name, self.shares)
        if size > self.cap:
            return f"needs {mib(size)} of workspace, the cap is {mib(self.cap)}"
        return reason

    def limit(self, shares: int) -> int:
        """Elements of workspace that an engine may use in one of so many threads."""
        most = self.cap // self.dtype.itemsize // shares
        return most if self.device.is_cuda else min(most, IN_CACHE)

    def _elements(self, name: str, shares: int, way: str = "") -> int:
        """As `workspace`, for other numbers of threads."""
        engine, limit = ENGINES[name], self.limit(shares)
        if self.device.is_cuda:
            return int(engine.cuda_workspace(self.g, limit, self.dtype.itemsize))
        measure = engine.forward_workspace if way == "forward" else engine.workspace
        elsewhere = engine.packed(self.g) if way == "forward" and self.infers else 0
        return int(shares * -(-(measure(self.g, limit) - elsewhere) // LINE) * LINE)  # whole lines

    def _bytes(self, name: str, shares: int) -> int:
        return self.whole(self._elements(name, shares), shares) * self.dtype.itemsize

    def whole(self, size: int, shares: int) -> int:
        """Returns elements for `size` and the bias gradient's sums; on the CPU apart: no thread waits."""
        bias = shares * common.bias_workspace(self.g, self.device.is_cuda)
        return max(size, bias) if self.device.is_cuda else size + bias

    @functools.cached_property
    def candidates(self) -> tuple[str, ...]:
        """The engines that `auto` measures and chooses from."""
        g, able = self.g, [name for name in self._able(ENGINES) if not self._beaten(name)]
        if g.c * g.f <= FEW * g.group**2:
            return tuple(able)
        return tuple(name for name in able if name != REFERENCE) or tuple(able)

    @property
    def able(self) -> tuple[str, ...]:
        """The engines that can be selected by name, without those that would fall back to another."""
        usable = [name for name in ENGINES if self.refuses(name) is None]
        return tuple(name for name in usable if not self._alias(name))

    def passes_over(self, name: str) -> str:
        """Returns why an engine that can compute this is no candidate."""
        if name == REFERENCE and self._suits(name):
            return "the reference, too slow to be a candidate"
        if self._alias(name):
            return "as `implicit`, where there are no loops compiled for this type and device"
        if self._beaten(name):
            return "others are faster for batches of this size: only when asked for by name"
        if self._suits(name):
            return "calls NumPy where others are compiled: only when asked for by name"
        return f"sums the weight's gradient in {self.dtype.name}: only when asked for by name"

    @property
    def enough(self) -> int:
        """Bytes of workspace with which one thread can run every engine of the fixed rule."""
        able = [name for name in _rule() if ENGINES[name].refuses(self.g) is None]
        return max(self._bytes(name, 1) for name in able)

    @property
    def by_rule(self) -> str | None:
        """The engine of the fixed rule: the first that can be used and, on the CPU, works within the cache.

        None if there is no such engine. For a depthwise convolution it is `direct`, which has a loop for it.
        """
        if self.g.is_depthwise and self.recordable(REFERENCE):
            return REFERENCE
        able = self._able(_rule())
        if self.product:
            ours_first = 1 if self.g.multiply_adds <= OWN else -1
            able = [name for name in _by_tie_rank() if self._suits(name)][::ours_first]
            able = [name for name in able if ENGINES[name].one_product and name in _rule()]
        large = not self.device.is_cuda and self.g.column_elements > IN_CACHE
        near = [name for name in able if not (large and ENGINES[name].unrolls_samples)]
        return next(iter(near or able), None)

    @property
    def unmeasured(self) -> str:
        """Why the fixed rule decides instead of a measurement; empty if a measurement does."""
        if self.g.multiply_adds < SMALL:
            return "too small to measure"
        return "too large to measure" if self.too_large else ""

    @property
    def too_large(self) -> bool:
        """Whether a measurement might run out of memory."""
        g = self.g
        entries = sum(map(math.prod, (g.x_shape, g.weight_shape, g.y_shape)))
        return self.product and entries > TOO_LARGE

    @property
    def product(self) -> bool:
        """Whether it is one product of matrices, on CUDA."""
        return self.device.is_cuda and self.g.is_product

    def recordable(self, name: str) -> bool:
        """Whether an engine consists of compiled loops, so that a trace can record it."""
        return not self.device.is_cuda and ENGINES[name].is_compiled(self.dtype)

    def _able(self, names: Iterable[str]) -> list[str]:
        """The engines of `names` that can be used; only compiled ones if one other than `direct` is."""
        able = [name for name in names if self._suits(name) and not self._alias(name)]
        compiled = [name for name in able if self.recordable(name)]
        return compiled if set(compiled) - {REFERENCE} else able

    def _alias(self, name: str) -> bool:
        """Whether an engine needs compiled loops and has none, so that it falls back to `implicit`."""
        return ENGINES[name].needs_compiled(self.g) and not self.recordable(name)

    def _beaten(self, name: str) -> bool:
        """Whether on CUDA other engines are always faster, so that it is not measured."""
        if self.product:
            return not ENGINES[name].one_product
        return self.device.is_cuda and ENGINES[name].launches_by_sample and self._suits("batched")

    def _suits(self, name: str) -> bool:
        """Whether an engine can be used and, for float16 and bfloat16, sums over samples in float32."""
        rounds = self.dtype.itemsize <= 2 and ENGINES[name].rounds_sums(self.g)
        return self.refuses(name) is None and not rounds

    def fastest(self, ms: Mapping[str, float]) -> str:
        """Returns the fastest engine; of those within 2% of it the first by `tie_rank`, then in ENGINES."""
        most = TIE * min(ms.values())
        return next(name for name in _by_tie_rank() if ms.get(name, math.inf) <= most)

    def tolerance(self, direction: str) -> float:
        """The largest relative error an engine may have, as a root mean square.

        For float32 on the CPU, in the highest precision, it is 2^-24 sqrt(terms), of the numbers -1..1 that
        `autotune` measures: 3.4 times what a sum of so many terms in order rounds; else ROUNDS times that.
        PyTorch sums y and dx in blocks of BLOCK channels, and dweight over all places. Numbers after a ReLU
        round up to 15% more beside PyTorch's.
        """
        if self.device.tf32 and self.dtype == np.float32:
            return 2e-3
        if self.device.is_cuda or self.dtype != np.float32:
            return TOLERANCE.get(self.dtype.char, 1e-2)
        times = 1 if self.device.precision == "highest" else ROUNDS
        return times * 2.0**-24 * math.sqrt(self._terms(direction))

    def _terms(self, direction: str) -> int:
        """The terms that are summed in order; those of dweight are of at most two samples, as measured."""
        g = self.g
        if direction == "weight_gradient":
            return min(g.n, 2) * math.prod(g.out)
        forward = direction == "forward"
        elements = math.prod(g.window.kernel if forward else taps(g.window))
        all_terms = elements * (g.c if forward else g.f) // g.group
        return max(1, min(all_terms, BLOCK * max(elements, 9)))

    def exact(self, error: Mapping[str, float], direction: str) -> list[str]:
        """Returns the engines whose error is within the tolerance; `direct` if there are none."""
        most = self.tolerance(direction)
        return [name for name in error if error[name] <= most] or [REFERENCE]


def _by_tie_rank() -> list[str]:
    """The names of all engines, in the order in which a tie is decided; those without a rank last."""
    ranks = {n: math.inf if e.tie_rank is None else e.tie_rank for n, e in ENGINES.items()}
    return sorted(ranks, key=ranks.__getitem__)


def _rule() -> list[str]:
    """The names of the engines of the fixed rule, in its order."""
    ranks = {name: rank for name in ENGINES if (rank := ENGINES[name].rule_rank) is not None}
    return sorted(ranks, key=ranks.__getitem__)
