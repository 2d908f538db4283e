"""Element-wise layers: each row of a table becomes a Layer with keys and documentation; and Dropout.

Each row uses a formula of formulas.py: the one of the layer's name, with its keys as numbers, unless the
row's `call` computes the formula's name and numbers from the keys.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from minicaffe.backends.formulas import FORMULAS
from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, elementwise, random
from minicaffe.errors import SpecError

Call = tuple[str, tuple[float, ...]]  # the name of a formula, and its numbers


@dataclass(frozen=True)
class Row:
    """A layer: its formula and source for the reader, its keys (type, and default if it has one)."""

    name: str
    formula: str
    source: str
    keys: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    call: Callable[[Any], Call] | None = None
    more: str = ""  # further documentation
    place: str = ""  # whether it is in place, where that depends on its keys
    example: str = ""  # keys of the example


class Elementwise(Layer):
    """The base of all these layers."""

    row: ClassVar[Row]
    traits = Traits(keeps_dtype=True, recordable=True)

    @property
    def call(self) -> Call:
        """The formula and its numbers for the values of the keys. Raises SpecError."""
        if self.row.call is not None:
            return self.row.call(self)
        return self.row.name, tuple(getattr(self, key) for key in self.row.keys)

    def setup(self, x: Shape) -> Shape:
        self.name_of_formula, self.numbers = self.call
        formula = FORMULAS[self.name_of_formula]
        in_place = formula.in_place(*self.numbers)
        keeps_top = in_place or "y" in formula.reads  # in place, the bottom is the top
        self.traits = replace(self.traits, in_place=in_place, keeps_top=keeps_top)
        return x

    def forward(self, x: Any) -> Any:
        self.x = x
        return elementwise.forward(self.name_of_formula, x, self.numbers, self.out[0])

    def backward(self, dy: Any) -> Any:
        return elementwise.gradient(
            self.name_of_formula, dy, self.x, self.out[0], self.numbers, self.grad[0]
        )


def number(doc: str, *default: float) -> tuple[Any, ...]:
    """A key that is a number."""
    return (Annotated[float, doc], *default)


def clip(keys: Any) -> Call:
    """Clip; raises SpecError unless min <= max."""
    if keys.min > keys.max:
        raise SpecError(f"expected min <= max, got min {keys.min} and max {keys.max}")
    return "Clip", (keys.min, keys.max)


def log_base(base: float) -> float:
    """The natural logarithm of a base; -1 stands for e."""
    if base != -1 and base <= 0:
        raise SpecError(f"base: expected a number above 0, or -1 for e, got {base}")
    return 1.0 if base == -1 else math.log(base)


def exponential(keys: Any) -> Call:
    """base^(shift + scale x) = outer exp(inner x)."""
    log = log_base(keys.base)
    with np.errstate(over="ignore"):
        return "Exp", (log * keys.scale, float(np.exp(log * keys.shift)))


def logarithm(keys: Any) -> Call:
    """log(shift + scale x) times 1 / log(base)."""
    log = log_base(keys.base)
    if log == 0:
        raise SpecError("base: there is no logarithm to base 1")
    return "Log", (keys.scale, keys.shift, 1 / log)


def power(keys: Any) -> Call:
    """Special cases as in Caffe: a power of 0 or a scale of 0 has no slope, not even where x is 0."""
    if keys.power * keys.scale == 0:
        with np.errstate(all="ignore"):
            constant = np.power(np.float64(keys.shift), keys.power) if keys.power else 1.0
        return "Constant", (float(constant),)
    shift = keys.shift or -0.0  # keeps the sign of a zero, as Caffe does, which adds no shift of 0
    if keys.power == 1:
        return "Linear", (keys.scale, shift)
    if keys.power == 2:
        return "Square", (keys.scale, shift)
    return "Power", (keys.scale, shift, keys.power)


BASE = number("the base, above 0; -1 for e", -1.0)
SCALE, SHIFT = number("factor of x", 1.0), number("added to scale x", 0.0)
ROWS = (
    Row("AbsVal", "y = |x|", "Caffe's AbsVal."),
    Row(
        "BNLL",
        "y = log(1 + exp(x))",
        "Caffe's BNLL, the binomial normal log likelihood; known as softplus.",
        more="Computed as max(x, 0) + log(1 + exp(-|x|)), so that exp does not overflow.",
    ),
    Row(
        "Clip",
        "y = min(max(x, min), max)",
        "Caffe's Clip.",
        {"min": number("the lower bound"), "max": number("the upper bound")},
        clip,
        "The gradient is dy where min <= x <= max, else 0. Raises SpecError if min is above max.",
        example="min: 0, max: 1",
    ),
    Row(
        "ELU",
        "y = x where x > 0, alpha (exp(x) - 1) elsewhere",
        "Caffe's ELU; D.-A. Clevert et al., Fast and Accurate Deep Network Learning by ELUs, 2016.",
        {"alpha": number("the limit of -y as x decreases", 1.0)},
        place="in place unless alpha is below 0",
    ),
    Row(
        "Exp",
        "y = base^(shift + scale x)",
        "Caffe's Exp.",
        {"base": BASE, "scale": SCALE, "shift": SHIFT},
        exponential,
        "Raises SpecError for a base that is neither above 0 nor -1.",
        example="base: 2",
    ),
    Row(
        "GELU",
        "y = x P(z < x), z normal: x / 2 (1 + erf(x / sqrt(2)))",
        "D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016.",
        {"approximate": (Annotated[Literal["none", "tanh"], "how erf is computed"], "none")},
        lambda keys: ("GELU" if keys.approximate == "none" else "GELUTanh", ()),
        "approximate: tanh is x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2.",
        example="approximate: tanh",
    ),
    Row("HardSwish", "y = x min(max(x + 3, 0), 6) / 6", "A. Howard et al., MobileNetV3, 2019."),
    Row(
        "Log",
        "y = log(shift + scale x), to the base `base`",
        "Caffe's Log.",
        {"base": BASE, "scale": SCALE, "shift": SHIFT},
        logarithm,
        "Raises SpecError for a base that is neither above 0 nor -1, and for 1.",
        example="base: 10, shift: 1",
    ),
    Row(
        "Power",
        "y = (shift + scale x)^power",
        "Caffe's Power.",
        {"power": number("the exponent", 1.0), "scale": SCALE, "shift": SHIFT},
        power,
        "Where power or scale is 0, y is a constant, even if x is NaN.",
        "in place where power is 0 or 1",
        example="power: 2, shift: 1",
    ),
    Row(
        "ReLU",
        "y = x where x > 0, negative_slope x elsewhere",
        "Caffe's ReLU; V. Nair, G. Hinton, Rectified Linear Units Improve RBMs, 2010.",
        {"negative_slope": number("slope where x <= 0", 0.0)},
        lambda keys: ("LeakyReLU", (keys.negative_slope,)) if keys.negative_slope else ("ReLU", ()),
        place="in place unless negative_slope is below 0",
    ),
    Row("ReLU6", "y = min(max(x, 0), 6)", "forks of Caffe; A. Krizhevsky, CIFAR-10, 2010."),
    Row("Sigmoid", "y = 1 / (1 + exp(-x))", "Caffe's Sigmoid."),
    Row(
        "Swish",
        "y = x / (1 + exp(-beta x))",
        "Caffe's Swish; P. Ramachandran et al., Searching for Activation Functions, 2017.",
        {"beta": number("steepness: 0 gives x / 2", 1.0)},
    ),
    Row("TanH", "y = tanh(x)", "Caffe's TanH."),
    Row(
        "Threshold",
        "y = 1 where x > threshold, 0 elsewhere",
        "Caffe's Threshold.",
        {"threshold": number("what x is compared with", 0.0)},
        more="It has no gradient.",
    ),
)


def layer_of(row: Row) -> type[Elementwise]:
    """The row as a class in the register."""
    body: dict[str, Any] = {"__module__": __name__, "row": row}
    body["__annotations__"] = {key: kind for key, (kind, *_) in row.keys.items()}
    body |= {key: default[0] for key, (_, *default) in row.keys.items() if default}
    if row.name in FORMULAS and FORMULAS[row.name].slope is None:
        body["traits"] = replace(Elementwise.traits, label_bottoms=(0,))
    layer: Any = type(row.name, (Elementwise,), body)
    return register(layer)


def document(row: Row, layer: type[Elementwise]) -> str:
    """The documentation of a row's layer."""
    one = layer(**{key: 0.0 for key, (_, *default) in row.keys.items() if not default})
    one.setup(())
    place = row.place or ("in place" if one.traits.in_place else "")
    keys = ", ".join(filter(None, (f"type: {row.name}", row.example)))
    head = f"{row.formula}. {'; '.join(filter(None, ('Any shape', place)))}."
    shown = f"Example: (2, 3) -> {{{keys}}} -> (2, 3)"
    return "\n\n".join(filter(None, (head, row.more, f"Source: {row.source}", shown)))


