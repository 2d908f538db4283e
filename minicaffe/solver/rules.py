"""Update rules: what a gradient does to the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minicaffe.layers import Param
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

    def __init__(self, spec: SolverSpec, params: Sequence[Param], xp: Any):
        self.spec, self.xp = spec, xp
        self.params = list(params)
        self.history = [xp.zeros(param.shape, param.dtype) for param in self.params]
        largest = max((param.size for param in self.params), default=0)
        dtype = self.params[0].dtype if self.params else None
        self.scratch = xp.empty(largest, dtype)
        self.factor, self.term = xp.empty((), dtype), xp.empty((), dtype)

    def update(self, rate: float) -> None:
        """Take one step at the learning rate `rate`; leaves the step taken in each diff."""
        xp, spec = self.xp, self.spec
        self._clip()
        for param, history in zip(self.params, self.history, strict=True):
            if not param.learns:
                continue
            diff = param.diff
            if spec.iter_size > 1:
                xp.multiply(diff, 1 / spec.iter_size, out=diff)
            self._regularize(param)
            xp.multiply(diff, rate * param.lr_mult, out=diff)
            xp.multiply(history, spec.momentum, out=history)
            xp.add(history, diff, out=history)
            xp.copyto(diff, history)
            xp.subtract(param.data, diff, out=param.data)

    def _clip(self) -> None:
        """Shorten the whole gradient to clip_gradients; all on the device."""
        xp, limit = self.xp, self.spec.clip_gradients
        if limit < 0:
            return
        self.factor.fill(0)
        for param in self.params:
            square = self._scratch(param)
            xp.multiply(param.diff, param.diff, out=square)
            xp.sum(square, out=self.term)
            xp.add(self.factor, self.term, out=self.factor)
        xp.sqrt(self.factor, out=self.factor)
        xp.maximum(self.factor, limit, out=self.factor)
        xp.divide(limit, self.factor, out=self.factor)
        for param in self.params:
            xp.multiply(param.diff, self.factor, out=param.diff)

    def _regularize(self, param: Param) -> None:
        decay = self.spec.weight_decay * param.decay_mult
        if not decay:
            return
        xp, penalty = self.xp, self._scratch(param)
        if self.spec.regularization_type == "L2":
            xp.multiply(param.data, decay, out=penalty)
        else:
            xp.sign(param.data, out=penalty)
            xp.multiply(penalty, decay, out=penalty)
        xp.add(param.diff, penalty, out=param.diff)

    def _scratch(self, param: Param) -> Any:
        return self.scratch[: param.size].reshape(param.shape)


RULES = {"SGD": SGD}
