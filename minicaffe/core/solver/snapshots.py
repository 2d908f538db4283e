"""A solver's snapshots: an .npz of parameters and a State's entries, or Caffe's files of weights and state."""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.communicator import together
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.interrupt import Held
from minicaffe.core.net import Net
from minicaffe.core.net.model import MODEL, entry, is_ours
from minicaffe.core.net.sources import with_classes
from minicaffe.core.net.weights import check as check_weights
from minicaffe.core.plugins import STATES, format_of, hooks
from minicaffe.core.solver.changes import WANTED, changes, lines
from minicaffe.core.solver.learning_rate import falls
from minicaffe.core.solver.scores import UNTESTED
from minicaffe.errors import CheckpointError, DataError, raised_as
from minicaffe.storage import checkpoint, hdf5
from minicaffe.storage.checkpoint import Reader, check_finite

OF_ONE = r"_(iter_[0-9]+|best)$"  # at the end of a snapshot's name
ENDINGS = {"NPZ": ".npz", "BINARYPROTO": ".solverstate", "HDF5": ".solverstate.h5"}
# The endings of all files of a snapshot
WRITTEN: tuple[str, ...] = (*ENDINGS.values(), ".caffemodel", ".caffemodel.h5")
COUNTS = ("iteration", "seed", "recorded")
WATCHED = ("best/", "plateau/")  # prefixes of the names of trends; see Trend


@dataclass
class State:
    """The state that training resumes from, besides the parameters; in a snapshot its names begin with @."""

    iteration: int
    seed: int
    recorded: int  # losses that were written to their window so far
    losses: np.ndarray  # the window of the displayed average loss
    history: dict[str, np.ndarray]  # the rule's, by names as `history/conv1__0`
    # By parameter the trained weights, if the snapshot's weights are their average
    training: dict[str, np.ndarray] = field(default_factory=dict)
    # The numbers of each Trend, by names as `best/max/accuracy`
    watched: dict[str, np.ndarray] = field(default_factory=dict)


def name(model: NetSpec) -> str:
    """The name of a model's snapshots: that of its file, without _iter_N of a snapshot; or the model's own.

    >>> name(NetSpec(layers=(), path=Path("out/lenet_iter_500.npz"))), name(NetSpec(layers=(), name="Le"))
    ('lenet', 'Le')
    """
    if model.path is None:
        return model.name or "net"
    return re.sub(OF_ONE if is_ours(model.path) else "$", "", model.path.stem)


def path(prefix: str, iteration: int, form: str = "NPZ") -> Path:
    """The file of the snapshot of an iteration; Caffe's file of the weights is beside it.

    >>> path("out/lenet", 500).as_posix()
    'out/lenet_iter_500.npz'
    """
    return Path(f"{prefix}_iter_{iteration}{ENDINGS[form]}")


def best_path(prefix: str) -> Path:
    """The file of the snapshot of the best test."""
    return Path(f"{prefix}_best.npz")


def restore(
    file: str | Path, net: Net, remembered: Mapping[str, Any], finite: bool = True
) -> State:
    """Load the weights of a snapshot into a net; returns the state. Raises CheckpointError before a change.

    `remembered` are arrays of the shapes that the history must have, by name. A state of Caffe's holds no
    seed and no window of losses: the seed does not change, and the window starts empty.
    Weights and history of an .npz must be finite, unless `finite` is false.
    """
    plugged = format_of(STATES, file)
    if plugged is not None:
        shapes = {name: param.shape for name, param in net.named_params.items()}
        slots = len(remembered) // max(len(shapes), 1)
        iteration, weights, slot_arrays = plugged.restore(file, shapes, slots)
        history = dict(zip(remembered, slot_arrays, strict=True))
        for name, like in remembered.items():
            check_finite(history[name], like.dtype, f"{file}: {name}")
        net.load(weights)
        return State(iteration, net.context.seed, 0, np.empty(0, np.float64), history)
    with Reader(file, WANTED) as reader:
        check_weights(net.graph, reader)
        for name, like in remembered.items():
            if reader.shapes.get(f"@{name}") != like.shape:
                what, _, param = name.partition("/")
                raise CheckpointError(f"{file}: has no {what} for {param} of shape {like.shape}")
        arrays = {name: reader[name] for name in reader.shapes if name != MODEL}
    state = _state(file, arrays, remembered, finite)
    net.load(arrays, origin=str(file), finite=finite)
    return state


