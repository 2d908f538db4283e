"""The strategies by name, in the order in which they are shown."""

from typing import Any

from minicaffe.ops.conv import (
    batched,
    caffe,
    columns,
    direct,
    implicit,
    lanes,
    loopfree,
    mec,
    packed_gemm,
    pointwise,
)
from minicaffe.ops.conv.winograd import Winograd

STRATEGIES: dict[str, Any] = {
    "direct": direct,
    "caffe": caffe,
    "loopfree": loopfree,
    "batched": batched,
    "columns": columns,
    "mec": mec,
    "implicit": implicit,
    "winograd": Winograd(4),
    "winograd2": Winograd(2),
    "lanes": lanes,
    "pointwise": pointwise,
    "places": packed_gemm,
}
