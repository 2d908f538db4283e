"""Layers of edge detection, HED's: SigmoidCrossEntropyBalanceLoss and ImageLabelmapData."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_alike, samples
from minicaffe.interop.caffe.forks.whole import LOSS, Whole
from minicaffe.tools.data.layers.label_maps import LabelMaps


@register
class SigmoidCrossEntropyBalanceLoss(Whole):
    """loss = - sum of w (t log p + (1 - t) log(1 - p)) / n, p = sigmoid(x), few ones as much as many zeros.

    Bottoms: x and targets t, with equal numbers of samples and entries. In each sample w is the share of
    targets 0 where t = 1, and that of targets 1 where t = 0, among both; others do not count. Top: the loss,
    of shape (). Source: the SigmoidCrossEntropyLoss of S. Xie's HED, which other forks call so; S. Xie, Z. Tu,
    Holistically-Nested Edge Detection, 2015.

    Example: (2, 1, 3, 4), (2, 1, 3, 4) -> {type: SigmoidCrossEntropyBalanceLoss} -> ()
    """

    traits = replace(LOSS, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, target: Shape) -> Shape:
        check_alike(x, target)
        n = samples(x)
        self.nk = n, math.prod(x) // max(n, 1)
        return ()

    def forward(self, x: Any, target: Any) -> Any:
        xp = self.xp
        self.x, self.target = (self.wide(one.reshape(self.nk)) for one in (x, target))
        ones, zeros = self.wide(self.target == 1), self.wide(self.target == 0)
        counts = [one.sum(axis=1, keepdims=True) for one in (ones, zeros)]
        both = xp.maximum(counts[0] + counts[1], 1)
        self.weight = (ones * counts[1] + zeros * counts[0]) / both
        losses = xp.maximum(self.x, 0) - self.x * self.target
        losses = losses + xp.log1p(xp.exp(-xp.absolute(self.x)))
        whole = self.context.share.of_whole(max(self.nk[0], 1))
        return self.put((losses * self.weight).sum() / whole, self.out[0])

    def backward(self, dloss: Any) -> Any:
        p = 0.5 + 0.5 * self.xp.tanh(0.5 * self.x)
        scale = dloss / self.context.share.of_whole(max(self.nk[0], 1))
        return self.put((p - self.target) * self.weight * scale, self.grad[0]), None


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
