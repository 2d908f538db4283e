"""Models whose layers are of the registered types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.model import parse_model, read_model


def read(path: str | Path | Mapping[str, Any], *settings: str) -> NetSpec:
    """The model in a YAML file or a mapping, its layers of the registered types. Raises SpecError.

    Each of `settings` replaces a key, PATH=VALUE as the command line's `--set` has it.

    >>> model = {"layers": [{"name": "ip", "type": "InnerProduct", "bottom": "x", "num_output": 2}]}
    >>> read(model, "layers.ip.num_output=5", "force_backward=true").layers[0].options["num_output"]
    5
    """
    return read_model(path, REGISTRY, settings)


def parse(text: str | Mapping[str, Any], file: str | None = None) -> NetSpec:
    """The model in a YAML text or a mapping, which errors call `file`; as `read` does. Raises SpecError.

    >>> parse("layers: [{name: data, type: Input, shape: {dim: [1, 3]}}]").layers[0].name
    'data'
    """
    return parse_model(text, REGISTRY, file)