def named(names: Collection[str], history: Sequence[Any]) -> dict[str, Any]:
    """A rule's history by name: the first array of each parameter, then the second.

    >>> named(["ip__0"], [1, 2])
    {'history/ip__0': 1, 'history2/ip__0': 2}
    """
    orders = ["", *map(str, range(2, len(history) // max(len(names), 1) + 1))]
    every = [f"history{order}/{name}" for order in orders for name in names]
    return dict(zip(every, history, strict=True))


def _state(
    file: str | Path, arrays: Mapping[str, np.ndarray], remembered: Mapping[str, Any], finite: bool
) -> State:
    """The state in the arrays of a snapshot; its history is there, in the right shapes."""
    counts = [f"@{name}" for name in COUNTS]
    for name, array in arrays.items():
        if array.dtype.kind not in ("iu" if name in counts else "f"):
            raise CheckpointError(f"{file}: entry {name!r} holds {array.dtype}")
    for name, like in remembered.items() if finite else ():
        check_finite(arrays[f"@{name}"], like.dtype, f"{file}: entry {f'@{name}'!r}")
    for name in counts:
        if name not in arrays or arrays[name].shape != () or not 0 <= arrays[name] < 2**62:
            raise CheckpointError(f"{file}: entry {name!r} is missing or no count")
    if "@losses" not in arrays or arrays["@losses"].ndim != 1:
        raise CheckpointError(f"{file}: entry '@losses' is missing or no list")
    check_finite(arrays["@losses"], np.float64, f"{file}: entry '@losses'")
    iteration, seed, recorded = (int(arrays[name]) for name in counts)
    history = {name: arrays[f"@{name}"] for name in remembered}
    training = _training(file, arrays, remembered, finite)
    numbers = arrays["@losses"], history, training, _watched(file, arrays)
    return State(iteration, seed, recorded, *numbers)


def _training(
    file: str | Path, arrays: Mapping[str, np.ndarray], remembered: Mapping[str, Any], finite: bool
) -> dict[str, np.ndarray]:
    """The trained weights of each parameter; {} if they are the snapshot's own."""
    lead = "@training/"
    stored = {name.removeprefix(lead): one for name, one in arrays.items() if name.startswith(lead)}
    if not stored:
        return {}
    first = {name: like for name, like in remembered.items() if name.startswith("history/")}
    likes = {name.removeprefix("history/"): like for name, like in first.items()}
    for name, like in likes.items():
        if name not in stored or stored[name].shape != like.shape:
            raise CheckpointError(
                f"{file}: has no training weights for {name} of shape {like.shape}"
            )
        if finite:
            check_finite(stored[name], like.dtype, f"{file}: entry {f'{lead}{name}'!r}")
    return {name: stored[name] for name in likes}


def _watched(file: str | Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [name for name in arrays if name.removeprefix("@").startswith(WATCHED)]
    for name in names:
        array = arrays[name]
        whole = array.shape in ((5,), (6,)) and not np.isnan(array).any()
        if not whole or np.isinf(array[0]) or np.any((array[1:5] < -1) | (array[1:5] >= 2**62)):
            raise CheckpointError(f"{file}: entry {name!r} holds no test's numbers")
    return {name.removeprefix("@"): arrays[name] for name in names}


def check(prefix: str, form: str, layers: Iterable[str] = ()) -> None:
    """Raise CheckpointError unless snapshots of this prefix can be written; called before training."""
    if form == "HDF5":
        hdf5.library(CheckpointError)
        for name in layers:
            if "/" in name:
                raise CheckpointError(
                    f"snapshot_format HDF5 has no place for a layer named {name!r}; take BINARYPROTO or NPZ"
                )
    make_folder(prefix)
    folder = os.path.dirname(prefix) or "."
    try:
        tempfile.TemporaryFile(dir=folder).close()  # without a name, if the system can
    except OSError as error:
        raise CheckpointError(
            f"snapshots cannot be written to {folder!r}: {error.strerror}; "
            "choose another folder with snapshot_prefix (--snapshot-prefix)"
        ) from None


def make_folder(prefix: str) -> None:
    """Make the folder of a prefix. Raises CheckpointError."""
    folder = os.path.dirname(prefix) or "."
    with raised_as(CheckpointError, f"snapshot_prefix {prefix!r}: {folder!r} cannot be made"):
        os.makedirs(folder, exist_ok=True)


def latest(prefix: str) -> Path:
    """The newest snapshot of a prefix, of any kind. Raises CheckpointError if there is none."""
    files = [(file.stat().st_mtime_ns, len(file.name), file) for _, file in listed(prefix)]
    if not files:
        raise CheckpointError(f"there is no snapshot {prefix}_iter_*.npz to resume from")
    return max(files)[-1]


def listed(prefix: str) -> list[tuple[int, Path]]:
    """The snapshots of a prefix with their iterations, the earliest first."""
    folder, name = os.path.split(prefix)
    endings = "|".join(map(re.escape, ENDINGS.values()))
    pattern = re.compile(re.escape(name) + rf"_iter_([0-9]+)({endings})")
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    files = [(match, Path(folder, match[0])) for match in map(pattern.fullmatch, names) if match]
    return sorted((int(match[1]), file) for match, file in files if file.is_file())


def drop(prefix: str, iteration: int, keep: int) -> None:
    """Remove all but the last `keep` snapshots up to this iteration's, now written, as far as can be."""
    before = [(n, file) for n, file in listed(prefix) if n < iteration]
    for _, file in before[: max(len(before) - keep + 1, 0)]:
        for one in (file, weights_beside(file)):
            with contextlib.suppress(OSError):
                one.unlink()


def weights_beside(file: Path) -> Path:
    """The file that holds a snapshot's weights: itself, or of Caffe's two the .caffemodel."""
    return file.with_name(".caffemodel".join(file.name.rsplit(".solverstate", 1)))


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
        _one_writes(solver, lambda: check(*arguments))

    def make_folder(self, solver: Any) -> None:
        """Make the folder that snapshots need, when a solver is made. Raises CheckpointError."""
        spec, ranks = solver.spec, solver.communicator
        needed = spec.snapshot and spec.snapshot_prefix and not solver._folder_comes
        together(ranks, lambda: make_folder(self.prefix) if needed and ranks.rank == 0 else None)

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
        path = best_path(self.prefix)
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
        changed = [] if replay else changes(path, solver.net, solver.spec)
        remembered = named(solver.net.named_params, solver.rule.history)
        state = restore(path, solver.net, remembered, finite=not replay)
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
            trend.restore(state.watched.get(f"{name}/{trend.key}", UNTESTED))
        if not solver.communicator.bcast_obj(best_path(self.prefix).exists()) and "best" in trends:
            trends["best"].at = -1
        for net in (solver.net, *solver.test_nets):
            net.context.seed = state.seed
        for line in lines(changed, solver.net, solver.iteration, solver.rate):
            solver.report.event(line)
        self.restored, self.saved, self.unsaved = Path(path), solver.iteration, None

    def _path(self, solver: Any) -> Path:
        """The file of a snapshot taken now: PREFIX_iter_N.npz, or .solverstate."""
        return path(self.prefix, solver.iteration, solver.spec.snapshot_format)

    def _drop_older(self, solver: Any) -> None:
        if solver.spec.snapshot_keep and solver.communicator.rank == 0:
            drop(self.prefix, solver.iteration, solver.spec.snapshot_keep)


def _one_writes(solver: Any, work: Callable[[], object]) -> None:
    """Rank 0 writes a file. An error is raised on all ranks."""
    solver.ranks.before_snapshot()
    together(solver.communicator, work if solver.communicator.rank == 0 else lambda: None)


def write(solver: Any, file: Path, more: Mapping[str, np.ndarray] | None = None) -> None:
    """Write parameters (Caffe's first), state, `more` of an .npz, atomically. Raises CheckpointError."""
    solver.report.saving(str(file))
    host, net = solver.device.to_host, solver.net
    with Held(), solver.averaged():
        means = solver.average.means if solver.average is not None else []
        training = dict(zip(net.named_params, means, strict=bool(means)))
        remembered = named(net.named_params, solver.rule.history)
        state = {name: host(array) for name, array in remembered.items()}
        plugged = format_of(STATES, file)
        if plugged is not None:
            weights, fallen = weights_beside(file), falls(solver.spec, solver.iteration)
            net.save(weights)
            plugged.save(file, solver.iteration, str(weights), fallen, [*state.values()])
            return
        state |= {f"training/{name}": host(array) for name, array in training.items()}
        state |= {f"{name}/{one.key}": one.state() for name, one in solver.judge.trends.items()}
        counts = solver.iteration, net.context.seed, solver.iterations.recorded
        state |= dict(zip(COUNTS, map(np.array, counts), strict=True))
        state["losses"] = host(solver.watch.losses)
        prefix = net.spec.solver.snapshot_prefix if net.spec.solver else None
        model = with_classes(net.spec, net.layers.values())
        model = replace(model, solver=replace(solver.spec, snapshot_prefix=prefix))
        entries = {f"@{name}": array for name, array in state.items()}
        entries |= {**(more or {}), **entry(model, file)}
        checkpoint.write(file, {**net.weights(), **entries})
