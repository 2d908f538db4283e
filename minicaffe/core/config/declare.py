"""The declarations: what a net, a layer, a filler, a parameter and a solver may say; and what a net is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import index
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from minicaffe.core.config.tree import Mark, Node, from_mapping
from minicaffe.core.config.types import Among, AtLeast, Below, Printable, keys_of, values
from minicaffe.errors import SpecError, did_you_mean

Phase = Literal["TRAIN", "TEST"]
Fraction = Annotated[float, AtLeast(0), Below(1)]


@dataclass(frozen=True, kw_only=True)
class State:
    """What a net is built for: rules of layers are held against it (Caffe's NetState).

    >>> State(phase="TEST", level=1).over(State(stage=("deploy",)))
    State(phase='TEST', level=1, stage=('deploy',))
    """

    word: ClassVar[str] = "phase"
    phase: Annotated[Phase | None, "TRAIN or TEST; whoever builds the net decides otherwise"] = None
    level: Annotated[int | None, "what min_level and max_level are compared with; 0"] = None
    stage: Annotated[tuple[str, ...], "the stages it is for"] = ()

    @classmethod
    def given(cls, phase: Phase | None, level: int | None, stages: Sequence[str]) -> State:
        """A state as a program gives it. Raises SpecError for a level or stages that are none."""
        if isinstance(stages, str) or not all(isinstance(stage, str) for stage in stages):
            raise SpecError(f"stages: expected a list of names, got {stages!r}")
        try:
            return cls(phase=phase, level=level and index(level), stage=tuple(stages))
        except TypeError:
            raise SpecError(f"level: expected an integer, got {level!r}") from None

    def __str__(self) -> str:
        level = f", level {self.level}" if self.level else ""
        stages = f", stage {' and '.join(self.stage)}" if self.stage else ""
        return f"phase {self.phase}{level}{stages}"

    def over(self, other: State) -> State:
        """This state, with what it leaves open as in another, and the stages of both."""
        return State(
            phase=self.phase or other.phase,
            level=other.level if self.level is None else self.level,
            stage=tuple(dict.fromkeys((*other.stage, *self.stage))),
        )


ANY = State()  # says nothing
TRAIN = State(phase="TRAIN")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a layer is part of the net: all that is given must hold (Caffe's NetStateRule)."""

    word: ClassVar[str] = "phase"
    phase: Annotated[Phase | None, "TRAIN or TEST"] = None
    min_level: Annotated[int | None, "the net's level is at least this"] = None
    max_level: Annotated[int | None, "the net's level is at most this"] = None
    stage: Annotated[tuple[str, ...], "stages that the net is all for"] = ()
    not_stage: Annotated[tuple[str, ...], "stages that the net is for none of"] = ()

    def holds(self, state: State) -> bool:
        """Whether a net of this state meets the rule."""
        level = state.level or 0
        return (
            self.phase in (None, state.phase)
            and (self.min_level is None or level >= self.min_level)
            and (self.max_level is None or level <= self.max_level)
            and all(stage in state.stage for stage in self.stage)
            and all(stage not in state.stage for stage in self.not_stage)
        )


NOWHERE = Mark("<python>")


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A test output by which tests are better or worse; of an array the mean of its entries counts.

    >>> print(Watched(output="accuracy"), Watched(output="score", mode="max", min_delta=0.01), sep=", ")
    accuracy, score (max, min_delta 0.01)
    """

    word: ClassVar[str] = "output"
    output: Annotated[
        str, "its name; of several test nets led by their number, 1/accuracy", Printable()
    ]
    mode: Annotated[
        Literal["max", "min"] | None,
        "whether higher or lower is better; default: max of an accuracy, min of a loss",
    ] = None
    min_delta: Annotated[float, "a test is better only if it is by more than this", AtLeast(0)] = (
        0.0
    )

    def __str__(self) -> str:
        more: list[str] = [self.mode] if self.mode else []
        more += [f"min_delta {self.min_delta:g}"] if self.min_delta else []
        return f"{self.output} ({', '.join(more)})" if more else self.output


BUILT_IN = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
TYPES = [*BUILT_IN]  # and those that are registered


def unknown(name: str, words: Iterable[str]) -> str:
    """What to do about a rule that is none of the words."""
    return did_you_mean(name, words) or "; --import FILE brings rules of one's own"


@dataclass(frozen=True, kw_only=True)
class SolverSpec:
    """How a net is trained (Caffe's SolverParameter)."""

    type: Annotated[str, "the update rule", Among(TYPES.copy, unknown)] = "SGD"
    base_lr: Annotated[float, "the learning rate at the start", AtLeast(0)]
    lr_policy: Annotated[
        Literal["fixed", "step", "multistep", "exp", "inv", "poly", "sigmoid", "cosine", "plateau"],
        "how the learning rate falls",
    ] = "fixed"
    gamma: Annotated[float | None, "step, multistep, exp, inv, sigmoid, plateau: the factor"] = None
    power: Annotated[float | None, "inv, poly: the exponent", AtLeast(0)] = None
    stepsize: Annotated[int | None, "step, sigmoid: iterations", AtLeast(1)] = None
    stepvalue: Annotated[
        tuple[int, ...], "multistep: iterations at which the rate falls", AtLeast(0)
    ] = ()
    min_lr: Annotated[float, "cosine, plateau, poly: the least rate", AtLeast(0)] = 0.0
    patience: Annotated[
        int | None, "plateau: tests in a row without a better one before the rate falls", AtLeast(1)
    ] = None
    plateau: Annotated[
        Watched | None, "plateau: the test output that it goes by; default: that of best"
    ] = None
    warmup_iter: Annotated[
        int,
        "iterations in which the rate rises in a line to base_lr, whatever lr_policy",
        AtLeast(0),
    ] = 0
    warmup_start_lr: Annotated[float, "the rate that warmup_iter begins with", AtLeast(0)] = 0.0
    max_iter: Annotated[
        int | None, "iterations in all; without it only Solver.step trains", AtLeast(0)
    ] = None
    iter_size: Annotated[int, "batches whose gradients make one update", AtLeast(1)] = 1
    momentum: Annotated[
        Fraction,
        "share of the last update kept; AdaDelta (0.95), Adam, AdamW (0.9): of the running mean",
    ] = 0.0
    momentum2: Annotated[Fraction, "Adam, AdamW: share of the running mean of squares kept"] = 0.999
    rms_decay: Annotated[Fraction, "RMSProp: share of the running mean of squares kept"] = 0.99
    delta: Annotated[
        float, "AdaGrad, RMSProp, AdaDelta, Adam, AdamW: keeps a division from 0", AtLeast(0)
    ] = 1e-8
    weight_decay: Annotated[float, "strength of the regularisation", AtLeast(0)] = 0.0
    regularization_type: Annotated[Literal["L2", "L1"], "what weight_decay penalises"] = "L2"
    clip_gradients: Annotated[float, "largest norm of the whole gradient; -1 for no limit"] = -1.0
    test_iter: Annotated[
        tuple[int, ...] | None,
        "batches in a test, one number a test net; default: the whole test set once; 0: no test",
        AtLeast(0),
    ] = None
    test_interval: Annotated[
        int | None, "iterations between tests; 0 for one test, at the end", AtLeast(0)
    ] = None
    test_initialization: Annotated[bool, "test before the first iteration"] = True
    test_compute_loss: Annotated[bool, "show the loss of a test beside its outputs"] = False
    best: Annotated[
        Watched | None,
        "the test output whose best test is kept as PREFIX_best.npz; of equal ones that of the lower loss",
    ] = None
    early_stopping: Annotated[
        int | None, "tests in a row without a new best that end training", AtLeast(1)
    ] = None
    ema_decay: Annotated[
        Fraction,
        "share of the weights' running mean kept in an iteration; tests and snapshots take the mean",
    ] = 0.0
    train_state: Annotated[State, "what the training net is built for"] = ANY
    test_state: Annotated[tuple[State, ...], "what each test net is built for"] = ()
    display: Annotated[int, "iterations between log lines; 0 for none", AtLeast(0)] = 0
    average_loss: Annotated[
        int, "iterations over which the shown loss is averaged", AtLeast(1), Below(1_000_001)
    ] = 1
    snapshot: Annotated[int, "iterations between snapshots; 0 for none", AtLeast(0)] = 0
    snapshot_prefix: Annotated[
        str | None, "snapshots are PREFIX_iter_N; default: the model file's name"
    ] = None
    snapshot_format: Annotated[
        Literal["NPZ", "BINARYPROTO", "HDF5"],
        "one .npz, or Caffe's .caffemodel and .solverstate, or both of these as .h5",
    ] = "NPZ"
    snapshot_keep: Annotated[
        int, "snapshots that stay, the last so many; 0 for all", AtLeast(0)
    ] = 0
    snapshot_after_train: Annotated[bool, "snapshot at the end of training"] = True
    loss_scale: Annotated[
        float | None,
        "dtype float16, bfloat16: gradients are of so many times the loss; default 1024 in float16, 1",
        AtLeast(1),
    ] = None
    debug_info: Annotated[bool, "show the mean size of every blob, parameter and gradient"] = False
    device: Annotated[str | None, "cpu, cuda or cuda:N; default: CUDA if it works"] = None
    weights: Annotated[tuple[str, ...], "weight files that training begins with"] = ()
    random_seed: Annotated[int, "seed of fillers, shuffling and dropout", AtLeast(0)] = 1
    mark: Mark = field(default=NOWHERE, metadata={"hidden": True})
    nodes: Mapping[str, Node] = field(
        default_factory=dict, repr=False, compare=False, metadata={"hidden": True}
    )

    def tests(self, own: int) -> tuple[int | None, ...]:
        """The batches of each test net, of which a model has `own` itself; None: the whole set once."""
        if self.test_iter is not None:
            return self.test_iter
        return () if self.test_interval is None else (None,) * max(1, own, len(self.test_state))


MEANS = {"AdaDelta": 0.95, "Adam": 0.9, "AdamW": 0.9}  # and their momentum, unless it is set
# By the types and policies that take them
NEEDED = {"gamma", "power", "stepsize", "stepvalue", "patience"}
TAKEN_BY = {  # the types and policies that a key is of; all other keys are of every one
    "momentum": ("type", ("SGD", "Nesterov", *MEANS)),
    "momentum2": ("type", ("Adam", "AdamW")),
    "rms_decay": ("type", ("RMSProp",)),
    "delta": ("type", ("AdaGrad", "RMSProp", *MEANS)),
    "gamma": ("lr_policy", ("step", "multistep", "exp", "inv", "sigmoid", "plateau")),
    "power": ("lr_policy", ("inv", "poly")),
    "stepsize": ("lr_policy", ("step", "sigmoid")),
    "stepvalue": ("lr_policy", ("multistep",)),
    "min_lr": ("lr_policy", ("cosine", "plateau", "poly")),
    "patience": ("lr_policy", ("plateau",)),
    "plateau": ("lr_policy", ("plateau",)),
}


def with_settings(solver: SolverSpec, settings: Mapping[str, Any]) -> SolverSpec:
    """A solver with some keys replaced, checked as in a model file. Raises SpecError."""
    every = asdict(replace(solver, nodes={}))
    own = {key: every[key] for key in keys_of(SolverSpec)}
    try:
        root = from_mapping(own | dict(settings), "Solver")
        idle = unused(root.value).keys() - settings.keys()
        nodes = {key: node for key, node in root.value.items() if key not in idle}
        return replace(solver_of(Node(nodes, root.mark, root.keys)), mark=solver.mark)
    except SpecError as error:
        _, _, problem = str(error).partition(": ")  # without the place: the key is told as well
        raise SpecError(problem) from None


def check_max_iter(solver: SolverSpec, needed: bool = True) -> None:
    """Raise SpecError if max_iter is missing where training to the end (`needed`) or lr_policy goes by it."""
    by_policy = solver.lr_policy in ("poly", "cosine")
    if solver.max_iter is None and (needed or by_policy):
        of = f" of lr_policy {solver.lr_policy!r}" * by_policy
        problem = f"missing key 'max_iter'{of} (iterations in all)"
        why = f"solver: {problem}; --max-iter N, or Solver(..., max_iter=N), sets it"
        raise SpecError(f"{solver.mark}: {why}")


def unused(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Of a solver's keys those that its type or policy does not use, and why.

    >>> from minicaffe.core.config.tree import parse
    >>> unused(parse("{lr_policy: fixed, gamma: 0.1, momentum: 0.9}").value)
    {'gamma': "goes with lr_policy step, multistep, exp, inv, sigmoid or plateau, not with 'fixed'"}
    """
    reasons = {}
    for key, (by, kinds) in TAKEN_BY.items():
        chosen = nodes[by].value if by in nodes else getattr(SolverSpec, by)
        known = by != "type" or chosen in BUILT_IN  # a rule of one's own takes what it likes
        if key in nodes and nodes[key].value is not None and chosen not in kinds and known:
            words = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if kinds[1:] else kinds)
            reasons[key] = f"goes with {by} {words}, not with {chosen!r}"
    return reasons


def solver_of(node: Node) -> SolverSpec:
    """The solver that a tree declares. Raises SpecError."""
    keys = values(node, keys_of(SolverSpec), "solver")
    solver = SolverSpec(**keys, mark=node.mark, nodes=node.value)

    def wrong(key: str, why: str) -> SpecError:
        return SpecError(f"{node.value.get(key, node).mark}: solver: {why}")

    for key, why in unused(node.value).items():
        raise wrong(key, f"{key} {why}")
    for key, (by, kinds) in TAKEN_BY.items():
        chosen, missing = getattr(solver, by), getattr(solver, key) in (None, ())
        if chosen in kinds and key in NEEDED and (missing or key not in node.value):
            raise wrong(by, f"{by} {chosen!r} needs the key {key!r}")
    if solver.type in MEANS and "momentum" not in node.value:
        solver = replace(solver, momentum=MEANS[solver.type])
    if solver.test_iter is not None and not any(solver.test_iter):
        solver = replace(solver, test_iter=())
    for key, why in _problems(solver):
        raise wrong(key, why)
    return solver


def _problems(solver: SolverSpec) -> Iterator[tuple[str, str]]:
    """What is wrong with rates, with tests, and with what goes by the results of tests: a key, and why."""
    if solver.gamma is not None and solver.gamma < 0 and solver.lr_policy != "sigmoid":
        yield "gamma", f"gamma: expected at least 0, got {solver.gamma}"
    if solver.gamma is not None and solver.gamma >= 1 and solver.lr_policy == "plateau":
        yield "gamma", f"gamma: expected below 1 for lr_policy 'plateau', got {solver.gamma}"
    if list(solver.stepvalue) != sorted(set(solver.stepvalue)):
        yield "stepvalue", "stepvalue: expected rising iterations"
    if solver.min_lr > solver.base_lr:
        yield "min_lr", f"min_lr: expected at most base_lr, {solver.base_lr}, got {solver.min_lr}"
    if solver.warmup_start_lr and not solver.warmup_iter:
        yield "warmup_start_lr", "warmup_start_lr needs the key 'warmup_iter', above 0"
    if solver.clip_gradients <= 0 and solver.clip_gradients != -1:
        yield "clip_gradients", "clip_gradients: expected a number above 0, or -1 for none"
    tests, states, interval = solver.test_iter, len(solver.test_state), solver.test_interval
    if tests is None and states and interval is None:
        yield "test_state", "test_state needs the key 'test_interval'"
    if tests is not None and 0 in tests:
        yield "test_iter", f"test_iter: expected numbers above 0, got {list(tests)}"
    if tests and interval is None:
        yield "test_iter", "test_iter needs the key 'test_interval' (0: one test, at the end)"
    if interval and tests == ():
        why = "test_interval needs a test_iter above 0, or none: the whole test set"
        yield "test_interval", why
    if tests is not None and states and states != len(tests):
        yield "test_state", f"test_state: {states} states for {len(tests)} test_iter"
    falls, best = solver.lr_policy == "plateau", solver.best is not None
    if falls and solver.plateau is None and not best:
        yield "lr_policy", "lr_policy 'plateau' needs the key 'plateau' or 'best', a test output"
    names = {"lr_policy": f"lr_policy {solver.lr_policy!r}"}
    by_tests = {"lr_policy": falls, "early_stopping": solver.early_stopping is not None}
    for key in filter(by_tests.get, () if interval else by_tests):
        yield key, f"{names.get(key, key)} needs the key 'test_interval', above 0"
    if best and not solver.tests(1):
        yield "best", "best needs the key 'test_interval'"
    remembering = {"ema_decay": solver.ema_decay > 0, "best": best, **by_tests}
    for key in filter(remembering.get, () if solver.snapshot_format == "NPZ" else remembering):
        why = f"{solver.snapshot_format} has no place for what it remembers"
        yield key, f"{names.get(key, key)} needs snapshot_format NPZ: {why}"


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
    """A model file: a net, its solver if it trains, nets to test with; others are this one in TEST."""

    name: Annotated[str, "the net's name"] = ""
    force_backward: Annotated[bool, "compute every gradient, wanted or not"] = False
    state: Annotated[State, "what it is built for, unless whoever builds it says otherwise"] = ANY
    debug_info: Annotated[bool, "show the mean size of every blob, parameter and gradient"] = False
    dtype: Annotated[
        Literal["float32", "float64", "float16", "bfloat16"],
        "the type of blobs and weights; 16 bits on CUDA, with float32 masters of the weights",
    ] = "float32"
    precision: Annotated[
        Literal["high", "highest", "tf32"],
        "of float32: highest rounds least on the CPU; tf32 rounds factors to 10 bits, for CUDA's tensor cores",
    ] = "high"
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
