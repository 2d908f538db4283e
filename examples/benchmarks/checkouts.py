"""Two checkouts of minicaffe side by side: LeNet's training step and the time to start, interleaved.

    git worktree add ../before HEAD~1
    python examples/benchmarks/checkouts.py ../before            some 2 minutes
    python examples/benchmarks/checkouts.py ../before --rounds 15 --write

A ratio above 1 means that this checkout takes less time than the other. Both run in processes of their own,
with the same packages, threads and data; --write keeps the result in results/checkouts_cpu.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import forms
from machine import describe, free_environment, free_process, version, warn_if_busy
from measure import ROOT, clock, interleaved, ratios, spread, write

HERE = Path(__file__).resolve().parent
BATCHES = (1, 32, 64)
STEPS = 10  # that one question to a process asks for
STARTS = {
    "minicaffe --help": ["--help"],
    "minicaffe summary": ["summary", "models/lenet.yaml"],
    "minicaffe time, 1 pass": ["time", "models/lenet_paper.yaml", "--iterations", "1"],
}


class Checkout:
    """A process that takes training steps with the code of one checkout."""

    def __init__(self, root: Path, settings: dict[str, object]):
        command = [sys.executable, str(HERE / "checkouts.py"), "--steps-of", json.dumps(settings)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment(root), stdin=pipe, stdout=pipe, text=True
        )

    def steps(self) -> str:
        """Take some steps; gives the loss of the last."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> None:
        """Let the process go."""
        self.process.communicate()


def environment(root: Path) -> dict[str, str]:
    """One in which `import minicaffe` takes a checkout's, with plans and bytecode of its own."""
    home = os.environ["MINICAFFE_CACHE"] + ("this" if root == ROOT else "other")
    own = {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "MINICAFFE_CACHE": home}
    own |= {"PYTHONPYCACHEPREFIX": f"{home}-bytecode", "PYTHONDONTWRITEBYTECODE": ""}
    return free_environment() | own


def serve(settings: dict) -> None:
    """Answer each line by the loss after some steps."""
    forms.prepare(settings | {"contender": "minicaffe"})
    from lenet_step import ours

    one, _ = ours(settings["batch"], "cpu")
    for _ in sys.stdin:
        for _ in range(STEPS):
            one.step()
        print(one.loss(), flush=True)


def steps(roots: dict[str, Path], form: str, batch: int, threads: int, rounds: int) -> dict:
    """The ms of a step in both, and their ratio. Raises SystemExit where they do not compute the same."""
    settings = {"form": form, "batch": batch, "threads": threads}
    both = {name: Checkout(root, settings) for name, root in roots.items()}
    try:
        losses = {name: [float(one.steps()) for _ in range(3)] for name, one in both.items()}
        apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
        if not apart < 1e-3:
            raise SystemExit(f"the checkouts compute different losses: {losses}")
        times = interleaved({n: one.steps for n, one in both.items()}, clock, rounds, 400.0)
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
    if sys.argv[1:2] == ["--steps-of"]:
        serve(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
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
