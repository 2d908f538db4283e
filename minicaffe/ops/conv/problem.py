"""A convolution to be planned: the engines that may compute it, and the order of preference.

An engine is a candidate if it takes the shape within the cap and sums the samples of a chunk, on CUDA
nearly always a whole batch, in no less than float32. `direct` is one only where a group has few channels
and filters, or where nothing else can be taken. On the CPU compiled engines, which can be recorded, keep
those out that call NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backend import Device
from minicaffe.cpu import threads
from minicaffe.cpu.aligned import LINE
from minicaffe.errors import mib
from minicaffe.ops.conv import common
from minicaffe.ops.conv.engines import ENGINES
from minicaffe.ops.geometry import ConvGeometry

REFERENCE = "direct"
SMALL = 200_000  # multiply-adds of a batch below which measuring is noise
TOLERANCE = {"f": 1e-5, "d": 1e-10}  # of the relative error; of 16-bit types 1e-2
IN_CACHE = 2**20  # elements of work a thread of the CPU gets: what stays near its cache
FEW = 8  # channels times filters of a group, up to which `direct` is worth a trial
TIE = 1.02  # times the best: as good, so that the first of these is taken
OWN = 2**26  # multiply-adds up to which that is our kernel: to launch it takes longest
TOO_LARGE = 2**25  # entries of it: once more, beside a net, they may find no room


@dataclass(frozen=True)
class Case:
    """A convolution on a device, and the bytes of workspace it may take."""

    g: ConvGeometry
    dtype: np.dtype
    device: Device
    cap: int
    most: int | None = None  # threads at the most

    @functools.cached_property
    def shares(self) -> int:
        """Threads that divide the work: the most that leave each enough for one of `_rule()`, but the last."""
        if self.device.is_cuda:
            return 1
        g, most = self.g, threads.count() if self.most is None else self.most
        if not self.compiled:  # they share samples only
            most = max(1, min(most, g.n))
        able = [name for name in _rule() if ENGINES[name].refuses(g) is None]
        for names in (able[:-1], able):
            for shares in range(most, 0, -1):
                if any(self._bytes(name, shares) <= self.cap for name in names):
                    return shares
        return 1

    @functools.cached_property
    def compiled(self) -> bool:
        """Whether there are compiled loops for it."""
        return any(map(self.recordable, ENGINES))

    def held(self, size: int) -> contextlib.AbstractContextManager[None]:
        """What runs within uses no more threads than the work, of `size` elements in all, is for."""
        if not (self.device.is_cuda or self.compiled):
            return threads.at_most(self.shares, size // self.shares)
        fewer = self.shares < threads.count()
        return threads.at_most(self.shares) if fewer else contextlib.nullcontext()

    def room(self, work: Any, size: int) -> Any:
        """The part of a net's work for `size` elements: all of it where NumPy's threads have pieces of it, so
        that each thread has the same whatever it computes.
        """
        return work[:size] if self.device.is_cuda or self.compiled else work

    @property
    def limit(self) -> int:
        """Elements of work that an engine may take in one thread."""
        return self._limit(self.shares)

    def workspace(self, name: str, way: str = "") -> int:
        """Elements of work that an engine takes, all threads together; in one direction, `way`."""
        return self._elements(name, self.g, self.shares, way)

    def of(self, g: ConvGeometry) -> Case:
        """Another part of the batch, or of the image, by as many threads with as much work each."""
        return dataclasses.replace(self, g=g, most=self.shares)

    def refuses(self, name: str) -> str | None:
        """Why an engine is no candidate: it cannot take the shape, or needs more than the cap."""
        reason: str | None = ENGINES[name].refuses(self.g)
        size = 0 if reason else self._bytes(name, self.shares)
        if size > self.cap:
            return f"needs {mib(size)} of workspace, the cap is {mib(self.cap)}"
        return reason

    def _limit(self, shares: int) -> int:
        most = self.cap // self.dtype.itemsize // shares
        return most if self.device.is_cuda else min(most, IN_CACHE)

    def _elements(self, name: str, g: ConvGeometry, shares: int, way: str = "") -> int:
        """What all threads need together."""
        engine, limit = ENGINES[name], self._limit(shares)
        if self.device.is_cuda:
            return int(engine.cuda_workspace(g, limit, self.dtype.itemsize))
        measure = engine.forward_workspace if way == "forward" else engine.workspace
        each = measure(g, limit)
        apart = -(-each // LINE) * LINE  # so that what each has begins where the cache's lines do
        return int(shares * apart)

    def _bytes(self, name: str, shares: int) -> int:
        return self.whole(self._elements(name, self.g, shares), shares) * self.dtype.itemsize

    def whole(self, size: int, shares: int) -> int:
        """Elements of work that all takes of which engines take so many: sums of the bias's gradient are
        behind them on the CPU, so that threads that add those up do not wait for others.
        """
        bias = shares * common.bias_workspace(self.g, self.device.is_cuda)
        return max(size, bias) if self.device.is_cuda else size + bias

    @functools.cached_property
    def candidates(self) -> tuple[str, ...]:
        """The engines to choose from."""
        g, able = self.g, [name for name in self._able(ENGINES) if not self._beaten(name)]
        if g.c * g.f <= FEW * g.group**2:
            return tuple(able)
        return tuple(name for name in able if name != REFERENCE) or tuple(able)

    @property
    def able(self) -> tuple[str, ...]:
        """The engines that can be asked for by name, but those that then compute as another does."""
        return tuple(
            name for name in ENGINES if self.refuses(name) is None and not self._alias(name)
        )

    def passes_over(self, name: str) -> str:
        """Why an engine that could be taken is no candidate."""
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
        """Bytes of workspace that one thread needs for any engine of the fixed rule that takes the shape."""
        able = [name for name in _rule() if ENGINES[name].refuses(self.g) is None]
        return max(self._bytes(name, 1) for name in able)

    @property
    def by_rule(self) -> str | None:
        """What is taken where nothing is measured: the first of the rule that can be, on the CPU in cache.

        But for depthwise ones, of which the reference has loops of their own.
        """
        if common.is_depthwise(self.g) and self.recordable(REFERENCE):
            return REFERENCE
        able = self._able(_rule())
        if self._product:
            ours_first = 1 if self.g.multiply_adds <= OWN else -1
            able = [name for name in _by_tie_rank() if self._suits(name)][::ours_first]
            able = [name for name in able if ENGINES[name].one_product]
        large = not self.device.is_cuda and self.g.column_elements > IN_CACHE
        return next(
            (name for name in able if not (large and ENGINES[name].unrolls_samples)),
            next(iter(able), None),
        )

    @property
    def unmeasured(self) -> str:
        """Why it goes by rule, though a stopwatch might be asked; empty if it is."""
        if self.g.multiply_adds < SMALL or (self._product and self.g.multiply_adds <= OWN):
            return "too small to measure"
        return "too large to measure" if self.too_large else ""

    @property
    def too_large(self) -> bool:
        """Whether a measurement might find no memory."""
        g = self.g
        entries = sum(map(math.prod, (g.x_shape, g.weight_shape, g.y_shape)))
        return self._product and entries > TOO_LARGE

    @property
    def _product(self) -> bool:
        """Whether it is one product of matrices on CUDA."""
        return self.device.is_cuda and common.is_product(self.g)

    def recordable(self, name: str) -> bool:
        """Whether an engine runs as compiled loops alone, which can be recorded."""
        return not self.device.is_cuda and ENGINES[name].is_compiled(self.dtype)

    def _able(self, names: Iterable[str]) -> list[str]:
        """Those that may be taken: only compiled ones, if there is one but the reference."""
        able = [name for name in names if self._suits(name) and not self._alias(name)]
        compiled = [name for name in able if self.recordable(name)]
        return compiled if set(compiled) - {REFERENCE} else able

    def _alias(self, name: str) -> bool:
        """Whether an engine is compiled loops alone, and there are none: it computes as `implicit` does."""
        return ENGINES[name].needs_compiled(self.g) and not self.recordable(name)

    def _beaten(self, name: str) -> bool:
        """Whether an engine need not be tried on CUDA, since others are faster."""
        if self._product:
            return not ENGINES[name].one_product
        by_sample = self.device.is_cuda and ENGINES[name].launches_by_sample
        return by_sample and self._suits("batched")

    def _suits(self, name: str) -> bool:
        """Whether an engine can be, and sums samples in float32 where the numbers have 16 bits."""
        rounds = self.dtype.itemsize <= 2 and ENGINES[name].rounds_sums(self.g)
        return self.refuses(name) is None and not rounds

    def fastest(self, ms: Mapping[str, float]) -> str:
        """The fastest; of those within 2% of it the first by `tie_rank`, then of ENGINES."""
        most = TIE * min(ms.values())
        return next(name for name in _by_tie_rank() if ms.get(name, math.inf) <= most)

    @property
    def tolerance(self) -> float:
        """The largest relative error an engine may have."""
        if self.device.tf32 and self.dtype == np.float32:
            return 2e-3
        return TOLERANCE.get(self.dtype.char, 1e-2)

    def exact(self, error: Mapping[str, float]) -> list[str]:
        """Those within the tolerance; the reference where there is none."""
        return [name for name in error if error[name] <= self.tolerance] or [REFERENCE]


def _rank(rank: int | None) -> float:
    """A place in an order; those without one come last."""
    return math.inf if rank is None else rank


def _by_tie_rank() -> list[str]:
    """All engines, of equally fast ones the one to take first."""
    return sorted(ENGINES, key=lambda name: _rank(ENGINES[name].tie_rank))


def _rule() -> list[str]:
    """The engines of the fixed rule: of these the first that can is taken."""
    ranked = [name for name, engine in ENGINES.items() if engine.rule_rank is not None]
    return sorted(ranked, key=lambda name: _rank(ENGINES[name].rule_rank))
