"""The readers of ONNX's operators, a file for each family."""

from minicaffe.bridges.readers import (
    activation,
    arithmetic,
    linear,
    normalization,
    pooling,
    recurrent,
    reduce,
    resize,
    shape,
    window,
)
from minicaffe.bridges.table import READERS, REFUSED, Refused

__all__ = [
    "READERS",
    "REFUSED",
    "Refused",
    "activation",
    "arithmetic",
    "linear",
    "normalization",
    "pooling",
    "recurrent",
    "reduce",
    "resize",
    "shape",
    "window",
]
