"""R-FCN's hard examples: BoxAnnotatorOHEM, and the losses that tell that of each region."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_alike
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.softmax import SoftmaxWithLoss
from minicaffe.core.ops.softmax import Mean
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import PairLoss, Whole

Normalization = Literal["FULL", "VALID", "BATCH_SIZE", "PRE_FIXED", "NONE"]
DIVISOR = "what the sum is divided by: all labels, those that count, samples, a given number, or 1"


@register
class SmoothL1LossOHEM(PairLoss):
    """loss = sum of f(w (a - b)) / normalizer, f(d) = d^2 / 2 where |d| < 1, |d| - 1 / 2 elsewhere.

    Bottoms: a, b (n, c) or (n, c, h, w) and, optionally, weights w of as many entries; a and b have a
    gradient. The normalizer, at least 1, is the number of regions, n h w (VALID, FULL), n (BATCH_SIZE),
    pre_fixed_normalizer (PRE_FIXED) or 1 (NONE). Tops: the loss, of shape (), and optionally that of each
    region, the sum over its channels, (n, 1, 1, 1) or (n, 1, h, w), which BoxAnnotatorOHEM reads. It has a
    gradient, too. The weights count in the gradient; R-FCN's layer leaves them out there, which is the same
    for weights 0 and 1. Source: SmoothL1LossOHEM of R-FCN's Caffe; J. Dai et al., R-FCN, 2016.

    Example: (4, 8), (4, 8), (4, 8) ->
    {type: SmoothL1LossOHEM, normalization: PRE_FIXED, pre_fixed_normalizer: 128} -> ()
    """

    normalization: Annotated[
        Normalization | None, "what the sum is divided by: regions, samples, a given number or 1"
    ] = None
    normalize: Annotated[
        bool | None, "Caffe's older key, without normalization: true is VALID, false BATCH_SIZE"
    ] = None
    pre_fixed_normalizer: Annotated[float, "what PRE_FIXED divides by"] = 1.0

    traits = replace(PairLoss.traits, label_bottoms=(2,))

    def setup(self, a: Shape, b: Shape, weights: Shape | None = None) -> Any:
        if len(a) < 2:
            raise ShapeError(f"needs bottoms (n, c) or (n, c, h, w), got {a}")
        for other in (b, weights):
            if other is not None:
                check_alike(a, other)
        if len(self.top) > 2:
            raise ShapeError(f"has 1 or 2 tops (loss, that of each region), got {len(self.top)}")
        self.ncs = a[0], a[1], math.prod(a[2:])
        return [(), (a[0], 1, *(a[2:] or (1, 1)))][: max(len(self.top), 1)]

    @property
    def divisor(self) -> float:
        """The normalizer, on several ranks that of the whole batch."""
        n, s = self.context.share.of_whole(self.ncs[0]), self.ncs[2]
        how = self.normalization or ("BATCH_SIZE" if self.normalize is False else "VALID")
        fixed = {"BATCH_SIZE": n, "PRE_FIXED": self.pre_fixed_normalizer, "NONE": 1}
        return max(fixed.get(how, n * s), 1)

    def forward(self, a: Any, b: Any, weights: Any = None) -> Any:
        xp = self.xp
        a, b = (self.wide(x.reshape(self.ncs)) for x in (a, b))
        self.weights = 1 if weights is None else self.wide(weights.reshape(self.ncs))
        self.apart = self.weights * (a - b)
        size = xp.absolute(self.apart)
        each = xp.where(size < 1, 0.5 * self.apart * self.apart, size - 0.5).sum(axis=1)
        for values, top in zip((each.sum() / self.divisor, each), self.out, strict=False):
            self.put(values, top)
        return self.out

    def backward(self, dloss: Any, deach: Any = None) -> Any:
        scale = self.wide(dloss) / self.divisor
        if deach is not None:
            scale = scale + self.wide(deach).reshape(self.ncs[0], 1, self.ncs[2])
        slope = self.xp.clip(self.apart, -1, 1) * self.weights * scale
        return self.give(slope, -slope)


@register
class SoftmaxWithLossOHEM(SoftmaxWithLoss):
    """loss = - sum over labels of log softmax(x)[label] / normalizer, and that of each label.

    Bottoms: scores, labels. The normalizer is that of SoftmaxWithLoss or, PRE_FIXED, at least 1,
    pre_fixed_normalizer. Tops: the loss, of shape (), optionally the probabilities and then each label's
    loss, of the labels' shape, 0 where it is ignored, which BoxAnnotatorOHEM reads; both have a gradient.
    Raises DataError for a label that is no class. Source: SoftmaxWithLossOHEM of R-FCN's Caffe; J. Dai et
    al., R-FCN, 2016.

    Example: (4, 3), (4, 1, 1, 1) -> {type: SoftmaxWithLossOHEM} -> (), (4, 3), (4, 1, 1, 1)
    """

    normalization: Annotated[Normalization | None, DIVISOR] = None  # type: ignore[assignment]
    pre_fixed_normalizer: Annotated[float, "what PRE_FIXED divides by"] = 1.0

    traits = replace(
        SoftmaxWithLoss.traits, recordable=False, capturable=False, inferred_as="itself"
    )

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        if len(self.top) > 3:
            raise ShapeError(
                f"has 1 to 3 tops (loss, probabilities, that of each), got {len(self.top)}"
            )
        whole, self.top = self.top, self.top[:2]
        shapes = super().setup(x, labels)
        self.top = whole
        return [*shapes, *[labels] * (len(whole) > 2)]

    def take_mean(self, n: int, s: int) -> None:
        if self.how == "PRE_FIXED":
            fixed: Any = self.pre_fixed_normalizer
            self.of_losses = Mean.empty(self.xp, fixed, False, self.sum_dtype)
        else:
            super().take_mean(n, s)

    def right(self) -> tuple[Any, Any]:
        """1 at each label's class, of shape (n, c, s), and 1 where a label counts, (n, 1, s)."""
        (n, c, s), xp = self.ncs, self.xp
        labels = self.labels.reshape(n, 1, s)
        counts = labels == labels if self.ignore_label is None else labels != self.ignore_label
        return labels == xp.arange(c).reshape(1, c, 1), counts

    def forward(self, x: Any, labels: Any, *more: Any) -> Any:
        super().forward(x, labels)
        if len(self.out) > 2:
            xp, (right, counts) = self.xp, self.right()
            prob = (self.prob * right).sum(axis=1, keepdims=True)
            each = -xp.log(xp.maximum(prob, np.finfo(self.sum_dtype).tiny)) * counts
            xp.copyto(self.out[2], each.reshape(self.out[2].shape))
        return self.out

    def gradient(self, dloss: Any, out: Any) -> None:
        super().gradient(dloss, out)
        if self.of_each is not None:
            right, counts = self.right()
            scale = self.of_each.astype(self.sum_dtype, copy=False).reshape(counts.shape)
            out += (self.prob - right) * (scale * counts)

    def backward(self, dloss: Any, dprob: Any = None, deach: Any = None) -> Any:
        self.of_each = deach
        return super().backward(dloss, dprob)


