"""Layers of types that nobody has registered: a net that has some is converted and drawn, not run."""

from __future__ import annotations

from minicaffe.core.layers.base import Layer
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError


class Unknown(Layer):
    """A layer of an unknown type: its keys are what the file has, as they are."""

    def setup(self, *bottoms: Shape) -> list[Shape]:
        """Raise ShapeError: what it writes is not known."""
        raise ShapeError(f"the type {type(self).__name__} is not known: --import FILE registers it")
