"""Two checkouts of minicaffe side by side: LeNet's training step, the ladder, the time to start, interleaved.

    git worktree add ../before HEAD~1
    python examples/benchmarks/checkouts.py ../before            some 2 minutes
    python examples/benchmarks/checkouts.py ../before --rounds 15 --write
    python examples/benchmarks/checkouts.py ../before --ladder    single convolutions too, some 15 minutes

A ratio above 1 means that this checkout takes less time than the other. Both run in processes of their own,
with the same packages, threads and data; --write keeps the result in results/checkouts_cpu.json.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import forms
import ladder
from machine import describe, free_process, version, warn_if_busy
from measure import ROOT, clock, interleaved, ratios, spread, write
from served import Served, of_checkout, serve

HERE = Path(__file__).resolve().parent
BATCHES = (1, 8, 64)
STEPS = 20  # that one question to a process asks for
STARTS = {
    "minicaffe --help": ["--help"],
    "minicaffe summary": ["summary", "models/lenet.yaml"],
    "minicaffe time, 1 pass": ["time", "models/lenet_paper.yaml", "--iterations", "1"],
}


def begin(settings: dict) -> Callable[[], float]:
    """Some training steps, in this process; gives the loss of the last."""
    forms.prepare(settings | {"contender": "minicaffe"})
    if "rung" in settings:
        return rung(settings)
    from lenet_step import ours

    one, _ = ours(settings["batch"], "cpu")

    def call() -> float:
        for _ in range(STEPS):
            one.step()
        return one.loss()

    return call


def rung(settings: dict) -> Callable[[], str]:
    """A convolution of the ladder, forward and backward; gives the engines that it is computed by."""
    from minicaffe.backends.device import device

    g = ladder.geometry(settings["rung"], settings["batch"])
    one = ladder.Ours(g, ladder.given(g), device("cpu"))

    def call() -> str:
        one.forward()
        one.backward()
        return "/".join(one.plan.names.values())

    return call


def rungs(roots: dict[str, Path], batch: int, threads: int, rounds: int) -> dict[str, dict]:
    """The ms of each rung in both, forward and backward, its engines, and the ratio."""
    compared_rungs = {}
    for name in ladder.LADDER:
        settings = {"form": "numba", "rung": name, "batch": batch, "threads": threads}
        both = {}
        try:
            for key, root in roots.items():
                both[key] = Served("checkouts.py", settings, environment(root))
            engines = {key: one().strip() for key, one in both.items()}
            times = interleaved(both, clock, rounds, 1500.0)
        finally:
            for one in both.values():
                one.end()
        compared_rungs[name] = compared(times) | {"engines": engines}
        show(f"{name}, {engines['this']}, the other {engines['other']}", compared_rungs[name])
    return compared_rungs


def environment(root: Path) -> dict[str, str]:
    """That of a checkout, with a cache of its own."""
    home = os.environ["MINICAFFE_CACHE"] + ("this" if root == ROOT else "other")
    return of_checkout(root, home)


def steps(roots: dict[str, Path], form: str, batch: int, threads: int, rounds: int) -> dict:
    """The ms of a step in both, and their ratio. Raises SystemExit where they do not compute the same."""
    settings = {"form": form, "batch": batch, "threads": threads}
    both, losses = {}, {}
    try:
        for name, root in roots.items():
            both[name] = Served("checkouts.py", settings, environment(root))
            losses[name] = [float(both[name]()) for _ in range(3)]
        apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
        if not apart < 1e-3:
            raise SystemExit(f"the checkouts compute different losses: {losses}")
        times = interleaved(both, clock, rounds, 400.0)
    finally:
        for one in both.values():
            one.end()
    return compared({name: [ms / STEPS for ms in found] for name, found in times.items()})


def starts(roots: dict[str, Path], words: list[str], rounds: int) -> dict:
    """The ms of a whole command in both, and their ratio."""

    def start(root: Path):
        command = [sys.executable, "-m", "minicaffe", *words]
        return lambda: subprocess.run(
            command,
            cwd=root,
            env=environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    calls = {name: start(root) for name, root in roots.items()}
    return compared(interleaved(calls, clock, rounds, 1.0, warm_up=1))


def compared(times: dict[str, list[float]]) -> dict:
    """Medians, and the other's ms by ours."""
    ms = {name: spread(found) for name, found in times.items()}
    return {"ms": ms, "ratio": ratios(times["other"], times["this"])}


def main() -> None:
    if serve(begin):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--ladder", action="store_true", help="single convolutions, too, of 8")
    parser.add_argument("--write", action="store_true", help="keep the result")
    args = parser.parse_args()
    free_process()
    warn_if_busy()
    kept = [form for form in ("numba", "numpy") if form == "numpy" or version("numba")]
    report = {"machine": describe() | {"numba": version("numba")}, "threads": args.threads}
    roots = {"this": ROOT, "other": args.other.resolve()}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["MINICAFFE_CACHE"] = f"{cache}/"
        report["step"] = {form: {} for form in kept}
        for form in kept:
            for batch in args.batches:
                found = steps(roots, form, batch, args.threads, args.rounds)
                report["step"][form][batch] = found
                show(f"LeNet's step, {forms.FORMS[form]}, batch {batch}", found)
        if args.ladder and "numba" in kept:
            report["ladder"] = rungs(roots, 8, args.threads, args.rounds)
            logs = [math.log(one["ratio"]["median"]) for one in report["ladder"].values()]
            report["ladder mean"] = math.exp(sum(logs) / len(logs))
            print(f"{report['ladder mean']:.3f}x: the geometric mean of the ladder")
        report["start"] = {}
        for name, words in STARTS.items():
            report["start"][name] = found = starts(roots, words, args.rounds)
            show(name, found)
    if args.write:
        write(HERE / "results" / "checkouts_cpu.json", report)


def show(what: str, found: dict) -> None:
    """One line: the ratio with its quartiles, and both times."""
    ratio, ms = found["ratio"], {name: one["median"] for name, one in found["ms"].items()}
    print(
        f"{ratio['median']:.3f}x ({ratio['low']:.3f} to {ratio['high']:.3f}): {what}: "
        f"{ms['this']:.4g} ms, the other {ms['other']:.4g} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
