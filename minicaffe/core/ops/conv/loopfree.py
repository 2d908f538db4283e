"""Caffe's convolution with an im2col kernel without inner loop: one thread for each column entry.

It computes sample by sample as `caffe` does. On CUDA the loop-free kernel of backends/cuda/kernels/im2col.cu
writes the columns. On the CPU, where one thread writes many entries, it is `caffe`.
"""

from __future__ import annotations

from minicaffe.core.ops.conv.caffe import Caffe
from minicaffe.core.ops.im2col import Form


class LoopFree(Caffe):
    """As `caffe`, with one CUDA thread for each entry of the column matrix."""

    name = "loopfree"
    rule_rank = tie_rank = None
    form: Form = "loopfree"
