"""Losses of distances, of two domains' features and of pixels; rows of length 1; SegAccuracy."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.losses import EuclideanLoss, check_labels, samples
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.softmax import InfogainLoss, SoftmaxLoss
from minicaffe.core.ops import arrays, label_losses, pair_losses, take
from minicaffe.core.ops.random import random_stream
from minicaffe.core.ops.softmax import check_classes
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import PairLoss, Whole, labels


@register
class L1Loss(PairLoss):
    """loss = sum of |a - b| / n, n samples. Bottoms: a, b with equal numbers of samples and entries.

    Both have a gradient. Top: the loss, of shape (). Source: L1Loss of NVIDIA's Caffe, which DetectNet uses;
    FlowNet's L1Loss, with keys of its own, is another.

    Example: (2, 3), (2, 3) -> {type: L1Loss} -> ()
    """

    def forward(self, a: Any, b: Any) -> Any:
        self.apart = self.wide(a).reshape(-1) - self.wide(b).reshape(-1)
        return self.put(self.xp.absolute(self.apart).sum() / self.divisor, self.out[0])

    def backward(self, dloss: Any) -> Any:
        signs = self.xp.sign(self.apart) * (dloss / self.divisor)
        return self.give(signs, -signs)


@register
class ManhattanLoss(L1Loss):
    """loss = sum of |a - b| / n, n samples: an L1Loss by another name.

    Bottoms: a, b with equal numbers of samples and entries; both have a gradient. Top: the loss, of shape ().
    Source: ManhattanLoss of S. Toyer's Caffe.

    Example: (2, 3), (2, 3) -> {type: ManhattanLoss} -> ()
    """


@register
class WeightedEuclideanLoss(EuclideanLoss):
    """loss = sum of w (a - b)^2 / 2 n, n samples. Bottoms: a, b and weights w with as many entries.

    a and b have a gradient. Top: the loss, of shape (). Source: the WeightedEuclideanLoss that most forks
    have, such as K. Ridgeway's and the DenseCap of L. Yang.

    Example: (2, 3), (2, 3), (2, 3) -> {type: WeightedEuclideanLoss} -> ()
    """

    traits = replace(EuclideanLoss.traits, label_bottoms=(2,))

    def setup(self, a: Shape, b: Shape, weights: Shape) -> Shape:  # type: ignore[override]
        return self.pair(a, b, weights)

    def allocate(self) -> None:
        super().allocate()
        self.apart, self.work = (self.empty(self.shape, self.sum_dtype) for _ in range(2))
        self.copy = self.empty(self.shape, self.sum_dtype) if self.dtype.itemsize == 2 else None

    def forward(self, a: Any, b: Any, weights: Any) -> Any:  # type: ignore[override]
        weights = same_type(weights.reshape(self.shape), self.copy)
        pair_losses.difference(a, b.reshape(self.shape), self.apart)
        arrays.multiply(self.apart, weights, self.difference)
        arrays.multiply(self.apart, self.difference, self.work)
        return self.mean(self.work, 2 * self.n)


@register
class BatchTripletLoss(Whole):
    """loss = mu mean of max(margin + d[i, j] - d[i, k], 0) + (1 - mu) mean of d[i, j], d = |x[i] - x[j]|^2.

    The means are over all triplets and pairs of a batch: j is another sample of i's label, beside it or with
    none of another label between them, k one of another label. Bottoms: x (n, ...), n labels. Tops: the loss,
    of shape (); if there are more, the share of triplets with d[i, j] < d[i, k], of shape (), and
    (1, 1, 1, 5): the mean over the triplets that are learnt from, over all, that of pairs, and how many
    triplets there are and are learnt from. As the authors', the gradient is of the mean over the triplets
    that are learnt from: those that lose, with `sample` only if d[i, j] < d[i, k].
    Source: BatchTripletLoss of J. Wan's caffe-sl; J. Wan et al., Deep Learning for Content-Based Image
    Retrieval, 2014.

    Example: (6, 4), (6,) -> {type: BatchTripletLoss, margin: 0.5} -> (), ()
    """

    margin: Annotated[float, "by which others are to be farther away"] = 1.0
    mu: Annotated[float, "the triplets' share of the loss; the pairs have the rest"] = 1.0
    sample: Annotated[bool, "learn from no triplet whose other is nearer"] = False

    traits = replace(PairLoss.traits, **labels(1), mixes_samples=True, float32_tops=(0, 1, 2))

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        if len(self.top) > 3:
            raise ShapeError(f"has 1 to 3 tops (loss, accuracy, counts), got {len(self.top)}")
        self.nk = n, _ = samples(x), math.prod(x[1:])
        check_labels(labels, n, 1)
        return [(), (), (1, 1, 1, 5)][: max(len(self.top), 1)]

    def allocate(self) -> None:
        self.selves = self.context.device.asarray(np.eye(self.nk[0], dtype=self.sum_dtype))

    def groups(self, labels: Any) -> tuple[Any, Any]:
        """1 where j stands in i's group, and where it is of another label, of samples i, j."""
        changed = self.wide(labels[1:] != labels[:-1])
        first = self.xp.zeros((1,), self.sum_dtype)[: len(labels)]
        group = self.xp.cumsum(self.xp.concatenate([first, changed]))
        same = self.wide(group.reshape(-1, 1) == group) - self.selves
        return same, self.wide(labels.reshape(-1, 1) != labels)

    def forward(self, x: Any, labels: Any) -> Any:
        xp, n = self.xp, self.nk[0]
        self.x = self.wide(x.reshape(self.nk))
        self.pairs, others = self.groups(labels.reshape(-1))
        squares = (self.x * self.x).sum(axis=1)
        d = squares.reshape(-1, 1) + squares - 2 * self.matmul(self.x, self.x.T)
        total, wrong, lost, triplets, learnt = (xp.zeros((), self.sum_dtype) for _ in range(5))
        # How often a distance is that of a pair, less how often that to another
        self.pull = xp.zeros((n, n), self.sum_dtype)
        for i in range(n):
            triples = self.pairs[i].reshape(-1, 1) * others[i]
            gap = d[i].reshape(-1, 1) - d[i]
            loss = xp.maximum(self.margin + gap, 0) * triples
            loses = (loss > 0) * triples
            chosen = loses * (gap < 0) if self.sample else loses
            total, lost = total + loss.sum(), lost + (loss * chosen).sum()
            wrong, triplets = wrong + ((gap >= 0) * triples).sum(), triplets + triples.sum()
            learnt = learnt + chosen.sum()
            self.pull[i] = chosen.sum(axis=1) - chosen.sum(axis=0)
        self.learnt, self.count = xp.maximum(learnt, 1), xp.maximum(self.pairs.sum(), 1)
        every = xp.maximum(triplets, 1)
        rank, pair = total / every, (d * self.pairs).sum() / self.count * (self.mu < 1)
        self.put(self.mu * rank + (1 - self.mu) * pair, self.out[0])
        if len(self.out) > 1:
            self.put(1 - wrong / every, self.out[1])
        if len(self.out) > 2:
            self.put(xp.stack([lost / self.learnt, rank, pair, triplets, learnt]), self.out[2])
        return self.out

    def backward(self, dloss: Any, *others: Any) -> Any:
        pull = self.pull * (self.mu / self.learnt)
        if self.mu < 1:
            pull = pull + self.pairs * ((1 - self.mu) / self.count)
        both = pull + pull.T
        dx = both.sum(axis=1, keepdims=True) * self.x - self.matmul(both, self.x)
        return self.put(2 * dloss * dx, self.grad[0]), None


