"""Caffe's convolution with the im2col kernel that has no inner loop: a thread per column entry.

Sample by sample as in `caffe`; on CUDA the columns come from the loop-free kernel (its index arithmetic is in
kernels/im2col.cu). On the CPU, where a thread is no column entry, it is `caffe`.
"""

from __future__ import annotations

from minicaffe.ops.conv.caffe import Caffe
from minicaffe.ops.im2col import Form


class LoopFree(Caffe):
    """Caffe's way, with a thread for each entry of the columns."""

    name = "loopfree"
    rule_rank = tie_rank = None
    form: Form = "loopfree"
