"""The models that come with minicaffe, by name: the files of models/, which is in the wheel."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from minicaffe.errors import SpecError, did_you_mean


def models() -> dict[str, Path]:
    """The file of each model by its name, in the order of names.

    >>> models()["lenet"].name
    'lenet.yaml'
    """
    folder = Path(str(resources.files("minicaffe") / "models"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def located(model: str | Path) -> str | Path:
    """The path to read for MODEL: itself if such a file or folder exists, else the model of that name.

    Raises SpecError for a bare word that is neither.
    """
    word = str(model)
    if os.path.exists(model) or not word.isidentifier():
        return model
    if word not in (known := models()):
        raise SpecError(
            f"{word}: no such file, and no model of this name{did_you_mean(word, known)}"
            " (minicaffe models lists them)"
        )
    return known[word]
