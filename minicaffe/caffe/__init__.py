"""The bridge to Caffe's own files: its text format here, read as the specs that a model file gives."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minicaffe.spec.declare import NetSpec


def read(path: str | Path) -> NetSpec:
    """The model in a net's or a solver's .prototxt, which Net and Solver take. Raises SpecError.

    A solver's nets are looked for from the current folder, as Caffe does, and then beside the solver.
    """
    home = importlib.import_module("minicaffe.caffe.model")
    registry = importlib.import_module("minicaffe.layers").REGISTRY
    found: NetSpec = home.read_prototxt(path, registry)
    return found


def parse(text: str, file: str | None = None) -> NetSpec:
    """The model in such a text, which errors call `file`; as `read` does. Raises SpecError.

    >>> net = parse('input: "x" input_shape { dim: 1 dim: 3 }')
    >>> net.layers[0].type, net.layers[0].top
    ('Input', ('x',))
    """
    home = importlib.import_module("minicaffe.caffe.model")
    registry = importlib.import_module("minicaffe.layers").REGISTRY
    found: NetSpec = home.parse_prototxt(text, registry, file)
    return found
