"""The autotuner: measures how exact and how fast the engines compute a convolution.

An engine first runs on at most two samples, and on a corner of large images. Its error is |a - b| / |b|, root
mean squares, where b is the definition in float64. An engine whose error exceeds the tolerance of `problem`
is never timed. The others are timed in turn, round by round, and the shortest time counts, because anything
else on the machine only adds time. An engine that training replays is timed as a replay, without Python; on
CUDA as a graph of several runs, because many kernels take less time than a launch. If a batch takes long,
fewer samples are timed and the ms are scaled. On CUDA each engine runs once before it is timed, so that it is
compiled.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.backends.dispatch import module, on_its_device
from minicaffe.core.ops import elementwise
from minicaffe.core.ops.arrays import fill
from minicaffe.core.ops.conv import reference as definition
from minicaffe.core.ops.conv.engine import ENGINES
from minicaffe.core.ops.conv.problem import REFERENCE, Case
from minicaffe.core.ops.geometry import ConvGeometry

DIRECTIONS = ("forward", "input_gradient", "weight_gradient")
ENOUGH = 50_000_000  # multiply-adds that suffice to show an error
WRONG = 1e30  # the error if a result is not finite
RUN_MS = 50.0  # the ms of a batch up to which it is timed whole
ROUNDS = (2, 12)  # of timings, at least and at most
ROUNDS_MS = 60.0  # ms after which the rounds end, without the first
TOO_SLOW, CHANCE_MS = 1.3, (25.0, 1.0)  # times the best, plus ms of noise, in one run and in more
HOPELESS = 10.0  # times the best on few samples: not timed on more
RUNS, RUNS_OF = 10, 10**10  # in a CUDA graph, at most; their multiply-adds in all, at most


@dataclass(frozen=True)
class Finding:
    """Measurements of one direction: ms of a batch and error by engine, the date, and if others were busy."""

    ms: dict[str, float]
    error: dict[str, float]
    date: str
    busy: bool = False


@on_its_device
def measure(case: Case, names: tuple[str, ...] | None = None) -> dict[str, Finding]:
    """Checks and times every candidate, or the engines `names`; returns a Finding for each direction."""
    names = case.candidates if names is None else names
    date, g, findings = time.strftime("%Y-%m-%d"), case.g, {}
    few = _Arrays(case, _corner(case, names), names)
    exact = _Arrays(dataclasses.replace(case, dtype=np.dtype("f8")), few.g, (), few)
    most = few
    for direction in DIRECTIONS[: 1 if case.infers else None]:
        reference = exact.truth(direction)
        error = {name: few.error(name, direction, reference) for name in names}
        first = {name: few.time(name, direction) for name in case.exact(error, direction)}
        fastest, ratio = min(first, key=first.__getitem__), g.multiply_adds / few.g.multiply_adds
        good = [n for n in first if first[n] <= HOPELESS * first[fastest] + CHANCE_MS[0]]
        batch_ms = first[fastest] * ratio
        if case.device.is_cuda:  # few samples would time the launches alone: time the batch
            most = most.of(g)
            most.ready([fastest], direction)
            batch_ms = most.time(fastest, direction)
        n = g.n * min(1.0, RUN_MS / batch_ms)
        n = min(g.n, max(few.g.n, math.ceil(n / case.shares) * case.shares))  # equal shares
        most = most.of(dataclasses.replace(g, n=n))
        if case.device.is_cuda:
            most.ready(good, direction)
        ms = _interleaved({name: partial(most.time, name, direction) for name in good})
        scaled = {name: value * g.n / n for name, value in ms.items()}
        guessed = {name: value * ratio for name, value in first.items()}
        findings[direction] = Finding({**guessed, **scaled}, error, date)
    return findings


def _corner(case: Case, names: tuple[str, ...]) -> ConvGeometry:
    """Returns the sizes of at most two samples, with images halved while they suffice to show an error."""
    g = dataclasses.replace(case.g, n=min(case.g.n, 2))
    extents = [d * (k - 1) + 1 for k, d in zip(g.window.kernel, g.window.dilation, strict=True)]
    while g.multiply_adds > ENOUGH:
        image = tuple(
            max(size // 2, min(size, extent + 3 * stride))
            for size, extent, stride in zip(g.image, extents, g.window.stride, strict=True)
        )
        less = dataclasses.replace(g, image=image)
        engines = [ENGINES[name] for name in names]
        alike = all(one.packed(less) == one.packed(g) for one in engines)  # else by other loops
        if less == g or not alike or any(one.refuses(less) for one in engines):
            break
        g = less
    return g


def _interleaved(timings: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Runs the timings in turn and returns the least ms of each; slow ones drop out of later rounds."""
    best, spent, (least, most) = dict.fromkeys(timings, math.inf), 0.0, ROUNDS
    left = list(timings)
    for done in range(most):
        if done >= least and spent > ROUNDS_MS:
            break
        for name in left:
            ms = timings[name]()
            best[name] = min(best[name], ms)
            spent += ms if done else 0.0
        longest = TOO_SLOW * min(best.values()) + CHANCE_MS[done > 0]
        left = [name for name in left if best[name] <= longest]
    return best


def _repeat(device: Device, block: np.ndarray, out: Any) -> None:
    """Fills `out`, flat, with copies of a block from the host; only one copy is transferred to CUDA."""
    filled = min(block.size, out.size)
    device.copy_from_host(out[:filled], block[:filled])
    while filled < out.size:
        more = min(filled, out.size - filled)
        out[filled : filled + more] = out[:more]
        filled += more


