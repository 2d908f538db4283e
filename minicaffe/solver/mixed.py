"""Mixed precision: a net of 16 bits, learnt by a rule in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backend import Device
from minicaffe.cpu import aligned
from minicaffe.layers import Param
from minicaffe.net import Net
from minicaffe.ops.update import unscale
from minicaffe.replay.step_constants import Slots
from minicaffe.solver.nan_guard import Watch
from minicaffe.solver.rules import Update
from minicaffe.spec.solver import SolverSpec

SCALE = {"float16": 1024.0}  # of the loss, where the model names none; else 1


class Master:
    """A parameter of 16 bits as a rule sees it: values and gradient in float32.

    One that is of float32 anyway, such as a running statistic, has no other values than its own.
    """

    dtype = np.dtype("float32")
    stale = False  # all gradients are put there

    def __init__(self, param: Param, xp: Any):
        self.param, self.shape, self.size = param, param.shape, param.size
        self.data, self._diff = param.data, None
        if param.dtype != self.dtype:
            param.master = self.data = aligned.empty(xp, param.shape, self.dtype)
            xp.copyto(self.data, param.data)

    def lie_in(self, array: Any, which: str) -> None:
        """Have an array of its shape be the gradient, or the values."""
        if which == "diff":
            self._diff = array
            return
        self.data = array
        if self.param.dtype == self.dtype:
            self.param.lie_in(array, "data")
        else:
            self.param.master = array

    @property
    def diff(self) -> Any:
        """The gradient."""
        return self._diff

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
    weights and history stay as they are, and `skipped` counts it. That is decided on the device, by a
    Watch that passes over.
    Source: P. Micikevicius et al., Mixed Precision Training, ICLR 2018.
    """

    def __init__(
        self,
        spec: SolverSpec,
        params: Sequence[Param],
        device: Device,
        watch: Watch,
        slots: Slots,
        backward: bool = False,
    ):
        self.xp, self.watch = device.xp, watch
        self.masters = [Master(param, self.xp) for param in params]
        self.rule = Update(spec, self.masters, device, watch, slots, backward)
        name = params[0].dtype.name if params else ""
        self.laid = self.rule.laid
        self.scale = spec.loss_scale or SCALE.get(name, 1.0)

    @property
    def skipped(self) -> Any:
        """How many iterations were passed over."""
        return self.watch.passed

    @property
    def history(self) -> list[Any]:
        """What the rule remembers of each parameter."""
        return self.rule.history

    @property
    def weights(self) -> list[Any]:
        """What the rule changes."""
        return self.rule.weights

    def gather(self, first: bool) -> None:
        """Move the net's gradients into the masters', or add them to those of earlier batches."""
        if first:
            self.watch.bad.fill(0)
        for master in self.masters:
            if master.learns:
                unscale(master.param.diff, self.scale, master.diff, not first, self.watch.bad)

    def prepare(self, rate: float, iteration: int) -> None:
        """Set the numbers of the next step, yet to be sent."""
        self.rule.prepare(rate, iteration)

    def step(self) -> None:
        """Take the step that was prepared, and round the weights into the net."""
        self.rule.step()
        self.round()

    def round(self) -> None:
        """Round all masters into the net."""
        for master in self.masters:
            if master.dtype != master.param.dtype:
                self.xp.copyto(master.param.data, master.data)


def rule_of(net: Net, spec: SolverSpec, watch: Watch, backward: bool) -> Update | Mixed:
    """What updates a net, parameters in the order of its backward pass if wanted; of 16 bits, in float32."""
    given = spec, net.learnable, net.device, watch, net.context.slots, backward
    if net.context.dtype.itemsize != 2:
        return Update(*given)
    mixed = Mixed(*given)
    net.loss_scale = mixed.scale
    return mixed
