"""Whether tests improve, and what follows: the best is kept, the rate falls, training stops early."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec, SolverSpec, Watched
from minicaffe.core.net import Net
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.errors import SpecError, did_you_mean


class Trend:
    """The tests of one output, compared with the best of them.

    >>> trend = Trend("loss", "min", min_delta=0.1)
    >>> [trend.judge(i, {"loss": loss}) for i, loss in enumerate([2.0, 1.95, 1.5, math.nan])]
    [True, False, True, False]
    >>> trend.value, trend.at, trend.waited
    (1.5, 2, 1)
    """

    NOTHING = np.array([0.0, -1, -1, 0, 0])  # its numbers before any test

    def __init__(self, output: str, mode: str, min_delta: float = 0.0):
        self.output, self.mode, self.min_delta = output, mode, min_delta
        self.value: float  # of the best test, which was at iteration `at`; -1: none yet
        self.at: int
        self.tested: int  # the iteration of the last test
        self.waited: int  # tests since the best, or since the rate last fell
        self.fallen: int  # how often it fell
        self.restore(self.NOTHING)

    @property
    def key(self) -> str:
        """The name of its numbers in a snapshot, which contains the output and the mode."""
        return f"{self.mode}/{self.output}"

    def judge(self, iteration: int, scores: Mapping[str, Any]) -> bool:
        """Count a test; returns whether it is the best so far. A test that the resumed run has
        counted already does not count again."""
        score = float(np.mean(scores[self.output]))
        if iteration <= self.tested:
            return False
        ahead = score - self.value if self.mode == "max" else self.value - score
        better = math.isfinite(score) and (self.at < 0 or ahead > self.min_delta)
        if better:
            self.value, self.at = score, iteration
        self.tested, self.waited = iteration, 0 if better else self.waited + 1
        return better

    def __str__(self) -> str:
        best = f"than {self.value:.6g} (iteration {self.at})" if self.at >= 0 else "seen"
        return f"no better {self.output} {best} in {self.waited} test{(self.waited != 1) * 's'}"

    def state(self) -> np.ndarray:
        """Its numbers, for a snapshot."""
        numbers = self.value, self.at, self.tested, self.waited, self.fallen
        return np.array(numbers, np.float64)

    def restore(self, state: np.ndarray) -> None:
        """Restore the numbers of a snapshot."""
        self.value = float(state[0])
        self.at, self.tested, self.waited, self.fallen = (int(number) for number in state[1:])


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

        A lower learning rate is reported. `keep` writes the snapshot of the best test, and returns whether it
        could.
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
            before = best.value, best.at
            if best.judge(iteration, scores) and not keep():
                best.value, best.at = before  # the next test better than the file is tried
        patience = spec.early_stopping
        return best if best is not None and patience and best.waited >= patience else None


def trends(model: NetSpec, spec: SolverSpec, nets: Sequence[Net]) -> dict[str, Trend]:
    """The trends that a solver watches, by key: `best`, and `plateau` for that policy.

    Raises SpecError for an output that the test nets do not have, or for one of an unknown direction
    if the key does not say whether more is better.
    """
    by_key = {}
    wanted = {"best": spec.best}
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
                by_key[key] = Trend(watched.output, _mode(spec, nets, watched), watched.min_delta)
            except SpecError as error:
                raise SpecError(f"{place}solver: {said}: {error}") from None
    return by_key


def _mode(spec: SolverSpec, nets: Sequence[Net], watched: Watched) -> str:
    """Whether more or less of an output is better."""
    types: dict[str, str] = {}  # of the layer that each output of a test comes from
    for i, net in enumerate(nets):
        lead = f"{i}/" if len(nets) > 1 else ""
        writers = {value.name: step for step in net.graph.steps for value in step.tops}
        losses = {value.name for value in net.graph.losses if value.loss_weight > 0}
        for name in net.outputs:
            types[f"{lead}{name}"] = "Loss" if name in losses else writers[name].spec.type
        if spec.test_compute_loss:
            types[f"{lead}total loss"] = "Loss"
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
