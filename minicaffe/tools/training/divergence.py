"""An iteration computed again: one that diverged, whose first bad number is found, or one out of a file."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers import REGISTRY, Param
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.net import Net, read
from minicaffe.core.net.step import Step, Value
from minicaffe.core.net.summary import table
from minicaffe.core.solver import snapshots
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.core.solver.report import Mute
from minicaffe.core.solver.solver import Solver
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.storage.checkpoint import Reader
from minicaffe.tools.inference import as_input
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import RunRecord
from minicaffe.tools.visualize.ranges import Look, Seen, Watching, When

# A weight beyond it explodes; a sample beyond so many times the others is of another kind
LARGE = 1e4
SPREADS = ("BatchNorm", "GroupNorm", "LayerNorm", "MVN", "Normalize")  # layers that divide by one
Ins = Sequence[Seen]
Batch = Mapping[str, np.ndarray]


def where(first: Seen) -> str:
    """The layer, and which parameter that it comes with, or blob or gradient that it has computed."""
    what = "parameter" if isinstance(first.of, Param) else "blob"
    if first.which == "diff":
        what = f"the gradient of {what}"
    verb = "has" if first.when == "before_forward" else "gives"
    place = f", the first at {first.first}" if first.first else ""
    return (
        f"layer {first.step.spec.name!r} ({first.step.spec.type}) {verb} {what} {first.name!r} "
        f"{first.bad} of {first.size} values that are no finite numbers{place}"
    )


def went_in(seen: Sequence[Seen], first: Seen) -> list[Seen]:
    """What the layer computed it from, as it was: bottoms and parameters, on the way back tops' diffs too."""
    step, before = first.step, seen[: seen.index(first)]
    if first.when == "before_forward":
        return []
    wanted: list[tuple[Any, str]] = []
    if first.when == "after_backward":
        wanted += [(value, "diff") for value in step.tops]
    wanted += [(one, "data") for one in (*step.bottoms, *step.layer.params)]
    lasts = (last(before, of, which) for of, which in wanted)
    return [one for one in lasts if one is not None]


def last(seen: Sequence[Seen], of: Value | Param, which: str) -> Seen | None:
    """What was seen last of a blob or parameter."""
    return next((one for one in reversed(seen) if one.of is of and one.which == which), None)


def diagnosis(solver: Any, look: Look, batches: Sequence[Batch], loss: float, again: float) -> str:
    """All of it, in one line, of an iteration of a Solver; `again` is the loss computed now."""
    said = f"the loss is {loss:g}, lr {solver.rate:g}"
    bad = look.first_bad()
    if bad is None:
        why = "computed again all is finite: some layer is no function of (seed, iteration)"
        return f"{said}; {why}" if math.isfinite(again) else f"{said}, a sum of finite losses"
    number, first = bad
    ins = went_in(look.passes[number], first)
    ranges = ", ".join(one.range for one in ins)
    parts = [where(first), said, f"what went in: {ranges}" if ranges else ""]
    batch = batches[number] if batches else {}
    passes = first.step.layer.context.passes - len(look.passes) + number
    parts += [advice(solver, first, ins, batch, passes)]
    return "; ".join(filter(None, parts))


def advice(solver: Any, first: Seen, ins: Ins, batch: Batch, passes: int) -> str:
    """What to try. `batch` is what the layers without bottoms gave in the pass of that number."""
    learnt, base_lr = solver.iteration > 0, solver.spec.base_lr  # whether an update came before
    step = first.step
    rate = f"training has diverged: lower base_lr (now {base_lr:g}) or set clip_gradients"
    if first.when == "before_forward":
        if learnt:
            return f"the iteration before made it so; {rate}"
        return "it was so before any update: start from other weights"
    if not step.bottoms:
        return f"the data themselves are not finite: {entry(step, first.first, passes)}"
    if hint := own_hint(step, first, ins):
        return hint
    theirs = not type(step.layer).__module__.startswith("minicaffe.")
    if ins and theirs and max(map(size, ins)) < LARGE:
        way = "backward" if first.which == "diff" else "forward"
        return f"what went in is of ordinary size: look at {way} of {type(step.layer).__name__}"
    weights = max((size(one) for one in ins if isinstance(one.of, Param)), default=0.0)
    if weights > LARGE:
        return f"weights reach {weights:.3g}; {rate}"
    if odd := odd_sample(batch):
        return odd
    if learnt:
        return rate
    return (
        "it is so before any update: scale the data (transform: scale), give the weights a smaller filler, "
        f"or lower loss_weight; if it goes on: lower base_lr (now {base_lr:g}) or set clip_gradients"
    )


