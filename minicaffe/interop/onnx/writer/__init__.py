"""Nets for other runtimes: ONNX, and PyTorch's state_dict.

`to_onnx(net, file)` writes a net, `to_onnx(model, file, weights)` a model and its weights; `to_torch(net,
file)` writes the parameters alone. `writes` registers how a layer of one's own is said in ONNX, beside
`operators`.
"""

from minicaffe.interop.onnx import operators
from minicaffe.interop.onnx.table import writes
from minicaffe.interop.onnx.writer.onnx import write as to_onnx
from minicaffe.interop.torch.torch import write as to_torch

__all__ = ["operators", "to_onnx", "to_torch", "writes"]
