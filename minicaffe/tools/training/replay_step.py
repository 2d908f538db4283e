"""A training step computed again from a file, with what each blob, parameter and gradient held."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.layers import Param
from minicaffe.core.net import read
from minicaffe.core.net.step import Step, Value
from minicaffe.core.net.summary import table
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.report import Mute
from minicaffe.core.solver.solver import Solver
from minicaffe.errors import CheckpointError
from minicaffe.storage.checkpoint import Reader
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.divergence import (
    FILE,
    RUNNING,
    Batches,
    as_inputs,
    diagnosis,
    of_file,
)
from minicaffe.tools.training.folder import RunRecord
from minicaffe.tools.visualize.ranges import Look, Seen

RANGE = ("min", "max", "mean", "not finite")
HEAD = ("layer", "type", "blob", *RANGE, "diff min", *RANGE[1:], "")
FIRST = "<- first"
UNTESTED: dict[str, Any] = {"test_iter": (), "test_state": (), "test_interval": 0, "best": None}
UNTESTED |= {"early_stopping": None, "debug_info": False, "snapshot": 0}
STILL: dict[str, Any] = {"lr_policy": "fixed", "plateau": None, "patience": None, "gamma": None}
STILL |= {"min_lr": 0.0, "warmup_iter": 0, "warmup_start_lr": 0.0}


class Replay:
    """The step after a snapshot, or the one that a diverged.npz or the folder of a run holds.

    A diverged.npz has the batch in it, so that the data set need not be there; after a snapshot the model's
    data layers are read. `settings` are those of Solver. Raises CheckpointError for a file without a
    solver's state and the text of its net, and what Solver raises.
    """

    def __init__(self, path: str | Path, **settings: Any):
        self.file = file_of(path)
        with Reader(self.file, "a solver's state in .npz") as reader:
            arrays = {name: reader[name] for name in reader.shapes if name.startswith("@batch/")}
            running = {name: reader[name] for name in reader.shapes if name.startswith(RUNNING)}
            fallen = [reader[name][4] for name in reader.shapes if name.startswith("@plateau/")]
            iteration = int(reader["@iteration"]) if "@iteration" in reader.shapes else 0
        spec, self.given = read(self.file), of_file(arrays)
        solver = spec.solver
        if solver is None:
            raise CheckpointError(f"{self.file}: its net has no solver: there is no step to replay")
        if self.given:
            spec = as_inputs(spec, self.given[0])
        plain = dataclasses.replace(solver, **UNTESTED)
        if solver.lr_policy == "plateau":  # which goes by tests
            rate = learning_rate(solver, iteration, int(fallen[0]) if fallen else 0)
            plain = dataclasses.replace(plain, **STILL, base_lr=rate)
        spec = dataclasses.replace(spec, solver=plain, test_nets=())
        self.solver = Solver(spec, report=Mute(), **settings)
        self.solver.restore(self.file, replay=True)
        for step in self.solver.net.steps:
            for i, array in enumerate(step.layer.running):
                before = running.get(f"{RUNNING}{step.spec.name}__{i}")
                if before is not None and before.shape == array.shape:
                    self.solver.device.copy_from_host(array, before)
        self.look = Look(self.solver.net)
        self.loss = math.nan

    def run(self) -> None:
        """Compute the step, but for its update."""
        solver = self.solver
        rule = solver.rule.rule if isinstance(solver.rule, Mixed) else solver.rule
        with solver.device.current(), np.errstate(all="ignore"):
            self.batches = Batches(solver.net, self.given)
            with self.look, self.batches:
                solver.iterations.gradient(solver._now)
            solver.watch.expect(solver.iteration)
            solver.watch.judge(rule.gradients, -1.0)
            solver.watch.weigh(rule.weights)
            self.told = solver.watch.told(solver.device)
        losses = self.told.losses
        self.loss = float(losses[(solver.iterations.recorded - 1) % len(losses)])

    def lines(self) -> list[str]:
        """What was found: the step, a row for each blob and parameter, the first bad one marked and told."""
        solver, bad = self.solver, self.look.first_bad()
        number, first = bad if bad is not None else (len(self.look.passes) - 1, None)
        head = f"{self.file}: iteration {solver.iteration}, lr {solver.rate:g}, seed {solver.net.context.seed}"
        if solver.spec.iter_size > 1:
            head += f", batch {number + 1} of {solver.spec.iter_size}"
        gradient = self.told.gradient / solver.spec.iter_size
        norms = f"loss {self.loss:g}, gradient's norm {gradient:.6g}"
        rows = [row for step in solver.net.steps for row in self.rows(step, number, first)]
        text = f"all is finite; {norms}, weights' norm {self.told.weights:.6g}"
        if first is not None or not math.isfinite(self.loss):
            passes = self.given or self.batches.passes
            text = diagnosis(solver, self.look, passes, self.loss, self.loss)
        return [head, *table(rows, HEAD, left=(0, 1, 2, 11)).split("\n"), text]

    def rows(self, step: Step, number: int, first: Seen | None) -> list[tuple[str, ...]]:
        """Of a layer in a pass: its parameters, then what it writes."""
        rows = []
        written: dict[str, Value | Param] = {value.name: value for value in step.tops}
        params = {f"{step.spec.name}__{i}": one for i, one in enumerate(step.layer.params)}
        for name, of in (*params.items(), *written.items()):
            data, diff = (self.last(number, of, which) for which in ("data", "diff"))
            mark = FIRST if first is not None and first.of is of else ""
            rows.append((step.spec.name, step.spec.type, name, *cells(data), *cells(diff), mark))
        return rows

    def last(self, number: int, of: Value | Param, which: str) -> Seen | None:
        """What was seen last of a blob or parameter in a pass."""
        matches = [one for one in self.look.passes[number] if one.of is of and one.which == which]
        return matches[-1] if matches else None


def cells(seen: Seen | None) -> tuple[str, ...]:
    """A range as four cells of the table."""
    if seen is None:
        return "", "", "", ""
    ends = seen.low, seen.high, seen.mean
    return *("" if math.isnan(one) else f"{one:.4g}" for one in ends), f"{seen.bad or ''}"


def file_of(path: str | Path) -> Path:
    """The file meant: of a run's folder its diverged.npz, else its newest snapshot. Raises CheckpointError."""
    if not os.path.isdir(path):
        return Path(path)
    diverged = Path(path, FILE)
    if diverged.is_file():
        return diverged
    newest = RunRecord(Path(path), run_folder.about(path)).newest
    if newest is None:
        raise CheckpointError(f"{path}: this run has no {FILE} and no snapshot to replay")
    return newest