def size(one: Seen) -> float:
    """The largest magnitude of its finite values."""
    return float(np.nanmax(np.abs([one.low, one.high, 0.0])))


def entry(step: Step, place: Sequence[int], passes: int) -> str:
    """Which sample of a batch; and which entry of the data set, where its layer can tell."""
    if not place:
        return f"see what layer {step.spec.name!r} reads"
    tell: Any = getattr(step.layer, "entry", None)
    more = f", {tell(place[0], passes)}" if tell is not None else ""
    return f"sample {place[0]} of the batch{more}"


def odd_sample(batch: Batch) -> str:
    """The sample of a batch that is far larger than all others, in words; nothing if there is none."""
    for name, array in batch.items():
        if array.ndim < 2 or len(array) < 3:
            continue
        largest = np.abs(array.reshape(len(array), -1).astype(np.float64)).max(axis=1)
        i = int(np.argmax(largest))
        rest = float(np.delete(largest, i).max())
        if largest[i] > LARGE * max(rest, 1e-30):
            return (
                f"sample {i} of {name!r} reaches {largest[i]:.3g}, all others of the batch {rest:.3g}: "
                "look at the data"
            )
    return ""


def own_hint(step: Step, first: Seen, ins: Ins) -> str:
    """What is to be done to a layer where its own formula makes of what went in no number; else nothing."""
    layer: Any = step.layer
    kind, slope = step.spec.type, first.which == "diff"
    low = high = 0.0
    if kind in ("Log", "Exp", "Power"):
        low, high = sorted(layer.shift + layer.scale * end for end in (ins[-1].low, ins[-1].high))
    match kind:
        # Log of 0 is -inf, of less no number; its slope at 0 is infinite
        case "Log" if not low > 0:
            shift = f"set its shift above {layer.shift - low:g} (now {layer.shift:g})"
            return f"it takes the logarithm of {low:g}: {shift}, or keep what goes in above 0"
        case "Exp":
            base = np.e if layer.base == -1 else layer.base
            power = max(end * np.log(base) for end in (low, high))
            wide = np.float64 if layer.dtype.itemsize == 8 else np.float32
            most = float(np.log(np.finfo(wide).max))
            if not power <= most:
                way = "scale or clip what goes in"
                return f"exp of {power:.4g} is infinite, and is of all above {most:.1f}; {way}"
        case "Power" if low < 0 and layer.power != int(layer.power):
            taken = f"it takes {low:g} to the power {layer.power:g}, which is no number"
            return f"{taken}; clip what goes in, or raise shift (now {layer.shift:g})"
        case "Power" if low <= 0 <= high and layer.power - slope < 0:
            way = "its slope divides" if slope else "it divides"
            away = f"a shift that keeps shift + scale x away from 0 (now {layer.shift:g})"
            return f"{way} by 0; give it {away}"
        case "LRN" if not (layer.k > 0 or max(map(size, ins)) > LARGE):
            return f"it divides by 0 where all it sums are 0: give it a k above 0 (now {layer.k:g})"
        case _ if kind in SPREADS and not (layer.eps > 0 or max(map(size, ins)) > LARGE):
            return "it divides by a spread of 0: give it an eps above 0 (now 0)"
    return ""


FILE = "diverged.npz"
RUNNING = "@running/"  # of its entries: what a layer's forward passes change for good, and no parameter is
NAME = "@batch/"  # of the others: @batch/0/data is blob data of the first pass
Pass = dict[str, np.ndarray]


class Batches(Watching):
    """Within it, what the layers without bottoms or parameters give a net in each pass is kept in `passes`.

    With `given`, as many passes, they are Inputs, and each pass is given that.
    """

    def __init__(self, net: Net, batches: Sequence[Mapping[str, np.ndarray]] = ()):
        self.net, self.given, self.passes, self.begun = net, batches, list[Pass](), 0
        super().__init__()

    def __enter__(self) -> Batches:
        sources = [step for step in self.net.steps if not step.bottoms and not step.layer.params]
        when: When = "before_forward" if self.given else "after_forward"
        for i, step in enumerate(sources):
            self.watch(step, when, partial(self._exchange, step, i == 0))
        return self

    def _exchange(self, step: Step, begins: bool) -> None:
        self.begun += begins
        if self.given:
            for value in step.tops:
                if (array := self.given[self.begun - 1].get(value.name)) is not None:
                    self.net.device.copy_from_host(value.blob.data, array)
            return
        if begins:
            self.passes.append({})
        for value in step.tops:
            self.passes[-1][value.name] = np.array(self.net.device.to_host(value.blob.data))


