"""What watching, logging and showing a training run cost: LeNet at batch 64, on the CPU.

    python examples/benchmarks/logging_cost.py            measure, and write results/logging_cost_cpu.json

Three solvers take the same steps, 100 at a time, in turn: `bare` neither looks for numbers that are not finite
nor tells anything, `watched` looks for them in each step, which takes the gradient's norm, and `logged` has
all that `minicaffe train` has as well: a line of log.jsonl with both norms every 100 iterations, as LeNet's
model says, and the bar, which writes to /dev/null here. A cost is (ms - ms of bare) / (ms of bare), round by
round. Each form is a process of its own.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import forms
import machine
from measure import ROOT, clock, digits, drawn, in_memory, interleaved, spread, write

RESULT = Path(__file__).resolve().parent / "results" / "logging_cost_cpu.json"
BATCH, DISPLAY = 64, 100
SOLVER = {"base_lr": 0.01, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005}
NAMES = {"watched": "NaN watch and norms", "logged": "and log, progress"}


def model(display: int) -> object:
    """LeNet on digits in memory, with a line every so many iterations."""
    from minicaffe import parse

    text = in_memory(
        ROOT / "models" / "lenet.yaml", BATCH, **SOLVER, display=display, max_iter=10**6
    )
    return parse(text)


@contextlib.contextmanager
def contenders(display: int = DISPLAY) -> Iterator[dict[str, Callable[[], object]]]:
    """What takes `display` steps, by name."""
    from minicaffe import Solver
    from minicaffe.core.net import model as net_model
    from minicaffe.tools.training.composite_report import Together
    from minicaffe.tools.training.progress import Bar
    from minicaffe.tools.training.record import Record

    bar, record = Bar(), Record(print, ())
    reports = {"bare": None, "watched": None, "logged": Together(record, bar)}
    solvers = {}
    for name, report in reports.items():
        shown = display if name == "logged" else 0
        solvers[name] = Solver(model(shown), device="cpu", deterministic=True, report=report)
        images, labels = drawn(BATCH)
        solvers[name].net.forward(data=images, label=labels)
    solvers["bare"]._watch.judge = lambda *_: None
    solvers["bare"]._look = lambda: None
    told, log = solvers["logged"], ""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
    ):
        text = net_model.text(told.net.spec, folder)
        record.begin(told, Path(folder), {"name": "lenet"}, text, 0.0)
        bar.begin(told)
        yield {name: lambda one=one: one.step(display) for name, one in solvers.items()}
        bar.end()
        log = Path(folder, "log.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    wanted = told.iteration // display
    if len(lines) != wanted or not all(
        line["gradient_norm"] and line["weight_norm"] for line in lines
    ):
        raise SystemExit(f"expected {wanted} lines with both norms in the log, got {len(lines)}")


def measure(rounds: int, display: int = DISPLAY) -> dict[str, object]:
    """The figures of this process's form."""
    with contenders(display) as calls:
        times = interleaved(calls, clock, rounds, block_ms=1.0, warm_up=1)
    costs = {
        name: spread(
            [digits(100 * (a - b) / b) for a, b in zip(times[name], times["bare"], strict=True)]
        )
        for name in NAMES
    }
    ms = {name: spread([one / display for one in found]) for name, found in times.items()}
    return {"ms": ms, "cost_percent": costs}


def table(found: dict | None) -> str:
    """The result file as a table of the pages."""
    if found is None:
        return "Not yet measured."
    lines = ["| form | a bare step | " + " | ".join(NAMES.values()) + " |", "|---|---:|---:|---:|"]
    for form, one in found["forms"].items():
        cells = [forms.FORMS[form], f"{one['ms']['bare']['median']:.2f} ms"]
        for name in NAMES:
            cost = one["cost_percent"][name]
            cells.append(f"**{cost['median']:+.1f} %** ({cost['low']:+.1f} to {cost['high']:+.1f})")
        lines.append(f"| {' | '.join(cells)} |")
    at = found["machine"]
    where = f"{at['processor']}, {at['cores']} cores, NumPy {at['numpy']}"
    rounds = next(iter(found["forms"].values()))["ms"]["bare"]["repeats"]
    return "\n".join(
        [
            *lines,
            "",
            f"Medians of {rounds} rounds of {DISPLAY} steps, quartiles in brackets; {where}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--form", choices=("numba", "numpy"), help="this process alone, as JSON")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.form:
        given = {"form": args.form, "threads": args.threads, "contender": "minicaffe"}
        forms.prepare(given)
        print(json.dumps(measure(args.rounds)))
        return
    machine.free_process()
    machine.warn_if_busy()
    found = {}
    for form in ("numba", "numpy"):
        command = [sys.executable, __file__, "--form", form, "--rounds", str(args.rounds)]
        command += ["--threads", str(args.threads)]
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as the command line sets it
        run = subprocess.run(command, capture_output=True, text=True, env=env)
        if run.returncode:
            raise SystemExit(run.stderr)
        found[form] = json.loads(run.stdout.splitlines()[-1])
    write(
        RESULT, {"machine": machine.describe(), "batch": BATCH, "display": DISPLAY, "forms": found}
    )
    print(table({"machine": machine.describe(), "forms": found}))


if __name__ == "__main__":
    main()
