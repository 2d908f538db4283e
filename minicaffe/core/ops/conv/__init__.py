"""Engines that lower a convolution to matrix products, and the planner that selects one."""

from minicaffe.core.ops.conv import common
from minicaffe.core.ops.conv.batched import Batched
from minicaffe.core.ops.conv.caffe import Caffe, LoopFree
from minicaffe.core.ops.conv.direct import Direct
from minicaffe.core.ops.conv.engine import ENGINES, Engine, names, register_engine
from minicaffe.core.ops.conv.implicit import Implicit
from minicaffe.core.ops.conv.packed_gemm import PackedGemm
from minicaffe.core.ops.conv.plan import CAP, Plan, check, check_name, hint, plan
from minicaffe.core.ops.conv.winograd import Winograd

for _built_in in (Direct, Caffe, LoopFree, Batched, Implicit, Winograd, PackedGemm):  # as listed
    register_engine(_built_in)

__all__ = [
    "CAP",
    "ENGINES",
    "Engine",
    "Plan",
    "check",
    "check_name",
    "common",
    "hint",
    "names",
    "plan",
    "register_engine",
]