def entries(passes: Sequence[Pass]) -> dict[str, np.ndarray]:
    """Batches as entries of a file, such as `@batch/0/data`; of 16 bits in float32."""
    return {
        f"{NAME}{i}/{name}": array.astype(np.float32) if array.itemsize == 2 else array
        for i, one in enumerate(passes)
        for name, array in one.items()
    }


def of_file(arrays: Mapping[str, np.ndarray]) -> list[Pass]:
    """The batches among the entries of a file."""
    passes: dict[int, Pass] = {}
    for name, array in arrays.items():
        number, _, blob = name.removeprefix(NAME).partition("/")
        if name.startswith(NAME) and number.isdecimal():
            passes.setdefault(int(number), {})[blob] = array
    return [passes[i] for i in sorted(passes)]


def as_inputs(spec: NetSpec, batch: Mapping[str, np.ndarray]) -> NetSpec:
    """A model whose layers that gave this batch are Inputs of its shapes: its data need not be there."""

    def replaced(layer: LayerSpec) -> LayerSpec:
        reads = bottom_counts(REGISTRY[layer.type])[1] > 0
        if reads or not layer.tops or any(top not in batch for top in layer.tops):
            return layer
        return as_input(layer, {top: batch[top].shape for top in layer.tops})

    return dataclasses.replace(spec, layers=tuple(map(replaced, spec.layers)))


def raise_diverged(solver: Any, iteration: int, loss: float, before: bool = False) -> NoReturn:
    """Compute an iteration again, find what is not finite, save it, and raise DivergedError.

    With `before` it has not begun: its weights are at fault.
    """
    watch, communicator = solver.watch, solver.communicator
    if not before:
        watch.put_back()
    watch.reset()
    solver.iteration = iteration
    try:
        looked = Look(solver.net, check=True), Batches(solver.net), np.errstate(all="ignore")
        with looked[0] as look, looked[1] as batches, looked[2]:
            solver.iterations.gradient(solver._now)
    finally:
        watch.put_back()
        again = float(solver.device.to_host(watch.loss)[0])
        watch.losses.fill(0)  # the window begins anew
        solver.iterations.recorded = 0
    text = diagnosis(solver, look, batches.passes, loss, again)
    texts = communicator.allgather_obj((look.first_bad() is not None, text))
    rank = next((i for i, (seen, _) in enumerate(texts) if seen), 0)
    head = f"rank {rank}: " if communicator.size > 1 else ""
    solver.ranks.before_snapshot()
    path = _save(solver, batches.passes) if rank == communicator.rank else None
    path = communicator.allgather_obj(path)[rank]
    folder = solver.record_folder
    saved = "" if path is None else f"; minicaffe replay {folder or path} shows all of it"
    error = DivergedError(f"iteration {iteration}: {head}{texts[rank][1]}{saved}")
    error.path, error.everywhere = path, communicator.size > 1
    raise error


def _save(solver: Any, passes: list[Pass]) -> Path | None:
    """Write what the iteration needs to be computed again; what cannot be written is told."""
    folder = solver.record_folder
    path = Path(f"{solver.saving.prefix}_{FILE}") if folder is None else Path(folder, FILE)
    running = {
        f"{RUNNING}{step.spec.name}__{i}": solver.device.to_host(array)
        for step in solver.net.steps
        for i, array in enumerate(step.layer.running)
    }
    try:
        snapshots.write(solver, path, {**running, **entries(passes)})
    except CheckpointError as error:
        solver.report.failed(f"the iteration that diverged: {error}")
        return None
    return path


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
        with solver.device.current(), np.errstate(all="ignore"):
            self.batches = Batches(solver.net, self.given)
            with self.look, self.batches:
                solver.iterations.gradient(solver._now)
            solver.watch.expect(solver.iteration)
            solver.watch.judge(solver.rule.gradients, -1.0)
            solver.watch.weigh(solver.rule.weights)
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
            data, diff = (last(self.look.passes[number], of, which) for which in ("data", "diff"))
            mark = FIRST if first is not None and first.of is of else ""
            rows.append((step.spec.name, step.spec.type, name, *cells(data), *cells(diff), mark))
        return rows


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
