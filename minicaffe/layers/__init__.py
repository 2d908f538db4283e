"""The built-in layers; importing this module registers them."""

from minicaffe.layers import (
    activation,
    common,
    convolution,
    data,
    hdf5_data,
    image_data,
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
    "common",
    "convolution",
    "data",
    "hdf5_data",
    "image_data",
    "inputs",
    "loss",
    "pooling",
    "register",
]
