"""What the result of a test leads to: the best kept, the rate lowered, training ended early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minicaffe.solver.policies import learning_rate
from minicaffe.solver.trend import Trend
from minicaffe.spec.solver import SolverSpec


class Judge:
    """Goes by tests: by the trends of what is watched, whose numbers are in snapshots (see `trend.trends`)."""

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
        """Go by a test just made; what has waited too long for a better one, if that ends training early.

        That the rate falls is reported. `keep` writes the snapshot of the best test, and returns whether it
        could.
        """
        plateau, best = (self.trends.get(name) for name in ("plateau", "best"))
        if plateau is not None:
            plateau.judge(iteration, scores)
            self._lower(plateau, spec, iteration, report)
        if best is not None:
            before = best.value, best.at
            if best.judge(iteration, scores) and not keep():
                best.value, best.at = before  # the next that is better than the file is tried
        patience = spec.early_stopping
        return best if best is not None and patience and best.waited >= patience else None

    def _lower(
        self, plateau: Trend, spec: SolverSpec, iteration: int, report: Callable[[str], None]
    ) -> None:
        """Let the rate fall if so many tests were no better; they do not count during the warm-up."""
        if iteration < spec.warmup_iter:
            plateau.waited = 0
        if plateau.waited < (spec.patience or 1):
            return
        before, reason = self.rate(spec, iteration), str(plateau)
        plateau.waited = 0
        if before > spec.min_lr:
            plateau.fallen += 1
            report(f"iteration {iteration}: lr falls to {self.rate(spec, iteration):.6g}: {reason}")
