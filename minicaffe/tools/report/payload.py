"""A run as a page has it: columns of numbers, events, environment, and how it stands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from minicaffe.tools.training.environment import NONE
from minicaffe.tools.training.folder import RunRecord
from minicaffe.tools.training.log_file import NUMBERS

LONG = 200  # letters of a name that a heading shows


def columns(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The numbers of the lines of a kind, a list a column; of `outputs` those that are single numbers.

    >>> columns([{"kind": "test", "iteration": 5, "outputs": {"accuracy": 0.5}}], "test")["outputs"]
    {'accuracy': [0.5]}
    """
    rows = [line for line in lines if line.get("kind") == kind]
    names = ("iteration", *NUMBERS[kind])
    found: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    outputs = [row.get("outputs") or {} for row in rows]
    found["outputs"] = {
        name: [one.get(name) for one in outputs]
        for name in dict.fromkeys(name for one in outputs for name in one)
        if not any(isinstance(one.get(name), list) for one in outputs)
    }
    return found


def payload(record: RunRecord, own: bool = False) -> dict[str, Any]:
    """A run as the page has it; one of our `own` is not asked whether it still runs."""
    about, tests = record.about, record.of("test")
    state, told = state_of(record, about["state"] if own else record.state)
    return {
        "name": record.folder.resolve().name[:LONG],
        "state": state,
        "told": told,
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
    found = {name: of.get("0" if one else name.partition("/")[0], "") for name in names}
    return {name: suffix.removeprefix(" on the ") for name, suffix in found.items() if suffix}


def reached(record: RunRecord) -> int:
    """The iteration that the run has come to."""
    return max([record.about["iteration"], *(line["iteration"] for line in record.lines)])


def state_of(record: RunRecord, state: str) -> tuple[str, str]:
    """A state, cut to what a page has room for, and a sentence about it."""
    at = f"at iteration {reached(record):,}"
    folder = shlex.quote(str(record.folder))
    goes_on = f"minicaffe train --resume {folder} goes on from there"
    there = (record.folder / "diverged.npz").is_file()
    replay = f"; minicaffe replay {folder} computes that step again" if there else ""
    kept = (
        f"its newest snapshot is {record.newest.name}; {goes_on}"
        if record.newest
        else "it has no snapshot"
    )
    told = {
        "running": f"Training goes on, {at} when this page was written.",
        "finished": f"Finished {at}.",
        "stopped": f"Stopped {at}; {kept}.",
        "killed": f"The process is gone, last heard of {at}: killed, or the machine stopped; {kept}.",
        "diverged": f"Diverged {at}: a value was no finite number; see the events{replay}.",
        "failed": f"Failed {at}; see the events; {kept}.",
    }
    return state[:LONG], told.get(state, f"State {state[:LONG]!r} {at}.")


def environment(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What run.json says of machine, versions and settings, a row each.

    >>> environment({"seed": 1, "versions": {"numpy": "2.3"}, "state": "finished"})
    [('seed', '1'), ('numpy', '2.3')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in about.items():
        if key in ("state", "iteration", "command", "tests_on") or value in (None, [], "", NONE):
            continue
        if isinstance(value, dict):
            rows += [
                (str(name), str(one)) for name, one in value.items() if one not in (None, NONE)
            ]
        else:
            rows.append(
                (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            )
    return rows
