"""The readers of ONNX's operators, a file for each family."""

from minicaffe.interop.onnx.reader.nodes import (
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
from minicaffe.interop.onnx.reader.table import READERS, REFUSED, RefusedError

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