@register
class DiceCoefLoss(PairLoss):
    """loss = 1 - mean of (2 sum of a b + 1) / (sum of a^2 + sum of b^2 + 1) over the n samples.

    Bottoms: a, b with equal numbers of samples and entries; both have a gradient, which is that of n times the
    loss, as in the forks that have this layer. Top: the loss, of shape (). Source: DiceCoefLoss of
    HolmesShuan; F. Milletari et al., V-Net, 2016. The forks of E. Benazera and E. Jacob have keys for more.

    Example: (2, 1, 4, 4), (2, 1, 4, 4) -> {type: DiceCoefLoss} -> ()
    """

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = (self.wide(x.reshape(self.nk)) for x in (a, b))
        self.squares = (self.a * self.a + self.b * self.b).sum(axis=1, keepdims=True) + 1
        self.dice = (2 * (self.a * self.b).sum(axis=1, keepdims=True) + 1) / self.squares
        return self.put((1 - self.dice).sum() / self.divisor, self.out[0])

    def backward(self, dloss: Any) -> Any:
        scale = 2 * dloss / self.squares
        pairs = ((self.a, self.b), (self.b, self.a))
        return self.give(*(scale * (self.dice * x - other) for x, other in pairs))


@register
class MMDLoss(PairLoss):
    """How far apart two sets of features are: their maximum mean discrepancy, from pairs drawn in each pass.

    loss = mean over q drawn quadruples (s, s', t, t') of k(s, s') + k(t, t') - k(s, t') - k(s', t), s and s'
    two rows of the first bottom, t and t' of the second, q the larger number of rows;
    k(u, v) = sum over i < kernel_num of exp(-g kernel_mul^(i - kernel_num // 2) |u - v|^2), 1 / g = the mean
    of |u - v|^2 over all pairs of rows, which has no gradient; with fix_gamma it stays as in the first pass.
    Bottoms: (n, ...), (m, ...), n and m at least 2. Top: the loss, of shape (); the authors print q times as
    much. What is drawn is a function of (seed, layer, forward pass).
    Source: MMDLoss of M. Long's Xlearn; M. Long et al., Learning Transferable Features with Deep Adaptation
    Networks, 2015.

    Example: (4, 3), (5, 3) -> {type: MMDLoss, kernel_num: 5} -> ()
    """

    kernel_num: Annotated[int, "number of kernels", AtLeast(1)] = 5
    kernel_mul: Annotated[float, "the factor from one kernel's width to the next"] = 2.0
    fix_gamma: Annotated[bool, "keep the width of the first pass"] = False

    traits = replace(PairLoss.traits, mixes_samples=True)
    gamma = cast(Any, None)

    def setup(self, source: Shape, target: Shape) -> Any:
        self.sizes = n, m = samples(source), samples(target)
        self.k = math.prod(source[1:])
        if min(n, m) < 2 or math.prod(target[1:]) != self.k:
            raise ShapeError(
                f"needs two bottoms of at least 2 samples with as many entries, got {source} and {target}"
            )
        if self.kernel_mul <= 0:
            raise ShapeError(f"kernel_mul: expected above 0, got {self.kernel_mul}")
        return ()

    def forward(self, source: Any, target: Any) -> Any:
        x = self.xp.concatenate([self.wide(x.reshape(-1, self.k)) for x in (source, target)])
        self.begin(x)
        loss, self.slopes = 0, list[tuple[Any, ...]]()
        for a, b, sign in self.ends:
            values, slope = self.kernels(x[a] - x[b], self.widths)
            for value in values:
                loss = loss + sign * value.sum()
            self.slopes.append((sign * slope,))
        return self.put(loss / max(self.sizes), self.out[0])

    def begin(self, x: Any) -> None:
        """Set gamma of all features and so the kernels' widths, and draw the pairs of rows."""
        if not (self.fix_gamma and self.gamma is not None):
            self.gamma = len(x) * (len(x) - 1) / self.spread(x)
        mul, middle = self.kernel_mul, self.kernel_num // 2
        self.widths = [self.gamma * mul ** (i - middle) for i in range(self.kernel_num)]
        stream = random_stream(self.context.seed, self.name, self.context.passes)
        numbers, q = [], max(self.sizes)
        for size, start in zip(self.sizes, (0, self.sizes[0]), strict=True):
            first = stream.integers(size, size=q)
            numbers += [start + first, start + (first + stream.integers(1, size, size=q)) % size]
        s, s2, t, t2 = (self.context.device.asarray(rows.astype(np.int32)) for rows in numbers)
        self.ends = [(s, s2, 1), (t, t2, 1), (s, t2, -1), (t, s2, -1)]

    def spread(self, rows: Any) -> Any:
        """The sum of |u - v|^2 over all ordered pairs of rows."""
        apart = rows - rows.sum(axis=0) / len(rows)
        return self.xp.maximum(2 * len(rows) * (apart * apart).sum(), 1e-30)

    def kernels(self, gap: Any, widths: Sequence[Any]) -> tuple[list[Any], Any]:
        """exp(-width |gap|^2) of each row (q, 1) for each width; their sum's derivative by the gap."""
        values, slope, square = list[Any](), 0, (gap * gap).sum(axis=1, keepdims=True)
        for width in widths:
            values.append(self.xp.exp(-width * square))
            slope = slope - 2 * width * values[-1]
        return values, slope * gap

    def backward(self, dloss: Any) -> Any:
        xp, n, gradients = self.xp, self.sizes[0], list[Any]()
        for part in range(len(self.slopes[0])):  # features, answers
            rows = xp.zeros((sum(self.sizes), self.slopes[0][part].shape[1]), self.sum_dtype)
            work = xp.empty_like(rows)
            for (a, b, _), slopes in zip(self.ends, self.slopes, strict=True):
                slope = xp.ascontiguousarray(slopes[part] * (dloss / len(a)))
                rows += take.put_back(slope, a, work)
                rows -= take.put_back(slope, b, work)
            gradients += [rows[:n], rows[n:]]
        return self.give(*gradients)


