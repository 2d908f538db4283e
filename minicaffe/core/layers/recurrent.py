"""Recurrent layers: LSTM, RNN, and LSTMUnit, one step of an LSTM."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Param, Shape, same_type
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, linear
from minicaffe.core.ops import recurrent as ops
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
        return self.wide * self.n * (self.t * (self.k + self.num_output) + self.static_k)

    def begin(self, x: Any, cont: Any, more: tuple[Any, ...]) -> None:
        """Compute z from the inputs; the first states are the last of the pass before, or bottoms."""
        work = self.context.workspace
        self.x, self.static_x = x.reshape(-1, self.k), None
        self.cont = same_type(cont, self.cont_copy)
        states = more[self.static :] if self.expose_hidden else self.ends
        for start, state in zip(self.starts, states, strict=True):
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
            linear.bias_gradient(dz.reshape(self.t, -1), self.of_static.reshape(-1), True, work)
            add_product(self.of_static, self.static_x, self.static_weight, work)
            if self.needs_gradient[2]:
                dx = self.grad[2].reshape(self.n, self.static_k)
                gemm(self.of_static, self.static_weight.data, dx)
        return self.grad


def add_product(rows: Any, x: Any, weight: Param, work: Any) -> None:
    """weight.diff += rows' x, if it learns."""
    if weight.learns:
        linear.weight_gradient(rows.T, x, *weight.sums(), work)


@register
class LSTM(Recurrent):
    """c = cont f c' + i g and h = o tanh(c), step by step; c', h' of the step before, i, f, o, g of x and h'.

    i, f, o = sigmoid and g = tanh of W_xc x + b_c + W_xc_static x_static + W_hc (cont h').
    Bottoms: x (t, n, ...), t steps of n streams; cont (t, n), 0 where a stream starts again, else 1;
    optionally x_static (n, ...), the same at each step; with expose_hidden the first h and c, (1, n,
    num_output). Tops: h (t, n, num_output); with expose_hidden the last h and c. Parameters: W_xc (4
    num_output, k), b_c (4 num_output,), with x_static W_xc_static (4 num_output, k of x_static), W_hc (4
    num_output, num_output); rows by i, f, o, g.

    Without expose_hidden a forward pass starts from the last states of the pass before. The first pass, and
    the first after a reshape or the layer's `reset()`, starts from zeros; a snapshot does not hold states, as
    in Caffe. Gradients stay within a pass: as in Caffe the first states have no gradient, and gradients of
    the last exposed states are dropped. Source: Caffe's LSTM; J. Donahue et al., Long-term Recurrent
    Convolutional Networks, 2015; S. Hochreiter, J. Schmidhuber, Long Short-Term Memory, 1997.

    Example: (5, 2, 3), (5, 2) -> {type: LSTM, num_output: 4} -> (5, 2, 4)
    """

    gates, states = 4, 2

    def allocate(self) -> None:
        shape = (self.t + 1, self.n, self.num_output)
        self.c = self.empty(shape, self.sum_dtype)  # c[t] is that before step t
        self.dc = self.empty(shape[1:], self.sum_dtype)
        super().allocate()
        self.starts, self.ends = [self.first, self.c[0]], [self.last, self.c[-1]]
        self.reset()

    def forward(self, x: Any, cont: Any, *more: Any) -> Any:
        self.begin(x, cont, more)
        z, c, h = self.z, self.c, self.out[0]
        kernel_args = self.first, self.state_weight.data, c, h, self.context.workspace
        if not ops.lstm(z, self.cont, *kernel_args):
            for t, acts in enumerate(z):
                r = self.from_before(h, t)
                ops.lstm_unit(acts, r, self.cont[t], c[t], acts, c[t + 1], h[t])
        return self.end(h)

    def backward(self, dh: Any, *states: Any) -> Any:
        (dz, _, work), c, cont, after = self.parts(), self.c, self.cont, self.cont[-1]
        kernel_args = c, cont, dh, self.state_weight.data, self.dc, dz, work
        if type(self).limit is LSTM.limit and ops.lstm_gradient(self.z, *kernel_args):
            return self.gradients(self.out[0])
        arrays.fill(self.dr, 0)
        arrays.fill(self.dc, 0)
        for t in reversed(range(self.t)):
            parts = self.z[t], c[t], c[t + 1], cont[t]
            ops.lstm_unit_gradient(*parts, dh[t], self.dr, after, self.dc, dz[t])
            self.limit(dz[t])
            if t:
                gemm(dz[t], self.state_weight.data, self.dr)
            after = cont[t]
        return self.gradients(self.out[0])

    def limit(self, dz: Any) -> None:
        """Called with the gradient of what a step's gates are of: a subclass may limit it, in place."""


