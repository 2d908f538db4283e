"""Models whose layers are of the registered types."""

from __future__ import annotations

from pathlib import Path

from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.model import parse_model, read_model


def read(path: str | Path) -> NetSpec:
    """The model in a YAML file, its layers of the registered types. Raises SpecError."""
    return read_model(path, REGISTRY)


def parse(text: str, file: str = "<text>") -> NetSpec:
    """The model in a YAML text, its layers of the registered types. Raises SpecError.

    >>> parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]").layers[0].name
    'data'
    """
    return parse_model(text, REGISTRY, file)
