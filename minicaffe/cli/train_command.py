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
from minicaffe.cli.progress import Bar, Lines, score_table
from minicaffe.errors import CheckpointError, MinicaffeError
from minicaffe.ops import conv
from minicaffe.solver import Solver, state
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
        help="start from these parameters, as far as names fit",
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
    parser.add_argument("--snapshot-prefix", metavar="PATH", help="snapshots are PATH_iter_N.npz")


def run(args: argparse.Namespace) -> int:
    """Train."""
    if args.resume is not None and args.seed is not None:
        raise MinicaffeError(
            "--seed cannot be given with --resume: a run goes on with its own seed"
        )
    spec = read_model(args)
    device = pick_device(args)
    given = {
        **engine_settings(args),
        "max_iter": args.max_iter,
        "random_seed": args.seed,
        "snapshot_prefix": args.snapshot_prefix,
    }
    report = Bar() if sys.stderr.isatty() else Lines()
    solver = Solver(
        spec, device=device, report=report, **{k: v for k, v in given.items() if v is not None}
    )
    for line in data_lines([solver.net, solver.test_net]):
        report.line(line)
    if args.weights is not None:
        found = solver.net.load(args.weights, strict=False)
        if found.mismatched:
            raise CheckpointError(f"{args.weights}: mismatched: {', '.join(found.mismatched)}")
        report.line(f"weights: {args.weights}: {found}")
    if args.resume is not None:
        path = solver.latest_snapshot() if args.resume == NEWEST else args.resume
        solver.restore(path)
        report.line(f"resumed: {path} at iteration {solver.iteration}")
    report.begin(solver)
    start, first = time.perf_counter(), solver.iteration
    try:
        scores = solver.solve()
        device.synchronize()
    finally:
        report.end()
    seconds = time.perf_counter() - start
    count = solver.iteration - first
    report.line(f"{count} iterations in {seconds:.1f} s, tests included, on {device.name}")
    if solver.stopped:
        report.line(
            f"stopped at iteration {solver.iteration}; to go on: {resume_command(args, solver)}"
        )
        return 130
    if scores:
        print(score_table(scores))
    for warning in solver.net.warnings:
        print(banner(warning))
    return 0


def resume_command(args: argparse.Namespace, solver: Solver) -> str:
    """The command that goes on from the snapshot just taken."""
    words = [
        *program(),
        "train",
        args.model,
        "--resume",
        str(state.path(solver.prefix, solver.iteration)),
    ]
    for option, value in (("--device", args.device), ("--max-iter", args.max_iter)):
        words += [option, str(value)] if value is not None else []
    words += ["--dtype", args.dtype] if args.dtype else []
    if args.conv_engine != "auto":
        words += ["--conv-engine", args.conv_engine]
    if args.workspace << 20 != conv.CAP:
        words += ["--workspace", str(args.workspace)]
    words += ["--deterministic"] if args.deterministic else []
    if args.snapshot_prefix:
        words += ["--snapshot-prefix", args.snapshot_prefix]
    for file in args.imports:
        words += ["--import", file]
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
