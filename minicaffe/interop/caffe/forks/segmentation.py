"""Labels of each pixel: pictures with them, losses, and the accuracy of SegAccuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_labels
from minicaffe.core.layers.softmax_loss import SoftmaxLoss
from minicaffe.core.ops import infogain
from minicaffe.core.ops import softmax as ops
from minicaffe.core.ops.labels import check_classes
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import PairLoss, Whole
from minicaffe.tools.data.layers.label_maps import LabelMaps
from minicaffe.tools.data.recipe import Recipe


@register
class DenseImageData(LabelMaps):
    """Listed pictures, y = (image - mean) scale, and pictures of their labels, pixel by pixel.

    -> (batch_size, c, h, w), and (batch_size, 1, h, w) if there is a second top. `source` names a text file
    with two paths in each line: a picture's and its labels', grey values of 8 bits. `root_folder` is put
    before each, which is relative to the current folder or the list's. Both are scaled to
    new_height x new_width, labels to the nearest, or all have one size; and cut, at random in TRAIN, in the
    middle in TEST, and mirrored together, by (seed, epoch, entry). Order, `workers` and `on_error` are
    ImageData's. Labels may be smaller by label_divide_factor, of pictures that are scaled and neither cut nor
    mirrored. Needs Pillow; raises DataError for a file that is missing or damaged, or of another size.
    Source: DenseImageData of A. Kendall's caffe-segnet; V. Badrinarayanan et al., SegNet, 2015;
    label_divide_factor is that of T. Saemann's caffe-enet.

    Example: -> {type: DenseImageData, source: pairs.txt, batch_size: 2, crop_height: 4, crop_width: 5} ->
    (2, 3, 4, 5), (2, 1, 4, 5)
    """

    mirror: Annotated[bool, "flip left and right at random"] = False
    crop_height: Annotated[int, "rows to cut out; 0: all", AtLeast(0)] = 0
    crop_width: Annotated[int, "columns to cut out; 0: all", AtLeast(0)] = 0

    label_divide_factor: Annotated[
        int, "ENet's: labels have so many times fewer rows and columns", AtLeast(1)
    ] = 1

    nearest = True

    @property
    def cut(self) -> tuple[int, int] | None:
        """The size of the part that is cut out, if any."""
        return (self.crop_height, self.crop_width) if self.crop_height else None

    @property
    def recipe(self) -> Recipe:
        """How a picture is prepared, without the mean."""
        return replace(super().recipe, mirror=self.mirror, crop=self.crop_height or None)

    def setup(self) -> list[Shape]:
        if bool(self.crop_height) != bool(self.crop_width):
            raise ShapeError("crop_height and crop_width are given together, or neither")
        if self.transform.mirror or self.transform.crop_size:
            raise ShapeError(
                "transform: mirror and crop_size: here mirror, crop_height and crop_width are the layer's keys"
            )
        factor = self.label_divide_factor
        if factor > 1 and (self.mirror or self.crop_height):
            raise ShapeError("label_divide_factor: above 1 without mirror, crop_height, crop_width")
        if factor > 1 and not (self.new_height and self.new_width):
            raise ShapeError("label_divide_factor: above 1 with new_height and new_width")
        if self.new_height % factor or self.new_width % factor:
            size = f"{self.new_height} x {self.new_width}"
            raise ShapeError(
                f"label_divide_factor: {factor} does not divide new_height x new_width, {size}"
            )
        return super().setup()

    def shapes(self) -> list[Shape]:
        factor = self.label_divide_factor
        images, *labels = super().shapes()
        return [images, *((n, c, h // factor, w // factor) for n, c, h, w in labels)]

    def labelled(self, pixels: Any) -> Any:
        return pixels[:, :, :: self.label_divide_factor, :: self.label_divide_factor]


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
        tops = self.shapes(x, labels)
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
        self.scratch = infogain.Scratch.empty(self.xp, n, c, s, dtype)

    def lose(self, x: Any, *more: Any) -> None:
        ops.softmax(x, self.prob, self.reduced)
        given = self.prob, self.labels, self.matrix, self.ignore_label, self.losses, self.read
        infogain.infogain(*given, self.work, self.scratch)
        self.of_losses.of(self.losses, self.read.valid, self.out[0], self.context.workspace)

    def gradient(self, dloss: Any, out: Any) -> None:
        scale = self.of_losses.gradient(dloss)
        given = self.prob, self.labels, self.matrix, self.sums, self.ignore_label, scale
        infogain.infogain_gradient(*given, out, self.read, self.scratch)


@register
class SigmoidCrossEntropyBalanceLoss(PairLoss):
    """loss = - sum of w (t log p + (1 - t) log(1 - p)) / n, p = sigmoid(x), few ones as much as many zeros.

    Bottoms: x and targets t, with equal numbers of samples and entries. In each sample w is the share of
    targets 0 where t = 1, and that of targets 1 where t = 0, among both; others do not count. Top: the loss,
    of shape (). Source: the SigmoidCrossEntropyLoss of S. Xie's HED, which other forks call so; S. Xie, Z. Tu,
    Holistically-Nested Edge Detection, 2015.

    Example: (2, 1, 3, 4), (2, 1, 3, 4) -> {type: SigmoidCrossEntropyBalanceLoss} -> ()
    """

    traits = replace(PairLoss.traits, label_bottoms=(1,), float32_bottoms=(1,))

    def forward(self, x: Any, target: Any) -> Any:
        xp = self.xp
        self.x, self.target = (self.wide(one.reshape(self.nk)) for one in (x, target))
        ones, zeros = self.wide(self.target == 1), self.wide(self.target == 0)
        counts = [one.sum(axis=1, keepdims=True) for one in (ones, zeros)]
        both = xp.maximum(counts[0] + counts[1], 1)
        self.weight = (ones * counts[1] + zeros * counts[0]) / both
        losses = xp.maximum(self.x, 0) - self.x * self.target
        losses = losses + xp.log1p(xp.exp(-xp.absolute(self.x)))
        return self.put((losses * self.weight).sum() / self.divisor, self.out[0])

    def backward(self, dloss: Any) -> Any:
        p = 0.5 + 0.5 * self.xp.tanh(0.5 * self.x)
        return self.put(
            (p - self.target) * self.weight * (dloss / self.divisor), self.grad[0]
        ), None


@register
class ImageLabelmapData(LabelMaps):
    """Listed pictures, y = (image - mean) scale, and of their edges: 1 from the grey value 128 on, else 0.

    -> (batch_size, c, h, w), and (batch_size, 1, h, w) if there is a second top. `source` names a text file
    with two paths in each line: a picture's and its edges'. `root_folder` is put before each, which is
    relative to the current folder or the list's. Both are scaled to new_height x new_width, or all have one
    size; and cut (crop_size), at random in TRAIN, in the middle in TEST, and mirrored together, by (seed,
    epoch, entry). Order, `workers` and `on_error` are ImageData's. Needs Pillow; raises DataError for a file
    that is missing or damaged, or of another size. Source: ImageLabelmapData of S. Xie's HED.

    Example: -> {type: ImageLabelmapData, source: pairs.txt, batch_size: 2, new_height: 9, new_width: 8} ->
    (2, 3, 9, 8), (2, 1, 9, 8)
    """

    batch_size: Annotated[int, "images in a batch", AtLeast(1)] = 1

    def labelled(self, pixels: Any) -> Any:
        return pixels >= 128


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
        found = xp.zeros((c, c), np.float64)  # how many of label i are told to be j
        left = xp.zeros((), np.float64)
        for scores, own in zip(x, labels, strict=True):
            best = c - 1 - scores[::-1].argmax(axis=0)
            counts = xp.ones(own.shape, bool)
            for label in self.ignore_label:
                counts = counts & (own != label)
            right = self.wide((own == self.classes) & counts)
            found += xp.matmul(right, self.wide(best == self.classes).T)
            left += counts.sum()
        hits, of_label = (found * self.diagonal).sum(axis=1), found.sum(axis=1)
        union = of_label + found.sum(axis=0) - hits
        there = of_label > 0
        recall = (hits / xp.maximum(of_label, 1)).sum() / xp.maximum(there.sum(), 1)
        shared = xp.where(union == hits, 1.0, hits / xp.maximum(union, 1))
        scores = [hits.sum() / xp.maximum(left, 1), recall, shared.sum() / c]
        wrong = xp.where(left == found.sum(), 0.0, np.nan)  # some label is no class
        return self.put(xp.stack(scores) + wrong, self.out[0])
