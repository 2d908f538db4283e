"""From run folders to a page: one HTML file of data, scripts and a style sheet, asking for nothing else."""

import dataclasses
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from minicaffe.backends import device as backend
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.interrupt import Held
from minicaffe.core.net import Net
from minicaffe.core.net import read as read_model
from minicaffe.core.net.yaml_text import flow, given_nodes
from minicaffe.core.solver import Solver
from minicaffe.core.solver.report import Mute
from minicaffe.errors import CheckpointError, MinicaffeError, reason
from minicaffe.storage import checkpoint
from minicaffe.tools.report import sections
from minicaffe.tools.report.study import Limits, Study
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import NUMBERS, RunRecord, plain
from minicaffe.tools.training.speed import NONE, Speed

# What each run has of its own, and so is no difference
OWN = ("name", "started", "resumed", "pid", "cwd", "snapshot_prefix")
ABSENT = "-"
OTHERS = (  # title, column, unit, whether a log scale helps, whether smoothing does
    ("Learning rate", "lr", "", True, False),
    ("Throughput", "images_per_s", "images/s", False, True),
    ("Gradient norm", "gradient_norm", "L2", True, True),
    ("Weight norm", "weight_norm", "L2", True, False),
    ("Memory", "memory_mib", "MiB", False, False),
)
LONG = 200  # letters of a name that a heading shows


