"""Ways to lower a convolution to matrix products, all with one signature, and the planner that picks."""

from typing import Any

from minicaffe.ops.conv import (
    batched,
    caffe,
    columns,
    common,
    direct,
    implicit,
    loopfree,
    mec,
    pointwise,
)
from minicaffe.ops.conv.plan import CAP, Plan, check, check_name, plan
from minicaffe.ops.conv.winograd import Winograd

__all__ = ["CAP", "STRATEGIES", "Plan", "check", "check_name", "common", "plan"]
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
    "pointwise": pointwise,
}
