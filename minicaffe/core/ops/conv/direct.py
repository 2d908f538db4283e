"""Direct convolution, one kernel element at a time, without a column matrix.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

All other engines are compared with it. A compiled loop multiplies rows of pixels by one weight
(backends/cpu/conv/direct.py); this is also fast if a group has few channels and filters, because a GEMM could
then reuse nothing. Without compiled loops the engine is `reference`.
"""

import math
from typing import Any

from minicaffe.backends.dispatch import op, workspace
from minicaffe.core.ops.conv import reference
from minicaffe.core.ops.conv.common import add_partial_sums, by_samples, partial_sums
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.geometry import ConvGeometry


class Direct(Engine):
    """The definition as loops, without a column matrix."""

    name = "direct"
    traced = True
    rule_rank = 3
    tie_rank = 3

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: partial sums of dweight, and two planes if depthwise."""
        planes = max(workspace(op, "cpu", g) for op in (Direct.forward, Direct.input_gradient))
        return math.prod(g.weight_shape) + (planes if planes <= limit else 0)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: two planes if depthwise, within `limit`."""
        planes = workspace(Direct.forward, "cpu", g)
        return planes if planes <= limit else 0

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements for partial sums of dweight on CUDA, if depthwise."""
        return workspace(Direct.weight_gradient, "cuda", g, limit, itemsize)

    @op(traced=False)
    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""

        def part(first: int, last: int, _: Any) -> None:
            reference.forward(x[first:last], weight, bias, g, out[first:last])

        by_samples(part, g, work)

    @op(traced=False)
    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx to `out`: each dy, times its weights, goes back to the pixels its output read."""

        def part(first: int, last: int, _: Any) -> None:
            reference.input_gradient(dy[first:last], weight, g, out[first:last])

        by_samples(part, g, work)

    @op(traced=False)
    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight, for each weight the sum of dy times the pixels it met, to `out`, and returns it."""

        def part(first: int, last: int, work: Any) -> None:
            sums = partial_sums(work, g).reshape(g.weight_shape)
            reference.weight_gradient(x[first:last], dy[first:last], g, sums)

        add_partial_sums(by_samples(part, g, work), out)
