"""Convolution as a packed GEMM: neighbouring places fill a vector; no column matrix, no BLAS.

Compiled loops compute it (backends/cpu/conv/packed_gemm.py). Without them, and on CUDA, it is `implicit`.
"""

import math
from typing import Any

from minicaffe.backends.dispatch import op, workspace
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.conv.implicit import IMPLICIT
from minicaffe.core.ops.geometry import ConvGeometry

INDICES = 2**31  # elements that an index of 32 bits can address


class PackedGemm(Engine):
    """A GEMM of the microkernel and packed panels, without a column matrix and without BLAS."""

    name = "packed"
    traced = True

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Yes: without compiled loops it falls back to `implicit`."""
        return True

    def refuses(self, g: ConvGeometry) -> str | None:
        """Returns why it cannot compute a shape: its indices have 32 bits; None if it can."""
        if self._room(g) + math.prod(g.weight_shape) >= INDICES:
            return f"it needs images of a block, and weights, of less than {INDICES} numbers"
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: the panels and planes of a block, and sums."""
        sums = workspace(PackedGemm.weight_gradient, "cpu", g)
        return max(self._room(g), sums, IMPLICIT.workspace(g, limit))

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`."""
        return max(workspace(PackedGemm.forward, "cpu", g), IMPLICIT.forward_workspace(g, limit))

    def _room(self, g: ConvGeometry) -> int:
        """Returns the elements for one thread of `forward` and of `input_gradient`."""
        ops = PackedGemm.forward, PackedGemm.input_gradient
        return max(workspace(op, "cpu", g) for op in ops)

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements for `implicit`, which computes on CUDA."""
        return IMPLICIT.cuda_workspace(g, limit, itemsize)

    @op(traced=False)
    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        return IMPLICIT.forward(x, weight, bias, g, out, work)

    @op(traced=False)
    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx, the correlation of dy with the transposed weight, to `out`, and returns it."""
        return IMPLICIT.input_gradient(dy, weight, g, out, work)

    @op(traced=False)
    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight[f, k] = sum over places p of dy[f, p] X[where[k] + p] to `out`, and returns it."""
        return IMPLICIT.weight_gradient(x, dy, g, out, work)