@register
class BoxAnnotatorOHEM(Whole):
    """Of each image's regions the roi_per_img of the largest losses keep their labels and weights.

    Bottoms: regions (r, 5), whose first number is the image; losses (r,); labels (r,); weights (r, k). Tops:
    labels (r, 1, 1, 1), ignore_label for the others; weights (r, k, 1, 1), 0 for the others. Behind their
    first axes all may have h x w places, (r, 5, h, w). Of equal losses the first counts as larger. It runs on
    the host, waits for the device, and has no gradient. Source: BoxAnnotatorOHEM of R-FCN's Caffe; A.
    Shrivastava et al., Training Region-based Object Detectors with Online Hard Example Mining, 2016.

    Example: (4, 5), (4,), (4,), (4, 8) ->
    {type: BoxAnnotatorOHEM, roi_per_img: 2} -> (4, 1, 1, 1), (4, 8, 1, 1)
    """

    roi_per_img: Annotated[int, "regions of an image that count", AtLeast(1)]
    ignore_label: Annotated[int, "the label of the others"] = -1

    traits = Traits(
        capturable=False,
        mixes_samples=True,
        label_bottoms=(0, 1, 2, 3),
        float32_bottoms=(0, 1, 2),
        float32_tops=(0,),
    )

    def setup(self, rois: Shape, loss: Shape, labels: Shape, weights: Shape) -> list[Shape]:
        if len(rois) not in (2, 4) or rois[1] != 5:
            raise ShapeError(f"needs regions (r, 5) or (r, 5, h, w), got {rois}")
        self.r, self.area = rois[0], rois[2:] or (1, 1)
        places = math.prod(self.area)
        count = self.r * places
        for what, shape in (("losses", loss), ("labels", labels)):
            if math.prod(shape) != count or shape[:1] != rois[:1]:
                raise ShapeError(f"needs {what} of {count} entries, one a region, got {shape}")
        if len(weights) < 2 or weights[0] != self.r or math.prod(weights[2:]) != places:
            raise ShapeError(f"needs weights ({self.r}, k), a row a region, got {weights}")
        self.k = weights[1]
        return [(self.r, 1, *self.area), (self.r, self.k, *self.area)]

    def forward(self, rois: Any, loss: Any, labels: Any, weights: Any) -> Any:
        r, k, s = self.r, self.k, math.prod(self.area)
        image = self.on_host(rois).reshape(r, 5, s)[:, 0].reshape(-1)
        chosen = np.zeros(r * s, bool)
        order = np.argsort(-self.on_host(loss).reshape(-1), kind="stable")
        for one in np.unique(image):
            chosen[order[image[order] == one][: self.roi_per_img]] = True
        labels = np.where(chosen, self.on_host(labels).reshape(-1), self.ignore_label)
        weights = self.on_host(weights).reshape(r, k, s) * chosen.reshape(r, 1, s)
        pairs = ((labels, 1), (weights, k))
        return [self.from_host(array.reshape(r, width, *self.area)) for array, width in pairs]
