"""What a solver keeps: which snapshots stay, what if one cannot be written, how one is gone on from."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from minicaffe.backend import Device, on_its_device
from minicaffe.errors import CheckpointError
from minicaffe.net import Net
from minicaffe.parallel import Communicator
from minicaffe.parallel.together import together
from minicaffe.solver import changes, run_folder, snapshots, state
from minicaffe.solver.average import Average
from minicaffe.solver.history import Shown, Tested, columns
from minicaffe.solver.mixed import Mixed
from minicaffe.solver.ranks import Ranks
from minicaffe.solver.report import Report
from minicaffe.solver.rules import Update
from minicaffe.solver.trend import Trend
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.solver import SolverSpec

EMPTY: Mapping[str, np.ndarray] = MappingProxyType({})


class Saving:
    """The part of a Solver that keeps what it learns: the loop is Solver's own."""

    spec: SolverSpec
    report: Report
    device: Device
    communicator: Communicator
    run: Path | None  # its folder, if the solver keeps one
    net: Net
    test_nets: list[Net]
    rule: Update | Mixed
    _average: Average | None
    _trends: dict[str, Trend]
    _losses: Any  # the window that the shown loss is averaged over
    iteration: int
    _recorded: int  # losses written to the window since its beginning
    stopped: bool
    _alike: bool
    _ranks: Ranks | None

    @property
    def log(self) -> dict[str, np.ndarray]:
        """What was displayed and tested since the solver was made, as arrays by column (see `columns`)."""
        return columns(self._shown, self._tests)

    @property
    def _end(self) -> float:
        """The iteration at which training ends."""
        return math.inf if self.spec.max_iter is None else self.spec.max_iter

    def _begin_saving(self, model: NetSpec) -> None:
        """Nothing is saved yet; snapshots will be `prefix`_iter_N."""
        name = snapshots.name(model)
        self._prefix = self.spec.snapshot_prefix or str(self.run / name if self.run else name)
        self._restored: Path | None = None  # the snapshot gone on from
        self._shown: list[Shown] = []
        self._tests: list[Tested] = []
        self._alike = False  # whether several ranks have begun from one state
        self._saved: int | None = None  # the iteration of the last snapshot, written or restored
        self.unsaved: tuple[int, CheckpointError] | None = None  # why the last could not be

    def _one_writes(self, work: Callable[[], object]) -> None:
        """Have rank 0 write a file. Raises on all ranks what that raises."""
        if self._ranks is not None:
            self._ranks.before_snapshot()
        together(self.communicator, work if self.communicator.rank == 0 else lambda: None)

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration."""
        raise NotImplementedError

    def loss(self) -> float:
        """The loss to show; raises TrainingError if it is no finite number."""
        raise NotImplementedError

    @on_its_device
    def snapshot(self) -> Path:
        """Write parameters and the solver's state as `snapshot_format` says, atomically; gives the file.

        With `snapshot_keep` the older ones are then removed but for so many. Raises CheckpointError.
        """
        self.loss()
        path = self._snapshot_path()
        self._one_writes(lambda: self._write(path))
        self._saved, self.unsaved = self.iteration, None
        self.report.saved(str(path))
        self._drop_older()
        return path

    def _drop_older(self) -> None:
        """Let but the last `snapshot_keep` snapshots stay, of which one is of this iteration."""
        if self.spec.snapshot_keep and self.communicator.rank == 0:
            snapshots.drop(self._prefix, self.iteration, self.spec.snapshot_keep)

    @on_its_device
    def _best_snapshot(self) -> Path:
        """Write PREFIX_best.npz, as `snapshot` does. Raises CheckpointError."""
        path = snapshots.best_path(self._prefix)
        self._one_writes(lambda: self._write(path))
        self.report.saved(str(path), best=True)
        return path

    def _write(self, path: Path, more: Mapping[str, np.ndarray] = EMPTY) -> None:
        """Write parameters and the solver's state, and `more` entries, into a file. Raises CheckpointError."""
        self.report.saving(str(path))
        host, names = self.device.to_host, self.net.named_params
        with self.averaged():
            means = self._average.means if self._average is not None else []
            training = dict(zip(names, means, strict=bool(means)))
            named = state.named(names, self.rule.history)
            found = state.State(
                self.iteration,
                self.net.context.seed,
                self._recorded,
                host(self._losses),
                {name: host(array) for name, array in named.items()},
                {name: host(array) for name, array in training.items()},
                {f"{name}/{one.key}": one.state() for name, one in self._trends.items()},
            )
            snapshots.write(path, self.net, found, self.spec, more)

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Within it the nets have the averaged weights, if there are any."""
        if self._average is None:
            return contextlib.nullcontext()
        if self.iteration == 0:
            self._average.begin()
        return self._average.in_place()

    def _snapshot_path(self) -> Path:
        """The file of a snapshot taken now: PREFIX_iter_N.npz, or .solverstate."""
        return snapshots.path(self._prefix, self.iteration, self.spec.snapshot_format)

    def _try_snapshot(self) -> None:
        """Write a snapshot; one that cannot be is reported, and `unsaved` says why."""
        try:
            self.snapshot()
        except CheckpointError as error:
            self.unsaved = self.iteration, error
            goes_on = self.iteration < self._end and not self.stopped
            then = "; training goes on, and the next one is tried" if goes_on else ""
            self.report.failed(f"no snapshot of iteration {self.iteration}: {error}{then}")

    def _check_left(self) -> None:
        """Raise CheckpointError if the snapshot gone on from is beyond max_iter."""
        if self.iteration > self._end:
            raise CheckpointError(
                f"nothing to train: the snapshot is at iteration {self.iteration}, "
                f"max_iter is {self.spec.max_iter}; raise it (--max-iter)"
            ).on_all()

    def _last_snapshot(self) -> None:
        """At the end: write what training stopped with, if that is wanted and was not done or tried."""
        wanted = self.spec.snapshot_after_train or self.stopped or self.unsaved is not None
        if wanted and self.iteration not in (self._saved, *(self.unsaved or ())):
            self._try_snapshot()
        elif self.iteration == self._saved and self._snapshot_path().exists():
            self._drop_older()  # whoever wrote it may have been killed before that

    @on_its_device
    def restore(self, path: str | Path, replay: bool = False) -> None:
        """Go on where a snapshot was taken, with its seed; what differs from its model is told.

        A run's folder stands for its newest one. Raises CheckpointError, before any change, for what may not
        differ (see `changes`). To `replay` it, nothing is compared, and weights and history need not be
        finite.
        """
        self._alike = False
        if os.path.isdir(path):
            path = run_folder.to_go_on_from(path)
        changed = [] if replay else changes.changes(path, self.net, self.spec)
        named = state.named(self.net.named_params, self.rule.history)
        found = snapshots.restore(path, self.net, named, finite=not replay)
        for mine, theirs in zip(self.rule.history, found.history.values(), strict=True):
            self.device.copy_from_host(mine, theirs)
        self.iteration, self._recorded = found.iteration, found.recorded
        if found.losses.shape == self._losses.shape:
            self.device.copy_from_host(self._losses, found.losses)
        else:  # another average_loss than before: the window begins anew
            self._losses.fill(0)
            self._recorded = 0
        self._part(found)
        for name, trend in self._trends.items():
            trend.restore(found.watched.get(f"{name}/{trend.key}", Trend.NOTHING))
        kept = self.communicator.bcast_obj(snapshots.best_path(self._prefix).exists())
        if "best" in self._trends and not kept:
            self._trends["best"].at = -1
        for net in (self.net, *self.test_nets):
            net.context.seed = found.seed
        self._saved, self.unsaved = self.iteration, None
        self._restored = Path(path)
        for line in changes.told(changed, self.net, self.iteration, self.rate):
            self.report.event(line)

    def _part(self, found: state.State) -> None:
        """Part the weights that training goes on with from the average, which the snapshot's own are."""
        params = self.net.named_params
        if self._average is not None:
            self._average.begin()
        for name, values in found.training.items():
            params[name].load(values)

    def latest_snapshot(self) -> Path:
        """The newest snapshot of this solver. Raises CheckpointError without one."""
        return snapshots.latest(self._prefix)