@register
class RNN(Recurrent):
    """h = tanh(W_hh (cont h') + W_xh x + b_h + W_xh_static x_static) and o = tanh(W_ho h + b_o), step by step.

    h' is h of the step before. Bottoms: x (t, n, ...), t steps of n streams; cont (t, n), 0 where a stream
    starts again, else 1; optionally x_static (n, ...), the same at each step; with expose_hidden the first h,
    (1, n, num_output). Tops: o (t, n, num_output); with expose_hidden the last h. Parameters: W_xh
    (num_output, k), b_h (num_output,), with x_static W_xh_static, W_hh and W_ho (num_output,
    num_output), b_o (num_output,). States and their gradients are as in LSTM. Source: Caffe's RNN.

    Example: (5, 2, 3), (5, 2) -> {type: RNN, num_output: 4} -> (5, 2, 4)
    """

    def setup(self, x: Shape, cont: Shape, *more: Shape) -> list[Shape]:
        tops, d, m = super().setup(x, cont, *more), self.num_output, self.t * self.n
        self.out_weight = self.param((d, d), self.weight_filler)
        self.out_bias = self.param((d,), self.bias_filler)
        self.context.reserve(self.work_at + m * d + linear.workspace(m, d, d))
        return tops

    def allocate(self) -> None:
        super().allocate()
        self.h = self.empty((self.t, self.n, self.num_output))

    def forward(self, x: Any, cont: Any, *more: Any) -> Any:
        self.begin(x, cont, more)
        h, o = self.h, self._rows(self.out[0])
        for t in range(self.t):
            ops.tanh_unit(self.z[t], self.from_before(h, t), self.cont[t], h[t])
        z, weights = self._rows(self.z), (self.out_weight.data.T, self.out_bias.data)
        linear.linear(self._rows(h), *weights, z, self.context.workspace)
        ops.tanh_unit(z, None, self.cont, o)
        return self.end(h)

    def backward(self, do: Any, *states: Any) -> Any:
        dz, dh, work = self.parts()
        da, h, work = self._rows(work[: dz.size].reshape(dz.shape)), self.h, work[dz.size :]
        ops.tanh_unit_gradient(self._rows(self.out[0]), self._rows(do), None, self.cont, da)
        add_product(da, self._rows(h), self.out_weight, work)
        if self.out_bias.learns:
            linear.bias_gradient(da, *self.out_bias.sums(), work)
        gemm(da, self.out_weight.data, self._rows(dh))
        after = self.cont[-1]
        arrays.fill(self.dr, 0)
        for t in reversed(range(self.t)):
            ops.tanh_unit_gradient(h[t], dh[t], self.dr, after, dz[t])
            if t:
                gemm(dz[t], self.state_weight.data, self.dr)
            after = self.cont[t]
        return self.gradients(h)

    @property
    def multiply_adds(self) -> int:  # type: ignore[override]
        return super().multiply_adds + self.t * self.n * self.num_output**2

    def _rows(self, array: Any) -> Any:
        return array.reshape(-1, self.num_output)


@register
class LSTMUnit(Layer):
    """c = cont f c' + i g and h = o tanh(c), with i, f, o = sigmoid and g = tanh of x's quarters: one step.

    Bottoms: c' (1, n, d), x (1, n, 4 d), cont (1, n), 0 where a stream starts again, else 1. Tops: c and h,
    (1, n, d). Source: Caffe's LSTMUnit.

    Example: (1, 2, 3), (1, 2, 12), (1, 2) -> {type: LSTMUnit} -> (1, 2, 3), (1, 2, 3)
    """

    traits = Traits(keeps_top=True, recordable=True, mixes_samples=True, label_bottoms=(2,))

    def setup(self, c: Shape, x: Shape, cont: Shape) -> list[Shape]:
        if len(c) != 3 or c[0] != 1 or x != (*c[:2], 4 * c[2]) or cont != c[:2]:
            raise ShapeError(f"needs (1, n, d), (1, n, 4 d) and (1, n), got {c}, {x} and {cont}")
        self.shape = c
        return [c, c]

    def allocate(self) -> None:
        _, n, d = self.shape
        self.acts = self.empty((n, 4 * d))
        self.nothing, self.dc, self.dx = (self.empty((n, k)) for k in (d, d, 4 * d))
        self.cont_copy = self.empty((1, n)) if self.dtype != self.sum_dtype else None

    def forward(self, c: Any, x: Any, cont: Any) -> Any:
        self.c, self.cont = c[0], same_type(cont, self.cont_copy)[0]
        ops.lstm_unit(x[0], None, self.cont, c[0], self.acts, self.out[0][0], self.out[1][0])
        return self.out

    def backward(self, dc: Any, dh: Any) -> Any:
        c_out = self.grad[0][0] if self.needs_gradient[0] else self.dc
        x_out = self.grad[1][0] if self.needs_gradient[1] else self.dx
        arrays.fill(self.nothing, 0)
        arrays.copy(dc[0], c_out)
        kernel_args = self.acts, self.c, self.out[0][0], self.cont, dh[0]
        ops.lstm_unit_gradient(*kernel_args, self.nothing, self.cont, c_out, x_out)
        return self.grad
