"""What is plugged into the core, as by minicaffe/__init__.py: layers, formats, hooks; imported when used."""

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

    def fit(self, solver: Any, x: Any, y: Any, validation: Any) -> dict[str, Any]:
        """Train as `solve` does, watched, on arrays if there are; returns the scores of the last test."""

    def log(self, losses: Sequence[Any], tests: Sequence[Any]) -> Mapping[str, Any]:
        """Returns what was displayed and tested, as arrays by name."""

    def recorder(self, solver: Any, model: Any, settings: Mapping[str, Any]) -> Recorder:
        """Returns the recorder of the run in the folder `solver.run`."""

    def newest_snapshot(self, folder: str | Path) -> Path:
        """Returns the snapshot that the run in a folder goes on from. Raises CheckpointError."""

    def best_weights(self, folder: str | Path) -> Path:
        """Returns the file of the best weights of the run in a folder. Raises CheckpointError."""

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


class ModelFormat(Protocol):
    """A text format of models: a module, or an object, with these functions."""

    def is_one(self, path: str | Path) -> bool:
        """True if a file is of this format, by its name or by what it holds."""

    def read(
        self,
        path: str | Path,
        layer_types: Mapping[str, type],
        settings: Sequence[str] = (),
        lenient: bool = False,
    ) -> Any:
        """Returns the NetSpec in a file. Raises SpecError."""


class WeightFormat(Protocol):
    """A format of weights."""

    Reader: Any  # of a path; an ArrayFile

    def save(
        self, path: str | Path, graph: Any, arrays: Mapping[str, Any], ending: str = ""
    ) -> None:
        """Write a net's arrays by name, in the form of `ending` or of the path's. Raises CheckpointError."""


class StateFormat(Protocol):
    """A format of a solver's state, whose weights lie in a file beside it."""

    def save(
        self, path: Path, iteration: int, weights: str, falls: int, history: Sequence[Any]
    ) -> None:
        """Write a state: the file of its weights, how often the rate has fallen, the rule's arrays."""

    def restore(
        self, path: str | Path, shapes: Mapping[str, tuple[int, ...]], slots: int
    ) -> tuple[int, Path, list[Any]]:
        """Returns the iteration, the file of the weights and the rule's arrays. Raises CheckpointError."""


Formats = dict[str, "str | object"]  # by the end of a file's name: a module's name, or an object
MODELS: Formats = {}
WEIGHTS: Formats = {}
STATES: Formats = {}
NAMES: Formats = {}


def register_format(formats: Formats, endings: Sequence[str], plugin: str | object) -> None:
    """Register a format of `MODELS`, `WEIGHTS`, `STATES` or `NAMES` for files whose names end so.

    `plugin` is an object that has the functions of a ModelFormat and so on, or the name of such a module,
    which is imported when the first of these files is met. Of several endings that fit, the longest counts.
    """
    formats.update(dict.fromkeys(endings, plugin))


def format_of(formats: Formats, path: Any) -> Any:
    """Returns the format that is registered for a file by its name; None if there is none.

    >>> format_of(WEIGHTS, "lenet.caffemodel").__name__, format_of(WEIGHTS, "lenet.npz")
    ('minicaffe.interop.caffe.weights', None)
    """
    name = str(path).lower()
    fits = [ending for ending in formats if name.endswith(ending)]
    return loaded(formats[max(fits, key=len)]) if fits else None


def loaded(plugin: str | object) -> Any:
    """Returns a plugin, imported now if it is the name of a module."""
    return importlib.import_module(plugin) if isinstance(plugin, str) else plugin


def label_map(path: str | Path) -> dict[int, str]:
    """Returns the names of classes by label, as the format of NAMES reads them. Raises SpecError."""
    return cast("dict[int, str]", format_of(NAMES, path).label_map(path))
