"""The bridge to Caffe's own files: its text format here, read as the specs of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # minicaffe/__init__.py imports this package, and nothing heavy by it
    from minicaffe.core.config.declare import NetSpec


def read(path: str | Path) -> NetSpec:
    """The model in a net's or a solver's .prototxt, which Net and Solver take. Raises SpecError.

    A solver's nets are looked for from the current folder, as Caffe does, and then beside the solver.
    """
    from minicaffe.core.layers import REGISTRY
    from minicaffe.interop.caffe.model import read_prototxt

    return read_prototxt(path, REGISTRY)


def parse(text: str, file: str | None = None) -> NetSpec:
    """The model in such a text, which errors call `file`; as `read` does. Raises SpecError.

    >>> net = parse('input: "x" input_shape { dim: 1 dim: 3 }')
    >>> net.layers[0].type, net.layers[0].top
    ('Input', ('x',))
    """
    from minicaffe.core.layers import REGISTRY
    from minicaffe.interop.caffe.model import parse_prototxt

    return parse_prototxt(text, REGISTRY, file)