def columns(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The numbers of the lines of a kind, a list a column; of `outputs` those that are single numbers.

    >>> columns([{"kind": "test", "iteration": 5, "outputs": {"accuracy": 0.5}}], "test")["outputs"]
    {'accuracy': [0.5]}
    """
    rows = [line for line in lines if line.get("kind") == kind]
    names = ("iteration", *NUMBERS[kind])
    table: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    outputs = [row.get("outputs") or {} for row in rows]
    table["outputs"] = {
        name: [one.get(name) for one in outputs]
        for name in dict.fromkeys(name for one in outputs for name in one)
        if not any(isinstance(one.get(name), list) for one in outputs)
    }
    return table


def payload(record: RunRecord, own: bool = False) -> dict[str, Any]:
    """A run as the page has it; one of our `own` is not asked whether it still runs."""
    about, tests = record.about, record.of("test")
    state, sentence = state_of(record, about["state"] if own else record.state)
    return {
        "name": record.folder.resolve().name[:LONG],
        "state": state,
        "told": sentence,
        "iteration": reached(record),
        "command": shlex.join(about["command"]),
        "about": environment(about),
        "train": columns(record.lines, "train"),
        "test": columns(record.lines, "test"),
        "scores": tests[-1]["outputs"] if tests else {},
        "tested_on": tested_on(about["tests_on"], tests),
        "events": [line for line in record.lines if line["kind"] in ("event", "snapshot")],
    }


def tested_on(suffixes: Sequence[str], tests: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What the scores are of that come from data which the run trained on, by name.

    >>> tested_on([" on the training pictures"], [{"outputs": {"accuracy": 1.0}}])
    {'accuracy': 'training pictures'}
    """
    names = dict.fromkeys(name for line in tests for name in line["outputs"])
    of = {str(number): suffix for number, suffix in enumerate(suffixes)}
    one = len(suffixes) == 1  # of several nets the number leads the name
    data = {name: of.get("0" if one else name.partition("/")[0], "") for name in names}
    return {name: suffix.removeprefix(" on the ") for name, suffix in data.items() if suffix}


def reached(record: RunRecord) -> int:
    """The iteration that the run has come to."""
    return max([record.about["iteration"], *(line["iteration"] for line in record.lines)])


def state_of(record: RunRecord, state: str) -> tuple[str, str]:
    """A state, cut to what a page has room for, and a sentence about it."""
    at = f"at iteration {reached(record):,}"
    folder = shlex.quote(str(record.folder))
    goes_on = f"minicaffe train --resume {folder} goes on from there"
    can_replay = (record.folder / "diverged.npz").is_file()
    replay = f"; minicaffe replay {folder} computes that step again" if can_replay else ""
    newest = record.newest
    saved = f"its newest snapshot is {newest.name}; {goes_on}" if newest else "it has no snapshot"
    sentences = {
        "running": f"Training goes on, {at} when this page was written.",
        "finished": f"Finished {at}.",
        "stopped": f"Stopped {at}; {saved}.",
        "killed": f"The process is gone, last heard of {at}: killed, or the machine stopped; {saved}.",
        "diverged": f"Diverged {at}: a value was no finite number; see the events{replay}.",
        "failed": f"Failed {at}; see the events; {saved}.",
    }
    return state[:LONG], sentences.get(state, f"State {state[:LONG]!r} {at}.")


def environment(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What run.json says of machine, versions and settings, a row each.

    >>> environment({"seed": 1, "versions": {"numpy": "2.3"}, "state": "finished"})
    [('seed', '1'), ('numpy', '2.3')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in about.items():
        if key in ("state", "iteration", "command", "tests_on"):
            continue
        for name, one in value.items() if isinstance(value, dict) else [(key, value)]:
            if one not in (None, [], "", NONE):
                rows.append((name, ", ".join(map(str, one)) if isinstance(one, list) else str(one)))
    return rows


def differs(records: Sequence[RunRecord], specs: Sequence[NetSpec | None]) -> list[list[Any]]:
    """Rows [key, a value a run] of what runs, and models if all are known, differ in; '-' is no value."""
    keys = []
    for record, spec in zip(records, specs, strict=True):
        own = {key: value for key, value in environment(record.about) if key not in OWN}
        models = {} if spec is None or None in specs else flat(spec)
        keys.append({**models, **own})
    every = dict.fromkeys(key for one in keys for key in one)
    rows = ([key, *(one.get(key, ABSENT) for one in keys)] for key in every)
    return [[key, *values] for key, *values in rows if len(set(values)) > 1]


def flat(spec: NetSpec) -> dict[str, str]:
    """What a model says, key by key: `solver.base_lr`, `conv1.num_output`.

    >>> from minicaffe.core.net import parse
    >>> flat(parse("layers: [{name: x, type: Input, shape: {dim: [2, 3]}}]"))
    {'x.type': 'Input', 'x.shape': '{dim: [2, 3]}'}
    """
    values = {}
    if spec.solver is not None:
        values = {f"solver.{key}": flow(node) for key, node in given_nodes(spec.solver).items()}
    for layer in spec.layers:
        phases = [rule.phase for rule in layer.include if rule.phase is not None]
        name = " ".join([layer.name, *phases])
        values[f"{name}.type"] = layer.type
        nodes = {key: node for key, node in layer.nodes.items() if key not in ("name", "type")}
        values |= {f"{name}.{key}": flow(node) for key, node in nodes.items()}
    return values


def panels(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The charts of runs: {title, unit, log, noisy, series}; a series names a run, its kind, and a column.

    `log` tells whether a log scale helps or, of what only tests give, one "to one", for accuracies; values
    beyond 1 are then drawn on the usual one. The loss comes first, with that of the test where the nets have
    one output that both give; then every other output; then what else the log has numbers of.
    """
    trained = list(dict.fromkeys(name for run in runs for name in run["train"]["outputs"]))
    tested = list(dict.fromkeys(name for run in runs for name in run["test"]["outputs"]))
    only = trained[0] if len(trained) == 1 else None  # then it is the loss itself
    names = [name for name in dict.fromkeys([*tested, *trained]) if name != only]
    loss = _series(runs, "train", "loss", None)
    if only is not None:
        loss += _series(runs, "test", only, "outputs")
    rows: list[tuple[str, str, bool | str, bool, Any]] = [("Loss", "", True, True, loss)]
    for name in names:
        both = [_series(runs, kind, name, "outputs") for kind in ("train", "test")]
        title = name.capitalize() if name.isalpha() and name.islower() else name
        rows.append((title, "", name in trained or "to one", True, both[0] + both[1]))
    for title, column, unit, log, noisy in OTHERS:
        rows.append((title, unit, log, noisy, _series(runs, "train", column, None)))
    keys = "title", "unit", "log", "noisy", "series"
    return [dict(zip(keys, row, strict=True)) for row in rows if row[-1]]


def _series(
    runs: Sequence[dict[str, Any]], kind: str, column: str, within: str | None
) -> list[dict[str, Any]]:
    """Those runs' series of a column that have a number in it."""
    series = []
    for number, run in enumerate(runs):
        columns = run[kind] if within is None else run[kind][within]
        if any(value is not None for value in columns.get(column, ())):
            series.append({"run": number, "kind": kind, "column": column, "outputs": bool(within)})
    return series


REFRESH = (5, 60)  # seconds between two looks of an open page at the file: at least, at most
SCRIPTS = (
    *("page.js", "header.js", "charts.js", "controls.js", "tables.js", "pictures.js", "boxes.js"),
    *("try_layers.js", "try_net.js", "try_prepare.js", "try.js"),
)
STYLES = ("page.css", "try.css")


def html(data: dict[str, Any]) -> str:
    """The page that shows `data`."""
    text = _file("page.html")
    files = {"STYLE": STYLES, "SCRIPT": SCRIPTS}
    parts = {mark: "\n".join(map(_file, names)) for mark, names in files.items()}
    for mark, part in {**parts, "DATA": as_json(data)}.items():
        text = text.replace(f"<!--{mark}-->", part, 1)
    return text


def as_json(data: Any) -> str:
    """Strict JSON in which nothing ends a <script> or begins a comment; what is no finite number is null.

    >>> as_json({"</script>": float("nan")})
    '{"\\\\u003c/script\\\\u003e":null}'
    """
    text = json.dumps(plain(data), allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _file(name: str) -> str:
    return (resources.files("minicaffe.tools.report") / name).read_text(encoding="utf-8")


def write(
    folders: Sequence[str | Path],
    path: str | Path,
    *,
    device: backend.Device | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Write the page of one run, or of several laid over each other, atomically; returns what it holds.

    Of one run the net is looked into as well, with its best weights or else the newest: whatever that cannot
    show is left out with the reason. Raises CheckpointError for a folder that holds no run and for a page that
    cannot be written.
    """
    records = [run_folder.read(folder) for folder in folders]
    specs, reasons = zip(*map(_model, records), strict=True)
    why = next(filter(None, reasons), "")
    parts: list[dict[str, Any]] = []
    if len(records) > 1 and why:
        parts = [{"id": "models", "title": "What differs between the models", "left_out": why}]
    elif specs[0] is None:
        parts = sections.none_of(why)
    elif len(records) == 1:
        parts = _looked_into(records[0], specs[0], device or backend.device(), limits or Limits())
    data = data_of(records, specs, parts)
    checkpoint.replace(path, html(data).encode("utf-8"))
    return data


def data_of(
    records: Sequence[RunRecord],
    specs: Sequence[NetSpec | None],
    parts: list[dict[str, Any]],
    own: bool = False,
) -> dict[str, Any]:
    """All that a page of these runs holds, with `parts` of the net; `own` ones are not asked if they run."""
    runs = [payload(one, own) for one in records]
    return {
        "title": ", ".join(run["name"] for run in runs)[:300],
        "written": time.time(),
        "refresh": _refresh(runs[0]) if len(runs) == 1 else None,
        "runs": runs,
        "totals": [spec.solver.max_iter if spec and spec.solver else None for spec in specs],
        "panels": panels(runs),
        "differs": differs(records, specs) if len(runs) > 1 else [],
        "sections": parts,
    }


def _refresh(run: dict[str, Any]) -> float | None:
    """How many seconds an open page waits before it looks again: half of what lies between two tests."""
    if run["state"] != "running":
        return None
    seconds = [s for s in run["test"]["seconds"] if isinstance(s, (int, float))]
    between = (seconds[-1] - seconds[-2]) / 2 if len(seconds) > 1 else 0
    return min(max(between, REFRESH[0]), REFRESH[1])


def _model(one: RunRecord) -> tuple[NetSpec | None, str]:
    """A run's model, or why it cannot be read."""
    try:
        return read_model(one.model), ""
    except MinicaffeError as error:
        own = one.about["imports"]
        hint = f"; --import {' --import '.join(own)} brings the run's own layers" if own else ""
        return None, f"{error}{hint}"


def _looked_into(
    one: RunRecord, spec: NetSpec, device: backend.Device, limits: Limits
) -> list[dict[str, Any]]:
    """The sections; of a run without weights those that can do without."""
    try:
        weights_from = f"weights of {one.weights.name}"
    except CheckpointError:
        weights_from = "no weights"
    study = Study(spec, lambda net: _fill(net, one.weights), weights_from, device, limits)
    return sections.all_of(study)


def _fill(net: Net, path: Path) -> None:
    """Load a snapshot; what it has for layers of another phase is passed over. Raises CheckpointError."""
    report = net.load(path, strict=False)
    if lacking := [*report.missing, *report.mismatched]:
        raise CheckpointError(f"{path}: does not fit net {net.name!r}: {', '.join(lacking)[:300]}")


SHARE = 20  # looking into the net takes at most one part in so many of the time
WHILE = Limits(seconds=2, timing=False)
AFTER = Limits(seconds=10)


class Follower(Mute):
    """Writes report.html into a run's folder; never stops the training: what fails is told by `say`.

    It hears of a test after the run's record has. The time it takes does not count on `clocks`.
    """

    def __init__(self, say: Callable[[str], Any]):
        self.say, self.clocks = say, list[Speed]()
        self.solver: Solver | None = None
        self.study: Study | None = None
        self.parts: list[dict[str, Any]] = []
        self.looked, self.cost = 0.0, 0.0

    def begin(self, solver: Solver, folder: Path, clocks: Sequence[Speed] = ()) -> None:
        """Training starts."""
        self.solver, self.folder, self.clocks = solver, folder, list(clocks)
        self.page()

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done, and stands in the log."""
        self.page()
        for clock in self.clocks:
            clock.skip(iteration)

    def page(self) -> None:
        """Write the page of what the folder now holds, with the net as it now is.

        The net is looked into while that takes less than 1 / SHARE of the time, and once more when training
        has finished; else what was seen before stays.
        """
        solver = self.solver
        assert solver is not None, "begin comes first"
        try:
            one = run_folder.read(self.folder)
            start, state = time.perf_counter(), one.about["state"]
            due = start - self.looked > SHARE * self.cost and solver.iteration > 0
            if state == "finished" or (due and state == "running"):
                self.look(solver, AFTER if state == "finished" else WHILE)
                self.looked = time.perf_counter()
                self.cost = self.looked - start
            parts = self.parts or sections.none_of("the net has not been tested yet")
            data = data_of([one], [_spec(solver)], parts, own=True)
            checkpoint.replace(self.folder / "report.html", html(data).encode("utf-8"))
        except Exception as error:  # a page is never worth a run
            self.say(f"no report of iteration {solver.iteration}: {reason(error)}")

    end = page  # run.json says how training ended

    def look(self, solver: Solver, limits: Limits) -> None:
        """See what the sections see of the net whose weights the solver now has."""
        source = solver.test_nets[0] if solver.test_nets else solver.net
        if self.study is None:
            run = _spec(solver), lambda net: net.share_with(source), "", solver.device, limits
            self.study = Study(*run, dtype=solver.net.context.dtype)
        self.study.again(f"weights of iteration {solver.iteration:,}", limits)
        with Held(), solver.averaged():
            self.parts = sections.all_of(self.study)


def _spec(solver: Solver) -> NetSpec:
    """What is trained, with the solver's settings."""
    precision: Any = solver.net.precision
    return dataclasses.replace(solver.net.spec, solver=solver.spec, precision=precision)
