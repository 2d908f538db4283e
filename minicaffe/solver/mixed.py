"""Mixed precision: a net of 16 bits, learnt by a rule in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.layers import Param
from minicaffe.ops.update import unscale
from minicaffe.solver.rules import Update
from minicaffe.spec.solver import SolverSpec

SCALE = {"float16": 1024.0}  # of the loss, where the model names none; else 1


class Master:
    """A parameter of 16 bits as a rule sees it: values and gradient in float32.

    One that is of float32 anyway, such as a running statistic, has no other values than its own.
    """

    dtype = np.dtype("float32")

    def __init__(self, param: Param, xp: Any):
        self.param, self.shape, self.size = param, param.shape, param.size
        self.data, self.diff = param.data, xp.zeros(param.shape, self.dtype)
        if param.dtype != self.dtype:
            param.master = self.data = xp.empty(param.shape, self.dtype)
            xp.copyto(self.data, param.data)

    @property
    def learns(self) -> bool:
        """Whether its gradient is wanted."""
        return self.param.learns

    @property
    def lr_mult(self) -> float:
        """What multiplies its learning rate."""
        return self.param.lr_mult

    @property
    def decay_mult(self) -> float:
        """What multiplies its weight decay."""
        return self.param.decay_mult


class Mixed:
    """Master weights, history and the sum of gradients in float32; the net has rounded copies.

    The gradients are of `scale` times the loss, so that small ones do not vanish in 16 bits; `gather`
    divides them again. Where any is infinite or no number, all of the iteration's are passed over:
    weights and history stay as they are, and `skipped` counts it. That is decided on the device.
    Source: P. Micikevicius et al., Mixed Precision Training, ICLR 2018.
    """

    def __init__(self, spec: SolverSpec, params: Sequence[Param], xp: Any):
        self.xp, self.masters = xp, [Master(param, xp) for param in params]
        self.rule = Update(spec, self.masters, xp)
        name = params[0].dtype.name if params else ""
        self.scale = spec.loss_scale or SCALE.get(name, 1.0)
        largest = max((master.size for master in self.masters), default=0)
        states = max((len(self.rule.state(i)) for i in range(len(self.masters))), default=0)
        self.saved = [xp.empty(largest, Master.dtype) for _ in range(states)]
        self.bad = xp.zeros((), np.bool_)
        self.skipped = xp.zeros((), np.int32)

    @property
    def history(self) -> list[Any]:
        """What the rule remembers of each parameter."""
        return self.rule.history

    def gather(self, first: bool) -> None:
        """Move the net's gradients into the masters', or add them to those of earlier batches."""
        if first:
            self.bad.fill(False)
        for master in self.masters:
            if master.learns:
                unscale(master.param.diff, self.scale, master.diff, not first, self.bad)

    def update(self, rate: float, iteration: int) -> None:
        """Take one step at the learning rate `rate`, and round the weights into the net."""
        xp = self.xp
        xp.add(self.skipped, self.bad, out=self.skipped)
        self.rule.clip()
        for i, master in enumerate(self.masters):
            if not master.learns:
                continue
            state = self.rule.state(i)
            saved = [part[: master.size].reshape(master.shape) for part in self.saved[: len(state)]]
            for copy, array in zip(saved, state, strict=True):
                xp.copyto(copy, array)
            self.rule.step(i, rate, iteration)
            for copy, array in zip(saved, state, strict=True):
                xp.copyto(array, copy, where=self.bad)
            if master.data is not master.param.data:
                xp.copyto(master.param.data, master.data)

    def round(self) -> None:
        """Round all masters into the net."""
        for master in self.masters:
            if master.data is not master.param.data:
                self.xp.copyto(master.param.data, master.data)
