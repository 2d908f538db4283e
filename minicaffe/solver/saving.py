"""A solver's state into a file, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from minicaffe.outer import ask_for
from minicaffe.solver import changes, snapshots, state
from minicaffe.solver.trend import Trend

EMPTY: Mapping[str, np.ndarray] = MappingProxyType({})


def write(solver: Any, path: Path, more: Mapping[str, np.ndarray] = EMPTY) -> None:
    """Write parameters and a solver's state, and `more` entries, into a file. Raises CheckpointError."""
    solver.report.saving(str(path))
    host, names = solver.device.to_host, solver.net.named_params
    with solver.averaged():
        means = solver._average.means if solver._average is not None else []
        training = dict(zip(names, means, strict=bool(means)))
        named = state.named(names, solver.rule.history)
        kept = state.State(
            solver.iteration,
            solver.net.context.seed,
            solver._iteration.recorded,
            host(solver._watch.losses),
            {name: host(array) for name, array in named.items()},
            {name: host(array) for name, array in training.items()},
            {f"{name}/{one.key}": one.state() for name, one in solver._judge.trends.items()},
        )
        snapshots.write(path, solver.net, kept, solver.spec, more)


def restore(solver: Any, path: str | Path, replay: bool) -> Path:
    """Make a solver what it was when a file was written; see Solver.restore. Returns the file."""
    if os.path.isdir(path):
        path = ask_for("the snapshot of a run")(path)
    losses, trends, iteration = solver._watch.losses, solver._judge.trends, solver._iteration
    changed = [] if replay else changes.changes(path, solver.net, solver.spec)
    named = state.named(solver.net.named_params, solver.rule.history)
    kept = snapshots.restore(path, solver.net, named, finite=not replay)
    for mine, theirs in zip(solver.rule.history, kept.history.values(), strict=True):
        solver.device.copy_from_host(mine, theirs)
    solver.iteration, iteration.recorded = kept.iteration, kept.recorded
    if kept.losses.shape == losses.shape:
        solver.device.copy_from_host(losses, kept.losses)
    else:  # another average_loss than before: the window begins anew
        losses.fill(0)
        iteration.recorded = 0
    if (
        solver._average is not None
    ):  # the file's weights are the average's: training goes on with others
        solver._average.begin()
    for name, values in kept.training.items():
        solver.net.named_params[name].load(values)
    for name, trend in trends.items():
        trend.restore(kept.watched.get(f"{name}/{trend.key}", Trend.NOTHING))
    exists = solver.communicator.bcast_obj(snapshots.best_path(solver._prefix).exists())
    if "best" in trends and not exists:
        trends["best"].at = -1
    for net in (solver.net, *solver.test_nets):
        net.context.seed = kept.seed
    for line in changes.told(changed, solver.net, solver.iteration, solver.rate):
        solver.report.event(line)
    return Path(path)
