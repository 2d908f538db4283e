"""The declaration of a solver, and what its keys ask of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from minicaffe.errors import SpecError
from minicaffe.spec import mapping
from minicaffe.spec.state import ANY, State
from minicaffe.spec.tree import Mark, Node
from minicaffe.spec.types import AtLeast, Below, keys_of, values

NOWHERE = Mark("<python>")


@dataclass(frozen=True, kw_only=True)
class SolverSpec:
    """How a net is trained (Caffe's SolverParameter)."""

    type: Annotated[
        Literal["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW"],
        "the update rule",
    ] = "SGD"
    base_lr: Annotated[float, "the learning rate at the start", AtLeast(0)]
    lr_policy: Annotated[
        Literal["fixed", "step", "multistep", "exp", "inv", "poly", "sigmoid"],
        "how the learning rate falls",
    ] = "fixed"
    gamma: Annotated[float | None, "step, multistep, exp, inv, sigmoid: the factor"] = None
    power: Annotated[float | None, "inv, poly: the exponent", AtLeast(0)] = None
    stepsize: Annotated[int | None, "step, sigmoid: iterations", AtLeast(1)] = None
    stepvalue: Annotated[
        tuple[int, ...], "multistep: iterations at which the rate falls", AtLeast(0)
    ] = ()
    max_iter: Annotated[int, "iterations in all", AtLeast(0)]
    iter_size: Annotated[int, "batches whose gradients make one update", AtLeast(1)] = 1
    momentum: Annotated[
        float,
        "share of the last update kept; AdaDelta, Adam, AdamW: of the running mean",
        AtLeast(0),
        Below(1),
    ] = 0.0
    momentum2: Annotated[
        float, "Adam, AdamW: share of the running mean of squares kept", AtLeast(0), Below(1)
    ] = 0.999
    rms_decay: Annotated[
        float, "RMSProp: share of the running mean of squares kept", AtLeast(0), Below(1)
    ] = 0.99
    delta: Annotated[
        float, "AdaGrad, RMSProp, AdaDelta, Adam, AdamW: keeps a division from 0", AtLeast(0)
    ] = 1e-8
    weight_decay: Annotated[float, "strength of the regularisation", AtLeast(0)] = 0.0
    regularization_type: Annotated[Literal["L2", "L1"], "what weight_decay penalises"] = "L2"
    clip_gradients: Annotated[float, "largest norm of the whole gradient; -1 for no limit"] = -1.0
    test_iter: Annotated[
        tuple[int, ...], "test batches in a test, one number a test net", AtLeast(0)
    ] = ()
    test_interval: Annotated[
        int | None, "iterations between tests; 0 for one test, at the end", AtLeast(0)
    ] = None
    test_initialization: Annotated[bool, "test before the first iteration"] = True
    test_compute_loss: Annotated[bool, "show the loss of a test beside its outputs"] = False
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


MEANS = ("AdaDelta", "Adam", "AdamW")
NEEDED = ("momentum", "gamma", "power", "stepsize", "stepvalue")  # by those that take them
TAKEN_BY = {  # the types and policies that a key is of; all other keys are of every one
    "momentum": ("type", ("SGD", "Nesterov", *MEANS)),
    "momentum2": ("type", ("Adam", "AdamW")),
    "rms_decay": ("type", ("RMSProp",)),
    "delta": ("type", ("AdaGrad", "RMSProp", *MEANS)),
    "gamma": ("lr_policy", ("step", "multistep", "exp", "inv", "sigmoid")),
    "power": ("lr_policy", ("inv", "poly")),
    "stepsize": ("lr_policy", ("step", "sigmoid")),
    "stepvalue": ("lr_policy", ("multistep",)),
}


def with_settings(solver: SolverSpec, settings: Mapping[str, Any]) -> SolverSpec:
    """A solver with some keys replaced, checked as in a model file. Raises SpecError."""
    own = {key: _plain(getattr(solver, key)) for key in keys_of(SolverSpec)}
    try:
        root = mapping.tree(own | dict(settings), "Solver")
        idle = unused(root.value).keys() - settings.keys()
        kept = {key: node for key, node in root.value.items() if key not in idle}
        return solver_of(Node(kept, root.mark, root.keys))
    except SpecError as error:
        _, _, told = str(error).partition(": ")  # without the place: the key is told as well
        raise SpecError(told) from None


def _plain(value: Any) -> Any:
    """A value of a declaration as a model file holds it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return asdict(value) if isinstance(value, State) else value


def unused(given: Mapping[str, Node]) -> dict[str, str]:
    """Of a solver's keys those that its type or policy does not use, and why.

    >>> from minicaffe.spec.tree import parse
    >>> unused(parse("{lr_policy: fixed, gamma: 0.1, momentum: 0.9}").value)
    {'gamma': "goes with lr_policy step, multistep, exp, inv or sigmoid, not with 'fixed'"}
    """
    found = {}
    for key, (by, kinds) in TAKEN_BY.items():
        chosen = given[by].value if by in given else getattr(SolverSpec, by)
        if key in given and given[key].value is not None and chosen not in kinds:
            words = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if kinds[1:] else kinds)
            found[key] = f"goes with {by} {words}, not with {chosen!r}"
    return found


def solver_of(node: Node) -> SolverSpec:
    """The solver that a tree declares. Raises SpecError."""
    given = values(node, keys_of(SolverSpec), "solver")
    solver = SolverSpec(**given, mark=node.mark, nodes=node.value)

    def wrong(key: str, why: str) -> SpecError:
        return SpecError(
            f"{node.value[key].mark if key in node.value else node.mark}: solver: {why}"
        )

    for key, why in unused(node.value).items():
        raise wrong(key, f"{key} {why}")
    for key, (by, kinds) in TAKEN_BY.items():
        chosen, needed = getattr(solver, by), by == "lr_policy" or getattr(solver, by) in MEANS
        missing = key not in node.value or getattr(solver, key) in (None, ())
        if chosen in kinds and needed and key in NEEDED and missing:
            raise wrong(by, f"{by} {chosen!r} needs the key {key!r}")
    if solver.gamma is not None and solver.gamma < 0 and solver.lr_policy != "sigmoid":
        raise wrong("gamma", f"gamma: expected at least 0, got {solver.gamma}")
    if list(solver.stepvalue) != sorted(set(solver.stepvalue)):
        raise wrong("stepvalue", "stepvalue: expected rising iterations")
    if solver.clip_gradients <= 0 and solver.clip_gradients != -1:
        raise wrong("clip_gradients", "clip_gradients: expected a number above 0, or -1 for none")
    tests = solver.test_iter if any(solver.test_iter) else ()
    if 0 in tests:
        raise wrong("test_iter", f"test_iter: expected numbers above 0, got {list(tests)}")
    if tests and solver.test_interval is None:
        raise wrong(
            "test_iter", "test_iter needs the key 'test_interval' (0: one test, at the end)"
        )
    if solver.test_interval and not tests:
        raise wrong("test_interval", "test_interval needs the key 'test_iter', above 0")
    if solver.test_state and len(solver.test_state) != len(tests):
        count = len(solver.test_state)
        raise wrong("test_state", f"test_state: {count} states for {len(tests)} test_iter")
    return replace(solver, test_iter=tests)
