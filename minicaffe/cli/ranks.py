"""One voice of many: what the ranks of a run do on the command line, of which the first speaks and writes."""

import contextlib
import os
import platform
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from minicaffe.backends.cpu import threads
from minicaffe.cli.parser import CommandOptions, refuse
from minicaffe.core.communicator import Communicator, together
from minicaffe.core.solver import Solver
from minicaffe.errors import MinicaffeError, SpecError, note
from minicaffe.tools.training.folder import is_run


class OfRanks(CommandOptions):
    """What several ranks are told."""

    batch_per_rank: Annotated[
        bool,
        "of several ranks (mpiexec -n N) each computes a batch of the model's batch_size, as Caffe has "
        "it, instead of its part of one",
    ] = False
    reduce_dtype: Annotated[
        Literal["float16"] | None,
        "of several ranks: sum gradients in so many bits; what that loses is added to the next ones",
    ] = None
    scale_lr: Annotated[
        bool,
        "with --batch-per-rank: multiply base_lr by the number of ranks (warmup_iter warms up to it)",
    ] = False


@contextlib.contextmanager
def speaking(communicator: Communicator) -> Iterator[None]:
    """Within it an error of all ranks is told by the first; one of this rank alone ends all, with its name."""
    if communicator.size == 1:
        yield
        return
    rank = communicator.rank
    try:
        yield
    except MinicaffeError as error:
        if not error.everywhere:
            note(f"minicaffe: rank {rank}: {error}")
            communicator.abort(error.exit_code)
        if rank == 0:
            raise
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        note(f"minicaffe: rank {rank}: interrupted")
        communicator.abort(130)
    except MemoryError:
        note(f"minicaffe: rank {rank}: out of memory; a smaller batch_size needs less")
        communicator.abort(2)
    except Exception:
        note(f"minicaffe: rank {rank}: {traceback.format_exc()}")
        communicator.abort(1)


def prepare(args: CommandOptions, communicator: Communicator) -> None:
    """Set the options that hold for this rank: its share of the processors, its GPU, whether it speaks."""
    if communicator.size == 1:
        return
    if args.threads is None and not os.environ.get(threads.VARIABLE):
        mine = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        alike = communicator.allgather_obj((platform.node(), mine))
        count = os.cpu_count() or 1 if mine is None else len(mine)
        os.environ[threads.VARIABLE] = str(max(1, count // alike.count(alike[communicator.rank])))
        threads.count.cache_clear()
    if communicator.rank:
        args.quiet, args.json, args.report, args.tensorboard = True, False, False, False


def check(args: CommandOptions, communicator: Communicator) -> None:
    """Raise SpecError for options that do not go together."""
    if communicator.size == 1:
        several = ": is for several ranks: mpiexec -n N minicaffe train ..."
        refuse(args, ("batch_per_rank", "reduce_dtype", "scale_lr"), several)
        return
    if args.scale_lr and not args.batch_per_rank:
        raise SpecError(
            "--scale-lr: goes with --batch-per-rank; without it the batch is the model's"
        )
    if args.scale_lr and args.model is not None and is_run(args.model):
        raise SpecError(f"--scale-lr: the rate that {args.model} was begun with is scaled already")


def told(solver: Solver) -> str:
    """How a batch is shared, in a line."""
    share, communicator = solver.net.context.share, solver.communicator
    batch = f"{share.count} of the {share.whole} samples of a batch on rank {share.rank}"
    each = f"{threads.count()} threads each" if threads.count() > 1 else "1 thread each"
    where = each if not solver.device.is_cuda else "a GPU each"
    return f"{communicator.size} ranks, {where}, {batch}, {communicator.name}"


def place(begun: Any, solver: Solver, communicator: Communicator) -> Path:
    """The run's folder, which the first rank makes; what it goes on from is known on all."""
    folder: Path = together(
        communicator, lambda: Path() if communicator.rank else begun.place(solver)
    )
    if communicator.size == 1:
        return folder
    places = folder, solver.saving.prefix, begun.snapshot
    folder, solver.saving.prefix, begun.snapshot = communicator.bcast_obj(places)
    solver.record_folder = folder
    return folder