@register
class L2Norm(Whole):
    """y = x / |x| of each sample; one of zeros stays so, and has no gradient. (n, ...) -> the same.

    Source: L2Norm of J. Wan's caffe-sl, which makes NaN of zeros.

    Example: (3, 4) -> {type: L2Norm} -> (3, 4)
    """

    def setup(self, x: Shape) -> Shape:
        n = samples(x)
        self.nk = n, math.prod(x) // max(n, 1)
        return x

    def forward(self, x: Any) -> Any:
        xp, rows = self.xp, self.wide(x.reshape(self.nk))
        length = xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
        self.share = (length > 0) / xp.where(length > 0, length, 1)
        self.y = rows * self.share
        return self.y.reshape(x.shape)

    def backward(self, dy: Any) -> Any:
        rows = self.wide(dy.reshape(self.nk))
        along = (rows * self.y).sum(axis=1, keepdims=True)
        return ((rows - along * self.y) * self.share).reshape(dy.shape)


@register
class EntropyLoss(PairLoss):
    """loss = - sum of p log p / n over the probabilities p of at least `threshold`, of n samples.

    Bottom: (n, ...). Top: the loss, of shape (); 0, without a gradient, in the first iterations_num passes.
    The gradient is that of Xlearn, which prints the sum of p log p. Source: EntropyLoss of M. Long's Xlearn;
    M. Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, 2016.

    Example: (4, 3) -> {type: EntropyLoss, threshold: 0.01} -> ()
    """

    threshold: Annotated[float, "smaller probabilities do not count", AtLeast(1e-30)] = 0.001
    iterations_num: Annotated[int, "passes before the first that counts", AtLeast(0)] = 0

    def setup(self, x: Shape) -> Any:  # type: ignore[override]
        return super().setup(x, x)

    def forward(self, x: Any) -> Any:
        xp, x = self.xp, self.wide(x)
        self.counts = x >= self.threshold
        if self.context.passes < self.iterations_num:
            self.counts = xp.zeros_like(self.counts)
        self.log = xp.log(xp.maximum(x, self.threshold))
        return self.put(-(x * self.log * self.counts).sum() / self.divisor, self.out[0])

    def backward(self, dloss: Any) -> Any:
        return self.put(-(1 + self.log) * self.counts * (dloss / self.divisor), self.grad[0])


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

    def forward(self, *bottoms: Any) -> Any:
        xp = self.xp
        wide = [self.wide(x.reshape(len(x), -1)) for x in bottoms]
        x, y = xp.concatenate(wide[:2]), xp.concatenate(wide[2:])
        self.begin(x)
        sigma = self.spread(y) / (len(x) * (len(x) - 1)) if self.auto_sigma else self.sigma
        mul, middle = self.label_kernel_mul, self.label_kernel_num // 2
        label_widths = [mul ** (middle - j) / sigma for j in range(self.label_kernel_num)]
        loss, self.slopes = 0, []
        for a, b, sign in self.ends:
            values, k_slope = self.kernels(x[a] - x[b], self.widths)
            label_values, near_slope = self.kernels(y[a] - y[b], label_widths)
            k, near = sum(values), sum(label_values)
            loss = loss + sign * (k * near).sum()
            self.slopes.append((sign * near * k_slope, sign * k * near_slope))
        return self.put(cast(Any, loss) / max(self.sizes), self.out[0])


