"""The room of `caffe_pb2`, which bears the name that Caffe's own build gives it."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "caffe_pb2":
        raise AttributeError(f"module 'minicaffe.pycaffe.proto' has no attribute {name!r}")
    return importlib.import_module("minicaffe.interop.pycaffe.proto.caffe_pb2")
