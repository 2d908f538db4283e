"""The built-in layers; importing this module registers them."""

from minicaffe.layers import (
    activation,
    channels,
    common,
    convolution,
    elementwise,
    embed,
    inputs,
    loss,
    pooling,
)
from minicaffe.layers.base import REGISTRY, Context, Layer, register
from minicaffe.layers.blob import Blob, Param

__all__ = [
    "REGISTRY",
    "Blob",
    "Context",
    "Layer",
    "Param",
    "activation",
    "channels",
    "common",
    "convolution",
    "elementwise",
    "embed",
    "inputs",
    "loss",
    "pooling",
    "register",
]