@register
class WeightedSoftmaxWithLoss(SoftmaxLoss):
    """loss = - sum over labels of w[label] log softmax(x)[label] / normalizer, w = class_weighting.

    Bottoms: scores, labels. The normalizer, labels and tops are those of SoftmaxWithLoss: weights do not
    change what the sum is divided by. A probability below 1e-20 counts as 1e-20. Raises DataError for a label
    that is no class. In a prototxt it is a SoftmaxWithLoss with `loss_param { weight_by_label_freqs: true
    class_weighting: ... }`. Source: SoftmaxWithLoss of A. Kendall's caffe-segnet; V. Badrinarayanan et al.,
    SegNet, 2015.

    Example: (2, 3, 4, 5), (2, 1, 4, 5) ->
    {type: WeightedSoftmaxWithLoss, class_weighting: [0.5, 1, 4], ignore_label: 255} -> ()
    """

    class_weighting: Annotated[tuple[float, ...], "a weight for each class"]
    axis: Annotated[int, "the axis of the classes"] = 1

    traits = replace(SoftmaxLoss.traits, inferred_as="Softmax")

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        tops = super().setup(x, labels)
        wanted, got = self.ncs[1], len(self.class_weighting)
        if got != wanted:
            raise ShapeError(f"class_weighting: expected {wanted} weights, one a class, got {got}")
        return tops

    def allocate(self) -> None:
        super().allocate()
        (n, c, s), dtype, on_device = self.ncs, self.sum_dtype, self.context.device.asarray
        self.sums = on_device(np.array(self.class_weighting, dtype))  # of the matrix's rows
        self.matrix = on_device(np.diag(np.array(self.class_weighting, dtype)))
        self.work = self.empty(self.ncs, dtype)
        self.scratch = label_losses.InfogainScratch.empty(self.xp, n, c, s, dtype)

    lose, gradient = InfogainLoss.lose, InfogainLoss.gradient  # by the matrix


