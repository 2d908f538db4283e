"""The built-in engines, in the order in which they are listed."""

from minicaffe.ops.conv.batched import Batched
from minicaffe.ops.conv.caffe import Caffe
from minicaffe.ops.conv.direct import Direct
from minicaffe.ops.conv.engine import ENGINES, register_engine
from minicaffe.ops.conv.implicit import Implicit
from minicaffe.ops.conv.loopfree import LoopFree
from minicaffe.ops.conv.packed_gemm import PackedGemm
from minicaffe.ops.conv.winograd import Winograd

for engine in (Direct, Caffe, LoopFree, Batched, Implicit, Winograd, PackedGemm):
    register_engine(engine)

__all__ = ["ENGINES", "register_engine"]
