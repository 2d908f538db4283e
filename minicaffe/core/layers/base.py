"""The base class of layers: keys, traits, shapes, forward and backward.

@register
class SiLU(Layer):
    \"\"\"x * sigmoid(beta * x), element by element. Any shape.\"\"\"

    beta: Annotated[float, "steepness"] = 1.0

    def setup(self, x):            # shapes in -> shapes out
        return x

    def forward(self, x):          # arrays in -> arrays out, on whichever device
        self.x, self.s = x, 1 / (1 + self.xp.exp(-self.beta * x))
        return x * self.s

    def backward(self, dy):        # top gradients in -> bottom gradients out
        return dy * (self.s + self.beta * self.x * self.s * (1 - self.s))
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.core.config.declare import Filler, Phase
from minicaffe.core.layers.blob import Param, Shape, Versioned
from minicaffe.core.layers.context import Context
from minicaffe.errors import ShapeError, SpecError


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a layer declares beside its keys. The defaults suit a user's own layer.

    A class has `traits = Traits(is_loss=True)`, or `replace(Parent.traits, in_place=True)` (of dataclasses),
    which keeps its parent's. If a trait depends on keys or shapes, `setup` or `allocate` sets `self.traits`
    in the same way. Values that a net sets or a layer computes are attributes of Layer, not traits.
    """

    has_tops: bool = True  # without the key `top` it has one, of the layer's name
    in_place: bool = False  # may write its top over its bottom, if both have one name
    over_a_bottom: bool = False  # forward may write its top over any bottom not read later
    side_by_side: bool = False  # its top is its bottoms, one behind the other in memory
    keeps_bottom: bool = False  # backward reads the bottom: in place only if no layer runs backward
    keeps_top: bool = False  # backward reads the top as forward left it
    sizes_vary: bool = False  # forward may return leading parts of `out`, smaller than declared
    recordable: bool = False  # on the CPU, its passes call ops only
    capturable: bool | None = None  # into a CUDA graph; None: built-in layers are
    tops_apart: bool = False  # without bottoms: a pass may receive one top without the others
    takes_share: bool = False  # without bottoms: on several ranks it reads its share of a batch
    mixes_samples: bool = False  # of a batch: ranks cannot compute separate parts
    of_whole: bool = False  # a loss: on several ranks its divisor is that of the whole batch
    is_loss: bool = False  # its first top has loss weight 1 by default
    label_bottoms: tuple[int, ...] = ()  # bottoms that have no gradient
    float32_bottoms: tuple[int, ...] = ()  # may be float32 in a net of float16 or bfloat16: labels
    float32_tops: tuple[int, ...] = ()  # float32 in a net of float16 or bfloat16; a loss's first is
    gathered: bool = False  # a test joins the rows of its top, of which `score` makes its scores
    keeps_dtype: bool = False  # its tops have the type of its bottoms
    label_kind: Literal["", "number", "map", "boxes"] = ""  # of a layer whose first top is pictures
    inferred_as: Literal["itself", "Input", "Softmax", "nothing"] = "itself"  # what infers for it


def check_traits(layer: Layer | type[Layer]) -> None:
    """Raise SpecError if a layer's `traits` are no Traits, or if a trait is an attribute of the layer."""
    what = f"layer {layer.__name__}: " if isinstance(layer, type) else ""
    way = "traits = Traits(" if what else "self.traits = replace(self.traits, "
    if not isinstance(layer.traits, Traits):
        raise SpecError(f"{what}traits: expected a Traits, got {layer.traits!r}")
    for name in Traits.__annotations__:
        if hasattr(layer, name):
            raise SpecError(f"{what}{name} is a trait: write {way}{name}=...)")


