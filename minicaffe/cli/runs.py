"""Commands on runs: runs, report and replay."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from minicaffe.backends import device as backend
from minicaffe.cli.options import Computed, Imports, OnDevice
from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.core.net import read
from minicaffe.core.net.summary import table
from minicaffe.core.solver.report import show
from minicaffe.errors import CheckpointError, MinicaffeError, note, say
from minicaffe.tools.report import write
from minicaffe.tools.report.sections import left_out
from minicaffe.tools.report.study import Limits
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.divergence import Replay as Replayed
from minicaffe.tools.training.folder import RUNS, RunRecord

HEAD = ("run", "state", "iteration", "best test", "at", "last test", "started")
EMPTY = "-"


class Runs(CommandOptions):
    """List the runs in a folder, the newest last: how far each came, and the score of its best test.

    Several runs are compared in one page by `minicaffe report RUN RUN ...`.

    example:
      minicaffe runs
      minicaffe runs elsewhere/
    """

    folder: Annotated[str, Arg("folder", nargs="?"), "DIR", f"where runs lie; default: {RUNS}"] = (
        RUNS
    )

    def __call__(self) -> None:
        if not os.path.isdir(self.folder):
            problem = f"no such folder; a training makes {RUNS}/NAME-DATE"
            raise MinicaffeError(f"{self.folder}: {problem}")
        folders = list(filter(run_folder.is_run, sorted(Path(self.folder).iterdir())))
        if not folders:
            raise MinicaffeError(f"{self.folder}: holds no runs")
        rows: list[tuple[str, tuple[str, ...]]] = []
        for folder in folders:
            try:
                record = run_folder.read(folder)
            except CheckpointError as error:
                note(f"minicaffe: {error}")
                continue
            rows.append((str(record.about["started"]), row(record)))
        print(table([line for _, line in sorted(rows)], HEAD, left=(0, 1, 3, 5, 6)))


def row(record: RunRecord) -> tuple[str, ...]:
    """A run as a row of the table: the score that its best snapshot goes by, else its accuracy or loss."""
    tests = [line for line in record.of("test") if line["outputs"]]
    watched, last_outputs = best_of(record), tests[-1]["outputs"] if tests else {}
    # Without a watched one the first of which more is better, else the first number
    numbers = [name for name, value in last_outputs.items() if isinstance(value, float)]
    more = (name for name in numbers if direction(name) == "max")
    name = watched[0] if watched else next(more, (numbers or [""])[0])
    way = watched[1] if watched else direction(name)
    scores = [(line["outputs"].get(name), line["iteration"]) for line in tests]
    known = [(score, at) for score, at in scores if isinstance(score, float)]
    best, at = EMPTY, EMPTY
    if known:
        saved = [line["iteration"] for line in record.of("snapshot") if line["best"]]
        of_kept = [one for one in known if one[1] in saved[-1:]]  # which decides between equals
        chosen = of_kept[-1] if of_kept else (max if way == "max" else min)(known)
        best, at = f"{name} {show(chosen[0])}", str(chosen[1])
    last = f"{name} {show(known[-1][0])}" if known else EMPTY
    started = str(record.about["started"])[:16].replace("T", " ")
    return str(record.folder), record.state, str(record.about["iteration"]), best, at, last, started


def best_of(record: RunRecord) -> tuple[str, str] | None:
    """The output that the run's model keeps its best snapshot by, and whether more or less of it is better."""
    try:
        rule = read(record.model).solver
    except MinicaffeError:  # layers of one's own, say
        return None
    if rule is None or rule.best is None:
        return None
    return rule.best.output, rule.best.mode or direction(rule.best.output.rpartition("/")[2])


def direction(name: str) -> str:
    """Whether more or less of a score is better, by its name, since a log does not say it.

    >>> direction("accuracy"), direction("label_error"), direction("loss3/loss")
    ('max', 'min', 'min')
    """
    return "min" if "loss" in name.lower() or "error" in name.lower() else "max"


class Report(Imports, OnDevice):
    """Write a run as one page that opens from disk: curves, net, time of each layer, filters, mistakes.

    For several runs, it draws their curves over each other, and lists what differs between them.

    example:
      minicaffe report runs/lenet-20261122-1200
      minicaffe report runs/lenet-a runs/lenet-b -o both.html
    """

    runs: Annotated[Sequence[str], Arg("runs", nargs="+"), "RUN", "a run's folder"]
    output: Annotated[
        str | None, Arg("-o"), "default: report.html in the run's folder; of several runs, here"
    ] = None
    seconds: Annotated[
        int, "spent on the test data at the most, one batch at least; default: 20"
    ] = 20

    def __call__(self) -> None:
        self.import_files()
        folder = Path(self.runs[0]) if len(self.runs) == 1 else Path()
        output = self.output or folder / "report.html"
        limits = Limits(seconds=self.seconds)
        page = write(self.runs, output, device=backend.device(self.device), limits=limits)
        for why, titles in left_out(page["sections"]).items():
            self.tell(f"left out: {', '.join(titles)}: {why}")
        say(f"{output}: {os.path.getsize(output) / 2**20:.1f} MiB")


class Replay(Computed, Imports):
    """Compute a training step again, and show what each blob, parameter and gradient holds.

    For a run's folder or a diverged.npz, it is the iteration at which training stopped, computed from the
    saved batch and state, without the data set. For a snapshot, it is the iteration after it.

    example:
      minicaffe replay runs/lenet-20260101-120000
      minicaffe replay lenet_diverged.npz
      minicaffe replay lenet_iter_500.npz --device cpu
    """

    file: Annotated[
        str, Arg("file"), "RUN", "a run's folder, its diverged.npz, or a snapshot in .npz"
    ]

    def __call__(self) -> None:
        self.import_files()
        replay = Replayed(self.file, device=backend.device(self.device), numerics=self.numerics())
        self.tell(f"device: {replay.solver.device}")
        replay.run()
        say(*replay.lines())
