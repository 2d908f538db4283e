"""Reactions to the result of a test: keep the best, lower the learning rate, stop early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.core.solver.trend import Trend


class Judge:
    """Reacts to tests by the trends of watched outputs, which are saved in snapshots (see `trend.trends`)."""

    def __init__(self, trends: dict[str, Trend]):
        self.trends = trends

    def rate(self, spec: SolverSpec, iteration: int) -> float:
        """The learning rate of an iteration."""
        plateau = self.trends.get("plateau")
        return learning_rate(spec, iteration, plateau.fallen if plateau else 0)

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
            self._lower(plateau, spec, iteration, report)
        if best is not None:
            before = best.value, best.at
            if best.judge(iteration, scores) and not keep():
                best.value, best.at = before  # the next test better than the file is tried
        patience = spec.early_stopping
        return best if best is not None and patience and best.waited >= patience else None

    def _lower(
        self, plateau: Trend, spec: SolverSpec, iteration: int, report: Callable[[str], None]
    ) -> None:
        """Lower the rate if `patience` tests were no better; tests during the warm-up do not count."""
        if iteration < spec.warmup_iter:
            plateau.waited = 0
        if plateau.waited < (spec.patience or 1):
            return
        before, reason = self.rate(spec, iteration), str(plateau)
        plateau.waited = 0
        if before > spec.min_lr:
            plateau.fallen += 1
            report(f"iteration {iteration}: lr falls to {self.rate(spec, iteration):.6g}: {reason}")
