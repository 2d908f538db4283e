"""minicaffe beside PyTorch: LeNet's training step, its peak memory, and a ladder of single convolutions.

    python examples/benchmarks/peers.py                        some 15 minutes on 2 CPU cores
    python examples/benchmarks/peers.py --device cuda
    python examples/benchmarks/peers.py --quick --into /tmp --only lenet

Needs PyTorch in the same environment (minicaffe does not). It runs LeNet eager, with channels_last and with
torch.compile (on CUDA: with CUDA graphs), a convolution in both formats; the fastest counts. Contenders run in
one process, interleaved, with as many threads each; the two forms of minicaffe's CPU ops are processes apart,
each with PyTorch beside it; so is all that measures memory. Results go to results/peers_DEVICE.json and
results/ladder_DEVICE.json; peer_tables.py makes Markdown of them.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forms import FORMS
from ladder import LADDER
from machine import describe, free_environment, free_process, gpu, new_plans, version, warn_if_busy
from measure import fastest, geometric_mean, parsed, save

HERE = Path(__file__).resolve().parent
BATCHES = (1, 8, 32, 64, 128, 256)
PARTS = ("lenet", "memory", "ladder")
FULL = {"rounds": 15, "block_ms": 250.0}
QUICK = {"rounds": 3, "block_ms": 60.0}


def main() -> None:
    args = arguments()
    free_process()
    if version("torch") is None:
        sys.exit("PyTorch is not installed here: there is no peer to measure against")
    warn_if_busy()
    args.head = report(args)  # before the machine is busy with us
    try:
        with new_plans():
            if "lenet" in args.only or "memory" in args.only:
                lenet(args)
            if "ladder" in args.only:
                ladder(args)
    except subprocess.CalledProcessError as error:  # what was measured before is written
        sys.exit(f"failed: {' '.join(error.cmd)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    parser.add_argument(
        "--batch", type=int, default=8, help="of the ladder, LeNet's apart; default: 8"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--minutes", type=float, default=60, help="after which no row is begun; default: 60"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES, help="of LeNet's step")
    parser.add_argument("--rungs", nargs="+", choices=list(LADDER), default=list(LADDER))
    args = parsed(parser)
    args.kind = args.device.partition(":")[0]
    args.forms = ["cuda"] if args.kind == "cuda" else ["numba", "numpy"]
    args.until = time.monotonic() + 60 * args.minutes
    return args


def common(args: argparse.Namespace, form: str) -> dict[str, object]:
    """What every process is told."""
    speed = QUICK if args.quick else FULL
    return {"form": form, "device": args.device, "threads": args.threads, **speed}


def report(args: argparse.Namespace) -> dict[str, object]:
    """What every result file begins with."""
    machine = describe() | {name: version(name) for name in ("torch", "numba", "threadpoolctl")}
    machine["blas_threads"] = "1 a thread"  # in every child
    if args.kind == "cuda":
        machine |= gpu(args.device)
    return {"device": args.kind, "threads": args.threads, "quick": args.quick, "machine": machine}


def lenet(args: argparse.Namespace) -> None:
    """The training step, in each form and batch size, and the peak memory of each contender alone."""
    path = args.into / f"peers_{args.kind}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found |= args.head
    if "lenet" in args.only:
        found["lenet"] = {form: {} for form in args.forms}
        for form in args.forms:
            for batch in in_time(args.batches, args.until):
                one = child(
                    "lenet_step.py", common(args, form) | {"what": "compare", "batch": batch}
                )
                found["lenet"][form][str(batch)] = one
                save(path, found)
                shown = ", ".join(
                    f"{name} {rate['median']:.1f} iter/s" for name, rate in one["rates"].items()
                )
                print(
                    f"{one['ratios'][fastest(one['ratios'])]['median']:.2f}x: {FORMS[form]}, "
                    f"batch {batch}: {shown}"
                )
    if "memory" in args.only:
        if "lenet" not in found:
            sys.exit(f"{path} does not tell which PyTorch is the fastest: measure lenet, too")
        found["memory"] = {name: {} for name in ("torch", *args.forms)}
        for name, by_batch in found["memory"].items():
            form = args.forms[0] if name == "torch" else name
            measured = [batch for batch in args.batches if str(batch) in found["lenet"][form]]
            for batch in in_time(measured, args.until):
                one = "minicaffe"
                if name == "torch":
                    one = fastest(found["lenet"][form][str(batch)]["ratios"])
                told = {"what": "memory", "contender": one, "batch": batch}
                by_batch[str(batch)] = child("lenet_step.py", common(args, form) | told)
                save(path, found)
                print(f"{name}, batch {batch}: {by_batch[str(batch)]['peak']:.0f} MiB at the peak")
    print(f"-> {path}")


def in_time(rows: Sequence, until: float) -> Iterator:
    """Rows one after the other; none is begun after a time, except the first."""
    for i, row in enumerate(rows):
        if i and time.monotonic() > until:
            print(f"no time remains for {len(rows) - i} of {len(rows)}, from {row} on")
            return
        yield row


def ladder(args: argparse.Namespace) -> None:
    """Single convolutions, in the fastest form; rung by rung, for memory's sake."""
    speed = {"cpu": {"rounds": 9, "block_ms": 100.0}, "cuda": {"rounds": 5, "block_ms": 40.0}}
    speed = {} if args.quick else speed[args.kind]
    told = common(args, args.forms[0]) | {"batch": args.batch} | speed
    path, rungs = args.into / f"ladder_{args.kind}.json", {}
    for name, found in measured_rungs(args, told):
        rungs[name] = found
        if args.kind == "cpu":  # the host's memory
            way = fastest(found["backward"]["ms"])
            rungs[name]["memory_mib"] = {
                one.partition(" ")[0]: child(
                    "ladder.py", told | {"rungs": [name], "contender": one}
                )
                for one in ("minicaffe", way)
            }
        means = {
            way: geometric_mean([rung[way]["ratio"]["median"] for rung in rungs.values()])
            for way in ("forward", "backward")
        }
        head = args.head | {"form": args.forms[0], "batch": args.batch, "geometric_means": means}
        save(path, head | {"rungs": rungs})
        if time.monotonic() > args.until and len(rungs) < len(args.rungs):
            print(f"no time remains for {', '.join(one for one in args.rungs if one not in rungs)}")
            break
    print("geometric means: " + ", ".join(f"{way} {mean:.2f}x" for way, mean in means.items()))
    print(f"-> {path}")


def measured_rungs(args: argparse.Namespace, told: dict[str, object]) -> Iterator[tuple[str, dict]]:
    """Each rung with its numbers: on the CPU by a process of its own, on CUDA all by one."""
    groups = [[name] for name in args.rungs] if args.kind == "cpu" else [args.rungs]
    for group in groups:
        for answer in answers("ladder.py", told | {"rungs": group}):
            yield from answer.items()


def child(script: str, settings: dict[str, object]) -> Any:
    """The last answer of a process of its own."""
    return list(answers(script, settings))[-1]


def answers(script: str, settings: dict[str, object]) -> Iterator[Any]:
    """The answers of a process of its own, as they come; it is ended with the last one that is asked for."""
    command = [sys.executable, str(HERE / script), json.dumps(settings)]
    # One BLAS thread, as the command line says it: read when NumPy is loaded, before any setting.
    environment = free_environment() | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if line.startswith(("{", "[")) or line[0].isdigit():
                    yield json.loads(line)
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)


if __name__ == "__main__":
    main()
