"""What a page has of runs: of each columns of numbers, events, environment, how it stands; of all charts, and
what differs between their models and settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.yaml_text import flow, given_nodes
from minicaffe.tools.training.folder import NUMBERS, RunRecord
from minicaffe.tools.training.speed import NONE

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
    """Rows [key, a value a run] of what is not the same in all runs; '-' where a run does not say it.

    Models are compared if all of them are known."""
    keys = []
    for record, spec in zip(records, specs, strict=True):
        known = dict(environment(record.about))
        own = {key: value for key, value in known.items() if key not in OWN}
        models = {} if spec is None or None in specs else flat(spec)
        keys.append({**models, **own})
    rows = []
    for key in dict.fromkeys(key for one in keys for key in one):
        values = [one.get(key, ABSENT) for one in keys]
        if len(set(values)) > 1:
            rows.append([key, *values])
    return rows


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
