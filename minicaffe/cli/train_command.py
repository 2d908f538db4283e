"""Train a net as the `solver` of its model file says.

On a terminal a bar shows the progress, else a line every `display` iterations. Ctrl-C stops after the
iteration, takes a snapshot and says how to go on.

example:
  minicaffe train models/lenet.yaml
  minicaffe train models/lenet.yaml --device cpu --max-iter 500
  minicaffe train models/lenet.yaml --resume
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time

from minicaffe.caffe.model import is_prototxt
from minicaffe.cli.filled import check_filled
from minicaffe.cli.options import (
    data_lines,
    device_option,
    engine_options,
    engine_settings,
    model_options,
    number,
    pick_device,
    read_model,
)
from minicaffe.cli.progress import Bar, Lines, Progress, Quiet, score_table
from minicaffe.cli.weights import WEIGHTS, load_weights
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError, note
from minicaffe.net import Net
from minicaffe.ops import conv
from minicaffe.solver import Solver
from minicaffe.solver.report import banner

NEWEST = "the newest snapshot"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    device_option(parser)
    engine_options(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--weights",
        metavar="FILE",
        help=f"start from these parameters, as far as names fit; {WEIGHTS}",
    )
    start.add_argument(
        "--resume",
        metavar="FILE",
        nargs="?",
        const=NEWEST,
        help="go on from a snapshot; without FILE the newest one",
    )
    parser.add_argument(
        "--max-iter", metavar="N", type=number(0), help="iterations in all, instead of the model's"
    )
    parser.add_argument(
        "--seed", metavar="N", type=number(0), help="random seed, instead of the model's"
    )
    parser.add_argument(
        "--snapshot-prefix",
        metavar="PATH",
        help="snapshots are PATH_iter_N.npz or, of a prototxt, .solverstate",
    )


def run(args: argparse.Namespace) -> int:
    """Train."""
    if args.resume is not None and args.seed is not None:
        raise MinicaffeError(
            "--seed cannot be given with --resume: a run goes on with its own seed"
        )
    spec = read_model(args)
    if is_prototxt(args.model) and spec.solver is None:
        raise SpecError(
            f"{args.model}: is a net; training needs the solver's prototxt that names it"
        )
    if spec.solver is not None:
        check_filled(spec, "TRAIN", spec.solver.train_state)
    if args.resume is not None and args.resume.lower().endswith(
        (".caffemodel", ".caffemodel.h5", ".safetensors")
    ):
        raise CheckpointError(f"{args.resume}: holds weights and no solver's state; try --weights")
    device = pick_device(args, spec)
    given = {
        **engine_settings(args),
        "max_iter": args.max_iter,
        "random_seed": args.seed,
        "snapshot_prefix": args.snapshot_prefix,
    }
    report: Progress = Quiet() if args.quiet else Bar() if sys.stderr.isatty() else Lines()
    solver = Solver(
        spec, device=device, report=report, **{k: v for k, v in given.items() if v is not None}
    )
    for line in data_lines([solver.net, *solver.test_nets]):
        report.line(line)
    files = "" if args.resume else args.weights or ",".join(solver.spec.weights)
    for file, found in load_weights(solver.net, files, strict=False) if files else ():
        if found.mismatched:
            told = ", ".join(found.mismatched)
            raise CheckpointError(f"{file}: mismatched: {told}; {renaming(solver.net, told)}")
        report.line(f"weights: {file}: {found}")
    if args.resume is not None:
        path = solver.latest_snapshot() if args.resume == NEWEST else args.resume
        solver.restore(path)
        report.line(f"resumed: {path} at iteration {solver.iteration}")
    report.begin(solver)
    start, first = time.perf_counter(), solver.iteration
    try:
        scores = solver.solve()
        device.synchronize()
    except CheckpointError:
        if solver.unsaved is not None and solver.scores:  # all was done but the last snapshot
            print(score_table(solver.scores))
        raise
    finally:
        report.end()
    seconds = time.perf_counter() - start
    count = solver.iteration - first
    report.line(f"{count} iterations in {seconds:.1f} s, tests included, on {device.name}")
    if solver.stopped:
        note(f"stopped at iteration {solver.iteration}; to go on: {resume_command(args, solver)}")
        return 130
    if scores:
        print(score_table(scores))
    for warning in solver.net.warnings:
        print(banner(warning))
    return 0


def renaming(net: Net, mismatched: str) -> str:
    """How the first layer whose shapes are not the file's would be learnt anew, as in fine-tuning."""
    name = mismatched.partition(" (file ")[0].rpartition("__")[0]
    (spec,) = (step.spec for step in net.steps if step.spec.name == name)
    words = ["--set", f"layers.{name}.top={name}"] if spec.top is None else []
    words += ["--set", f"layers.{name}.name={name}_new"]
    return f"to train layer {name!r} anew, give it another name: {shlex.join(words)}"


def resume_command(args: argparse.Namespace, solver: Solver) -> str:
    """The command that goes on from the snapshot just taken."""
    words = [
        *program(),
        "train",
        args.model,
        "--resume",
        str(solver.snapshot_path()),
    ]
    given = {
        "--device": args.device,
        "--threads": args.threads,
        "--level": args.level,
        "--stage": args.stage or None,
        "--max-iter": args.max_iter,
        "--dtype": args.dtype,
        "--conv-engine": None if args.conv_engine == "auto" else args.conv_engine,
        "--workspace": None if args.workspace << 20 == conv.CAP else args.workspace,
        "--snapshot-prefix": args.snapshot_prefix,
    }
    for option, value in given.items():
        words += [option, str(value)] if value is not None else []
    words += ["--deterministic"] if args.deterministic else []
    words += ["--quiet"] if args.quiet else []
    for option, values in (("--set", args.settings), ("--import", args.imports)):
        words += [word for value in values for word in (option, value)]
    return shlex.join(words)


def program() -> list[str]:
    """How this program was started, as one would type it again."""
    typed = sys.argv[0]
    if os.path.basename(os.path.dirname(typed)) == "minicaffe" and typed.endswith("__main__.py"):
        return [sys.executable, "-m", "minicaffe"]
    found = shutil.which("minicaffe")
    if os.path.basename(typed) != "minicaffe" or not os.path.exists(typed):
        return ["minicaffe"]
    if found and os.path.samefile(found, typed):
        return ["minicaffe"]
    return [typed]
