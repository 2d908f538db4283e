"""Nets for other runtimes: ONNX, and PyTorch's state_dict.

`to_onnx(net, file)` writes a net, `to_onnx(model, file, weights)` a model and its weights.
"""

from minicaffe.export.onnx import write as to_onnx

__all__ = ["to_onnx"]
