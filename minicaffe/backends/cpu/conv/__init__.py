"""The passes of the engines by compiled loops: which loop, over how many units, with which arguments."""

from minicaffe.backends.cpu.conv import direct, implicit, packed_gemm, winograd
from minicaffe.backends.cpu.conv.rows import ROWS

__all__ = ["ROWS", "direct", "implicit", "packed_gemm", "winograd"]
