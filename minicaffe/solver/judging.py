"""What the result of a test leads to: the best kept, the rate lowered, training ended early."""

from __future__ import annotations

from typing import Any

from minicaffe.errors import CheckpointError
from minicaffe.solver.policies import learning_rate
from minicaffe.solver.saving import Saving
from minicaffe.solver.trend import Trend


class Judging(Saving):
    """The part of a Solver that goes by its tests."""

    scores: dict[str, Any]
    ended: str | None = None  # why training ended early, if it did

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration."""
        plateau = self._trends.get("plateau")
        return learning_rate(self.spec, self.iteration, plateau.fallen if plateau else 0)

    def _test_due(self) -> bool:
        """Whether a test comes before the next iteration."""
        due = self.spec.test_interval and self.iteration % self.spec.test_interval == 0
        return bool(due and (self.iteration or self.spec.test_initialization))

    def _judge(self) -> bool:
        """Go by the test just made; whether training is to end early, for the reason in `ended`."""
        plateau, best = (self._trends.get(name) for name in ("plateau", "best"))
        if plateau is not None:
            plateau.judge(self.iteration, self.scores)
            self._lower(plateau)
        if best is not None:
            before = best.value, best.at
            if best.judge(self.iteration, self.scores) and not self._keep():
                best.value, best.at = before  # the next that is better than the file is tried
        patience, self.ended = self.spec.early_stopping, None
        on_the_way = self.iteration < self._end
        if best is not None and patience and best.waited >= patience and on_the_way:
            self.ended = str(best)
            self.report.event(f"stopped early at iteration {self.iteration}: {best}")
        return self.ended is not None

    def _lower(self, plateau: Trend) -> None:
        """Let the rate fall if so many tests were no better; they do not count during the warm-up."""
        spec = self.spec
        if self.iteration < spec.warmup_iter:
            plateau.waited = 0
        if plateau.waited < (spec.patience or 1):
            return
        before, told = self.rate, str(plateau)
        plateau.waited = 0
        if before > spec.min_lr:
            plateau.fallen += 1
            self.report.event(f"iteration {self.iteration}: lr falls to {self.rate:.6g}: {told}")

    def _keep(self) -> bool:
        """Write the snapshot of the best test; whether it could be."""
        try:
            self._best_snapshot()
        except CheckpointError as error:
            self.report.failed(f"no best snapshot of iteration {self.iteration}: {error}")
            return False
        return True
