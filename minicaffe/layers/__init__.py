"""The built-in layers; importing this module registers them."""

from minicaffe.layers import (
    activation,
    common,
    convolution,
    dummy,
    inputs,
    loss,
    pooling,
    reduce,
    resize,
    routing,
    shape,
)
from minicaffe.layers.base import REGISTRY, Layer, register
from minicaffe.layers.blob import Blob, Param
from minicaffe.layers.context import Context

__all__ = [
    "REGISTRY",
    "Blob",
    "Context",
    "Layer",
    "Param",
    "activation",
    "common",
    "convolution",
    "dummy",
    "inputs",
    "loss",
    "pooling",
    "reduce",
    "register",
    "resize",
    "routing",
    "shape",
]
