"""Layers with one number per channel: Scale, Bias, PReLU, and Axpy, whose numbers are a bottom."""

import math
from dataclasses import replace
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import ONE, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import channels as ops
from minicaffe.core.ops.arrays import fill
from minicaffe.errors import ShapeError

QUARTER = Filler(type="constant", value=0.25)


class PerChannel(Layer):
    """Base of these layers: x is viewed as (n, f, p), and gradients are sums over n and p."""

    traits = Traits(recordable=True)

    def see(self, x: Shape, axis: int, own: Shape, below: bool = False) -> None:
        """View bottom 0 with axes `own` from `axis` on, or one number for all; `below` is add_products'."""
        f = math.prod(own)
        n = math.prod(x[:axis]) if own else 1
        self.nfp = n, f, math.prod(x) // max(1, n * f)
        if self.runs_backward:
            self.context.reserve(ops.workspace(self.xp, self.nfp, below))

    def gradients(self, dy: Any, x: Any, a: Any, da: Any, db: Any, dx: Any) -> None:
        """Add the sums of dy x to da, those of dy to db, and write a dy to dx; each of these may be None."""
        a, da, db = (None if to is None else to.reshape(-1) for to in (a, da, db))
        dy, x, dx = (None if to is None else to.reshape(self.nfp) for to in (dy, x, dx))
        ops.gradients(dy, x, a, da, db, dx, self.context.workspace)

    def learnt(self, param: Param | None) -> Any:
        """The gradient of numbers, a parameter's or, if they are bottom 1, that one's, from 0; or None."""
        if param is not None:
            return param.diff if param.learns else None
        return fill(self.grad[1], 0) if self.needs_gradient[1] else None

    def scaled(self, x: Any, a: Any, b: Any, out: Any) -> Any:
        """Returns a x + b, for flat a and b, which may be None."""
        a, b = (None if each is None else each.reshape(-1) for each in (a, b))
        ops.scale(x.reshape(self.nfp), a, b, out.reshape(self.nfp))
        return out


def own_axes(x: Shape, own: Shape | None, axis: int, num_axes: int) -> tuple[int, Shape]:
    """The first axis with own numbers, and their shape: a bottom's, or num_axes axes. Raises ShapeError."""
    if own == () or (own is None and num_axes == 0):
        return 0, ()
    first = canonical_axis(axis, x)
    if own is None:
        last = len(x) if num_axes == -1 else first + num_axes
        if last > len(x):
            raise ShapeError(f"axis {axis} and num_axes {num_axes} reach past the axes of {x}")
        return first, x[first:last]
    if x[first : first + len(own)] != own:
        raise ShapeError(f"bottom 1 of shape {own} does not fit {x} from axis {first} on")
    return first, own


@register
class Scale(PerChannel):
    """y = scale x + bias, with a scale and a bias for each entry of the axes from `axis` on.

    Bottoms: x and, if the scale is not learned, the scale; its shape is that of x's axes from `axis` on.
    Parameters: scale, unless it is a bottom, and bias with bias_term, both of that shape: num_axes axes of
    x, all that follow with -1, a single number with 0. Raises ShapeError if x does not have these axes.

    In place if no layer runs backward. Source: Caffe's Scale.

    Example: (2, 3, 4, 4) -> {type: Scale, bias_term: true} -> (2, 3, 4, 4)
    """

    axis: Annotated[int, "the first axis with numbers of its own"] = 1
    num_axes: Annotated[int, "how many such axes; -1: all; of one bottom", AtLeast(-1)] = 1
    filler: Annotated[Filler, "how the scale starts"] = ONE
    bias_term: Annotated[bool, "add a bias"] = False
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    traits = replace(PerChannel.traits, in_place=True, keeps_bottom=True)

    def setup(self, x: Shape, scale: Shape | None = None) -> Shape:
        axis, own = own_axes(x, scale, self.axis, self.num_axes)
        self.see(x, axis, own)
        self.weight = self.param(own, self.filler) if scale is None else None
        self.bias = self.param(own, self.bias_filler) if self.bias_term else None
        return x

    def forward(self, x: Any, scale: Any = None) -> Any:
        self.x, self.scale = x, scale if self.weight is None else self.weight.data
        bias = None if self.bias is None else self.bias.data
        return self.scaled(x, self.scale, bias, self.out[0])

    def backward(self, dy: Any) -> Any:
        dbias = self.bias.diff if self.bias is not None and self.bias.learns else None
        self.gradients(dy, self.x, self.scale, self.learnt(self.weight), dbias, self.grad[0])
        return self.grad


