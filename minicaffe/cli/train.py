"""The command train, the folder in which it keeps a run, and the commands that go on with one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from minicaffe.backends.cuda import ahead
from minicaffe.backends.device import Device
from minicaffe.cli import find_lr, ranks, tensorboard
from minicaffe.cli.options import MODEL, WEIGHTS, Computed, OfNet, load_weights, named, renaming
from minicaffe.cli.own_data import OwnData, of_own_data, with_batch
from minicaffe.cli.parser import Arg, CommandOptions, number, refuse, words_of
from minicaffe.cli.ranks import OfRanks
from minicaffe.cli.test import check_filled, data_lines
from minicaffe.core.communicator import Communicator, device_of, together
from minicaffe.core.config.declare import NetSpec, check_max_iter
from minicaffe.core.layers.softmax import Softmax, SoftmaxLoss
from minicaffe.core.net import Net
from minicaffe.core.solver import Solver, snapshots
from minicaffe.core.solver.report import banner
from minicaffe.errors import CheckpointError, SpecError, note, printable
from minicaffe.interop.caffe.model import is_prototxt
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.parallel import world
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training import progress
from minicaffe.tools.training import run as runs
from minicaffe.tools.training.folder import RUNS
from minicaffe.tools.training.run import Record, Run
from minicaffe.tools.training.speed import iterations

NEWEST = "the newest snapshot"
# said when a run begins, and not again
BEGINS = {
    "weights",
    "resume",
    "run",
    "data",
    "size",
    "batch_size",
    "epochs",
    "seed",
    "skip_damaged",
}


def model_of_run(args: CommandOptions) -> None:
    """Without MODEL take that of the run, or of the snapshot, which goes on. Raises MinicaffeError.

    With the folder of a run as MODEL that run goes on, if any is to. What Python files it was begun with must
    be said again: nothing that a folder names is executed unasked.
    """
    if args.model is None:
        if args.resume in (None, NEWEST):
            raise SpecError(
                "no MODEL: give its file, or --resume RUN, whose folder holds the model"
            )
        args.model = str(runs.model_of(args.resume))
    if run_folder.is_run(args.model):
        if (imports := run_folder.about(args.model)["imports"]) and not args.imports:
            again = shlex.join(word for file in imports for word in ("--import", file))
            raise SpecError(f"{args.model}: was begun with Python files; give them again: {again}")
        if args.resume == NEWEST and args.run is None:
            args.resume = args.model


def run_of(args: CommandOptions, spec: NetSpec, record: Record) -> Run:
    """The run that the command begins, or goes on with. Raises CheckpointError."""
    name, snapshot = snapshots.name(spec), None
    if run_folder.is_run(args.model):
        name = run_folder.about(args.model)["name"]
    folder = Path(args.run) if args.run is not None else None
    if args.resume == NEWEST and folder is None:
        prefix = args.snapshot_prefix or (spec.solver.snapshot_prefix if spec.solver else None)
        folder, snapshot = runs.newest(args.model, name, prefix)
    elif args.resume not in (None, NEWEST):
        if os.path.isdir(args.resume):
            folder = folder or Path(args.resume)
            snapshot = run_folder.to_go_on_from(args.resume)
        else:
            snapshot = runs.with_state(args.resume)
            folder = folder or runs.run_of(snapshot)
    if snapshot is not None:
        run_folder.warn_of_old_reading(str(snapshot))
    about = {"model": args.model, "command": [*program(), *args.words]}
    about |= {"imports": args.imports, "seed_asked": args.seed}
    return Run(record, name, folder, about, snapshot, from_newest=args.resume == NEWEST)


def next_commands(folder: Path, solver: Solver) -> list[str]:
    """What one does with a run that has ended, a line each, for one to copy."""
    command, run = shlex.join(program()), shlex.quote(str(folder))
    layers = solver.net.layers.values()
    types = {step.spec.type for step in solver.net.steps}
    answers = any(isinstance(one, (Softmax, SoftmaxLoss)) for one in layers)
    answers |= not types.isdisjoint(("SigmoidCrossEntropyLoss", "MultiBoxLoss"))
    answers &= any(isinstance(one, Pictures) for one in layers) and solver.saving.saved is not None
    use = [f"to use it: {command} predict {run} PICTURE..."] if answers else []
    return [f"to look at it: {command} report {run}", *use]


def program() -> list[str]:
    """How this program was started, as one would type it again."""
    typed = sys.argv[0]
    if os.path.basename(os.path.dirname(typed)) == "minicaffe" and typed.endswith("__main__.py"):
        return [sys.executable, "-m", "minicaffe"]
    is_script = os.path.basename(typed) == "minicaffe" and os.path.exists(typed)
    on_path = shutil.which("minicaffe")
    by_path = is_script and not (on_path and os.path.samefile(on_path, typed))
    return [typed] if by_path else ["minicaffe"]


FEW = 2  # iterations, and batches of a test
OWN = ("smoke", "epochs", "max_iter", "run", "snapshot_prefix")  # options that it sets


def smoke(args: CommandOptions) -> int:
    """`train --smoke`: two iterations of all that a training does, in a folder that is removed afterwards.

    Train, test, save, resume and report, each as its own command; the exit code of the first that fails.
    """
    from minicaffe.cli import main

    if world().size > 1:
        raise SpecError("--smoke: is for one process, not for several ranks")
    if args.resume is not None:
        raise SpecError("--smoke: begins a run and resumes it by itself, without --resume")
    words = ["train", *([args.model] if args.model is not None else []), *words_of(args, OWN)]
    with tempfile.TemporaryDirectory(prefix="minicaffe-") as home:
        folder = os.path.join(home, "run")
        few = {"snapshot": FEW // 2, "display": 1, "test_interval": FEW, "test_iter": FEW}
        keys = few | {"snapshot_prefix": os.path.join(folder, "smoke")}
        settings = [word for key in keys for word in ("--set", f"solver.{key}={keys[key]}")]
        device = ["--device", args.device] if args.device else []
        again = [word for file in args.imports for word in ("--import", file)]
        settings += ["--run", folder]
        steps = {
            "train, test, snapshot": [*words, *settings, "--max-iter", str(FEW)],
            "resume": ["train", "--resume", folder, "--max-iter", str(2 * FEW), *device, *again],
            "test": ["test", folder, "--batches", str(FEW), *device, *again],
            "report": ["report", folder, "--seconds", "1", *device, *again],
        }
        for name, step in steps.items():
            note(f"smoke: {name}")
            if code := main(step):
                note(f"minicaffe: --smoke: {name} did not succeed")
                return code
    note("smoke: all of it works; nothing was kept")
    return 0


class Train(OfNet, OwnData, Computed, OfRanks):
    """Train a net as the `solver` of its model file says, and record that in a folder of its own.

    On a terminal a bar shows the progress, else a line every `display` iterations. Ctrl-C stops after the
    iteration, saves a snapshot and prints the command that resumes; SIGHUP saves one and training continues.

    example:
      minicaffe train lenet
      minicaffe train lenet --device cpu --max-iter 500 --run runs/short
      minicaffe train --resume runs/short
      minicaffe train small --data photos/ --epochs 30
    """

    model: Annotated[
        str, Arg("model", nargs="?"), f"{MODEL}; default: that of the run which goes on"
    ]
    json: Annotated[bool, "put the lines of the run's log on stdout, nothing else"] = False
    no_graph: Annotated[
        bool, "on CUDA: launch each operation of an iteration, instead of one graph of them all"
    ] = False
    weights: Annotated[
        str | None,
        Arg(one_of="start"),
        f"start from these parameters, as far as names fit; {WEIGHTS}",
    ] = None
    resume: Annotated[
        str | None,
        Arg(one_of="start", nargs="?", const=NEWEST),
        "RUN",
        "go on from the newest snapshot in a run's folder, or from a snapshot; without RUN from the"
        " newest of this model, or in the folder of --run",
    ] = None
    run: Annotated[
        str | None,
        "DIR",
        f"the run's folder; default: {RUNS}/NAME-DATE, with --data {RUNS}/DATA, or that of the run that is"
        " resumed",
    ] = None
    snapshot_prefix: Annotated[
        str | None,
        "PATH",
        "snapshots are PATH_iter_N.npz or, of a prototxt, .solverstate; default: the model's"
        " snapshot_prefix, else NAME in the run's folder",
    ] = None
    snapshot_keep: Annotated[
        int | None, "K", "snapshots that stay, the last K, instead of the model's; 0 for all"
    ] = None
    max_iter: Annotated[
        int | None, Arg(one_of="length"), "iterations in all, instead of the model's"
    ] = None
    epochs: Annotated[
        int | None,
        number(1),
        Arg(one_of="length"),
        "the same in epochs: as many iterations as see the training data N times",
    ] = None
    seed: Annotated[int | None, "random seed, instead of the model's"] = None
    report: Annotated[
        bool, "write report.html into the run's folder at each test; an open page follows the run"
    ] = False
    tensorboard: Annotated[
        bool, "write the log's numbers as TensorBoard's event files, too, into the run's folder"
    ] = False
    find_lr: Annotated[
        str | None,
        Arg(one_of="instead", nargs="?", const="find_lr.svg"),
        f"instead of training: {find_lr.STEPS} iterations at rising rates, a picture of their losses (SVG;"
        " default: find_lr.svg), and a suggestion of base_lr",
    ] = None
    smoke: Annotated[
        bool,
        Arg(one_of="instead"),
        f"try everything, {FEW} iterations each: train, test, snapshot, resume, report; keep nothing",
    ] = False

    def __call__(self) -> int:
        if self.smoke:
            return smoke(self)
        communicator = world()
        with ranks.speaking(communicator):
            return train(self, communicator)


def model(args: Train, communicator: Communicator) -> NetSpec:
    """The model, once it is known which, and what may be asked of it."""
    if args.resume is not None:
        refuse(args, ("seed",), " cannot be given with --resume: a run goes on with its own seed")
        refuse(
            args, ("data", "batch_size"), " cannot be given with --resume: a run goes on as it is"
        )
    args.weights = named(args) or None
    if args.data is None:
        remedy = ": goes with --data; --set changes the keys of a model"
        refuse(args, ("size", "skip_damaged"), remedy)
    if args.data is not None and args.model is None:
        raise SpecError("--data: give a MODEL for it, such as small (minicaffe models lists them)")
    model_of_run(args)
    ranks.check(args, communicator)
    if args.data is not None:
        spec = of_own_data(args, communicator)
    else:
        spec = args.read_model()
        if args.batch_size is not None:
            spec, batch = with_batch(spec, args.batch_size, device_of(args.device, communicator))
            args.tell(f"batch_size: {batch}")
    # P. Goyal et al., Accurate, Large Minibatch SGD, 2017
    if args.scale_lr and spec.solver is not None:
        rule = dataclasses.replace(spec.solver, base_lr=spec.solver.base_lr * communicator.size)
        spec = dataclasses.replace(spec, solver=rule)
    if is_prototxt(args.model) and spec.solver is None:
        raise SpecError(
            f"{args.model}: is a net; training needs the solver's prototxt that names it"
        )
    if spec.solver is not None:
        if args.max_iter is None and args.epochs is None:
            check_max_iter(spec.solver)
        check_filled(spec, "TRAIN", spec.solver.train_state)
        if args.epochs is not None:
            ranks_each = communicator.size if args.batch_per_rank else 1
            args.max_iter = iterations(spec, spec.solver, args.epochs, ranks_each)
    return spec


def train(args: Train, communicator: Communicator) -> int:
    """Train, as one rank of so many."""
    ranks.prepare(args, communicator)
    spec = together(communicator, lambda: model(args, communicator))
    if args.find_lr is not None:
        return find_lr.run(args, spec, args.pick_device(spec, communicator), communicator)
    kind = progress.Quiet if args.quiet else progress.Bar if sys.stderr.isatty() else progress.Lines
    shown: progress.Progress = progress.Json() if args.json else kind()
    shown.rows = args.data is not None
    hearers: list[Any] = [shown.hear] if isinstance(shown, progress.Json) else []
    if args.tensorboard:
        tensorboard.library()
    pages: list[Any] = []
    if args.report:
        from minicaffe.tools.report.make import Follower

        pages = [Follower(shown.failed)]
    record, first = Record(shown.failed, hearers), communicator.rank == 0
    with contextlib.ExitStack() as stack:
        enter, report = stack.enter_context, progress.Together(shown, record, *pages)
        run = together(communicator, lambda: enter(run_of(args, spec, record)) if first else None)
        begun: Any = run or SimpleNamespace(snapshot=None, at_end=[])  # the first keeps the run
        device = together(communicator, lambda: args.pick_device(spec, communicator))
        args.seed = communicator.bcast_obj(begun.seed() if first else None)
        solver = built(args, spec, device, report, communicator)
        folder = ranks.place(begun, solver, communicator)
        together(communicator, lambda: start_of(args, begun, solver))
        together(communicator, lambda: begun.begin(solver) if first else None)
        if args.tensorboard:
            events = tensorboard.Writer(folder, solver.iteration, shown.failed)
            hearers.append(events)
            begun.at_end.append(events.close)
        shown.line(f"run: {printable(folder)}")
        if args.data is not None:
            shown.line(f"model: {printable(folder / run_folder.MODEL)}")
        if communicator.size > 1:
            shown.line(ranks.told(solver))
        shown.begin(solver)
        for page in pages:
            page.begin(solver, folder, [record.speed, shown.speed])
            begun.at_end.append(page.end)
        start, since = time.perf_counter(), solver.iteration
        if device.is_cuda and all(map(only_asks, (solver.net, *solver.test_nets))):
            enter(ahead.allowed(device))
        try:
            scores = solver.solve()
            device.synchronize()
        except CheckpointError:
            if solver.unsaved is not None and solver.scores:  # all was done but the last snapshot
                shown.result(progress.score_table(solver.scores, shown.suffixes))
            raise
        finally:
            shown.end()
        seconds = time.perf_counter() - start
        count = solver.iteration - since
        shown.line(f"{count} iterations in {seconds:.1f} s, tests included, on {device.name}")
        if first and not solver.stopped:
            shown.result(progress.score_table(scores, shown.suffixes) if scores else "")
            for warning in solver.net.warnings:
                shown.result(banner(warning))
            best = solver.judge.trends.get("best")
            if best is not None and best.at >= 0:
                score = f"{best.output} {best.value:.4f} at iteration {best.at}"
                file = snapshots.best_path(solver.saving.prefix)
                shown.line(f"best test: {score}, kept as {file}")
            for line in next_commands(folder, solver):
                shown.line(line)
    if solver.stopped and first:
        words = ["mpiexec", "-n", str(communicator.size)] * (communicator.size > 1)
        words += [*program(), "train", *([args.model] if args.model != str(folder) else [])]
        again = shlex.join([*words, "--resume", str(folder), *words_of(args, BEGINS)])
        note(f"stopped at iteration {solver.iteration}; to go on: {again}")
    return 130 if solver.stopped else shown.code()


def only_asks(net: Net) -> bool:
    """Whether a net computes nothing by CuPy unasked, as layers of forks and random DummyData do."""
    rooms = ("minicaffe.core.layers.", "minicaffe.tools.data.layers.")
    ours = all(type(step.layer).__module__.startswith(rooms) for step in net.steps)
    draws = any(step.spec.type == "DummyData" for step in net.steps)
    return ours and not draws and net.context.dtype.itemsize >= 4


class OfRun(Solver):
    """A solver whose snapshots may lie in its run's folder."""

    _folder_comes = True