for _row in ROWS:
    _layer = layer_of(_row)
    _layer.__doc__ = document(_row, _layer)


@register
class Dropout(Layer):
    """TRAIN: y = x / (1 - ratio) with probability 1 - ratio, else 0. TEST: y = x. Any shape; in place.

    Without scale_train it is TEST that scales: y = x in TRAIN, y = x (1 - ratio) in TEST. The mask is a
    function of (seed, layer, forward pass, place in the batch). Source: Caffe's Dropout; scale_train is Fast
    R-CNN's, sample_weights_test Bayesian SegNet's; N. Srivastava et al., Dropout, JMLR 2014.

    Example: (2, 3) -> {type: Dropout, dropout_ratio: 0.4} -> (2, 3)
    """

    dropout_ratio: Annotated[float, "share of entries dropped", AtLeast(0), Below(1)] = 0.5
    scale_train: Annotated[bool, "TRAIN scales what is kept, not TEST"] = True
    sample_weights_test: Annotated[bool, "drop entries in TEST, too"] = False

    traits = Traits(in_place=True, recordable=True)

    @property
    def drops(self) -> bool:
        return self.phase == "TRAIN" or self.sample_weights_test

    def setup(self, x: Shape) -> Shape:
        self.shape = x
        return x

    def allocate(self) -> None:
        if self.drops:
            first = self.context.share.before(math.prod(self.shape))
            self.mask = random.Mask(self.context.slots, self.shape, first)

    def prepare(self) -> None:
        if self.drops:
            self.mask.draw(self.dropout_ratio, self.context.seed, self.name, self.context.passes)

    def forward(self, x: Any) -> Any:
        return self.dropped(random.dropout, x, self.out[0])

    def backward(self, dy: Any) -> Any:
        return self.dropped(random.dropout_gradient, dy, self.grad[0])

    def dropped(self, drop: Any, x: Any, out: Any) -> Any:
        """What is left of x; without `scale_train` it is scaled whether or not any are dropped."""
        if self.drops:
            x = drop(x, self.mask, self.dropout_ratio, out)
        return x if self.scale_train else arrays.scale(x, 1 - self.dropout_ratio, out)
