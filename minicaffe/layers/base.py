"""What a layer is: its keys, its traits, its shapes, forward and backward; and the register of all layers.

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
from typing import Any, TypeVar

import numpy as np

from minicaffe.backend import Device
from minicaffe.cpu import aligned
from minicaffe.errors import ShapeError, SpecError
from minicaffe.layers.blob import Param, Shape
from minicaffe.layers.context import Context
from minicaffe.spec.declare import Filler, LayerSpec
from minicaffe.spec.state import Phase
from minicaffe.spec.types import json_schema, keys_of

REGISTRY: dict[str, type[Layer]] = {}
L = TypeVar("L", bound="type[Layer]")


def register(cls: L) -> L:
    """Make a layer class known by its name; its annotated fields become its YAML keys.

    Raises SpecError if the class is no Layer, if another module has a layer of its name, if a field has
    the name of what every layer has or a type that YAML cannot give, or if a trait stands outside `traits`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Layer)):
        raise SpecError(f"register: {getattr(cls, '__name__', cls)} is no subclass of Layer")
    doc = cls.__doc__
    dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)
    cls.__doc__ = doc  # not the signature, which a dataclass takes for a docstring that is missing
    there = REGISTRY.get(cls.__name__)
    if there is not None and there.__module__ != cls.__module__:
        raise SpecError(f"layer {cls.__name__}: {there.__module__} has a layer of that name")
    if not cls.__module__.startswith("minicaffe."):  # the tests check those, at leisure
        check_traits(cls)
        check_keys(cls)
    REGISTRY[cls.__name__] = cls
    return cls


