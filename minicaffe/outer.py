"""What the core asks of the rooms around it, and does not import: minicaffe/__init__.py says who answers."""

from __future__ import annotations

import importlib
from typing import Any

ANSWERS: dict[str, str] = {}  # what is asked for -> module:name
LAYERS: list[str] = []  # modules outside the core that register layers
FORKS: dict[str, str] = {}  # the module of each layer of Caffe's forks, imported when it is named


def ask_for(what: str) -> Any:
    """Returns the function or class that answers, imported now.

    >>> import minicaffe
    >>> ask_for("the recorder of a run").__name__
    'Kept'
    """
    module, _, name = ANSWERS[what].partition(":")
    return getattr(importlib.import_module(module), name)
