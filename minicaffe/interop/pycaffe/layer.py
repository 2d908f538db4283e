"""Layers as scripts see them: those of a net, the base of those in Python, and the list of all types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.step import Step
from minicaffe.interop.pycaffe.blob import Blob
from minicaffe.interop.pycaffe.host_blob import PythonLayer
from minicaffe.interop.pycaffe.python import Python

Layer = PythonLayer  # for `class MyLayer(caffe.Layer)`


class BuiltIn:
    """A layer of a net: its `type` and its parameters, `blobs`. One in Python is shown as its own object."""

    def __init__(self, kind: str, blobs: Sequence[Blob]):
        self.type, self.blobs = kind, list(blobs)

    def __repr__(self) -> str:
        return f"<{self.type} with {len(self.blobs)} blobs>"


def shown(step: Step, params: Mapping[str, Sequence[Blob]]) -> Any:
    """A layer of a net as scripts see it; one in Python as its own object, its blobs the net's parameters.

    But on CUDA: there they are copies for its own passes.
    """
    own = params.get(step.spec.name, [])
    if not isinstance(step.layer, Python):
        return BuiltIn(step.spec.type, own)
    user: Any = step.layer.user
    if own and not step.layer.context.device.is_cuda:
        user.blobs[:] = own
    return user


def layer_type_list() -> list[str]:
    """The types of layers that there are, those that the script has registered included.

    >>> "Convolution" in layer_type_list()
    True
    """
    return sorted(REGISTRY)
