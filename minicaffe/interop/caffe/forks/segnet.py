"""SegNet's layers: DenseImageData, pictures with labels of each pixel, and WeightedSoftmaxWithLoss."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.softmax_loss import SoftmaxLoss
from minicaffe.core.ops import infogain
from minicaffe.core.ops import softmax as ops
from minicaffe.errors import ShapeError
from minicaffe.tools.data.augment import Recipe
from minicaffe.tools.data.layers.label_maps import LabelMaps


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
