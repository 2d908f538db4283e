"""The base of recurrent layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.loss import same_type
from minicaffe.core.ops import arrays, linear
from minicaffe.core.ops.gemm import gemm
from minicaffe.errors import ShapeError, SpecError


@dataclass(kw_only=True, eq=False, repr=False)
class Recurrent(Layer):
    """What LSTM and RNN share: the input's product for all steps at once, carried states, gradients.

    Letters: t steps in time, n streams, d outputs and k inputs of a stream, and `wide` = d
    times the number of gates, the numbers that a step computes for a stream before its unit.
    """

    num_output: Annotated[int, "outputs of a stream at each step", AtLeast(1)]
    weight_filler: Annotated[Filler, "how the weights start"] = XAVIER
    bias_filler: Annotated[Filler, "how the biases start"] = ZERO
    expose_hidden: Annotated[bool, "the first states are bottoms, the last are tops"] = False
    debug_info: Annotated[bool, "refused if true: there is no unrolled net to show"] = False

    # Samples are mixed: the first axis is time
    traits = Traits(keeps_top=True, recordable=True, mixes_samples=True, label_bottoms=(1,))
    gates = states = 1

    def setup(self, x: Shape, cont: Shape, *more: Shape) -> list[Shape]:
        if self.debug_info:
            raise SpecError("debug_info: steps are not layers here; there is no net to tell of")
        if len(x) < 2 or cont != x[:2]:
            raise ShapeError(f"needs x (t, n, ...) and cont (t, n), got {x} and {cont}")
        (self.t, self.n), self.k, d = x[:2], math.prod(x[2:]), self.num_output
        self.wide, exposed = self.gates * d, self.states * self.expose_hidden
        self.static, least = len(more) - exposed, 2 + exposed
        if self.static not in (0, 1):
            what = f"with expose_hidden {self.expose_hidden} needs {least} or {least + 1} bottoms"
            raise ShapeError(f"{what}, got {2 + len(more)}")
        state = (1, self.n, d)
        if self.static and (len(more[0]) < 2 or more[0][0] != self.n):
            raise ShapeError(f"needs x_static ({self.n}, ...), a row a stream, got {more[0]}")
        for shape in more[self.static :]:
            if shape != state:
                raise ShapeError(f"needs a first state of shape {state}, got {shape}")
        labels = (1, *range(2 + self.static, 2 + len(more)))  # no gradient flows into states
        self.traits = replace(self.traits, label_bottoms=labels)
        self.weight = self.param((self.wide, self.k), self.weight_filler)
        self.bias = self.param((self.wide,), self.bias_filler)
        self.static_k = math.prod(more[0][1:]) if self.static else 0
        if self.static:
            self.static_weight = self.param((self.wide, self.static_k), self.weight_filler)
        self.state_weight = self.param((self.wide, d), self.weight_filler)
        m, most = self.t * self.n, max(self.k, self.static_k, d)
        self.work_at = m * (self.wide + d)  # after dz and the states before each step
        self.context.reserve(self.work_at + linear.workspace(m, most, self.wide))
        return [(self.t, self.n, d), *[state] * exposed]

    def allocate(self) -> None:
        t, n, d = self.t, self.n, self.num_output
        self.z = self.empty((t, n, self.wide))  # inputs of the units, in an LSTM then their outputs
        self.r = self.empty((n, self.wide))  # the step before, through the weights
        self.dr = self.empty((n, d))
        self.of_static: Any = self.empty((n, self.wide)) if self.static else None
        self.first, self.last = self.empty((n, d)), self.empty((n, d))  # h
        self.cont_copy = self.empty((t, n)) if self.dtype != self.sum_dtype else None
        self.starts, self.ends = [self.first], [self.last]
        self.reset()

    @property
    def running(self) -> list[Any]:
        """The states from which the next pass starts."""
        return [] if self.expose_hidden else self.ends

    def reset(self) -> None:
        """Set the states to zero for the next forward pass."""
        with self.context.device.current():
            for end in self.ends:
                end.fill(0)

    @property
    def multiply_adds(self) -> int:  # type: ignore[override]
        """t n wide (k + d), and n wide for each static input."""
        m = self.t * self.n
        return self.wide * (m * (self.k + self.num_output) + self.n * self.static_k)

    def begin(self, x: Any, cont: Any, more: tuple[Any, ...]) -> None:
        """Compute z from the inputs; the first states are the last of the pass before, or bottoms."""
        work = self.context.workspace
        self.x, self.static_x = x.reshape(-1, self.k), None
        self.cont = same_type(self.xp, cont, self.cont_copy)
        given = more[self.static :] if self.expose_hidden else self.ends
        for start, state in zip(self.starts, given, strict=True):
            arrays.copy(state.reshape(start.shape), start)
        z = self.z.reshape(-1, self.wide)
        linear.linear(self.x, self.weight.data.T, self.bias.data, z, work)
        if self.static:
            self.static_x = more[0].reshape(self.n, self.static_k)
            linear.linear(self.static_x, self.static_weight.data.T, None, self.of_static, work)
            arrays.add(self.of_static, self.z)

    def from_before(self, h: Any, t: int) -> Any:
        """Returns r of step t: the h of the step before, through the weights."""
        return gemm(h[t - 1] if t else self.first, self.state_weight.data.T, self.r)

    def end(self, h: Any) -> list[Any]:
        """Keep the last states, and write them to the tops if they are exposed."""
        arrays.copy(h[-1], self.last)
        for top, state in zip(self.out[1:], self.ends, strict=False):
            arrays.copy(state.reshape(top.shape), top)
        return self.out

    def parts(self) -> tuple[Any, Any, Any]:
        """The workspace as dz (t, n, wide), another (t, n, d), and the rest."""
        whole, size = self.context.workspace, self.z.size
        dz, other = whole[:size].reshape(self.z.shape), whole[size : self.work_at]
        return dz, other.reshape(self.t, self.n, -1), whole[self.work_at :]

    def gradients(self, h: Any) -> list[Any]:
        """The gradients of parameters and bottoms from dz, at the workspace's start; h is (t, n, d)."""
        dz, before, work = self.parts()
        rows = dz.reshape(-1, self.wide)
        add_product(rows, self.x, self.weight, work)
        if self.bias.learns:
            linear.bias_gradient(rows, *self.bias.sums(), work)
        arrays.multiply(self.first, self.cont[0][:, None], before[0])
        arrays.multiply(h[:-1], self.cont[1:, :, None], before[1:])
        add_product(rows, before.reshape(-1, self.num_output), self.state_weight, work)
        if self.needs_gradient[0]:
            gemm(rows, self.weight.data, self.grad[0].reshape(-1, self.k))
        if self.static:
            sums = dz.reshape(self.t, -1), self.of_static.reshape(-1)
            linear.bias_gradient(*sums, True, work)
            add_product(self.of_static, self.static_x, self.static_weight, work)
            if self.needs_gradient[2]:
                dx = self.grad[2].reshape(self.n, self.static_k)
                gemm(self.of_static, self.static_weight.data, dx)
        return self.grad


def add_product(rows: Any, x: Any, weight: Param, work: Any) -> None:
    """weight.diff += rows' x, if it learns."""
    if weight.learns:
        linear.weight_gradient(rows.T, x, *weight.sums(), work)
