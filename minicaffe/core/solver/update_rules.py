"""Update rules: how a gradient changes the parameters."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.backends.formulas import RULES
from minicaffe.backends.step_constants import Slots
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.ops import arrays
from minicaffe.core.ops.update import BLOCK, Parts, trust, update
from minicaffe.core.solver.flat_parameters import Laid, multipliers
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.errors import SpecError


class Kind(NamedTuple):
    """A type of solver: its rule (ops.update), and its numbers by rate, iteration (from 0), weight decay."""

    rule: str
    numbers: Callable[[SolverSpec, float, int, float], Sequence[float]]
    decoupled: bool = False  # weight decay shrinks the weights, and is no part of the gradient
    apart: bool = False  # it may compute NaN from zeros, as between two parameters
    trust: bool = False  # a step is as long as its parameter, times the rate, the first number

    @property
    def memory(self) -> int:
        """How many history arrays a parameter has."""
        return RULES[self.rule].memory

    @property
    def taken(self) -> int:
        """How many numbers its formula takes."""
        return RULES[self.rule].step.__code__.co_argcount - 2 - self.memory


def _adam(spec: SolverSpec, rate: float, iteration: int, _: float) -> Sequence[float]:
    """Caffe's Adam: the bias corrections of the running means are part of the rate."""
    first, second = 1 - spec.momentum ** (iteration + 1), 1 - spec.momentum2 ** (iteration + 1)
    return rate * math.sqrt(second) / first, spec.momentum, spec.momentum2, spec.delta, 0.0


def _adamw(spec: SolverSpec, rate: float, iteration: int, decay: float) -> Sequence[float]:
    """The paper's AdamW: delta is added to the root of the corrected mean."""
    *numbers, delta, _ = _adam(spec, rate, iteration, decay)
    return *numbers, delta * math.sqrt(1 - spec.momentum2 ** (iteration + 1)), rate * decay


KINDS = {
    "SGD": Kind("sgd", lambda spec, rate, *_: (rate, spec.momentum)),
    "Nesterov": Kind("nesterov", lambda spec, rate, *_: (rate, spec.momentum)),
    "AdaGrad": Kind("scaled", lambda spec, rate, *_: (rate, 1.0, 1.0, spec.delta)),
    "RMSProp": Kind(
        "scaled", lambda spec, rate, *_: (rate, spec.rms_decay, 1 - spec.rms_decay, spec.delta)
    ),
    "AdaDelta": Kind("adadelta", lambda spec, rate, *_: (rate, spec.momentum, spec.delta)),
    "Adam": Kind("adam", _adam),
    "AdamW": Kind("adam", _adamw, decoupled=True),
}


