"""The declarations: what a net, a layer, a filler and a parameter may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from minicaffe.core.config.solver import NOWHERE, SolverSpec
from minicaffe.core.config.state import ANY, Rule, State
from minicaffe.core.config.tree import Mark, Node
from minicaffe.core.config.types import AtLeast, Printable
from minicaffe.errors import SpecError

HIDDEN = {"hidden": True}  # of a field that is no key
FILLER_KEYS = {
    "value": ("constant",),
    "min": ("uniform",),
    "max": ("uniform",),
    "mean": ("gaussian",),
    "std": ("gaussian",),
    "sparse": ("gaussian",),
    "variance_norm": ("xavier", "msra"),
}


@dataclass(frozen=True, kw_only=True)
class Filler:
    """How a parameter is filled at the start (Caffe's FillerParameter)."""

    word: ClassVar[str] = "type"
    type: Annotated[
        Literal[
            "constant", "gaussian", "uniform", "xavier", "msra", "positive_unitball", "bilinear"
        ],
        "the distribution",
    ]
    value: Annotated[float, "constant: the value"] = 0.0
    min: Annotated[float, "uniform: the lower end"] = 0.0
    max: Annotated[float, "uniform: the upper end"] = 1.0
    mean: Annotated[float, "gaussian: the mean"] = 0.0
    std: Annotated[float, "gaussian: the standard deviation", AtLeast(0)] = 1.0
    sparse: Annotated[
        int, "gaussian: expected non-zero inputs of an output; -1 for all", AtLeast(-1)
    ] = -1
    variance_norm: Annotated[
        Literal["FAN_IN", "FAN_OUT", "AVERAGE"], "xavier, msra: what the variance is divided by"
    ] = "FAN_IN"

    def __post_init__(self) -> None:
        """Refuse a key that another type takes: it would do nothing."""
        for key, types in FILLER_KEYS.items():
            if self.type not in types and getattr(self, key) != getattr(type(self), key):
                raise SpecError(f"{key} goes with {' and '.join(types)}, not with {self.type}")
        if self.type == "uniform" and self.min > self.max:
            raise SpecError(f"expected min <= max, got min {self.min} and max {self.max}")


@dataclass(frozen=True, kw_only=True)
class ParamSpec:
    """Multipliers of one parameter, and the name under which layers share it."""

    name: Annotated[str | None, "parameters of one name are one and the same", Printable()] = None
    lr_mult: Annotated[
        float | None,
        "multiplies the learning rate; 0 freezes, below 0 the gradient is turned round",
    ] = None
    decay_mult: Annotated[
        float | None, "multiplies the weight decay; 1 if not given", AtLeast(0)
    ] = None
    share_mode: Annotated[
        Literal["STRICT", "PERMISSIVE"], "shared by name: of one shape, or only of as many elements"
    ] = "STRICT"


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One layer as declared: the keys every layer has, and its own in `options`."""

    name: Annotated[str, "the layer's name, unique in its phase", Printable()]
    type: Annotated[str, "the layer's class"]
    bottom: Annotated[
        tuple[str, ...] | None, "blobs read; default: the first top of the layer above", Printable()
    ] = None
    top: Annotated[
        tuple[str, ...] | None,
        "blobs written; default: one, of the layer's name; none of Silence and HDF5Output",
        Printable(),
    ] = None
    param: Annotated[tuple[ParamSpec, ...], "multipliers and sharing, one entry a parameter"] = ()
    loss_weight: Annotated[
        tuple[float, ...], "weight of each top in the loss; default 1 for a loss layer"
    ] = ()
    propagate_down: Annotated[tuple[bool, ...], "for each bottom: may a gradient flow into it"] = ()
    include: Annotated[tuple[Rule, ...], "only where one of these rules holds"] = ()
    exclude: Annotated[tuple[Rule, ...], "not where one of these rules holds"] = ()
    options: Mapping[str, Any] = field(default_factory=dict, metadata=HIDDEN)
    mark: Mark = field(default=NOWHERE, metadata=HIDDEN)
    nodes: Mapping[str, Node] = field(default_factory=dict, repr=False, metadata=HIDDEN)

    @property
    def tops(self) -> tuple[str, ...]:
        """The blobs it writes."""
        return (self.name,) if self.top is None else self.top

    def place(self, key: str = "", item: int = 0) -> str:
        """Where and what, for an error: at a key's value, or an item of it, if that is given."""
        node = self.nodes.get(key, Node(None, self.mark))
        node = node.value[item] if isinstance(node.value, list) and node.value else node
        return f"{node.mark}: {self}"

    def included(self, state: State) -> bool:
        """Whether the layer takes part in a net of this state."""
        if self.include:
            return any(rule.holds(state) for rule in self.include)
        return not any(rule.holds(state) for rule in self.exclude)

    def __str__(self) -> str:
        return f"layer {self.name!r} ({self.type})"


@dataclass(frozen=True, kw_only=True)
class NetSpec:
    """A model file: a net and, if it can be trained, its solver.

    `test_nets` are nets of their own to test with; the others that the solver asks for are this one, in
    the phase TEST.
    """

    name: Annotated[str, "the net's name"] = ""
    force_backward: Annotated[bool, "compute every gradient, wanted or not"] = False
    state: Annotated[State, "what it is built for, unless whoever builds it says otherwise"] = ANY
    debug_info: Annotated[bool, "show the mean size of every blob, parameter and gradient"] = False
    dtype: Annotated[
        Literal["float32", "float64", "float16", "bfloat16"],
        "the type of blobs and weights; 16 bits on CUDA, with float32 masters of the weights",
    ] = "float32"
    precision: Annotated[
        Literal["highest", "tf32"],
        "of products of float32 on CUDA: tf32 rounds what is multiplied to 10 bits, for tensor cores",
    ] = "highest"
    folder: Annotated[
        str,
        "where relative paths are looked for after the current folder, from this file's own; default: that",
        Printable(),
    ] = "."
    classes: Annotated[
        tuple[str, ...],
        "what the classes are called, from 0 on; default: as the data set says",
        Printable(),
    ] = ()
    layers: tuple[LayerSpec, ...] = field(metadata=HIDDEN)
    solver: SolverSpec | None = field(default=None, metadata=HIDDEN)
    test_nets: tuple[NetSpec, ...] = field(default=(), metadata=HIDDEN)
    path: Path | None = field(default=None, metadata=HIDDEN)
    nodes: Mapping[str, Node] = field(
        default_factory=dict, repr=False, compare=False, metadata=HIDDEN
    )

    @property
    def beside(self) -> Path | None:
        """The folder that relative paths are looked for in, after the current one."""
        return None if self.path is None else self.path.parent / self.folder
