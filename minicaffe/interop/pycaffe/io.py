"""`caffe.io`: pictures read and made ready for a net, arrays as messages of caffe.proto."""

from __future__ import annotations

from typing import Any

from minicaffe.interop.pycaffe.arrays import (
    array_to_blobproto,
    array_to_datum,
    arraylist_to_blobprotovector_str,
    blobproto_to_array,
    blobprotovector_str_to_arraylist,
    datum_to_array,
)
from minicaffe.interop.pycaffe.images import load_image, oversample, resize_image
from minicaffe.interop.pycaffe.transformer import Transformer

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]


def __getattr__(name: str) -> Any:
    if name != "caffe_pb2":  # scripts reach it from here too
        raise AttributeError(f"module 'minicaffe.pycaffe.io' has no attribute {name!r}")
    from minicaffe.interop.pycaffe.proto import caffe_pb2

    return caffe_pb2
