"""The passes of the engines by compiled loops: which loop, over how many units, with which arguments."""

from minicaffe.backends.cpu.conv import direct, implicit, packed_gemm, winograd

__all__ = ["direct", "implicit", "packed_gemm", "winograd"]