@register
class Bias(PerChannel):
    """y = x + bias, with a bias for each entry of the axes from `axis` on. In place.

    Bottoms: x and, if the bias is not learned, the bias. Shapes, parameter and errors are as in Scale.

    Source: Caffe's Bias.

    Example: (2, 3, 4, 4), (3, 4) -> {type: Bias} -> (2, 3, 4, 4)
    """

    axis: Annotated[int, "the first axis with numbers of its own"] = 1
    num_axes: Annotated[int, "how many such axes; -1: all; of one bottom", AtLeast(-1)] = 1
    filler: Annotated[Filler, "how the bias starts"] = ZERO

    traits = replace(PerChannel.traits, in_place=True)

    def setup(self, x: Shape, bias: Shape | None = None) -> Shape:
        axis, own = own_axes(x, bias, self.axis, self.num_axes)
        self.see(x, axis, own)
        self.bias = self.param(own, self.filler) if bias is None else None
        return x

    def forward(self, x: Any, bias: Any = None) -> Any:
        return self.scaled(x, None, bias if self.bias is None else self.bias.data, self.out[0])

    def backward(self, dy: Any) -> Any:
        if (dbias := self.learnt(self.bias)) is not None:
            ops.add_sums(dy.reshape(self.nfp), dbias.reshape(-1), self.context.workspace)
        return [dy if self.needs_gradient[0] else None, *self.grad[1:]]


@register
class PReLU(PerChannel):
    """y = x where x > 0, slope x elsewhere, with a learned slope for each channel (axis 1).

    Bottom: at least two axes. Parameter: slope (channels,), or of shape () with channel_shared.

    Source: Caffe's PReLU; K. He et al., Delving Deep into Rectifiers, 2015.

    Example: (2, 3, 4, 4) -> {type: PReLU} -> (2, 3, 4, 4)
    """

    traits = replace(PerChannel.traits, in_place=True, keeps_bottom=True)
    filler: Annotated[Filler, "how the slopes start"] = QUARTER
    channel_shared: Annotated[bool, "one slope for all channels"] = False

    def setup(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError(f"needs a bottom with channels, of at least 2 axes, got {x}")
        own = () if self.channel_shared else (x[1],)
        self.see(x, 1, own, below=True)
        self.context.reserve(math.prod(x))
        self.slope = self.param(own, self.filler)
        return x

    def forward(self, x: Any) -> Any:
        self.x, slope, y = x, self.slope.data.reshape(-1), self.out[0]
        ops.prelu(x.reshape(self.nfp), slope, y.reshape(self.nfp), self.context.workspace)
        return y

    def backward(self, dy: Any) -> Any:
        dy, x = (part.reshape(self.nfp) for part in (dy, self.x))
        if self.slope.learns:
            sums, work = self.slope.diff.reshape(-1), self.context.workspace
            ops.add_products(dy, x, sums, work, below=True)
        if self.needs_gradient[0]:
            dx = self.grad[0].reshape(self.nfp)
            ops.prelu_gradient(dy, x, self.slope.data.reshape(-1), dx, self.context.workspace)
        return self.grad[0]


@register
class Axpy(PerChannel):
    """y = a x + z, with a number a for each channel of each sample. Bottoms: a, x, z.

    a is (n, c), or (n, c, 1, 1) with a 1 for each further axis of x; x and z have one shape (n, c, ...).
    Raises ShapeError if they do not fit.

    Source: Axpy of J. Hu's fork of Caffe; J. Hu et al., Squeeze-and-Excitation Networks, 2018.

    Example: (2, 3), (2, 3, 4, 4), (2, 3, 4, 4) -> {type: Axpy} -> (2, 3, 4, 4)
    """

    def setup(self, a: Shape, x: Shape, z: Shape) -> Shape:
        if x != z:
            raise ShapeError(f"needs bottoms 1 and 2 of one shape, got {x} and {z}")
        if len(x) < 2 or a not in (x[:2], x[:2] + (1,) * (len(x) - 2)):
            raise ShapeError(f"needs bottom 0 of shape {x[:2]}, for bottoms of {x}, got {a}")
        self.see(x, 0, x[:2])
        return x

    def forward(self, a: Any, x: Any, z: Any) -> Any:
        self.a, self.x = a.reshape(-1), x
        nfp, y = self.nfp, self.out[0]
        ops.scale(x.reshape(nfp), self.a, z.reshape(nfp), y.reshape(nfp))
        return y

    def backward(self, dy: Any) -> Any:
        da, dx, _ = self.grad  # None if not needed
        if da is not None:
            fill(da, 0)
        self.gradients(dy, self.x, self.a, da, None, dx)
        return da, dx, dy if self.needs_gradient[2] else None