class Update:
    """The update of the parameters by their gradients, in Caffe's order and arithmetic.

    For the gradient g summed over iter_size batches, each parameter w:

        g *= min(1, clip_gradients / |g|)            the norm of all parameters' gradients together
        g /= iter_size
        g += weight_decay decay_mult w               (L1: sign(w); not AdamW)
        w -= step                                    by the solver's type, at the rate r = rate lr_mult

        SGD       h = momentum h + r g                    step = h
        Nesterov  h = momentum h + r g                    step = (1 + momentum) h - momentum h_before
        AdaGrad   h = h + g^2                             step = r g / (sqrt(h) + delta)
        RMSProp   h = rms_decay h + (1 - rms_decay) g^2   step = r g / (sqrt(h) + delta)
        AdaDelta  a = momentum a + (1 - momentum) g^2     u = g sqrt((b + delta) / (a + delta))
                  b = momentum b + (1 - momentum) u^2     step = r u
        Adam      m = momentum m + (1 - momentum) g       c = sqrt(1 - momentum2^t) / (1 - momentum^t)
                  v = momentum2 v + (1 - momentum2) g^2   step = r c m / (sqrt(v) + delta)
        AdamW     Adam, delta beside the corrected root   step += r weight_decay decay_mult w

    t is the iteration, counted from 1. `history` holds the first history array of each
    parameter, then the second, as in Caffe's solverstate. Source: Caffe's SGDSolver::ApplyUpdate and its
    kin; Polyak 1964; Nesterov 1983; Duchi et al. 2011; Tieleman and Hinton 2012; Zeiler 2012; Kingma and
    Ba 2015; Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    """

    def __init__(
        self,
        spec: SolverSpec,
        params: Sequence[Any],
        device: Device,
        watch: Watch | None = None,
        slots: Slots | None = None,
        backward: bool = False,
    ):
        xp = device.xp
        self.spec, self.device, self.kind = spec, device, KINDS[spec.type]
        self.laid = Laid(params, self.kind.memory, xp, backward)
        self.params, self.history = self.laid.params, self.laid.history
        self.gradients = self.laid.gradients
        largest = max((param.size for param in self.params), default=0)
        dtype = self.params[0].dtype if self.params else None
        self.scratch = aligned.empty(xp, max(largest, 2 * BLOCK if xp is np else 0), dtype)
        self.copy = aligned.empty(xp, largest if self.kind.trust else 0, dtype)
        self.laid.apart = self.kind.trust
        count = len(self.kind.numbers(spec, 0.0, 0, 0.0))
        if count != self.kind.taken:
            raise SpecError(
                f"rule {spec.type}: `numbers` returns {count} values, `step` takes {self.kind.taken}"
            )
        self.slots = slots or Slots(device)
        shape = len(self.params), count + 1  # a row per pair of multipliers
        self.slot = self.slots.take(shape, np.float64)
        self.rows: dict[tuple[float, float], int] = {}
        self.sent: list[tuple[float, ...]] = []  # the rows that the slot begins with
        self.parts: dict[tuple[tuple[int, int], ...], Parts] = {}  # of stretches
        self.watch = watch or Watch(xp, 1, dtype or np.float32)

    def update(self, rate: float, iteration: int) -> None:
        """Do one step at the learning rate `rate`, unless the watch skips it; leaves the step in each diff."""
        self.prepare(rate, iteration)
        self.slots.send()
        self.watch.expect(iteration)
        self.step()

    def before_passes(self, iteration: Any) -> None:
        """Clear all gradients on CUDA, where an iteration is one graph."""
        if iteration.device.is_cuda:
            iteration.do("gradients", self.laid.clear)

    def after_backward(self, iteration: Any, batch: int) -> None:
        """The gradients lie where they are updated."""

    def prepare(self, rate: float, iteration: int) -> None:
        """Set the step constants of the next step, not sent yet: a row per pair of multipliers."""
        rows: list[tuple[float, ...]] = []
        self.rows = dict.fromkeys(map(multipliers, self.params), 0)
        for group, (lr_mult, decay_mult) in enumerate(self.rows):
            self.rows[lr_mult, decay_mult] = group
            decay = self.spec.weight_decay * decay_mult
            numbers = self.kind.numbers(self.spec, rate * lr_mult, iteration, decay)
            rows.append((*numbers, 0 if self.kind.decoupled else decay))
        if rows and rows != self.sent:
            self.slot.put(rows, slice(len(rows)))
            self.sent = rows

    def step(self, shared: Any = None) -> None:
        """Do the prepared step; with `shared`, whose gradients are measured already, only this rank's part."""
        for param in self.params:
            if param.learns:
                param.diff  # noqa: B018  (sets it to zero if no layer wrote it)
        spec = self.spec
        self.watch.judge(self.gradients if shared is None else (), spec.clip_gradients)
        if spec.clip_gradients >= 0:
            for gradient in (shared or self).gradients:
                arrays.multiply(gradient, self.watch.factor, gradient)
        apart = spec.delta == 0 or self.kind.apart  # then a rule may compute NaN from zeros
        for stretch in (shared or self.laid).stretches(apart):
            ends = tuple((end, self.rows[group]) for end, group in stretch.ends)
            if ends not in self.parts:
                self.parts[ends] = Parts(ends, self.device)
            weight = stretch.weight
            if self.kind.trust:
                weight = arrays.copy(weight, self.copy[: weight.size].reshape(weight.shape))
            update(
                *(self.kind.rule, weight, stretch.diff, stretch.history),
                *(self.slot.there, self.parts[ends]),
                penalty=spec.regularization_type,
                scale=1 / spec.iter_size,
                scratch=self.scratch,
                skip=self.watch.skip,
            )
            if self.kind.trust:
                rate = self.slot.there[ends[0][1], :1]
                trust(stretch.weight, stretch.diff, rate, self.watch.skip)

    @property
    def weights(self) -> list[Any]:
        """The arrays that it changes."""
        return [param.data for param in self.params if param.learns]