@register
class SigmoidCrossEntropyBalanceLoss(PairLoss):
    """loss = - sum of w (t log p + (1 - t) log(1 - p)) / n, p = sigmoid(x), few ones as much as many zeros.

    Bottoms: x and targets t, with equal numbers of samples and entries. In each sample w is the share of
    targets 0 where t = 1, and that of targets 1 where t = 0, among both; others do not count. Top: the loss,
    of shape (). Source: the SigmoidCrossEntropyLoss of S. Xie's HED, which other forks call so; S. Xie, Z. Tu,
    Holistically-Nested Edge Detection, 2015.

    Example: (2, 1, 3, 4), (2, 1, 3, 4) -> {type: SigmoidCrossEntropyBalanceLoss} -> ()
    """

    traits = replace(PairLoss.traits, **labels(1))

    def forward(self, x: Any, target: Any) -> Any:
        xp = self.xp
        self.x, self.target = (self.wide(one.reshape(self.nk)) for one in (x, target))
        ones, zeros = self.wide(self.target == 1), self.wide(self.target == 0)
        counts = [one.sum(axis=1, keepdims=True) for one in (ones, zeros)]
        self.weight = (ones * counts[1] + zeros * counts[0]) / xp.maximum(counts[0] + counts[1], 1)
        losses = xp.maximum(self.x, 0) - self.x * self.target
        losses = losses + xp.log1p(xp.exp(-xp.absolute(self.x)))
        return self.put((losses * self.weight).sum() / self.divisor, self.out[0])

    def backward(self, dloss: Any) -> Any:
        p = 0.5 + 0.5 * self.xp.tanh(0.5 * self.x)
        dx = (p - self.target) * self.weight * (dloss / self.divisor)
        return self.put(dx, self.grad[0]), None


