"""Tests: the means of a net's outputs; and what follows for the best snapshot, the rate and the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from minicaffe.core.communicator import ALONE, Communicator, together
from minicaffe.core.config.declare import NetSpec, SolverSpec, Watched
from minicaffe.core.interrupt import deliver
from minicaffe.core.layers.softmax import Accuracy
from minicaffe.core.net import Net, sources
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.errors import ShapeError, SpecError, did_you_mean

Losses = Sequence[tuple[str, float]]  # outputs of a test, and their weights in its loss
UNTESTED = 0, -1, -1, 0, 0  # the numbers of a Trend before any test
ROUNDING = 2e-7  # between equal means of float32, if those of batches are not


def test_nets(
    model: NetSpec, solver: SolverSpec, keep: Sequence[str] | None, **settings: Any
) -> list[Net]:
    """The test nets of a solver: the model's `test_nets`, then the model itself in the phase TEST.

    `solver.tests` sets their number, test_state the level and stages of each. Each keeps those of the
    blobs `keep` that its model has. Unless they `replay`, each pass is computed layer by layer.
    """
    nets, replay = [], settings.pop("replay", True)
    for i in range(len(solver.tests(len(model.test_nets)))):
        state = solver.test_state[i] if solver.test_state else None
        more: dict[str, Any] = {"level": state.level, "stages": state.stage} if state else {}
        spec = model.test_nets[i] if i < len(model.test_nets) else model
        names = {name for layer in spec.layers for name in layer.tops}
        settings["keep"] = None if keep is None else [name for name in keep if name in names]
        nets.append(Net(spec, "TEST", **settings, **more))
        if not replay:
            nets[-1].passes.never = "graphs are switched off"
    return nets


def score_suffixes(nets: Sequence[Net], learning: Net | None = None) -> tuple[str, ...]:
    """The suffix of each test net's score names: " on the training pictures", or ""."""
    suffixes = []
    train = () if learning is None else learning.layers.values()
    for net in nets:
        shared = [sources.trained_on(layer, train) for layer in net.layers.values()]
        units = dict.fromkeys(filter(None, shared))
        suffixes.append(f" on the training {' and '.join(units)}" if units else "")
    return tuple(suffixes)


def test_scores(
    nets: Sequence[Net], batches: Sequence[int | None], with_loss: bool, communicator: Communicator
) -> dict[str, Any]:
    """Each net's mean outputs, of several as `0/accuracy`; `with_loss`, losses' weighted sum, `total loss`."""
    scores: dict[str, Any] = {}
    for i, (net, count) in enumerate(zip(nets, batches, strict=True)):
        means = mean_outputs(net, count, with_loss, communicator)
        if not all(np.all(np.isfinite(score)) for score in means.values()):
            together(communicator, net.check)
        lead = f"{i}/" if len(nets) > 1 else ""
        scores |= {f"{lead}{name}": score for name, score in means.items()}
    return scores


