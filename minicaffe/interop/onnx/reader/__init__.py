"""Nets from other frameworks: ONNX, read into Caffe's layers, proven by numbers before a file is written."""

from minicaffe.interop.onnx.reader.onnx import Imported, from_onnx
from minicaffe.interop.onnx.table import reads

__all__ = ["Imported", "from_onnx", "reads"]
