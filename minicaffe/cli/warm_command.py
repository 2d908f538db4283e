"""Compile the loops of some nets, and measure their convolutions, so that no later command waits for that.

Once after the extra `cpu` was installed, or minicaffe was updated. Nets are compiled side by side, as many at
a time as there are cores; then their convolutions are measured, one after the other. Without names these are
a few nets whose loops are those of most. With --train their training step is compiled, too.

example:
  minicaffe warm
  minicaffe warm lenet mobilenet
  minicaffe warm lenet --train
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

from minicaffe.backends import cpu
from minicaffe.backends.cpu import compile_cache, threads
from minicaffe.cli.explain_command import plan
from minicaffe.cli.explain_step import QUIET, SETTLED
from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.cli.streams import say
from minicaffe.core.net import Net
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.solver import Solver
from minicaffe.errors import MinicaffeError

COMMON = ("lenet", "squeezenet", "mobilenet", "resnet50")


class Options(CommandOptions):
    """The options."""

    models: Annotated[
        Sequence[str], Arg("models", nargs="*"), "MODEL", f"default: {' '.join(COMMON)}"
    ] = COMMON
    train: Annotated[bool, "compile the training step, too"] = False


def run(args: Options) -> None:
    """Compile, then measure."""
    if not cpu.available():
        raise MinicaffeError(
            "there are no loops to compile: Numba is not there, which the extra brings: "
            "pip install 'minicaffe[cpu]'"
        )
    for name in args.models:
        Net(name, "TEST", device="cpu", shapes_only=True)  # a mistake is told before all work
    start = time.perf_counter()
    spawned = multiprocessing.get_context("spawn")
    workers = min(threads.count(), len(args.models))
    with ProcessPoolExecutor(workers, mp_context=spawned) as pool:
        work = functools.partial(compiled, train=args.train)
        for name, seconds in zip(args.models, pool.map(work, args.models), strict=True):
            print(f"{name}: compiled in {seconds:.1f} s", flush=True)
    for name in args.models:
        measured(name, args.train)
    taken = time.perf_counter() - start
    say(f"{taken:.0f} s in all; kept for the next command in {compile_cache.folder()}")


def compiled(name: str, train: bool) -> float:
    """The seconds of some passes, and iterations, of a net."""
    start = time.perf_counter()
    net = Net(name, "TEST", device="cpu", keep=())
    for _ in range(SETTLED):
        net.forward()
    if train:
        Solver(name, device="cpu", **QUIET).step(SETTLED)
    return time.perf_counter() - start


def measured(name: str, train: bool) -> None:
    """Measure the convolutions of a net, with nothing beside: what the others measured is forgotten."""
    for phase in ("TEST", "TRAIN") if train else ("TEST",):
        anew: list[Case] = []
        for step in Net(name, phase, device="cpu", shapes_only=True).steps:
            if isinstance(getattr(step.layer, "plan", None), conv.Plan):
                plan(step.layer, anew)