def check_keys(cls: type[Layer]) -> None:
    """Raise SpecError if a layer's key has a name that every layer has, or a type that YAML cannot give."""
    taken = {*keys_of(LayerSpec), *Layer.__annotations__, *Traits.__annotations__}
    for key in keys_of(cls).values():  # type: ignore[arg-type]
        if key.name in taken or hasattr(Layer, key.name):
            raise SpecError(f"layer {cls.__name__}: the key {key.name!r} is taken by every layer")
        try:
            json_schema(key.type, lambda kind: {})
        except KeyError:
            raise SpecError(
                f"layer {cls.__name__}: the key {key.name!r} is of a type YAML cannot give: {key.type}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a layer declares beside its keys. The defaults suit a layer of one's own.

    A class has `traits = Traits(is_loss=True)`, or `replace(Parent.traits, in_place=True)` (of dataclasses),
    which keeps its parent's. For what depends on keys or shapes, `setup` or `allocate` replaces `self.traits`
    in the same way. What a net sets or a layer computes is no trait: those are attributes of Layer.
    """

    has_tops: bool = True  # without the key `top`: one, of its name
    in_place: bool = False  # may write its top over its bottom, when both bear one name
    keeps_bottom: bool = False  # in place only where nothing runs backward, which reads the bottom
    keeps_top: bool = False  # backward reads the top as forward left it
    sizes_vary: bool = False  # forward may return leading parts of `out`, fewer than promised
    recordable: bool = False  # its passes on the CPU do all by replay's dispatch.run or trace.do
    capturable: bool | None = None  # into a CUDA graph; None: what is built in is
    tops_apart: bool = False  # without bottoms: a pass may be given one top without the others
    takes_share: bool = False  # without bottoms: on several ranks it gives its share of a batch
    mixes_samples: bool = False  # of a batch: several ranks cannot have a part each
    of_whole: bool = False  # a loss: on several ranks it divides by what the whole batch has
    is_loss: bool = False  # its first top has loss weight 1 unless the model says otherwise
    label_bottoms: tuple[int, ...] = ()  # bottoms into which no gradient can flow
    float32_bottoms: tuple[int, ...] = ()  # of float32 in a net of 16 bits too, if given so: labels
    float32_tops: tuple[int, ...] = ()  # of float32 in a net of 16 bits too; a loss's first is
    keeps_dtype: bool = False  # its tops are of its bottoms' type, whatever that is


def check_traits(layer: Layer | type[Layer]) -> None:
    """Raise SpecError if a layer's `traits` are no Traits, or if one of them is an attribute of the layer."""
    what, way = "", "self.traits = replace(self.traits, "
    if isinstance(layer, type):
        what, way = f"layer {layer.__name__}: ", "traits = Traits("
    if not isinstance(layer.traits, Traits):
        raise SpecError(f"{what}traits: expected a Traits, got {layer.traits!r}")
    for name in Traits.__annotations__:
        if hasattr(layer, name):
            raise SpecError(f"{what}{name} is a trait: write {way}{name}=...)")


class Layer:
    """The base of every layer. A subclass writes setup, forward and backward; `traits` where it must.

    Within them: `xp` (numpy or cupy), `dtype`, `phase`, `name`, `bottom` and `top` (blob names),
    `context`; `needs_gradient[i]` tells whether bottom i's gradient is wanted, and `runs_backward` whether
    backward runs at all: buffers for it alone are taken only then. A layer that wants to allocate nothing
    in a step writes its tops into `out` and its bottom gradients into `grad` (lists of buffers, where the
    net has them) and returns those.
    """

    traits = Traits()
    multiply_adds = 0  # of a forward pass, for the summary
    column_elements = 0  # of the column matrix it unrolls an image into, for the summary

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.params = []
        self.name, self.bottom, self.top = cls.__name__, (), ()
        self.out, self.grad, self.needs_gradient = [], [], []
        self.runs_backward, self.in_both = True, None
        self.refused = np.zeros(1, np.int32)
        self._declared = 0
        self._shapes = [], []
        self.context = Context(Device("cpu", np, "default"))
        return self

    params: list[Param]
    name: str
    bottom: tuple[str, ...]
    top: tuple[str, ...]
    out: list[Any]
    grad: list[Any]
    needs_gradient: list[bool]
    runs_backward: bool  # the net runs its backward: known when buffers are taken
    in_both: frozenset[float] | None  # of a source that TRAIN and TEST read: its values of `split`
    refused: np.ndarray  # 1, on the CPU, if `check` would raise, since a replay raises nothing
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
        """Bottom shapes in, top shape (or a list of them) out; declare parameters. No arithmetic."""
        raise TypeError(f"layer {type(self).__name__} must define setup")

    def allocate(self) -> None:
        """Take scratch buffers, after the shapes of the whole net are known."""

    def prepare(self) -> None:
        """What comes before `forward` in each pass: it sets what changes from pass to pass, and nothing else.

        A recorded pass is replayed without `forward`: it calls this, and then runs the loops, or the graph.
        """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Bottom arrays in, top array (or a list of them) out."""
        raise TypeError(f"layer {type(self).__name__} must define forward")

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Top gradients in, bottom gradients out, None where there is none; parameters accumulate."""
        raise TypeError(f"layer {type(self).__name__} has no gradient: it does not define backward")

    def check(self) -> None:
        """Called when the loss is no finite number: raise the MinicaffeError that explains it, if any."""

    @property
    def running(self) -> list[Any]:
        """Arrays that a forward pass changes for good, such as running sums: a solver can put them back."""
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
        """The type for labels, sums and losses: float32 in a net of 16 bits, else the net's."""
        return self.context.sum_dtype

    @property
    def phase(self) -> Phase:
        """TRAIN or TEST."""
        return self.context.phase

    def param(self, shape: Shape, filler: Filler, dtype: Any = None) -> Param:
        """Declare the next parameter. In a reshape it is the one that there is, of the same shape."""
        index = self._declared
        self._declared += 1
        if index == len(self.params):
            kind = self.dtype if dtype is None else dtype
            self.params.append(Param(tuple(shape), self.context.device, kind, filler))
        elif self.params[index].shape != tuple(shape):
            raise ShapeError(
                f"parameter {index} has shape {self.params[index].shape}; these bottoms need {shape}"
            )
        return self.params[index]

    def empty(self, shape: Shape, dtype: Any = None) -> Any:
        """A buffer on the net's device, of the net's type unless told otherwise."""
        return aligned.empty(self.xp, shape, self.dtype if dtype is None else dtype)

    def top_shapes(self, *bottoms: Shape) -> list[Shape]:
        """`setup` with its input checked and its output as a list."""
        self._declared = 0
        least, most = bottom_counts(type(self))
        if not least <= len(bottoms) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            wanted = f"at least {least}" if most == math.inf else wanted
            raise ShapeError(f"takes {wanted} bottom(s), got {len(bottoms)}")
        given = self.setup(*bottoms)
        check_traits(self)
        shapes = [given] if _is_shape(given) else given
        if not isinstance(shapes, (list, tuple)) or not all(map(_is_shape, shapes)):
            raise ShapeError(f"setup gave {given!r}, expected a shape or a list of shapes")
        self._shapes = [*bottoms], [tuple(shape) for shape in shapes]
        return self._shapes[1]


def _is_shape(given: Any) -> bool:
    return isinstance(given, tuple) and all(isinstance(n, (int, np.integer)) for n in given)


def bottom_counts(cls: type[Layer]) -> tuple[int, float]:
    """The fewest and most bottoms a layer takes, read off the signature of its `setup`."""
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
