"""Resuming from a snapshot with a changed model: what may differ, and what may not."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minicaffe.core.config.declare import LayerSpec, NetSpec, ParamSpec, SolverSpec, State
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.context import Order
from minicaffe.core.net import Net, model
from minicaffe.core.plugins import STATES, format_of
from minicaffe.errors import CheckpointError, SpecError
from minicaffe.storage.checkpoint import Reader

WANTED = "a solver's state in .npz and .solverstate"
SILENT = ("device", "weights", "snapshot_prefix", "random_seed")  # keys that change nothing learnt
HISTORY = {"Nesterov": "SGD", "AdamW": "Adam"}  # types with the same history as another
RATE = (
    *("base_lr", "lr_policy", "gamma", "power", "stepsize", "stepvalue", "min_lr"),
    *("patience", "plateau", "max_iter", "warmup_iter", "warmup_start_lr"),
)


class Change(NamedTuple):
    """One difference: the key, as in the command line's --set, and its value then and now."""

    key: str
    then: Any
    now: Any
    taken: bool = True

    def __str__(self) -> str:
        return f"{self.key}: {_said(self.then)} -> {_said(self.now)}"


def changes(file: str | Path, net: Net, solver: SolverSpec) -> list[Change]:
    """The allowed differences between a snapshot's model and a solver's.

    The net's layers of the phase TRAIN, the solver's type unless the history is the same, float64 and
    the seed must be equal; what data layers read, the multipliers of parameters, all tests and all other
    keys of the solver may differ. Raises CheckpointError that lists all other differences in one line. For a
    snapshot without its model's text, such as Caffe's, or with an invalid one, nothing is compared.
    """
    if format_of(STATES, file) is not None:
        return []
    with Reader(file, WANTED) as reader:
        if model.MODEL not in reader.shapes:
            return []
        text = model.text_among(reader, reader.shapes, file)
        stored = reader["@losses"].dtype if "@losses" in reader.shapes else None
        seed = reader["@seed"] if reader.shapes.get("@seed") == () else None
    try:
        then = model.parse(text, f"{file}: {model.MODEL}")
    except SpecError as error:  # for example of another version; the arrays are checked elsewhere
        return [Change(model.MODEL, str(error), None)]
    now = model.parse(model.text(dataclasses.replace(net.spec, solver=solver), "."), "the model")
    differences = [*_solver(then, now), *_net(then, now)]
    dtype = net.context.sum_dtype
    if stored is not None and stored != dtype:
        differences.append(Change("dtype", stored.name, dtype.name, False))
    named = net.spec.solver is not None and "random_seed" in net.spec.solver.nodes
    if named and seed is not None and seed.dtype.kind in "iu" and seed != solver.random_seed:
        differences.append(Change("solver.random_seed", int(seed), solver.random_seed, False))
    if refused := [str(change) for change in differences if not change.taken]:
        raise CheckpointError(
            f"{file}: cannot be gone on from, for it is of another run: {'; '.join(refused)}; "
            "to begin anew with its weights: --weights"
        )
    return differences


def lines(changed: Sequence[Change], net: Net, iteration: int, rate: float) -> Iterator[str]:
    """A line for each accepted change, in a run that resumes at an iteration and a rate."""
    for change in changed:
        _, layer, key = [*change.key.split("."), "", ""][:3]
        if change.key == model.MODEL:
            yield f"what changed since the snapshot is not known, for its model cannot be read: {change.then}"
            continue
        text = f"changed on resume: {change}"
        if change.key == "solver.iter_size" or key == "batch_size":
            text += f"; the data goes on where {iteration} iterations of so many would be"
            order = getattr(net.layers.get(layer), "order", None)
            sizes = change.then, change.now
            if isinstance(order, Order) and all(isinstance(size, int) for size in sizes):
                passes = iteration * (net.spec.solver.iter_size if net.spec.solver else 1)
                then, now = (passes * size / len(order.order) for size in sizes)
                text += f": epoch {now:.2f}, which was {then:.2f}"
        yield text
    if any(change.key.split(".")[:2] == ["solver", key] for change in changed for key in RATE):
        yield f"lr is {rate:.6g} at iteration {iteration}"


