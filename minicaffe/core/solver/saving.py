"""The snapshots that a solver leaves on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.communicator import together
from minicaffe.core.interrupt import Held
from minicaffe.core.plugins import hooks
from minicaffe.core.solver import changes, snapshots
from minicaffe.core.solver.trend import Trend
from minicaffe.errors import CheckpointError, DataError


class Saving:
    """The prefix of a solver's snapshots, the last one, and the error if that could not be written.

    `saved` is the iteration of the last one, written or restored; `restored` the file that training resumed
    from. It does not hold the solver, which can be freed.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.restored: Path | None = None
        self.saved: int | None = None
        self.unsaved: tuple[int, CheckpointError] | None = None

    def check(self, solver: Any) -> None:
        """Raise CheckpointError if nothing can be written, or nothing is left to train."""
        self.check_left(solver)
        arguments = self.prefix, solver.spec.snapshot_format, solver.net.layers
        _one_writes(solver, lambda: snapshots.check(*arguments))

    def check_folder(self, solver: Any) -> None:
        """Raise CheckpointError if the folder that snapshots need is missing, when a solver is made."""
        spec, ranks = solver.spec, solver.communicator
        needed = spec.snapshot and spec.snapshot_prefix and not solver._folder_comes
        writes = needed and ranks.rank == 0
        together(ranks, lambda: snapshots.check_folder(self.prefix) if writes else None)

    def check_left(self, solver: Any) -> None:
        """Raise CheckpointError if the resumed snapshot is beyond max_iter."""
        if solver.iteration > solver._end:
            raise CheckpointError(
                f"nothing to train: the snapshot is at iteration {solver.iteration}, "
                f"max_iter is {solver.spec.max_iter}; raise it (--max-iter)"
            ).on_all()

    def save(self, solver: Any) -> Path:
        """Write a snapshot, and remove old ones beyond `snapshot_keep`. Raises CheckpointError."""
        path = self._path(solver)
        _one_writes(solver, lambda: write(solver, path))
        self.saved, self.unsaved = solver.iteration, None
        solver.report.saved(str(path))
        self._drop_older(solver)
        return path

    def try_to_save(self, solver: Any) -> None:
        """Write a snapshot; a failure is reported, and `unsaved` holds the error."""
        try:
            solver.snapshot()
        except CheckpointError as error:
            self.unsaved = solver.iteration, error
            goes_on = solver.iteration < solver._end and not solver.stopped
            then = "; training goes on, and the next one is tried" if goes_on else ""
            solver.report.failed(f"no snapshot of iteration {solver.iteration}: {error}{then}")

    def saved_before(self, solver: Any, error: DataError) -> DataError:
        """The error to raise where data can no longer be read; it says so if that left a snapshot."""
        self.try_to_save(solver)
        if self.saved != solver.iteration:
            return error
        stopped = DataError(f"{error}; stopped at iteration {solver.iteration}, with a snapshot")
        stopped.everywhere = error.everywhere
        return stopped

    def save_last(self, solver: Any) -> None:
        """At the end: write the last state, if that is wanted and was neither done nor tried."""
        wanted = solver.spec.snapshot_after_train or solver.stopped or self.unsaved is not None
        if wanted and solver.iteration not in (self.saved, *(self.unsaved or ())):
            self.try_to_save(solver)
        elif solver.iteration == self.saved and self._path(solver).exists():
            self._drop_older(solver)  # its writer may have been killed before this

    def save_best(self, solver: Any) -> bool:
        """Write PREFIX_best.npz, as `save` does; returns whether it was written."""
        path = snapshots.best_path(self.prefix)
        try:
            _one_writes(solver, lambda: write(solver, path))
        except CheckpointError as error:
            solver.report.failed(f"no best snapshot of iteration {solver.iteration}: {error}")
            return False
        solver.report.saved(str(path), best=True)
        return True

    def restore(self, solver: Any, path: str | Path, replay: bool) -> None:
        """Restore a solver from a file; see Solver.restore."""
        if os.path.isdir(path):
            path = hooks().newest_snapshot(path)
        losses, trends, iteration = solver.watch.losses, solver.judge.trends, solver.iterations
        changed = [] if replay else changes.changes(path, solver.net, solver.spec)
        named = snapshots.named(solver.net.named_params, solver.rule.history)
        state = snapshots.restore(path, solver.net, named, finite=not replay)
        for mine, theirs in zip(solver.rule.history, state.history.values(), strict=True):
            solver.device.copy_from_host(mine, theirs)
        solver.iteration, iteration.recorded = state.iteration, state.recorded
        if state.losses.shape == losses.shape:
            solver.device.copy_from_host(losses, state.losses)
        else:  # average_loss has changed: the window is cleared
            losses.fill(0)
            iteration.recorded = 0
        if solver.average is not None:  # the file's weights are the average; training uses others
            solver.average.begin()
        for name, values in state.training.items():
            solver.net.named_params[name].load(values)
        for name, trend in trends.items():
            trend.restore(state.watched.get(f"{name}/{trend.key}", Trend.NOTHING))
        exists = solver.communicator.bcast_obj(snapshots.best_path(self.prefix).exists())
        if "best" in trends and not exists:
            trends["best"].at = -1
        for net in (solver.net, *solver.test_nets):
            net.context.seed = state.seed
        for line in changes.lines(changed, solver.net, solver.iteration, solver.rate):
            solver.report.event(line)
        self.restored, self.saved, self.unsaved = Path(path), solver.iteration, None

    def latest(self) -> Path:
        """Returns the newest snapshot. Raises CheckpointError without one."""
        return snapshots.latest(self.prefix)

    def _path(self, solver: Any) -> Path:
        """The file of a snapshot taken now: PREFIX_iter_N.npz, or .solverstate."""
        return snapshots.path(self.prefix, solver.iteration, solver.spec.snapshot_format)

    def _drop_older(self, solver: Any) -> None:
        """Remove all but the last `snapshot_keep` snapshots, counting that of this iteration."""
        if solver.spec.snapshot_keep and solver.communicator.rank == 0:
            snapshots.drop(self.prefix, solver.iteration, solver.spec.snapshot_keep)


def _one_writes(solver: Any, work: Callable[[], object]) -> None:
    """Rank 0 writes a file. An error is raised on all ranks."""
    if solver.ranks is not None:
        solver.ranks.before_snapshot()
    together(solver.communicator, work if solver.communicator.rank == 0 else lambda: None)


def write(solver: Any, path: Path, more: Mapping[str, np.ndarray] | None = None) -> None:
    """Write parameters and a solver's state, and `more` entries, into a file. Raises CheckpointError."""
    solver.report.saving(str(path))
    host, names = solver.device.to_host, solver.net.named_params
    with Held(), solver.averaged():
        means = solver.average.means if solver.average is not None else []
        training = dict(zip(names, means, strict=bool(means)))
        named = snapshots.named(names, solver.rule.history)
        state = snapshots.State(
            solver.iteration,
            solver.net.context.seed,
            solver.iterations.recorded,
            host(solver.watch.losses),
            {name: host(array) for name, array in named.items()},
            {name: host(array) for name, array in training.items()},
            {f"{name}/{one.key}": one.state() for name, one in solver.judge.trends.items()},
        )
        snapshots.write(path, solver.net, state, solver.spec, more or {})
