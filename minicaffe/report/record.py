"""A run as its folder tells it: columns of numbers, events, environment, and whether it still goes on."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minicaffe.errors import DataError

COLUMNS = {
    "train": (
        "iteration",
        "epoch",
        "seconds",
        "loss",
        "lr",
        "images_per_s",
        "memory_mib",
        "gradient_norm",
        "weight_norm",
    ),
    "test": ("iteration", "epoch", "seconds"),
}
LONG = 200  # letters of a name that a heading shows


@dataclass(frozen=True)
class Record:
    """What a run's folder holds: `about` of run.json, `lines` of log.jsonl."""

    folder: Path
    about: dict[str, Any]
    lines: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """The run's name: its folder's."""
        return self.folder.resolve().name[:LONG]


def read(folder: str | Path) -> Record:
    """The record of a run. Raises DataError for a folder that holds none; a half last line is left out."""
    folder = Path(folder)
    if not (folder / "run.json").exists():
        raise DataError(f"{folder}: is no run's folder: there is no run.json in it")
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        text = (folder / "log.jsonl").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: is no run folder that can be read: {error}") from None
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{folder / 'log.jsonl'}:{number}: {error}") from None
    return Record(folder, about, lines)


def columns(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The numbers of the lines of a kind, a list a column; of `outputs` those that are single numbers.

    >>> columns([{"kind": "test", "iteration": 5, "outputs": {"accuracy": 0.5}}], "test")["outputs"]
    {'accuracy': [0.5]}
    """
    rows = [line for line in lines if line.get("kind") == kind]
    found: dict[str, Any] = {name: [row.get(name) for row in rows] for name in COLUMNS[kind]}
    outputs = [row.get("outputs") or {} for row in rows]
    names = dict.fromkeys(name for one in outputs for name in one)
    found["outputs"] = {
        name: [one.get(name) for one in outputs]
        for name in names
        if not any(isinstance(one.get(name), list) for one in outputs)
    }
    return found


def payload(record: Record) -> dict[str, Any]:
    """A run as the page has it."""
    about, lines = record.about, record.lines
    tests = [line for line in lines if line.get("kind") == "test"]
    command = about.get("command") or []
    state, told = state_of(record)
    return {
        "name": record.name,
        "folder": str(record.folder),
        "state": state,
        "told": told,
        "iteration": reached(record),
        "command": shlex.join(map(str, command)) if isinstance(command, list) else str(command),
        "about": environment(about),
        "train": columns(lines, "train"),
        "test": columns(lines, "test"),
        "scores": (tests[-1].get("outputs") or {}) if tests else {},
        "events": [line for line in lines if line.get("kind") in ("event", "snapshot")],
    }


def reached(record: Record) -> int:
    """The iteration that the run has come to."""
    told = [line.get("iteration") for line in record.lines] + [record.about.get("iteration")]
    return max((n for n in told if isinstance(n, int)), default=0)


def state_of(record: Record) -> tuple[str, str]:
    """running, finished, stopped, diverged, failed or killed; and a sentence about it."""
    about, at = record.about, f"at iteration {reached(record):,}"
    state = str(about.get("state", "unknown"))
    if state == "running" and not _alive(about):
        state = "killed"
    again = (
        f"minicaffe train --resume {shlex.quote(str(record.folder))} goes on from its last snapshot"
    )
    told = {
        "running": f"Training goes on, {at} when this page was written.",
        "finished": f"Finished {at}.",
        "stopped": f"Stopped {at}; {again}.",
        "killed": f"The process is gone, last heard of {at}: it was killed, or the machine stopped; {again}.",
        "diverged": f"Diverged {at}: a value was no finite number; see the events.",
        "failed": f"Failed {at}; see the events.",
    }
    return state, told.get(state, f"State {state[:LONG]!r} {at}.")


def _alive(about: dict[str, Any]) -> bool:
    """Whether the process may still run; of another machine's nothing is known."""
    pid = about.get("pid")
    if about.get("host") != platform.node() or not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def environment(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What run.json says of machine, versions and settings, a row each.

    >>> environment({"seed": 1, "version": {"numpy": "2.3"}, "state": "finished"})
    [('seed', '1'), ('numpy', '2.3')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in about.items():
        if key in ("state", "iteration", "command") or value in (None, [], ""):
            continue
        if isinstance(value, dict):
            rows += [(str(name), str(one)) for name, one in value.items() if one is not None]
        else:
            rows.append(
                (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            )
    return rows
