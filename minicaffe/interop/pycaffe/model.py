"""What scripts name a file for, and what comes out of layers in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from minicaffe.core import net
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import LayerError
from minicaffe.interop.caffe.model import YAML, read_prototxt


def model(source: str | Path | NetSpec, solver_type: str | None = None) -> NetSpec:
    """The model in a file: ours by the endings of YAML, else Caffe's text. Raises SpecError.

    Of a solver in Caffe's text the keys are read that one of `solver_type` takes, if that is given.
    """
    if isinstance(source, NetSpec):
        return source
    if str(source).lower().endswith(YAML):
        return net.read(source)
    return read_prototxt(source, REGISTRY, solver_type=solver_type)


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Within it, what the user's own layers raise comes out as it was raised, as from pycaffe."""
    try:
        yield
    except LayerError as error:
        found: BaseException | None = error
        while isinstance(found, LayerError):  # it has been given its place
            found = found.__cause__ or found.__context__
        raise found or error from None