@register
class SegAccuracy(Whole):
    """How many pixels have the right class: a batch's accuracy, mean recall, mean intersection over union.

    Bottoms: scores (n, c, h, w) and labels (n, 1, h, w). Top: (1, 1, 1, 3): the share of labels that have the
    largest score, of equal ones the last; the mean over the classes that there are of the share found of
    each; the mean over all classes of intersection over union, 1 for a class that is nowhere.
    Raises DataError for a label that is no class nor ignored; on CUDA, without waiting, the top is NaN.
    Source: SegAccuracy of G. Papandreou's DeepLab; L.-C. Chen et al., Semantic Image Segmentation with Deep
    Convolutional Nets and Fully Connected CRFs, 2015.

    Example: (2, 5, 3, 4), (2, 1, 3, 4) -> {type: SegAccuracy, ignore_label: 255} -> (1, 1, 1, 3)
    """

    ignore_label: Annotated[tuple[int, ...], "labels that do not count"] = ()

    traits = replace(
        Whole.traits,
        label_bottoms=(0, 1),
        float32_bottoms=(1,),
        float32_tops=(0,),
        mixes_samples=True,
        inferred_as="nothing",
    )

    def setup(self, x: Shape, labels: Shape) -> Shape:
        if len(x) != 4 or not x[1]:
            raise ShapeError(f"needs scores of 4 axes (n, c, h, w), got {x}")
        check_labels(labels, x[0], x[2] * x[3])
        self.ncs = x[0], x[1], x[2] * x[3]
        return (1, 1, 1, 3)

    def allocate(self) -> None:
        classes = np.arange(self.ncs[1], dtype=self.sum_dtype).reshape(-1, 1)
        self.classes = self.context.device.asarray(classes)
        self.diagonal = self.context.device.asarray(np.eye(self.ncs[1]))

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, c, s) = self.xp, self.ncs
        x, labels = x.reshape(self.ncs), self.wide(labels.reshape(n, 1, s))
        if not self.context.device.is_cuda:
            check_classes(labels[~np.isin(labels, self.ignore_label)], None, c)
        confusion = xp.zeros((c, c), np.float64)  # how many of label i are told to be j
        left = xp.zeros((), np.float64)
        for scores, own in zip(x, labels, strict=True):
            best = c - 1 - scores[::-1].argmax(axis=0)
            counts = xp.ones(own.shape, bool)
            for label in self.ignore_label:
                counts = counts & (own != label)
            right = self.wide((own == self.classes) & counts)
            confusion += self.matmul(right, self.wide(best == self.classes).T)
            left += counts.sum()
        hits, of_label = (confusion * self.diagonal).sum(axis=1), confusion.sum(axis=1)
        union = of_label + confusion.sum(axis=0) - hits
        recall = (hits / xp.maximum(of_label, 1)).sum() / xp.maximum((of_label > 0).sum(), 1)
        shared = xp.where(union == hits, 1.0, hits / xp.maximum(union, 1))
        scores = [hits.sum() / xp.maximum(left, 1), recall, shared.sum() / c]
        wrong = xp.where(left == confusion.sum(), 0.0, np.nan)  # some label is no class
        return self.put(xp.stack(scores) + wrong, self.out[0])
