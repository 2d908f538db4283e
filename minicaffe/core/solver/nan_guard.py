"""The NaN guard: losses, norms and flags of each iteration, on the device."""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.device import where
from minicaffe.core.layers import Layer
from minicaffe.core.net import Net
from minicaffe.core.ops import nan_guard as ops
from minicaffe.core.ops.nan_guard import BAD, DONE, FLAGS, PASSED, SKIP, STOP
from minicaffe.core.solver.flat_parameters import lay

NUMBERS = 3  # float64: sums of squares of the gradient, of the weights, of running statistics


class Told(NamedTuple):
    """The numbers that one copy read back: the window of losses, norms, and the flags by name."""

    losses: np.ndarray
    gradient: float
    weights: float
    running: float
    stopped: bool
    done: int
    passed: int


class AtHand(NamedTuple):
    """Each iteration's numbers on the CPU, without NumPy: long loops evict that from the caches."""

    loss: memoryview
    losses: memoryview
    squares: memoryview
    flags: memoryview


class Watch:
    """A window of losses, and flags that stop all updates from the first bad loss or gradient on.

    All is in one block of device memory, so one copy reads it back with the loss. The update of a bad
    iteration is skipped, and all updates after it: however late the host reads the flags,
    parameters and history are as they were when that iteration began. With `pass_over`, in mixed
    precision, only the update of a gradient that is not finite is skipped, and only a loss stops. Arrays
    that forward passes change, such as BatchNorm's sums, are copied in each iteration until it stops.
    An iteration in which a layer refused something is not updated: `refused`, host flags (see Context).
    """

    def __init__(
        self, xp: Any, window: int, dtype: Any, pass_over: bool = False, refused: Any = None
    ):
        self.xp, self.pass_over, dtype = xp, pass_over, np.dtype(dtype)
        self.refused = np.zeros(0, np.int32) if refused is None else refused
        self.block = xp.zeros(8 * NUMBERS + 4 * FLAGS + dtype.itemsize * (window + 1) + 1, np.uint8)
        self.window, self.dtype = window, dtype
        self.squares, self.flags, self.losses, self.factor, going = self._parts(self.block)
        parts = (self.squares[i : i + 1].reshape(()) for i in range(NUMBERS))
        self.gradient, self.weights, self.running = parts
        self.skip, self.bad = self.flags[SKIP : SKIP + 1], self.flags[BAD : BAD + 1]
        self.passed = self.flags[PASSED : PASSED + 1].reshape(())
        self.going = going.view(np.bool_).reshape(())
        self.going.fill(True)
        self.parts = xp.empty(ops.PARTS, np.float64)
        # Of this iteration: always at one address, so that it can be replayed
        self.loss = xp.zeros(1, dtype)
        self.at_hand: AtHand | None = None
        if xp is np:
            looked_at = self.loss, self.losses, self.squares, self.flags
            self.at_hand = AtHand(*[array.data for array in looked_at])
        self.asked, self.last = 0, -1  # how many updates were launched; the iteration of the last
        # Of layers: running arrays, and their copies
        self.kept: list[tuple[Any, list[tuple[Any, Any]]]] = []
        self.blocks: list[tuple[Any, Any]] = []  # flat running arrays, and their copies
        self.together: dict[Any, Any] = {}  # the copy of each part of a flat array

    def _parts(self, block: Any) -> tuple[Any, ...]:
        """The parts of a block: sums of squares, flags, losses, the clipping factor, and whether to go on."""
        ends, parts = 0, []
        for dtype, count in (
            (np.dtype(np.float64), NUMBERS),
            (np.dtype(np.int32), FLAGS),
            (self.dtype, self.window),
            (self.dtype, 1),
            (np.dtype(np.uint8), 1),
        ):
            start, ends = ends, ends + count * dtype.itemsize
            parts.append(block[start:ends].view(dtype))
        parts[3] = parts[3].reshape(())
        return tuple(parts)

    def keep(self, layers: Iterable[Any]) -> None:
        """Keep copies of what layers' forward passes change, `running`; unshared parameters are laid flat."""
        layers = list(layers)
        params = [param for layer in layers for param in layer.params]
        shared = {id(param.owner) for param in params if param.owner is not param}
        lone = {id(p.values): p for p in params if p.owner is p and id(p) not in shared}
        changing = [layer for layer in layers if layer.running]
        moved = [lone[id(x)] for layer in changing for x in layer.running if id(x) in lone]
        for dtype in dict.fromkeys(param.dtype for param in moved):
            mine = [param for param in moved if param.dtype == dtype]
            (block, lies), (kept, copies) = lay(mine, self.xp), lay(mine, self.xp)
            self.blocks.append((block, kept))
            for param, array, copy in zip(mine, lies, copies, strict=True):
                param.lie_in(array)
                self.together[where(array)] = copy
        self.kept = [(layer, []) for layer in layers if type(layer).running is not Layer.running]
        for layer, copies in self.kept:
            self._know(copies, layer.running)

    def _know(self, copies: list[tuple[Any, Any]], running: Sequence[Any]) -> None:
        """Have a copy of each array that a layer changes now; if it changes none, keep the old copies."""
        known = [array for array, _ in copies]
        if running and not (len(known) == len(running) and all(map(operator.is_, known, running))):
            copies[:] = [
                (array, self.together[at] if at in self.together else array.copy())
                for array, at in zip(running, map(where, running), strict=True)
            ]

    def running_arrays(self) -> list[Any]:
        """The arrays that forward passes change: the flat arrays, then the others."""
        running = [array for layer, _ in self.kept for array in layer.running]
        apart = [array for array in running if where(array) not in self.together]
        return [*(block for block, _ in self.blocks), *apart]

    def begin(self) -> None:
        """An iteration begins: copy the arrays that its passes change."""
        for block, kept in self.blocks:
            self.xp.copyto(kept, block, where=self.going)
        for layer, copies in self.kept:
            self._know(copies, layer.running)
            for array, copy in copies:
                if where(array) not in self.together:
                    self.xp.copyto(copy, array, where=self.going)

    def end(self, slot: int) -> None:
        """The loss of an iteration is computed: copy it into its slot of the window."""
        if self.at_hand is None:
            self.losses[slot : slot + 1] = self.loss
        else:
            self.at_hand.losses[slot] = self.at_hand.loss[0]

    def expect(self, iteration: int) -> None:
        """The update of an iteration is about to be launched."""
        self.asked, self.last = self.asked + 1, iteration

    def measure(self, gradients: Sequence[Any]) -> None:
        """Measure the gradient, flat arrays; `judge` then needs none."""
        for i, gradient in enumerate(gradients):
            ops.squares(gradient, self.gradient, self.parts, self.bad, add=i > 0)

    def judge(self, gradients: Sequence[Any], limit: float) -> None:
        """Decide whether the update is skipped, by flat gradients, or without any by the last measurement."""
        outputs = self.pass_over, self.flags, self.going, self.factor
        ops.judge(self.loss, gradients, self.gradient, self.parts, limit, *outputs, self.refused)

    def weigh(self, weights: Sequence[Any]) -> None:
        """Measure the weights, and the arrays that forward passes change, for the next `told`."""
        running = [array for layer, _ in self.kept for array in layer.running]
        for arrays, out in ((weights, self.weights), (running, self.running)):
            for i, array in enumerate(arrays):
                ops.squares(array.reshape(-1), out, self.parts, self.bad, add=i > 0)
        self.bad.fill(0)  # this flag is for gradients

    def told(self, device: Any) -> Told:
        """Read all numbers back; waits for the device."""
        squares, flags, losses, *_ = self._parts(device.to_host(self.block))
        gradient, weights, running = (math.sqrt(value) for value in squares)
        counts = bool(flags[STOP]), int(flags[DONE]), int(flags[PASSED])
        return Told(losses, gradient, weights, running, *counts)

    def stopped_at_hand(self) -> bool:
        """Whether it has stopped, if that is known without waiting for the device; else False."""
        return self.at_hand is not None and self.at_hand.flags[STOP] != 0

    def iteration(self, told: Told) -> int:
        """The number of the bad iteration."""
        # A user may do several updates in one iteration
        return max(0, self.last - (self.asked - 1 - told.done))

    def put_back(self) -> None:
        """Restore the arrays that forward passes change to their values before the bad iteration."""
        for _, copies in self.kept:
            for array, copy in copies:
                self.xp.copyto(array, copy)

    def reset(self) -> None:
        """Reset the flags, so that training can go on."""
        self.flags.fill(0)
        self.going.fill(True)
        self.asked = 0

    def take_back(self, slot: int) -> None:
        """Restore all that a failed iteration changed; the last loss is in a slot."""
        self.put_back()
        if self.at_hand is not None:
            self.loss[0], self.flags[SKIP] = self.losses[slot], self.flags[STOP]


def watch_of(net: Net, window: int) -> Watch:
    """The NaN guard of a net; in mixed precision, it skips gradients that are not finite."""
    context = net.context
    more = context.sum_dtype, context.dtype.itemsize == 2, context.refused
    watch = Watch(net.device.xp, window, *more)
    watch.keep(net.layers.values())
    return watch