class _Arrays:
    """Random arrays for a part of a convolution; runs and times any engine on them."""

    x: Any
    dy: Any
    weight: Any
    bias: Any

    def __init__(
        self, case: Case, g: ConvGeometry, names: tuple[str, ...], source: _Arrays | None = None
    ):
        self.case, self.g, self.names, device = case, g, names, case.device
        self.few = g != case.g
        if source is not None:  # the same numbers in another type
            same = (source.x, source.dy, source.weight, source.bias)
            self.x, self.dy, self.weight, self.bias = (a.astype(case.dtype) for a in same)
        else:
            shapes = (g.x_shape, g.y_shape, g.weight_shape, (g.f,))
            rng = np.random.default_rng(1)
            block = rng.uniform(-1, 1, 65537)  # a prime: no two rows of an array are alike
            arrays = [aligned.empty(device.xp, shape, case.dtype) for shape in shapes]
            for i, array in enumerate(arrays):
                _repeat(device, np.roll(block, i), array.reshape(-1))
            self.x, self.dy, self.weight, self.bias = arrays
        self.outs: dict[str, Any] = {}
        of_outs = (g.y_shape, g.x_shape, g.weight_shape)[: 1 if case.infers else None]
        for name, shape in zip(DIRECTIONS, of_outs, strict=False):
            self.outs[name] = aligned.empty(device.xp, shape, case.dtype)
            self.outs[name].fill(0)  # so that no run touches their pages first
        self.panels: dict[str, Any] = {}
        self.sizes = {name: case.of(g).workspace(name) for name in {*names, REFERENCE}}
        self.work = aligned.empty(device.xp, max(self.sizes.values()), case.dtype)
        self.work.fill(0)
        self.runs = max(1, min(RUNS, RUNS_OF // max(1, g.multiply_adds)))
        self.replays: dict[tuple[str, str], tuple[Callable[[], object], int]] = {}

    def run(self, name: str, direction: str) -> Any:
        """Runs one direction of one engine, with as many threads as a plan; returns its result."""
        with self.case.of(self.g).room(self.sizes[name])[1]():
            weights = self._weights(name) if direction == "forward" else ()
            return self._run(
                ENGINES[name], direction, self.work[: self.sizes[name]], weights=weights
            )

    def _weights(self, name: str) -> tuple[Any, Any]:
        """The weight and the bias that an engine's `forward` takes; they are packed once."""
        size = self.case.of(self.g).packed(name) if self.case.infers else 0
        if size and name not in self.panels:
            panels = aligned.empty(np, size, self.case.dtype)
            self.panels[name] = ENGINES[name].pack(self.weight, self.bias, self.g, panels)
        return (self.panels[name], None) if size else (self.weight, self.bias)

    def truth(self, direction: str) -> Any:
        """Returns the exact result of a direction; on the CPU by NumPy, since loops take long to compile."""
        if self.case.device.is_cuda:
            return self.run(REFERENCE, direction)
        return self._run(definition, direction)

    def _run(self, op: Any, direction: str, *work: Any, weights: Any = ()) -> Any:
        out = self.outs[direction]
        if direction == "forward":
            op.forward(self.x, *(weights or (self.weight, self.bias)), self.g, out, *work)
            if self.case.product:  # what follows most: `implicit` ends in it, `batched` does not
                elementwise.forward("ReLU", out, (), out)
            return out
        if direction == "input_gradient":
            return op.input_gradient(self.dy, self.weight, self.g, out, *work)
        fill(out, 0)
        return op.weight_gradient(self.x, self.dy, self.g, out, *work)

    def of(self, g: ConvGeometry) -> _Arrays:
        """Returns arrays for a part `g` of the convolution: these, if they have its sizes."""
        return self if self.g == g else _Arrays(self.case, g, self.names)

    def ready(self, names: Iterable[str], direction: str) -> None:
        """Runs engines once, so that their kernels, which depend on the sizes, are compiled."""
        for name in names:
            self.run(name, direction)
        self.case.device.synchronize()

    def time(self, name: str, direction: str) -> float:
        """Returns the ms of a run; if training would replay it, of the replay."""
        if (name, direction) not in self.replays:
            self._weights(name)  # packed before: a net packs them once
            self.replays[name, direction] = self._replay(name, lambda: self.run(name, direction))
        replay, runs = self.replays[name, direction]
        stop = self.case.device.timer()
        replay()
        return stop() / runs

    def _replay(self, name: str, run: Callable[[], object]) -> tuple[Callable[[], object], int]:
        """Returns a function that runs as training would, and how many runs one call of it does."""
        backend = module("minicaffe.backends.replay.command_buffer")
        device = self.case.device
        if not ENGINES[name].traced or backend is None or (device.is_cuda and self.few):
            return run, 1
        return backend.as_training_would(run, device, self.runs)

    def error(self, name: str, direction: str, reference: Any) -> float:
        """Returns |result - reference| / |reference|, root mean squares; WRONG if that is not finite."""
        difference = self.run(name, direction).astype(reference.dtype) - reference
        scale = float((reference * reference).mean()) or 1.0
        error = math.sqrt(float((difference * difference).mean()) / scale)
        return error if math.isfinite(error) else WRONG
