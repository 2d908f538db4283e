"""Layers of face recognition: CenterLoss, MarginInnerProduct, InnerDistance."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.losses import Loss, check_labels
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, pair_losses, take
from minicaffe.core.ops.softmax import check_classes
from minicaffe.core.ops.sums import WORK
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole, add, labels


@register
class CenterLoss(Loss):
    """loss = sum of |x - c[y]|^2 / 2 m: how far m vectors are from the centers c of their classes y.

    Bottoms: x, seen as a matrix (m, k) of the axes before and from `axis`, and m labels. Top: the loss, of
    shape (). Parameter: the centers (num_output, k), in float32 in a net of 16 bits. Their gradient is no
    derivative, but the authors' rule: the sum of c[y] - x over the count + 1 vectors of a class, whatever the
    loss weight. Raises DataError for a label that is no class. Source: CenterLoss of Y. Wen's caffe-face;
    Y. Wen et al., A Discriminative Feature Learning Approach for Deep Face Recognition, 2016.

    Example: (4, 3), (4,) -> {type: CenterLoss, num_output: 10} -> ()
    """

    num_output: Annotated[int, "number of classes", AtLeast(1)]
    center_filler: Annotated[Filler, "how the centers start"] = ZERO
    axis: Annotated[int, "the first axis of a vector"] = 1

    traits = replace(Loss.traits, **labels(1), mixes_samples=True)

    def setup(self, x: Shape, labels: Shape) -> Shape:
        axis = canonical_axis(self.axis, x)
        self.mk = m, k = math.prod(x[:axis]), math.prod(x[axis:])
        check_labels(labels, m, 1)
        self.centers = self.param((self.num_output, k), self.center_filler, self.sum_dtype)
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        (m, k), dtype, n = self.mk, self.sum_dtype, self.num_output
        self.place = self.empty((m,), np.int32)
        self.own, self.apart = self.empty((m, k), dtype), self.empty((m, k), dtype)
        self.sums, self.counts = self.empty((n, k), dtype), self.empty((n, 1), dtype)
        self.ones, self.one = self.xp.ones((m, 1), dtype), self.xp.ones((), dtype)
        self.copy = self.empty((m,), dtype) if self.dtype != dtype else None

    def forward(self, x: Any, labels: Any) -> Any:
        self.labels = same_type(labels.reshape(-1), self.copy)
        if not self.context.device.is_cuda:
            self.check()  # whose words are the same in a replay
        take.places(self.labels, self.num_output, self.place, self.refused)
        take.take(self.centers.data, self.place, self.own)
        pair_losses.difference(x.reshape(self.mk), self.own, self.apart)
        return self.mean(self.apart, 2 * self.mk[0], squares=True)

    def backward(self, dloss: Any) -> Any:
        if self.needs_gradient[0]:
            scale = self.scaled(dloss, self.mk[0])
            arrays.multiply(self.apart, scale, self.grad[0].reshape(self.mk))
        if self.centers.learns:
            take.put_back(self.apart, self.place, self.sums)
            take.put_back(self.ones, self.place, self.counts)
            arrays.plus(self.counts, self.one, self.counts)
            arrays.divide(self.sums, self.counts, self.sums)
            arrays.scale(self.sums, -self.context.loss_scale, self.sums)
            arrays.add(self.sums, self.centers.diff)
        return self.grad[0], None

    def check(self) -> None:
        check_classes(self.context.device.to_host(self.labels), None, self.num_output)


MARGINS = {  # of m times the angle: the coefficients of cos(m angle) as a polynomial of cos(angle)
    "SINGLE": (1.0, 0.0),
    "DOUBLE": (2.0, 0.0, -1.0),
    "TRIPLE": (4.0, 0.0, -3.0, 0.0),
    "QUADRUPLE": (8.0, 0.0, -8.0, 0.0, 1.0),
}


@register
class MarginInnerProduct(Whole):
    """y = |x| cos(angle to w), for the label's w (|x| psi(angle) + lambda y) / (1 + lambda): SphereFace.

    psi(angle) = (-1)^k cos(m angle) - 2 k, k = the whole part of m angle / pi; margin_type (`type` in a
    prototxt) says m. lambda = max(lambda_min, base (1 + gamma i)^-power), i = iteration + the passes so far.
    Bottoms: x, seen as (m, k) of the axes before and from `axis`, and m labels. Tops: y (m, num_output) and,
    if there is a second, lambda (1,). Parameter: weight (num_output, k), float32 in a net of 16 bits, whose
    rows w TRAIN scales to length 1 in their place. Gradients are the authors': the weight's is dy' x; in that
    of x, what psi adds for a sample is w and x / |x| with coefficients of length 1. Raises DataError for a
    label that is no class; on CUDA, without waiting, such a sample has no margin. Source: MarginInnerProduct
    of W. Liu's SphereFace; W. Liu et al., SphereFace: Deep Hypersphere Embedding for Face Recognition, 2017.

    Example: (4, 3), (4,) -> {type: MarginInnerProduct, num_output: 10, margin_type: QUADRUPLE} -> (4, 10)
    """

    num_output: Annotated[int, "number of classes", AtLeast(1)]
    margin_type: Annotated[
        Literal["SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"],
        "how many times the label's angle counts",
    ] = "SINGLE"
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    axis: Annotated[int, "the first axis of a vector"] = 1
    base: Annotated[float, "lambda before it falls"] = 1.0
    gamma: Annotated[float, "how fast lambda falls", AtLeast(0)] = 0.0
    power: Annotated[float, "the exponent by which lambda falls"] = 1.0
    iteration: Annotated[int, "how many passes lambda has had before", AtLeast(0)] = 0
    lambda_min: Annotated[float, "the least lambda"] = 0.0

    traits = replace(Whole.traits, **labels(1), float32_tops=(1,), inferred_as="nothing")

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        if len(self.top) > 2:
            raise ShapeError(f"has 1 or 2 tops (products, lambda), got {len(self.top)}")
        axis = canonical_axis(self.axis, x)
        self.mk = m, k = math.prod(x[:axis]), math.prod(x[axis:])
        check_labels(labels, m, 1)
        self.weight = self.param((self.num_output, k), self.weight_filler, self.sum_dtype)
        self.multiply_adds = m * k * self.num_output
        return [(*x[:axis], self.num_output), (1,)][: max(len(self.top), 1)]

    def allocate(self) -> None:
        self.classes = self.context.device.asarray(np.arange(self.num_output, dtype=self.sum_dtype))
        self.powers = MARGINS[self.margin_type]
        m = len(self.powers) - 1
        self.turns = [math.cos(math.pi * i / m) for i in range(1, m)]  # where k grows

    @property
    def decay(self) -> float:
        """This pass's lambda."""
        passes = self.iteration + self.context.passes + 1
        return max(self.lambda_min, self.base * (1 + self.gamma * passes) ** -self.power)

    def lengths(self, rows: Any) -> Any:
        """The lengths of rows, none of them 0."""
        return self.xp.maximum(self.xp.sqrt((rows * rows).sum(axis=1, keepdims=True)), 1e-12)

    def forward(self, x: Any, labels: Any) -> Any:
        xp, self.x, labels = self.xp, self.wide(x.reshape(self.mk)), labels.reshape(-1, 1)
        if not self.context.device.is_cuda:
            check_classes(labels, None, self.num_output)
        weight, self.part = self.weight.data, 1 / (1 + self.decay)
        self.unit = weight / self.lengths(weight)
        if self.phase == "TRAIN":
            xp.copyto(weight, self.unit)
        y = self.matmul(self.x, self.unit.T)
        self.own = self.wide(self.wide(labels) == self.classes)  # 1 at the label's, else 0
        self.length = self.lengths(self.x)
        self.cos = cos = (y * self.own).sum(axis=1, keepdims=True) / self.length
        self.psi, self.slope = self.powers[0] + 0 * cos, 0 * cos
        for power in self.powers[1:]:
            self.slope = self.slope * cos + self.psi
            self.psi = self.psi * cos + power
        k = 0 * cos
        for turn in self.turns:
            k = k + (cos < turn)
        sign = 1 - 2 * (k % 2)
        self.psi, self.slope = sign * self.psi - 2 * k, sign * self.slope
        label = self.part * self.length * (self.psi - cos)  # what is added to |x| cos
        self.put(y + self.own * label, self.out[0])
        for top in self.out[1:]:
            top.fill(self.decay)
        return self.out

    def backward(self, dy: Any, dlambda: Any = None) -> Any:
        xp, dy = self.xp, self.wide(dy.reshape(self.mk[0], -1))
        if self.weight.learns:
            add(self.weight, self.matmul(dy.T, self.x))
        if self.needs_gradient[0]:
            own = (dy * self.own).sum(axis=1, keepdims=True)
            along = (self.psi - self.cos * self.slope) / self.length
            size = xp.sqrt(self.slope * self.slope + along * along)
            by_weight = dy + self.own * own * self.part * (self.slope / size - 1)
            dx = self.matmul(by_weight, self.unit) + own * self.part * along / size * self.x
            self.put(dx, self.grad[0])
        return self.grad[0], None


