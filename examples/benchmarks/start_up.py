"""What it takes until LeNet's training step runs at its speed: compiling, later loading, and peak memory.

    git worktree add ../before HEAD~1
    python examples/benchmarks/start_up.py                     some 2 minutes
    python examples/benchmarks/start_up.py --before ../before

A process imports minicaffe, builds the solver and takes its first steps, in an empty cache folder (loops are
compiled, convolutions measured), then again, in processes that find all of it. What is beyond the time of as
many settled steps is what starting costs. Goes to results/start_up_cpu.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

import forms
from machine import describe, free_process, peak_memory, version, warn_if_busy
from measure import ROOT, digits, spread, write
from peer_tables import NOT_YET
from served import HERE, of_checkout
from tables import lay_out

BATCHES = (1, 64)
FIRST = 5  # steps, by which all is compiled, recorded and replayed
SETTLED = 50  # further ones
PARTS = {
    "import": "importing minicaffe",
    "build": "building the solver",
    "first": f"the first {FIRST} steps",
    "over": "of that beyond their own time",
}


def start(settings: dict) -> dict[str, float]:
    """Seconds of each part, and MiB at the peak, in this process."""
    begin = time.perf_counter()
    import minicaffe.core.solver  # noqa: F401

    imported = time.perf_counter()
    forms.prepare(settings | {"form": "numba", "contender": "minicaffe"})
    from lenet_step import ours

    one, _ = ours(settings["batch"], "cpu")
    built = time.perf_counter()
    for _ in range(FIRST):
        one.step()
    one.loss()
    first = time.perf_counter()
    times = []
    for _ in range(SETTLED):
        again = time.perf_counter()
        one.step()
        times.append(time.perf_counter() - again)
    found = {"import": imported - begin, "build": built - imported, "first": first - built}
    found["over"] = found["first"] - FIRST * spread(times)["median"]
    return {key: digits(value) for key, value in found.items()} | {"peak": peak_memory()}


def process(root: Path, home: str, batch: int, threads: int) -> dict[str, float]:
    """That of a process of its own."""
    command = [sys.executable, str(HERE / "start_up.py"), "--start"]
    command.append(json.dumps({"batch": batch, "threads": threads}))
    done = subprocess.run(
        command, env=of_checkout(root, home), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(root: Path, batch: int, threads: int, again: int) -> dict[str, dict]:
    """The first process in an empty cache, and the medians of those that find it filled."""
    with tempfile.TemporaryDirectory() as home:
        first = process(root, home, batch, threads)
        later = [process(root, home, batch, threads) for _ in range(again)]
    return {
        "first": first,
        "later": {key: spread([one[key] for one in later])["median"] for key in first},
    }


def help_ms(root: Path, home: str, times: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a process that prints `minicaffe --help`, and of one in which Python does nothing."""
    both = {"help": ["-m", "minicaffe", "--help"], "python": ["-c", ""]}
    taken: dict[str, list[float]] = {name: [] for name in both}
    for turn in range(times + 1):
        for name, words in both.items():
            begin = time.perf_counter()
            subprocess.run(
                [sys.executable, *words],
                env=of_checkout(root, home),
                stdout=subprocess.DEVNULL,
                check=True,
            )
            if turn:  # the first one writes bytecode
                taken[name].append(1e3 * (time.perf_counter() - begin))
    return {name: spread(ms) for name, ms in taken.items()}


def table(found: dict | None) -> str:
    """A row a part of starting, and the memory; a column each for an empty and a filled cache."""
    if found is None:
        return NOT_YET
    head, rows = ["LeNet's step: seconds"], [[title] for title in PARTS.values()]
    rows.append(["peak memory, MiB"])
    for batch, roots in found["batches"].items():
        for root, one in roots.items():
            for when, title in (("first", "an empty cache"), ("later", "a filled one")):
                head.append(f"batch {batch}, {title}" + ", before" * (root == "before"))
                for row, key in zip(rows, PARTS, strict=False):
                    row.append(f"{one[when][key]:.2f}")
                rows[-1].append(f"{one[when]['peak']:.0f}")
    machine = found["machine"]
    where = f"{machine['processor']}, {found['threads']} threads, Numba {machine['numba']}"
    if ms := found.get("help_ms"):
        where += f". `minicaffe --help` takes {ms['help']['median']:.0f} ms,"
        where += f" of which {ms['python']['median']:.0f} are Python's own start"
    return lay_out(head, rows) + f"\n\n{where}."


def main() -> None:
    if sys.argv[1:2] == ["--start"]:
        print(json.dumps(start(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--again", type=int, default=5, help="processes that find a filled cache")
    parser.add_argument("--helps", type=int, default=20, help="processes that print the help")
    parser.add_argument(
        "--only-help",
        action="store_true",
        help="measure --help anew, keep what is there of the rest",
    )
    parser.add_argument("--into", type=Path, default=HERE / "results", help="folder of the result")
    args = parser.parse_args()
    free_process()
    warn_if_busy()
    if args.only_help:
        path = args.into / "start_up_cpu.json"
        with tempfile.TemporaryDirectory() as home:
            ms = help_ms(ROOT, home, args.helps)
        print(json.dumps(ms))
        write(path, json.loads(path.read_text()) | {"help_ms": ms})
        return
    machine = describe() | {"numba": version("numba"), "blas_threads": "1 a thread"}
    found = {"machine": machine, "threads": args.threads, "batches": {}}
    with tempfile.TemporaryDirectory() as home:
        found["help_ms"] = help_ms(ROOT, home, args.helps)
    print(json.dumps(found["help_ms"]), flush=True)
    roots = {"now": ROOT} | ({"before": args.before.resolve()} if args.before else {})
    for batch in args.batches:
        found["batches"][str(batch)] = {
            name: measure(root, batch, args.threads, args.again) for name, root in roots.items()
        }
        print(batch, json.dumps(found["batches"][str(batch)]), flush=True)
    write(args.into / "start_up_cpu.json", found)


if __name__ == "__main__":
    main()
