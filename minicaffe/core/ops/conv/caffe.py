"""Caffe's convolution: sample by sample, im2col, GEMM, and the bias as a GEMM with a vector of ones.

x (n, c, *image), weight (f, c/group, *kernel), bias (f,), y (n, f, *out). For sample s and group g

    y[s, g] = weight[g] im2col(x[s])[g] + bias[g] 1'          (f/g, k) (k, p),  k = c/g * kernel, p = prod(out)

`work` is a flat buffer of `workspace` elements for each thread; nothing else is allocated. Source: Caffe's
BaseConvolutionLayer; K. Chellapilla, S. Puri, P. Simard, High Performance Convolutional Neural
Networks for Document Processing, 2006.
"""

import math
from typing import Any

from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.common import add_partial_sums, by_samples, partial_sums
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.gemm import gemm
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.core.ops.im2col import Form, col2im, im2col


class Caffe(Engine):
    """Sample by sample: im2col, a GEMM, and a GEMM that adds the bias."""

    name = "caffe"
    traced = True
    rule_rank: int | None = 2
    tie_rank: int | None = 2
    launches_by_sample = True
    form: Form = "caffe"  # of im2col

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: columns, a vector of ones, a product, and partial sums."""
        weight = math.prod(g.weight_shape)
        return g.column_elements + g.places + max(weight, g.f * g.places) + weight

    def rounds_sums(self, g: ConvGeometry) -> bool:
        """Yes: products of samples are summed in the type of the arrays."""
        return True

    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        w = weight.reshape(g.group, g.f // g.group, -1)
        y = out.reshape(g.n, g.group, g.f // g.group, g.places)

        def part(first: int, last: int, work: Any) -> None:
            columns, col, ones, scratch = _split(work, g)
            for s in range(first, last):
                im2col(x[s : s + 1], g.window, columns, form=self.form)
                for i in range(g.group):
                    gemm(w[i], col[i], y[s, i])
                if bias is not None:
                    factors = bias.reshape(-1, 1), ones
                    gemm(*factors, y[s].reshape(g.f, -1), accumulate=True, scratch=scratch)

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx[s] = col2im(weight' dy[s]) to `out`, and returns it."""
        w = weight.reshape(g.group, g.f // g.group, -1)
        dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)

        def part(first: int, last: int, work: Any) -> None:
            columns, col, _, _ = _split(work, g)
            for s in range(first, last):
                for i in range(g.group):
                    gemm(w[i].T, dy[s, i], col[i])
                col2im(columns, g.window, out[s : s + 1])

        by_samples(part, g, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight = sum over samples of dy[s] im2col(x[s])' to `out`, and returns it."""
        dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)

        def part(first: int, last: int, work: Any) -> None:
            columns, col, _, scratch = _split(work, g)
            sums = partial_sums(work, g)
            for s in range(first, last):
                im2col(x[s : s + 1], g.window, columns, form=self.form)
                for i in range(g.group):
                    gemm(dy[s, i], col[i].T, sums[i], accumulate=True, scratch=scratch)

        add_partial_sums(by_samples(part, g, work), out)
        return out


class LoopFree(Caffe):
    """As `caffe`, with one CUDA thread for each entry of the column matrix; on the CPU it is `caffe`."""

    name = "loopfree"
    rule_rank = tie_rank = None
    form = "loopfree"


def _split(work: Any, g: ConvGeometry) -> tuple[Any, ...]:
    """Columns (1, rows, places), the same by group, ones (1, places), and the rest of a thread's workspace."""
    size = g.column_elements
    columns, ones, rest = work[:size], work[size : size + g.places], work[size + g.places :]
    arrays.fill(ones, 1)
    by_group = columns.reshape(g.group, -1, g.places)
    return columns.reshape(1, g.rows, g.places), by_group, ones.reshape(1, -1), rest