@register
class InnerDistance(Whole):
    """y[m, n] = the distance of x[m] and w[n]: the sum of (x - w)^2 (L2), or of |x - w| (L1).

    Bottoms: x, seen as (m, k) of the axes before and from `axis`; and perhaps w (n, ...), instead of the
    parameter weight (num_output, k). -> (m, n). With update_center_only m labels are the last bottom, and w
    has only the gradient of each x's distance to its label's w. With normalize TRAIN scales the parameter's
    rows to length 1 in their place, which the gradient leaves out. The parameter is float32 in a net of
    16 bits. bias_term, bias_filler and transpose, at which the authors' code does not look, are not taken.
    Source: InnerDistance of F. Wang's caffe-windows.

    Example: (4, 3) -> {type: InnerDistance, num_output: 10, distance_type: L1} -> (4, 10)
    """

    num_output: Annotated[int, "rows of the weight; 0: they are a bottom", AtLeast(0)] = 0
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    axis: Annotated[int, "the first axis of a vector"] = 1
    distance_type: Annotated[Literal["L2", "L1"], "squares, or magnitudes, are summed"] = "L2"
    normalize: Annotated[bool, "scale the rows of the weight to length 1"] = False
    update_center_only: Annotated[bool, "w learns only from vectors of its own label"] = False

    def setup(self, x: Shape, other: Shape | None = None, last: Shape | None = None) -> Shape:
        axis = canonical_axis(self.axis, x)
        self.mk = m, k = math.prod(x[:axis]), math.prod(x[axis:])
        bottoms = [shape for shape in (other, last) if shape is not None]
        self.label = len(bottoms) if self.update_center_only else 0
        if self.update_center_only:
            if not bottoms:
                raise ShapeError("update_center_only needs labels as the last bottom")
            check_labels(bottoms.pop(), m, 1)
        if len(bottoms) > 1:
            raise ShapeError("takes a third bottom, labels, with update_center_only only")
        own = labels(*[self.label] * bool(self.label))
        self.traits = replace(self.traits, **own, mixes_samples=bool(bottoms))
        self.weight, n = None, self.num_output
        if bottoms:
            (w,) = bottoms
            n = w[0] if w else 0
            if math.prod(w) != n * k:
                raise ShapeError(f"needs vectors of {k} numbers as its second bottom, got {w}")
            if self.num_output not in (0, n) or self.normalize:
                raise ShapeError("num_output and normalize are of a parameter; here w is a bottom")
        elif n == 0:
            raise ShapeError("num_output: expected at least 1, or a second bottom w")
        else:
            self.weight = self.param((n, k), self.weight_filler, self.sum_dtype)
        self.n, self.multiply_adds = n, m * k * n
        return (*x[:axis], n)

    def forward(self, x: Any, *others: Any) -> Any:
        xp, (m, k) = self.xp, self.mk
        self.x, y = self.wide(x.reshape(m, k)), []
        self.own = None
        if self.label:
            labels = others[-1].reshape(m, 1)
            if not self.context.device.is_cuda:
                check_classes(labels, None, self.n)
            numbers = np.arange(self.n, dtype=self.sum_dtype)
            self.own = self.wide(labels) == self.context.device.asarray(numbers)
        self.w = self.wide(others[0].reshape(-1, k)) if self.weight is None else self.weight.data
        if self.normalize and self.weight is not None:
            self.w = self.w / xp.sqrt((self.w * self.w).sum(axis=1, keepdims=True) + 1e-6)
            if self.phase == "TRAIN":
                xp.copyto(self.weight.data, self.w)
        for row in range(m):
            apart = self.x[row] - self.w
            y.append((abs(apart) if self.distance_type == "L1" else apart * apart).sum(axis=1))
        return self.put(xp.stack(y) if y else self.x[:, :0], self.out[0])

    def backward(self, dy: Any) -> Any:
        xp, (m, k) = self.xp, self.mk
        dy = self.wide(dy.reshape(m, self.n))
        own = dy if self.own is None else dy * self.own  # what the weights have of it
        dx, dw = xp.zeros((m, k), self.sum_dtype), xp.zeros((self.n, k), self.sum_dtype)
        if self.distance_type == "L1":
            for row in range(m):
                sign = xp.sign(self.x[row] - self.w)
                dx[row] = self.matmul(dy[row], sign)
                dw -= own[row].reshape(-1, 1) * sign
        else:
            dx += 2 * (dy.sum(axis=1, keepdims=True) * self.x - self.matmul(dy, self.w))
            dw += 2 * (own.sum(axis=0).reshape(-1, 1) * self.w - self.matmul(own.T, self.x))
        if self.weight is not None and self.weight.learns:
            add(self.weight, dw)
        return self.give(dx, dw)