def mean_outputs(
    net: Net,
    batches: int | None = None,
    with_loss: bool = False,
    communicator: Communicator = ALONE,
) -> dict[str, Any]:
    """The mean of each output of a net over a number of batches, from the start of its data.

    Without `batches` it is over the whole data set, each entry once: the last batch is smaller, and counts by
    its size; outputs with a row per entry are averaged over rows. Each of several ranks computes a range
    of the batches; all return the same means. Raises ShapeError for a net that does
    not accept the smaller batch. Outputs that are `gathered` are joined: their layer's `score` counts.
    """
    whole = WholeSet.of(net) if batches is None else WholeSet(batches)
    if not whole.count:
        raise SpecError("expected at least 1 batch to take the mean of")
    rank, size = communicator.rank, communicator.size
    mine = range(whole.batches * rank // size, whole.batches * (rank + 1) // size)

    joined: dict[str, list[np.ndarray]] = {}

    def sums() -> dict[str, np.ndarray]:
        last = {}
        if whole.rest and rank == size - 1:
            with whole.smaller(net):
                last = _sums(net, range(whole.batches, whole.batches + 1), with_loss, joined, whole)
        full = _sums(net, mine, with_loss, joined, whole)
        return _added([(full, whole.samples), (last, whole.rest)])

    parts = communicator.allgather_obj((together(communicator, sums), joined))
    total = _added([(own, 1) for own, _ in parts])
    means = {name: value / whole.count for name, value in total.items()}
    scores = {name: float(mean) if mean.ndim == 0 else mean for name, mean in means.items()}
    for name in dict.fromkeys(name for _, rows in parts for name in rows):
        every = np.concatenate([row for _, rows in parts for row in rows.get(name, [])])
        by_suffix = net.graph.outputs[name].producer.score(every)
        scores |= {f"{name}{more}": score for more, score in by_suffix.items()}
    return scores


@dataclass(frozen=True)
class WholeSet:
    """A test's full batches, each counting as `samples`, and `rest` more; outputs `rows` have one a sample."""

    batches: int
    samples: int = 1
    rest: int = 0
    rows: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        """The sum of all these counts."""
        return self.batches * self.samples + self.rest

    @classmethod
    def of(cls, net: Net) -> WholeSet:
        """A net's longest data set, or one batch without any; entries drawn at random fill whole batches."""
        layers: list[Any] = list(net.layers.values())
        sets = [layer for layer in layers if getattr(layer, "dataset", None) is not None]
        if not sets:
            return cls(max(*(getattr(layer, "held_batches", 0) for layer in layers), 0) or 1)
        longest = max(sets, key=lambda layer: math.ceil(len(layer.dataset) / layer.batch_size))
        batches, rest = divmod(len(longest.dataset), longest.batch_size)
        if not hasattr(longest, "order"):
            return cls(batches + bool(rest))
        rows = {
            name
            for name, value in net.graph.outputs.items()
            if value.shape[:1] == (longest.batch_size,)
            and not (value.producer.traits.is_loss or isinstance(value.producer, Accuracy))
        }
        return cls(batches, longest.batch_size, rest, frozenset(rows))

    @contextmanager
    def smaller(self, net: Net) -> Iterator[None]:
        """A context in which the net's batch is the rest, the last entries of its data."""
        sources = [step for step in net.steps if getattr(step.layer, "dataset", None) is not None]
        before = {step.tops[0].name: step.tops[0].shape for step in sources}
        try:
            if len({shape[0] for shape in before.values()}) > 1:
                raise ShapeError("its data layers have several batch sizes")
            net.reshape(**{name: (self.rest, *shape[1:]) for name, shape in before.items()})
        except ShapeError as error:
            raise ShapeError(
                f"{error}; a test of all {self.count} entries ends with a batch of {self.rest}, which this "
                f"net does not take: give test_iter (--batches), or a batch_size that divides {self.count}"
            ) from None
        try:
            for step in sources:
                if order := getattr(step.layer, "order", None):
                    order.begin = self.batches * (self.samples - self.rest)
            yield
        finally:
            net.reshape(**before)


def _sums(
    net: Net, batches: range, with_loss: bool, joined: dict[str, list[np.ndarray]], whole: WholeSet
) -> dict[str, np.ndarray]:
    """The sums of a net's outputs, for rows of their mean, over some batches; `joined` gets gathered rows."""
    xp, sums = net.device.xp, {}
    net.context.passes = batches.start
    with net.device.current():
        loss = xp.empty((), net.context.sum_dtype)
        for _ in batches:
            deliver()
            outputs = net.forward()
            if with_loss:
                outputs["total loss"] = net.loss_into(loss)
            for name, value in outputs.items():
                output = net.graph.outputs.get(name)
                if output is not None and output.producer.traits.gathered:
                    table = net.device.to_host(value).reshape(-1, value.shape[-1])
                    joined.setdefault(name, []).append(table.copy())
                    continue
                if name in whole.rows:
                    value = value.mean(axis=0, dtype=np.float64)
                if name not in sums:
                    sums[name] = xp.zeros(value.shape, np.float64)
                _check_shapes(name, sums[name], value)
                xp.add(sums[name], value, out=sums[name])
    for layer in net.layers.values():
        if report := getattr(layer, "tell_damage", None):
            report()
    return {name: net.device.to_host(total) for name, total in sums.items()}


def _added(parts: Sequence[tuple[dict[str, np.ndarray], int]]) -> dict[str, np.ndarray]:
    total: dict[str, np.ndarray] = {}
    for sums, weight in parts:
        for name, value in sums.items():
            _check_shapes(name, total.get(name, value), value)
            total[name] = total.get(name, 0) + value * weight
    return total


def _check_shapes(name: str, one: Any, other: Any) -> None:
    if one.shape != other.shape:
        raise ShapeError(
            f"output {name!r} has shape {one.shape} of one batch, {other.shape} of another: there is no mean "
            "of it"
        )


@dataclass
class Trend:
    """The tests of one output, compared with the best of them.

    Of equal ones the best is that of the lower loss, the sum of `losses`, and of equal losses the last, which
    is no improvement that `waited` counts from; without losses the first.

    >>> trend = Trend("loss", "min", min_delta=0.1)
    >>> [trend.judge(i, {"loss": loss}) for i, loss in enumerate([2.0, 1.95, 1.5, math.nan])]
    [True, False, True, False]
    >>> trend.value, trend.at, trend.waited
    (1.5, 2, 1)
    """

    output: str
    mode: str
    min_delta: float = 0.0
    losses: Losses = ()
    value: float = 0.0  # of the best test, which was at iteration `at`; -1: none yet
    at: int = -1
    tested: int = -1  # the iteration of the last test
    waited: int = 0  # tests since the best, or since the rate last fell
    fallen: int = 0  # how often it fell
    loss: float = math.inf  # of the best test

    @property
    def key(self) -> str:
        """The name of its numbers in a snapshot, which contains the output and the mode."""
        return f"{self.mode}/{self.output}"

    def judge(self, iteration: int, scores: Mapping[str, Any]) -> bool:
        """Count a test, unless the resumed run has; returns whether it is the best so far."""
        score = float(np.mean(scores[self.output]))
        if iteration <= self.tested:
            return False
        ahead = score - self.value if self.mode == "max" else self.value - score
        loss = sum(float(np.sum(scores[name])) * weight for name, weight in self.losses)
        close = math.isclose(score, self.value, rel_tol=ROUNDING)
        equal = self.at >= 0 and close and bool(self.losses)
        better = math.isfinite(score) and not equal and (self.at < 0 or ahead > self.min_delta)
        best = better or (equal and loss <= self.loss)
        if best:
            self.value, self.at, self.loss = score, iteration, loss
        self.tested, self.waited = iteration, 0 if better else self.waited + 1
        return best

    def __str__(self) -> str:
        best = f"than {self.value:.6g} (iteration {self.at})" if self.at >= 0 else "seen"
        return f"no better {self.output} {best} in {self.waited} test{(self.waited != 1) * 's'}"

    def state(self) -> np.ndarray:
        """Its numbers, for a snapshot."""
        return np.array(astuple(self)[4:], np.float64)

    def restore(self, state: Any) -> None:
        """Restore the numbers of a snapshot; older ones have no loss."""
        self.value, *counts, self.loss = map(float, [*state, math.inf][:6])
        self.at, self.tested, self.waited, self.fallen = map(int, counts)


class Judge:
    """Reacts to tests by the trends of watched outputs, which are saved in snapshots (see `trends`)."""

    def __init__(self, trends: dict[str, Trend]):
        self.trends = trends

    def judge(
        self,
        spec: SolverSpec,
        iteration: int,
        scores: Mapping[str, Any],
        report: Callable[[str], None],
        keep: Callable[[], bool],
    ) -> Trend | None:
        """React to a test; returns the trend that ends training early because it did not improve, or None.

        A lower rate is reported. `keep` writes the best test's snapshot, and returns if it could.
        """
        plateau, best = (self.trends.get(name) for name in ("plateau", "best"))
        if plateau is not None:
            plateau.judge(iteration, scores)
            if iteration < spec.warmup_iter:  # such tests do not count
                plateau.waited = 0
            if plateau.waited >= (spec.patience or 1):
                rate, reason = learning_rate(spec, iteration, plateau.fallen), str(plateau)
                plateau.waited = 0
                if rate > spec.min_lr:
                    plateau.fallen += 1
                    rate = learning_rate(spec, iteration, plateau.fallen)
                    report(f"iteration {iteration}: lr falls to {rate:.6g}: {reason}")
        if best is not None:
            before = best.value, best.at, best.loss
            if best.judge(iteration, scores) and not keep():
                best.value, best.at, best.loss = before  # the next better than the file is tried
        patience = spec.early_stopping
        return best if best is not None and patience and best.waited >= patience else None


def trends(model: NetSpec, spec: SolverSpec, nets: Sequence[Net]) -> dict[str, Trend]:
    """The trends that a solver watches, by key: `best`, and `plateau` for that policy.

    `early_stopping` alone goes by the last accuracy, or else by the first loss. Raises SpecError for an output
    that no test net has, or for one of which it is not known if more is better.
    """
    by_key = {}
    wanted = {"best": spec.best}
    types = _types(spec, nets)
    if spec.early_stopping and spec.best is None:
        known = [name for name in types if types[name].endswith("Accuracy")]
        known = sorted(known, key=lambda name: "accuracy" in name)[-1:]
        known += [name for name in types if types[name].endswith("Loss")]
        wanted["best"] = Watched(output=known[0]) if known else None
    if spec.lr_policy == "plateau":
        wanted["plateau"] = spec.plateau or spec.best
    for key, watched in wanted.items():
        if watched is not None:
            said = key if getattr(spec, key) is not None else "best"
            node = model.solver.nodes.get(said) if model.solver is not None else None
            if node is not None and isinstance(node.value, dict):
                node = node.value["output"]
            place = f"{node.mark}: " if node is not None else ""
            try:
                mode = _mode(types, watched)
                losses = _losses(nets, watched.output) if key == "best" else ()
                by_key[key] = Trend(watched.output, mode, watched.min_delta, losses)
            except SpecError as error:
                raise SpecError(f"{place}solver: {said}: {error}") from None
    return by_key


def _losses(nets: Sequence[Net], output: str) -> Losses:
    """Returns the losses of the test net that an output is of."""
    lead = output[: output.index("/") + 1] if len(nets) > 1 else ""
    values = nets[int(lead[:-1] or 0)].graph.outputs.values()
    return [(f"{lead}{value.name}", value.loss_weight) for value in values if value.loss_weight]


def _types(spec: SolverSpec, nets: Sequence[Net]) -> dict[str, str]:
    """Returns the type of the layer that each output of a test comes from; "Loss" of each loss."""
    types: dict[str, str] = {}
    for i, net in enumerate(nets):
        lead = f"{i}/" if len(nets) > 1 else ""
        for name, value in net.graph.outputs.items():
            kind = "Loss" if value.loss_weight > 0 else type(value.producer).__name__
            types[f"{lead}{name}"] = kind
        if spec.test_compute_loss:
            types[f"{lead}total loss"] = "Loss"
    return types


def _mode(types: Mapping[str, str], watched: Watched) -> str:
    """Returns whether more ("max") or less of an output is better. Raises SpecError if that is not known."""
    name = watched.output
    if name not in types:
        hint = did_you_mean(name, types)
        raise SpecError(f"no test has an output {name!r} ({', '.join(types) or 'none'}){hint}")
    if watched.mode is not None:
        return watched.mode
    if types[name].endswith("Loss"):
        return "min"
    if types[name].endswith(("Accuracy", "Evaluate")):
        return "max"
    choice = f"{{output: {name}, mode: max}}, or min"
    raise SpecError(
        f"whether more of {name!r}, the output of a layer {types[name]}, is better must be said: {choice}"
    )
