"""The built-in engines, in the order in which they are listed."""

from minicaffe.core.ops.conv.batched import Batched
from minicaffe.core.ops.conv.caffe import Caffe, LoopFree
from minicaffe.core.ops.conv.direct import Direct
from minicaffe.core.ops.conv.engine import ENGINES, register_engine
from minicaffe.core.ops.conv.implicit import Implicit
from minicaffe.core.ops.conv.packed_gemm import PackedGemm
from minicaffe.core.ops.conv.winograd import Winograd

for engine in (Direct, Caffe, LoopFree, Batched, Implicit, Winograd, PackedGemm):
    register_engine(engine)

__all__ = ["ENGINES", "register_engine"]
