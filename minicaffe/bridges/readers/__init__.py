"""The readers of ONNX's operators, a file for each family."""

from minicaffe.bridges.readers import (
    activation,
    arithmetic,
    branch,
    composed,
    detection,
    linear,
    normalization,
    pooling,
    recurrent,
    reduce,
    resize,
    shape,
    window,
)
from minicaffe.bridges.table import READERS, REFUSED, RefusedError

__all__ = [
    "READERS",
    "REFUSED",
    "RefusedError",
    "activation",
    "arithmetic",
    "composed",
    "detection",
    "branch",
    "linear",
    "normalization",
    "pooling",
    "recurrent",
    "reduce",
    "resize",
    "shape",
    "window",
]
