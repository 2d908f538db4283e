"""Which charts a page has, and which columns of which run each shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OTHERS = (  # title, column, unit, whether a log scale helps, whether smoothing does
    ("Learning rate", "lr", "", True, False),
    ("Throughput", "images_per_s", "images/s", False, True),
    ("Gradient norm", "gradient_norm", "L2", True, True),
    ("Weight norm", "weight_norm", "L2", True, False),
    ("Memory", "memory_mib", "MiB", False, False),
)


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
    found = [_panel("Loss", "", True, True, loss)]
    for name in names:
        both = [_series(runs, kind, name, "outputs") for kind in ("train", "test")]
        title = name.capitalize() if name.isalpha() and name.islower() else name
        found.append(_panel(title, "", name in trained or "to one", True, both[0] + both[1]))
    for title, column, unit, log, noisy in OTHERS:
        found.append(_panel(title, unit, log, noisy, _series(runs, "train", column, None)))
    return [panel for panel in found if panel["series"]]


def _panel(
    title: str, unit: str, log: bool | str, noisy: bool, series: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"title": title, "unit": unit, "log": log, "noisy": noisy, "series": series}


def _series(
    runs: Sequence[dict[str, Any]], kind: str, column: str, within: str | None
) -> list[dict[str, Any]]:
    """Those runs' series of a column that have a number in it."""
    found = []
    for number, run in enumerate(runs):
        columns = run[kind] if within is None else run[kind][within]
        if any(value is not None for value in columns.get(column, ())):
            found.append({"run": number, "kind": kind, "column": column, "outputs": bool(within)})
    return found
