"""Convolution by packed weights: filters fill a vector; no column matrix, no BLAS.

A net that only runs forward packs them once, and again only when they have changed. Kernels of 3 x 3 are
transformed when they are packed, and computed as F(4x4, 3x3) or F(2x2, 3x3): see `winograd`. Compiled loops
compute it (backends/cpu/conv/packed_gemm.py). Without them, and on CUDA, it is `implicit`.
"""

import math
from typing import Any

from minicaffe.backends.dispatch import op, workspace
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.conv.implicit import IMPLICIT
from minicaffe.core.ops.geometry import ConvGeometry

INDICES = 2**31  # elements that an index of 32 bits can address


class PackedGemm(Engine):
    """A GEMM of packed weights, or Winograd's tiles, with filters in vectors."""

    name = "packed"
    traced = True

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Yes: without compiled loops it falls back to `implicit`."""
        return True

    def refuses(self, g: ConvGeometry) -> str | None:
        """Returns why it cannot compute a shape: its indices have 32 bits; None if it can."""
        if workspace(PackedGemm.weight_gradient, "cpu", g) + math.prod(g.weight_shape) >= INDICES:
            return f"it needs images of a block, and weights, of less than {INDICES} numbers"
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: those of any direction, with packed weights."""
        ops = PackedGemm.forward, PackedGemm.input_gradient, PackedGemm.weight_gradient
        return max(IMPLICIT.workspace(g, limit), *(workspace(op, "cpu", g) for op in ops))

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`, with packed weights."""
        return max(workspace(PackedGemm.forward, "cpu", g), IMPLICIT.forward_workspace(g, limit))

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements for `implicit`, which computes on CUDA."""
        return IMPLICIT.cuda_workspace(g, limit, itemsize)

    def packed(self, g: ConvGeometry) -> int:
        """Returns the elements of packed weights; 0 if `implicit` computes y."""
        return workspace(PackedGemm.pack, "cpu", g)

    @op()
    def pack(self, weight: Any, bias: Any, g: ConvGeometry, out: Any) -> Any:
        """Writes the panels of a weight (f, c / group, *kernel) and its bias to `out`, and returns it."""
        raise NotImplementedError("no loops pack weights of this type")

    @op(traced=False)
    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it; a flat weight is packed, with its bias."""
        return IMPLICIT.forward(x, weight, bias, g, out, work)

    @op(traced=False)
    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx, the correlation of dy with the turned weight, to `out`, and returns it."""
        return IMPLICIT.input_gradient(dy, weight, g, out, work)

    @op(traced=False)
    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight[f, k] = sum over places p of dy[f, p] X[where[k] + p] to `out`, and returns it."""
        return IMPLICIT.weight_gradient(x, dy, g, out, work)
