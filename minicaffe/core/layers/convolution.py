"""Convolution, of 1 to 3 axes; and what it shares with its adjoint, Deconvolution."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from minicaffe.backends.dispatch import compiles
from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import Among, AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.window import Unrolled
from minicaffe.core.ops import conv
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.errors import ShapeError


@dataclass(kw_only=True, eq=False, repr=False)
class Filtered(Unrolled):
    """What Convolution and Deconvolution share: filters, a bias, and a plan.

    Several bottoms have one shape; each has its own top, computed by the same parameters.
    """

    num_output: Annotated[int, "number of filters", AtLeast(1)]
    group: Annotated[int, "groups of channels convolved apart", AtLeast(1)] = 1
    bias_term: Annotated[bool, "add a bias"] = True
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO
    engine: Annotated[
        str, "how it is computed; auto: the fastest measured", Among(conv.names, conv.hint)
    ] = "auto"

    before = None  # the plan of its last size

    def tops_of(self, y: Shape, bottoms: tuple[Shape, ...]) -> Shape | list[Shape]:
        """A top shape for each bottom. Raises ShapeError unless the bottoms have one shape."""
        for shape in bottoms:
            if shape != bottoms[0]:
                raise ShapeError(f"needs bottoms of one shape, got {bottoms[0]} and {shape}")
        self.count = len(bottoms)
        return [y] * self.count if self.count > 1 else y

    def declare(self, geometry: ConvGeometry, channels: int) -> None:
        """Keep the geometry and declare the parameters. Raises ShapeError."""
        for key, count in (("channels", channels), ("num_output", self.num_output)):
            if count % self.group:
                raise ShapeError(f"{key} {count} cannot be divided into group {self.group}")
        conv.check(geometry, self.lowering)
        self.geometry = geometry
        self.weight = self.param(geometry.weight_shape, self.weight_filler)
        self.bias = self.param((self.num_output,), self.bias_filler) if self.bias_term else None
        self.choose(deterministic=True)  # what can be told of the work without a measurement

    def allocate(self) -> None:
        self.choose(self.context.numerics.deterministic)
        self.before = self.plan
        traced = self.plan.traced  # an engine of a user's own is called between what is replayed
        recordable = traced and (self.plan.case.compiled or not compiles())
        capturable = None if traced else False
        self.traits = replace(self.traits, recordable=recordable, capturable=capturable)

    def choose(self, deterministic: bool) -> None:
        """Choose a plan and reserve its workspace. Raises ShapeError if no engine fits the limit."""
        net = self.context
        problem = self.geometry, net.dtype, net.device, self.lowering, net.numerics.workspace_cap
        self.plan = conv.plan(*problem, deterministic, self.before, net.forward_only)
        net.reserve(self.work)

    @property
    def work(self) -> int:
        """Elements of workspace that it needs."""
        return self.plan.workspace

    @property
    def packed_elements(self) -> int:
        """Elements of packed weights that it keeps."""
        return 0 if self.plan.packed is None else int(self.plan.packed.size)

    @property
    def lowering(self) -> str:
        """The engine's name: the layer's own key, else the net's."""
        return self.context.numerics.engine if self.engine == "auto" else self.engine

    @property
    def multiply_adds(self) -> int:  # type: ignore[override]
        """Multiply-adds of the convolution, or of the one this is the adjoint of, for all bottoms."""
        return self.count * self.geometry.multiply_adds

    @property
    def column_elements(self) -> int:  # type: ignore[override]
        """Elements of one sample's column matrix: filters' size times places."""
        return self.geometry.column_elements


@register
class Convolution(Filtered):
    """y[n, f] = bias[f] + sum over c of x[n, c] correlated with weight[f, c]. 1-D to 3-D, with groups.

    (n, c, *image) -> (n, num_output, *out), along each axis
    out = floor((size + 2 pad - dilation (kernel - 1) - 1) / stride) + 1.
    Parameters: weight (num_output, c / group, *kernel), bias (num_output,). Several bottoms of one shape
    have a top each, with the same parameters. Source: Caffe's Convolution.

    Example: (2, 3, 9, 9) -> {type: Convolution, num_output: 4, kernel_size: 3, stride: 2} -> (2, 4, 4, 4)
    """

    def setup(self, x: Shape, *more: Shape) -> Shape | list[Shape]:
        lead, c, image, window = self.split(x)
        g = ConvGeometry(math.prod(lead), c, image, self.num_output, window, self.group)
        self.declare(g, c)
        self.xs: list[Any] = []  # the bottoms of the last pass
        return self.tops_of((*lead, self.num_output, *g.out), (x, *more))

    @property
    def work(self) -> int:
        return self.plan.workspace if self.runs_backward else self.plan.forward_workspace

    def forward(self, *xs: Any) -> Any:
        g, work = self.geometry, self.context.workspace
        self.xs[:] = [x.reshape(g.x_shape) for x in xs]
        weight, bias = self.weight.values, None if self.bias is None else self.bias.values
        for x, y in zip(self.xs, self.out, strict=True):
            self.plan.forward(x, weight, bias, y.reshape(g.y_shape), work)
        return self.out

    def backward(self, *dys: Any) -> Any:
        g, work = self.geometry, self.context.workspace
        dw = self.weight.diff if self.weight.learns else None
        db = self.bias.diff if self.bias is not None and self.bias.learns else None
        for x, dy, grad in zip(self.xs, dys, self.grad, strict=True):
            dx = None if grad is None else grad.reshape(g.x_shape)
            self.plan.gradients(x, dy.reshape(g.y_shape), self.weight.data, dx, dw, db, work)
        return self.grad
