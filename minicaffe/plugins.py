"""What is plugged into the core, which imports none of it: layers, formats of files, and hooks.

minicaffe/__init__.py plugs in what comes with the package; a module is imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

LAYERS: list[str] = []  # modules outside the core that register layers
FORKS: dict[str, str] = {}  # the module of each layer of Caffe's forks, imported when it is named


class Recorder(Protocol):
    """Records the run of a Solver: it is told when a call begins to step, and when it ends."""

    inside: bool  # whether it is entered

    def enter(self, solver: Any) -> None:
        """The solver starts or continues. Raises CheckpointError if nothing can be recorded."""

    def leave(self, solver: Any, error: BaseException | None, ends: bool) -> None:
        """The entered call has ended: with an error, or with the end of the run."""


class Hooks(Protocol):
    """What a net and a solver leave to tools: how a run is recorded, shown, and diagnosed."""

    def page(self, graph: Any) -> str:
        """Returns a built net as HTML, for a notebook."""

    def fit(self, solver: Any) -> dict[str, Any]:
        """Train as `solve` does, watched; returns the scores of the last test."""

    def log(self, losses: Sequence[Any], tests: Sequence[Any]) -> Mapping[str, Any]:
        """Returns what was displayed and tested, as arrays by name."""

    def recorder(self, solver: Any, model: Any, settings: Mapping[str, Any]) -> Recorder:
        """Returns the recorder of the run in the folder `solver.run`."""

    def newest_snapshot(self, folder: str | Path) -> Path:
        """Returns the snapshot that the run in a folder goes on from. Raises CheckpointError."""

    def raise_diverged(
        self, solver: Any, iteration: int, loss: float, before: bool = False
    ) -> NoReturn:
        """Raise the DivergedError that names the first number that is not finite."""


HOOKS: list[str] = []  # modules that are such; the last one is asked


def hooks() -> Hooks:
    """Returns the hooks that were plugged in last.

    >>> hooks().log([(0, 2.5, 0.1)], [])["loss"]
    array([2.5])
    """
    return cast(Hooks, importlib.import_module(HOOKS[-1]))
