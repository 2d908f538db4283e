"""Mixed precision: a net of float16 or bfloat16, updated by a rule in float32."""

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.backends.step_constants import Slots
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.layers import Param
from minicaffe.core.net import Net
from minicaffe.core.ops.update import unscale
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import Update

SCALE = {"float16": 1024.0}  # the default loss scale; else 1


class Master:
    """A parameter's values and gradient in float32, for the rule; one that is float32 has its own values."""

    dtype = np.dtype("float32")
    stale = False  # all gradients are written

    def __init__(self, param: Param, xp: Any):
        self.param, self.shape, self.size = param, param.shape, param.size
        self.data, self._diff = param.data, None
        if param.dtype != self.dtype:
            param.master = self.data = aligned.empty(xp, param.shape, self.dtype)
            xp.copyto(self.data, param.data)

    def lie_in(self, array: Any, which: str) -> None:
        """Use an array of its shape as the gradient, or as the values."""
        if which == "diff":
            self._diff = array
            return
        self.data = array
        if self.param.dtype == self.dtype:
            self.param.lie_in(array, "data")
        else:
            self.param.master = array

    diff = property(operator.attrgetter("_diff"))
    # Of the parameter, as they are now: whether its gradient is needed, and the factors of its rates
    learns = property(operator.attrgetter("param.learns"))
    lr_mult = property(operator.attrgetter("param.lr_mult"))
    decay_mult = property(operator.attrgetter("param.decay_mult"))


class Mixed(Update):
    """The update of master weights, with their history and gradients, in float32; the net has rounded copies.

    The gradients are those of `scale` times the loss, so that small ones do not become 0; `gather` divides
    them by `scale`. If any is not finite, the iteration is skipped: weights and history do not change, and
    `skipped` counts it. The device decides this, by a Watch with `pass_over`.
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
        self.masters = [Master(param, device.xp) for param in params]
        super().__init__(spec, self.masters, device, watch, slots, backward)
        self.scale = spec.loss_scale or SCALE.get(params[0].dtype.name if params else "", 1.0)

    def passed_over(self) -> str:
        """What is to be said of the iterations that were skipped; "" if none was."""
        count, name = int(self.skipped), self.masters[0].param.dtype.name if self.masters else ""
        if not count:
            return ""
        return (
            f"{count} iterations passed over: gradients beyond {name}; loss_scale is {self.scale:g}"
        )

    skipped = property(operator.attrgetter("watch.passed"))  # how many iterations were

    def before_passes(self, iteration: Any) -> None:
        """The first batch's gradients are written, not added."""

    def after_backward(self, iteration: Any, batch: int) -> None:
        """Gather the gradients of a batch."""
        iteration.do("16 bits", partial(self.gather, first=batch == 0))

    def gather(self, first: bool) -> None:
        """Write the net's gradients into the masters, or add them to those of earlier batches."""
        if first:
            self.watch.bad.fill(0)
        for master in self.masters:
            if master.learns:
                unscale(master.param.diff, self.scale, master.diff, not first, self.watch.bad)

    def step(self, shared: Any = None) -> None:
        """Do the prepared step, and round the weights into the net."""
        super().step(shared)
        self.round()

    def round(self) -> None:
        """Round all masters into the net."""
        for master in self.masters:
            if master.dtype != master.param.dtype:
                self.device.xp.copyto(master.param.data, master.data)


def rule_of(net: Net, spec: SolverSpec, watch: Watch, backward: bool) -> Update:
    """The update of a net, `Mixed` for float16 and bfloat16; `backward`: parameters in backward order."""
    arguments = spec, net.learnable, net.device, watch, net.context.slots, backward
    if net.context.dtype.itemsize != 2:
        return Update(*arguments)
    mixed = Mixed(*arguments)
    net.loss_scale = net.context.loss_scale = mixed.scale
    return mixed
