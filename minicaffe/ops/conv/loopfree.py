"""Caffe's convolution with the im2col kernel that has no inner loop: a thread per column entry.

Sample by sample as in `caffe`; on CUDA the columns come from the loop-free kernel (its index arithmetic is in
kernels/im2col.cu). On the CPU, where a thread is no column entry, it is `caffe`.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.conv import caffe
from minicaffe.ops.conv.caffe import input_gradient as input_gradient
from minicaffe.ops.conv.caffe import refuses as refuses
from minicaffe.ops.conv.caffe import workspace as workspace
from minicaffe.ops.geometry import ConvGeometry


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    return caffe.forward(x, weight, bias, g, out, work, "loopfree")


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight = sum over samples of dy[s] im2col(x[s])', added to `out`."""
    return caffe.weight_gradient(x, dy, g, out, work, "loopfree")
