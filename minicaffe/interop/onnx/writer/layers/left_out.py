"""Layers that a net is written without, and layers of which a net cannot be written."""

from __future__ import annotations

from minicaffe.interop.onnx.writer.table import leaves_out, refuses

leaves_out(
    "tells how good an answer is, and asks for labels",
    "Accuracy",
    "DetectionEvaluate",
    "SegAccuracy",
)
leaves_out("asks for labels, whose margin only training has", "MarginInnerProduct")
leaves_out("writes a file", "HDF5Output")
refuses("ONNX knows nothing of Python", "Python")
