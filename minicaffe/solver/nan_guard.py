"""What a solver looks at in each iteration, kept on the device: losses, norms, whether all is finite."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minicaffe.layers import Layer
from minicaffe.net import Net
from minicaffe.ops import nan_guard as ops
from minicaffe.ops.nan_guard import BAD, DONE, FLAGS, PASSED, SKIP, STOP
from minicaffe.replay.command import place
from minicaffe.solver.flat_parameters import lay

NUMBERS = 3  # float64: sums of squares, of the gradient, of the weights, of what else passes change


class Told(NamedTuple):
    """What was read back in one go: the window of losses, norms, and the flags by name."""

    losses: np.ndarray
    gradient: float
    weights: float
    running: float
    stopped: bool
    done: int
    passed: int


class AtHand(NamedTuple):
    """What each iteration looks at, in the host's memory: read and written without NumPy.

    Long loops leave nothing of Python, nor of NumPy, in the caches: the less is done between two of them, the
    less has to be fetched anew.
    """

    loss: memoryview
    losses: memoryview
    squares: memoryview
    flags: memoryview


class Watch:
    """A window of losses, and flags that stop all updates from the first bad loss or gradient on.

    All lies in one block of the device's memory, so that it is read back in one copy with the loss. The
    update of the iteration that is found bad is not taken, nor any after it: however late the host looks,
    it finds parameters and history as they were when that iteration began. With `pass_over`, as of 16
    bits, a gradient that is not finite is passed over instead, and only a loss stops. Of what forward
    passes change for good, such as BatchNorm's sums, it takes copies, until it stops. No update is taken
    of an iteration in which a layer has refused something: `refused`, flags on the host (see Context).
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
        self.parts = xp.empty(ops.BLOCKS, np.float64)
        self.loss = xp.zeros(
            1, dtype
        )  # of this iteration: always at one place, so that it can be replayed
        self.at_hand: AtHand | None = None
        if xp is np:
            looked_at = self.loss, self.losses, self.squares, self.flags
            self.at_hand = AtHand(*[array.data for array in looked_at])
        self.asked, self.last = 0, -1  # how many updates were asked for; the iteration of the last
        self.kept: list[
            tuple[Any, list[tuple[Any, Any]]]
        ] = []  # of layers: arrays, and their copies
        self.blocks: list[tuple[Any, Any]] = []  # what lies together of it, and its copy,
        self.together: dict[Any, Any] = {}  # and that of each part

    def _parts(self, block: Any) -> tuple[Any, ...]:
        """A block as sums of squares, flags, losses, the factor that clips, and whether it goes on."""
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
        """Know the layers whose forward passes change something for good, `running`.

        Parameters among it, which no other layer shares, are made to lie one behind the other.
        """
        layers = list(layers)
        params = [param for layer in layers for param in layer.params]
        shared = {id(param.owner) for param in params if param.owner is not param}
        lone = {id(p.data): p for p in params if p.owner is p and id(p) not in shared}
        changing = [layer for layer in layers if layer.running]
        found = [lone[id(x)] for layer in changing for x in layer.running if id(x) in lone]
        for dtype in dict.fromkeys(param.dtype for param in found):
            mine = [param for param in found if param.dtype == dtype]
            (block, lies), (kept, copies) = lay(mine, self.xp), lay(mine, self.xp)
            self.blocks.append((block, kept))
            for param, array, copy in zip(mine, lies, copies, strict=True):
                param.lie_in(array)
                self.together[place(array)] = copy
        self.kept = [(layer, []) for layer in layers if type(layer).running is not Layer.running]
        for layer, copies in self.kept:
            self._know(copies, layer.running)

    def _know(self, copies: list[tuple[Any, Any]], running: Sequence[Any]) -> None:
        """Have a copy of each array that a layer changes now; one that it no longer changes keeps its own."""
        known = [array for array, _ in copies]
        if running and not (len(known) == len(running) and all(map(operator.is_, known, running))):
            places = map(place, running)
            copies[:] = [
                (array, self.together[at] if at in self.together else array.copy())
                for array, at in zip(running, places, strict=True)
            ]

    def running_arrays(self) -> list[Any]:
        """What forward passes change for good, together where it lies together."""
        found = [array for layer, _ in self.kept for array in layer.running]
        apart = [array for array in found if place(array) not in self.together]
        return [*(block for block, _ in self.blocks), *apart]

    def begin(self) -> None:
        """An iteration begins: what its passes change for good is kept."""
        for block, kept in self.blocks:
            self.xp.copyto(kept, block, where=self.going)
        for layer, copies in self.kept:
            self._know(copies, layer.running)
            for array, copy in copies:
                if place(array) not in self.together:
                    self.xp.copyto(copy, array, where=self.going)

    def end(self, slot: int) -> None:
        """The loss of an iteration is there: it goes into its slot of the window."""
        if self.at_hand is None:
            self.losses[slot : slot + 1] = self.loss
        else:
            self.at_hand.losses[slot] = self.at_hand.loss[0]

    def expect(self, iteration: int) -> None:
        """The update of an iteration is about to be judged."""
        self.asked, self.last = self.asked + 1, iteration

    def measure(self, gradients: Sequence[Any]) -> None:
        """Measure the gradient, flat arrays, for `judge` to be given none."""
        for i, gradient in enumerate(gradients):
            ops.squares(gradient, self.gradient, self.parts, self.bad, add=i > 0)

    def judge(self, gradients: Sequence[Any], limit: float) -> None:
        """Measure the gradient, flat arrays, and decide whether the update of the iteration is taken.

        Without arrays it is as it was measured.
        """
        given = self.pass_over, self.flags, self.going, self.factor
        ops.judge(self.loss, gradients, self.gradient, self.parts, limit, *given, self.refused)

    def weigh(self, weights: Sequence[Any]) -> None:
        """Measure the weights, and what forward passes change for good, for the next `told`."""
        running = [array for layer, _ in self.kept for array in layer.running]
        for arrays, out in ((weights, self.weights), (running, self.running)):
            for i, array in enumerate(arrays):
                ops.squares(array.reshape(-1), out, self.parts, self.bad, add=i > 0)
        self.bad.fill(0)  # that is said of gradients

    def told(self, device: Any) -> Told:
        """Read all of it back; waits for the device."""
        squares, flags, losses, *_ = self._parts(device.to_host(self.block))
        gradient, weights, running = (math.sqrt(value) for value in squares)
        counts = bool(flags[STOP]), int(flags[DONE]), int(flags[PASSED])
        return Told(losses, gradient, weights, running, *counts)

    def stopped_at_hand(self) -> bool:
        """Whether it has stopped, where that is known without waiting for the device; else False."""
        return self.at_hand is not None and self.at_hand.flags[STOP] != 0

    def iteration(self, told: Told) -> int:
        """The iteration that was found bad."""
        return max(
            0, self.last - (self.asked - 1 - told.done)
        )  # updates by hand may be of one iteration

    def put_back(self) -> None:
        """Have what forward passes changed be as it was when the iteration that was found bad began."""
        for _, copies in self.kept:
            for array, copy in copies:
                self.xp.copyto(array, copy)

    def reset(self) -> None:
        """Forget what was found, so that training may go on."""
        self.flags.fill(0)
        self.going.fill(True)
        self.asked = 0

    def take_back(self, slot: int) -> None:
        """Have all be as it was when an iteration that failed began; the loss of the last is in a slot."""
        self.put_back()
        if self.at_hand is not None:
            self.loss[0], self.flags[SKIP] = self.losses[slot], self.flags[STOP]


def watch_of(net: Net, window: int) -> Watch:
    """What looks at the iterations of a net; of 16 bits, a gradient that is not finite is passed over."""
    context = net.context
    watch = Watch(
        net.device.xp, window, context.sum_dtype, context.dtype.itemsize == 2, context.refused
    )
    watch.keep(net.layers.values())
    return watch


def all_finite(device: Any, arrays: Iterable[Any]) -> bool:
    """Whether all entries of arrays are finite numbers."""
    return all(np.isfinite(device.to_host(array)).all() for array in arrays)