def _solver(then: NetSpec, now: NetSpec) -> Iterator[Change]:
    a, b = then.solver, now.solver
    if a is None or b is None:
        return
    for key in keys_of(SolverSpec):
        for change in _pairs(f"solver.{key}", getattr(a, key), getattr(b, key)):
            same = key != "type" or HISTORY.get(a.type, a.type) == HISTORY.get(b.type, b.type)
            if key not in SILENT:
                yield change._replace(taken=same and key != "train_state")


def _net(then: NetSpec, now: NetSpec) -> Iterator[Change]:
    """The differences of the training net, and whether the test nets differ."""
    (one, tests_then), (other, tests_now) = (_parts(spec) for spec in (then, now))
    for name in [*one, *(name for name in other if name not in one)]:
        if name in one and name in other:
            yield from _layer(one[name], other[name])
        else:
            gone, new = one.get(name), other.get(name)
            yield Change(f"layers.{name}", gone and gone.type, new and new.type, False)
    if list(one) != list(other) and set(one) == set(other):
        yield Change("the order of the layers", ", ".join(one), ", ".join(other), False)
    if tests_then != tests_now:
        yield Change("what is tested", "the snapshot's", "the model's")


def _parts(spec: NetSpec) -> tuple[dict[str, LayerSpec], Any]:
    """The layers of the training net by name; and those only for tests, in a form to compare."""
    state = State(phase="TRAIN").over(spec.solver.train_state if spec.solver else State())
    learning = {layer.name: layer for layer in spec.layers if layer.included(state)}
    tests = [layer for layer in spec.layers if not layer.included(state)]
    nets = [[_facts(layer) for layer in net.layers] for net in spec.test_nets]
    return learning, ([_facts(layer) for layer in tests], nets)


def _layer(then: LayerSpec, now: LayerSpec) -> Iterator[Change]:
    """How two layers of one name differ. Fillers are ignored."""
    if then.type != now.type:
        yield Change(f"layers.{then.name}.type", then.type, now.type, False)
        return
    reads_nothing = bottom_counts(REGISTRY[then.type])[1] == 0
    a, b = _facts(then), _facts(now)
    count = max(len(then.param), len(now.param))
    for facts in (a, b):
        facts["param"] += (ParamSpec(),) * (count - len(facts["param"]))
    for key in [*a, *(key for key in b if key not in a)]:
        if key not in ("include", "exclude") and not key.endswith("filler"):
            own = key not in keys_of(LayerSpec)
            for change in _pairs(f"layers.{then.name}.{key}", a.get(key), b.get(key)):
                free = (reads_nothing and own) or change.key.endswith(("lr_mult", "decay_mult"))
                yield change._replace(taken=free or (own and key == "engine"))


def _facts(layer: LayerSpec) -> dict[str, Any]:
    common = {key: getattr(layer, key) for key in keys_of(LayerSpec)}
    kind: Any = REGISTRY[layer.type]
    own = {key.name: key.default for key in keys_of(kind).values()}
    return {**common, "top": layer.tops, **own, **layer.options}


def _pairs(key: str, then: Any, now: Any) -> Iterator[Change]:
    """The differences of two values; of mappings, and lists of them, by their keys."""
    if then == now:
        return
    if dataclasses.is_dataclass(then) and type(then) is type(now):
        for name in keys_of(type(then)):  # type: ignore[arg-type]
            yield from _pairs(f"{key}.{name}", getattr(then, name), getattr(now, name))
    elif _are_mappings(then) and _are_mappings(now) and len(then) == len(now):
        for i, pair in enumerate(zip(then, now, strict=True)):
            yield from _pairs(f"{key}[{i}]", *pair)
    else:
        yield Change(key, then, now)


def _are_mappings(value: Any) -> bool:
    return isinstance(value, tuple) and all(dataclasses.is_dataclass(item) for item in value)


def _said(value: Any) -> str:
    """A value as it is written in a model file."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_said, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