class Layer(Versioned):
    """The base of every layer. A subclass defines setup, forward and backward, and `traits` if needed.

    They can use `xp` (numpy or cupy), `dtype`, `phase`, `name`, `bottom` and `top` (blob names), `context`.
    `needs_gradient[i]` says whether bottom i's gradient is needed, and `runs_backward` whether backward runs
    at all: allocate buffers for backward only then. To allocate nothing in a step, a layer writes tops into
    `out`, bottom gradients into `grad` (the net's buffers), and returns those.
    """

    _assumed = frozenset({"forward", "backward", "traits", "runs_backward", "plan", "__class__"})
    traits = Traits()
    multiply_adds = 0  # of a forward pass, for the summary
    column_elements = 0  # of the column matrix of one image, for the summary

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.params = []
        self.name, self.bottom, self.top = cls.__name__, (), ()
        self.out, self.grad, self.needs_gradient = [], [], []
        self.runs_backward, self.in_both = True, None
        self.refused = np.zeros(1, np.int32)
        self._declared = 0
        self._shapes = [], []
        self.context = Context(Device("default"))
        return self

    params: list[Param]
    name: str
    bottom: tuple[str, ...]
    top: tuple[str, ...]
    out: list[Any]
    grad: list[Any]
    needs_gradient: list[bool]
    runs_backward: bool  # the net runs its backward: known when buffers are allocated
    in_both: frozenset[float] | None  # if TRAIN and TEST read one source: its values of `split`
    refused: np.ndarray  # 1, on the CPU, if `check` would raise, because a replay raises nothing
    context: Context
    _shapes: tuple[list[Shape], list[Shape]]  # of bottoms and tops

    def __repr__(self) -> str:
        bottoms, tops = (", ".join(map(str, shapes)) for shapes in self._shapes)
        flow = " ".join(filter(None, (bottoms, "->", tops or "nothing")))
        params = ", ".join(str(param.shape) for param in self.params)
        text = f"{type(self).__name__} {self.name!r}"
        text += f": {flow}" if bottoms or tops else ""
        return f"<{text}; parameters {params}>" if params else f"<{text}>"

    def setup(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the top shape (or a list of them) for bottom shapes; declares parameters. No arithmetic."""
        raise TypeError(f"layer {type(self).__name__} must define setup")

    def allocate(self) -> None:
        """Allocate scratch buffers, after the shapes of the whole net are known."""

    def prepare(self) -> None:
        """Called before `forward` in each pass: sets the numbers that change from pass to pass, nothing else.

        A replay does not call `forward`: it calls this, and then runs the recorded loops, or the graph.
        """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the top array (or a list of them) for bottom arrays."""
        raise TypeError(f"layer {type(self).__name__} must define forward")

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns bottom gradients (or None) for top gradients; adds the gradients of parameters."""
        raise TypeError(f"layer {type(self).__name__} has no gradient: it does not define backward")

    def check(self) -> None:
        """Called when the loss is not finite: raise the MinicaffeError that explains it, if any."""

    def score(self, rows: np.ndarray) -> dict[str, Any]:
        """Of a top that is `gathered`: a test's scores by what is appended to its name, of all its rows."""
        raise TypeError(f"layer {type(self).__name__} must define score")

    @property
    def running(self) -> list[Any]:
        """Arrays that a forward pass updates, such as running sums: a solver can restore them."""
        return []

    @property
    def xp(self) -> Any:
        """The array library of the net's device: numpy or cupy."""
        return self.context.device.xp

    @property
    def dtype(self) -> Any:
        """The net's floating-point type."""
        return self.context.dtype

    @property
    def sum_dtype(self) -> Any:
        """The type for labels, sums and losses: float32 in a net of float16 or bfloat16, else the net's."""
        return self.context.sum_dtype

    @property
    def phase(self) -> Phase:
        return self.context.phase

    def param(self, shape: Shape, filler: Filler, dtype: Any = None) -> Param:
        """Declare the next parameter. In a reshape, returns the existing one, of the same shape."""
        index = self._declared
        self._declared += 1
        if index == len(self.params):
            kind = self.dtype if dtype is None else dtype
            self.params.append(Param(tuple(shape), self.context.device, kind, filler))
        elif self.params[index].shape != tuple(shape):
            problem = f"these bottoms need {shape}"
            raise ShapeError(f"parameter {index} has shape {self.params[index].shape}; {problem}")
        return self.params[index]

    def empty(self, shape: Shape, dtype: Any = None) -> Any:
        """A buffer on the net's device, of the net's type by default."""
        return aligned.empty(self.xp, shape, self.dtype if dtype is None else dtype)

    def top_shapes(self, *bottoms: Shape) -> list[Shape]:
        """`setup` with its input checked and its output as a list."""
        self._declared = 0
        least, most = bottom_counts(type(self))
        if not least <= len(bottoms) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            wanted = f"at least {least}" if most == math.inf else wanted
            raise ShapeError(f"takes {wanted} bottom(s), got {len(bottoms)}")
        result = self.setup(*bottoms)
        check_traits(self)
        shapes = [result] if _is_shape(result) else result
        if not isinstance(shapes, (list, tuple)) or not all(map(_is_shape, shapes)):
            raise ShapeError(f"setup gave {result!r}, expected a shape or a list of shapes")
        self._shapes = [*bottoms], [tuple(shape) for shape in shapes]
        return self._shapes[1]


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, (int, np.integer)) for n in value)


def bottom_counts(cls: type[Layer]) -> tuple[int, float]:
    """The fewest and most bottoms a layer takes, from the signature of its `setup`."""
    parameters = list(inspect.signature(cls.setup).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return sum(p.kind is not p.VAR_POSITIONAL for p in parameters), math.inf
    return sum(p.default is p.empty for p in parameters), len(parameters)


def canonical_axis(axis: int, shape: Shape) -> int:
    """An axis counted from the front; negative ones count from the back. Raises ShapeError.

    >>> canonical_axis(-1, (2, 3, 4))
    2
    """
    if not -len(shape) <= axis < len(shape):
        raise ShapeError(f"axis {axis} is out of range for {len(shape)} axes")
    return axis % len(shape)
