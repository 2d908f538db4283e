"""Losses of features that are to fit two domains, Xlearn's: EntropyLoss and JMMDLoss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, cast

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import samples
from minicaffe.core.ops import take
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.metrics import MMDLoss
from minicaffe.interop.caffe.forks.whole import LOSS, Whole


@register
class EntropyLoss(Whole):
    """loss = - sum of p log p / n over the probabilities p of at least `threshold`, of n samples.

    Bottom: (n, ...). Top: the loss, of shape (); 0, without a gradient, in the first iterations_num passes.
    The gradient is that of Xlearn, which prints the sum of p log p. Source: EntropyLoss of M. Long's Xlearn;
    M. Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, 2016.

    Example: (4, 3) -> {type: EntropyLoss, threshold: 0.01} -> ()
    """

    threshold: Annotated[float, "smaller probabilities do not count", AtLeast(1e-30)] = 0.001
    iterations_num: Annotated[int, "passes before the first that counts", AtLeast(0)] = 0

    traits = LOSS

    def setup(self, x: Shape) -> Shape:
        self.n = max(samples(x), 1)
        return ()

    def forward(self, x: Any) -> Any:
        xp, x = self.xp, self.wide(x)
        self.whole = self.context.share.of_whole(self.n)
        self.counts = x >= self.threshold
        if self.context.passes < self.iterations_num:
            self.counts = xp.zeros_like(self.counts)
        self.log = xp.log(xp.maximum(x, self.threshold))
        return self.put(-(x * self.log * self.counts).sum() / self.whole, self.out[0])

    def backward(self, dloss: Any) -> Any:
        return self.put(-(1 + self.log) * self.counts * (dloss / self.whole), self.grad[0])


@register
class JMMDLoss(MMDLoss):
    """How far apart two sets of features and answers are: their joint maximum mean discrepancy.

    loss = mean over q drawn quadruples of k l(s, s') + k l(t, t') - k l(s, t') - k l(s', t), as in MMDLoss;
    k(u, v) is its kernel of features, l(u, v) = sum over j < label_kernel_num of exp(-|u - v|^2
    label_kernel_mul^(label_kernel_num // 2 - j) / sigma) one of answers. With auto_sigma sigma is the mean of
    |u - v|^2 over all pairs, which has no gradient; Xlearn's is that over as many drawn pairs as rows.
    Bottoms: features (n, ...), (m, ...), answers (n, ...), (m, ...), n and m at least 2. Top: the loss, of
    shape (), of which Xlearn computes the gradient and prints 0. With several kernels of answers their
    gradient is the derivative; Xlearn's takes sigma for the width of each. Source: JMMDLoss of M. Long's
    Xlearn; M. Long et al., Deep Transfer Learning with Joint Adaptation Networks, 2017.

    Example: (4, 3), (5, 3), (4, 2), (5, 2) -> {type: JMMDLoss, sigma: 1.68, label_kernel_num: 1} -> ()
    """

    label_kernel_num: Annotated[int, "number of kernels of answers", AtLeast(1)] = 5
    label_kernel_mul: Annotated[float, "the factor from one kernel's width to the next"] = 2.0
    sigma: Annotated[float, "the width of the middle kernel of answers"] = 0.0
    auto_sigma: Annotated[bool, "take the mean distance of answers for sigma"] = False

    def setup(  # type: ignore[override]
        self, source: Shape, target: Shape, of_source: Shape, of_target: Shape
    ) -> Shape:
        top = super().setup(source, target)
        counts = samples(of_source), samples(of_target)
        self.c = math.prod(of_source[1:])
        if counts != self.sizes or math.prod(of_target[1:]) != self.c:
            n, m = self.sizes
            raise ShapeError(
                f"needs answers of {n} and {m} samples with as many entries, got {of_source} and {of_target}"
            )
        if self.label_kernel_mul <= 0:
            raise ShapeError(f"label_kernel_mul: expected above 0, got {self.label_kernel_mul}")
        if self.sigma <= 0 and not self.auto_sigma:
            raise ShapeError(f"sigma: expected above 0 without auto_sigma, got {self.sigma}")
        return top

    def spread(self, rows: Any) -> Any:
        """The sum of |u - v|^2 over all ordered pairs of rows."""
        apart = rows - rows.sum(axis=0) / len(rows)
        return self.xp.maximum(2 * len(rows) * (apart * apart).sum(), 1e-30)

    def forward(self, *bottoms: Any) -> Any:
        xp = self.xp
        wide = [self.wide(x.reshape(len(x), -1)) for x in bottoms]
        x, y = xp.concatenate(wide[:2]), xp.concatenate(wide[2:])
        pairs = len(x) * (len(x) - 1)
        if not (self.fix_gamma and self.gamma is not None):
            self.gamma = pairs / self.spread(x)
        sigma = self.spread(y) / pairs if self.auto_sigma else self.sigma
        mul, middle = self.kernel_mul, self.kernel_num // 2
        widths = [self.gamma * mul ** (i - middle) for i in range(self.kernel_num)]
        mul, middle = self.label_kernel_mul, self.label_kernel_num // 2
        label_widths = [mul ** (middle - j) / sigma for j in range(self.label_kernel_num)]
        s, s2, t, t2 = self.drawn()
        self.ends = [(s, s2, 1), (t, t2, 1), (s, t2, -1), (t, s2, -1)]
        loss, self.both = 0, []
        for a, b, sign in self.ends:
            k, k_slope = self.kernel(x[a] - x[b], widths)
            near, near_slope = self.kernel(y[a] - y[b], label_widths)
            loss = loss + sign * (k * near).sum()
            self.both.append((sign * near * k_slope, sign * k * near_slope))
        return self.put(cast(Any, loss) / len(s), self.out[0])

    def kernel(self, gap: Any, widths: Sequence[Any]) -> tuple[Any, Any]:
        """The sum of exp(-width |gap|^2) of each row (q, 1), and its derivative by the gap."""
        square, value, slope = (gap * gap).sum(axis=1, keepdims=True), 0, 0
        for width in widths:
            one = self.xp.exp(-width * square)
            value, slope = value + one, slope - 2 * width * one
        return value, slope * gap

    def backward(self, dloss: Any) -> Any:
        xp = self.xp
        for part in range(2):
            first, second = self.grad[2 * part : 2 * part + 2]
            rows = xp.zeros((sum(self.sizes), (self.k, self.c)[part]), self.sum_dtype)
            work = xp.empty_like(rows)
            for (a, b, _), slopes in zip(self.ends, self.both, strict=True):
                slope = xp.ascontiguousarray(slopes[part] * (dloss / len(a)))
                rows += take.put_back(slope, a, work)
                rows -= take.put_back(slope, b, work)
            for values, out in ((rows[: self.sizes[0]], first), (rows[self.sizes[0] :], second)):
                if out is not None:
                    self.put(values, out)
        return self.grad
