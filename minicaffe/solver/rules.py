"""Update rules: what a gradient does to the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minicaffe.ops.sums import total
from minicaffe.ops.update import sgd
from minicaffe.spec.declare import SolverSpec


class SGD:
    """Stochastic gradient descent with momentum, in Caffe's order and arithmetic.

    For the gradient g summed over iter_size batches, each parameter w with history h:

        g *= min(1, clip_gradients / |g|)            the norm of all parameters' gradients together
        g /= iter_size
        g += weight_decay decay_mult w               (L1: sign(w))
        h  = momentum h + rate lr_mult g
        w -= h

    Source: Caffe's SGDSolver::ApplyUpdate; the rule is Polyak's heavy ball.
    """

    def __init__(self, spec: SolverSpec, params: Sequence[Any], xp: Any):
        self.spec, self.xp = spec, xp
        self.params = list(params)
        self.history = [xp.zeros(param.shape, param.dtype) for param in self.params]
        largest = max((param.size for param in self.params), default=0)
        dtype = self.params[0].dtype if self.params else None
        self.scratch = xp.empty(largest, dtype)
        self.factor = xp.empty((), dtype)

    def update(self, rate: float) -> None:
        """Take one step at the learning rate `rate`; leaves the step taken in each diff."""
        self.clip()
        for i, param in enumerate(self.params):
            if param.learns:
                self.step(i, rate)

    def step(self, i: int, rate: float) -> None:
        """Take parameter i's step."""
        param, spec = self.params[i], self.spec
        sgd(
            param.data,
            param.diff,
            self.history[i],
            rate * param.lr_mult,
            spec.momentum,
            spec.weight_decay * param.decay_mult,
            spec.regularization_type,
            1 / spec.iter_size,
            self._scratch(param),
        )

    def state(self, i: int) -> tuple[Any, ...]:
        """What parameter i's step changes for good."""
        return self.params[i].data, self.history[i]

    def clip(self) -> None:
        """Shorten the whole gradient to clip_gradients; all on the device."""
        xp, limit = self.xp, self.spec.clip_gradients
        if limit < 0:
            return
        self.factor.fill(0)
        for param in self.params:
            total(param.diff, self.factor, self.scratch, squares=True, add=True)
        xp.sqrt(self.factor, out=self.factor)
        xp.maximum(self.factor, limit, out=self.factor)
        xp.divide(limit, self.factor, out=self.factor)
        for param in self.params:
            xp.multiply(param.diff, self.factor, out=param.diff)

    def _scratch(self, param: Any) -> Any:
        return self.scratch[: param.size].reshape(param.shape)


RULES = {"SGD": SGD}