def built(
    args: Train,
    spec: NetSpec,
    device: Device,
    report: progress.Together,
    communicator: Communicator,
) -> Solver:
    """The solver, as the options have it."""
    keys = ("max_iter", "snapshot_prefix", "snapshot_keep", "batch_per_rank", "reduce_dtype")
    chosen = {key: getattr(args, key) for key in keys} | {"random_seed": args.seed}
    settings = {key: value for key, value in chosen.items() if value is not None}
    settings |= {"numerics": args.numerics(), "graph": not args.no_graph}
    return OfRun(spec, device=device, report=report, communicator=communicator, **settings)


def start_of(args: Train, begun: Any, solver: Solver) -> None:
    """Have the solver begin with a snapshot or weights, if it is to."""
    report = solver.report
    for line in data_lines([solver.net, *solver.test_nets]):
        report.line(line)
    if begun.snapshot is not None:
        solver.restore(begun.snapshot)
        solver.saving.check_left(solver)
        report.event(f"resumed: {begun.snapshot} at iteration {solver.iteration}")
        return
    files = args.weights or ",".join(solver.spec.weights)
    for file, loaded in load_weights(solver.net, files, strict=False) if files else ():
        if loaded.mismatched:
            names = ", ".join(loaded.mismatched)
            raise CheckpointError(f"{file}: mismatched: {names}; {renaming(solver.net, names)}")
        report.event(f"weights: {file}: {loaded}")
