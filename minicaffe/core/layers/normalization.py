"""Normalisations over the places of one sample: MVN, LayerNorm, GroupNorm, Normalize."""

from __future__ import annotations

import math
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis, register
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import ONE, ZERO
from minicaffe.core.ops.normalize import gradients, normalise
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics, workspace
from minicaffe.errors import ShapeError


class Normalization(Layer):
    """The base of normalisations: rows, how they are normalised, and optionally a learnt scale and bias.

    A subclass calls `plan` in its setup. Backward computes the normalised values again from the
    bottom, so that a layer after it may work in place on the top.
    """

    traits = Traits(recordable=True)
    by_past = False  # whether forward uses remembered statistics
    scale: Param | None
    bias: Param | None

    def plan(self, x: Shape, rows: Rows, norm: Norm, features: Rows | None = None) -> Shape:
        """Set how `x` is normalised and scaled; a feature is a row of `features`."""
        self.rows, self.norm, self.features = rows, norm, features
        self.scale = self.bias = None
        count = 0 if features is None else features.count
        if self.runs_backward or not self.by_past:
            self.context.reserve(workspace(self.xp, math.prod(x), rows, count))
        return x

    def allocate(self) -> None:
        self.found = Statistics.empty(self.xp, self.rows, self.sum_dtype)

    def measure(self) -> tuple[Norm | None, Past | None]:
        """How the rows' statistics are computed (None: they are not), and the arrays that remember them."""
        return self.norm, None

    def forward(self, x: Any) -> Any:
        self.x, (self.follows, past) = x, self.measure()
        given = self.follows, self.context.workspace, past
        return normalise(x, self.rows, self.found, self._affine(), self.out[0], *given)

    def backward(self, dy: Any) -> Any:
        learnt = self.learnt_diffs()
        given = self.rows, self.follows, self.found, self._affine(), learnt, self.grad[0]
        return gradients(self.x, dy, *given, self.context.workspace)

    def learnt_diffs(self) -> tuple[Any, Any]:
        """The gradients of scale and bias, None if one is missing or not learnt."""
        both = (self.scale, self.bias)
        scale, bias = (None if p is None or not p.learns else p.diff for p in both)
        return scale, bias

    def _affine(self) -> Affine | None:
        if self.features is None:
            return None
        scale, bias = (None if p is None else p.data for p in (self.scale, self.bias))
        return Affine(self.features, scale, bias)


@register
class MVN(Normalization):
    """y = (x - mean) / (deviation + eps), the mean and deviation of each channel of each sample.

    (n, c, ...) -> the same. The deviation is sqrt(sum (x - mean)^2 / count). Without normalize_variance
    y = x - mean. The gradient is exact for any eps. Source: Caffe's MVN.

    Example: (2, 3, 4, 4) -> {type: MVN, across_channels: true} -> (2, 3, 4, 4)
    """

    normalize_variance: Annotated[bool, "divide by the deviation"] = True
    across_channels: Annotated[bool, "one mean and deviation per sample, over all channels"] = False
    eps: Annotated[float, "added to the deviation", AtLeast(0)] = 1e-9

    def setup(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError(f"needs a bottom of at least 2 axes (n, c, ...), got {x}")
        first = 1 if self.across_channels else 2
        rows = Rows(1, 1, math.prod(x[:first]), math.prod(x[first:]))
        return self.plan(
            x, rows, Norm("deviation" if self.normalize_variance else "mean", self.eps)
        )


@register
class LayerNorm(Normalization):
    """y = (x - mean) / sqrt(variance + eps) scale + bias, over the axes from `axis` on.

    Any shape. The variance is sum (x - mean)^2 / count. Parameters: scale and bias, of the shape of the
    normalised axes. Source: PyTorch's LayerNorm (normalized_shape = the axes from `axis` on); J. Ba et
    al., Layer Normalization, 2016.

    Example: (8, 5, 16) -> {type: LayerNorm} -> (8, 5, 16)
    """

    axis: Annotated[int, "the first axis that is normalised, with all after it"] = -1
    eps: Annotated[float, "added to the variance", AtLeast(0)] = 1e-5
    affine: Annotated[bool, "learn a scale"] = True
    bias_term: Annotated[bool, "learn a bias, where a scale is learnt"] = True
    scale_filler: Annotated[Filler, "how the scale starts"] = ONE
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    def setup(self, x: Shape) -> Shape:
        axis = canonical_axis(self.axis, x)
        count, length = math.prod(x[:axis]), math.prod(x[axis:])
        features = Rows(1, count, length, 1) if self.affine else None
        self.plan(x, Rows(1, 1, count, length), Norm("variance", self.eps), features)
        if self.affine:
            self.scale = self.param(x[axis:], self.scale_filler)
            self.bias = self.param(x[axis:], self.bias_filler) if self.bias_term else None
        return x


@register
class GroupNorm(Normalization):
    """y = (x - mean) / sqrt(variance + eps) scale + bias, over groups of a sample's channels.

    (n, c, ...) -> the same; c must be divisible by num_groups. The variance is sum (x - mean)^2 / count.
    Parameters: scale (c,) and bias (c,). Source: PyTorch's GroupNorm; Y. Wu, K. He, Group Normalization,
    2018. With num_groups c it is instance normalisation.

    Example: (2, 6, 4, 4) -> {type: GroupNorm, num_groups: 3} -> (2, 6, 4, 4)
    """

    num_groups: Annotated[int, "groups that the channels are divided into", AtLeast(1)]
    eps: Annotated[float, "added to the variance", AtLeast(0)] = 1e-5
    affine: Annotated[bool, "learn a scale and a bias"] = True
    scale_filler: Annotated[Filler, "how the scale starts"] = ONE
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    def setup(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError(f"needs a bottom of at least 2 axes (n, c, ...), got {x}")
        if x[1] % self.num_groups:
            raise ShapeError(f"{x[1]} channels cannot be divided into {self.num_groups} groups")
        groups, places = x[0] * self.num_groups, math.prod(x[2:])
        rows = Rows(1, 1, groups, x[1] // self.num_groups * places)
        features = Rows(1, x[0], x[1], places) if self.affine else None
        self.plan(x, rows, Norm("variance", self.eps), features)
        if self.affine:
            self.scale = self.param((x[1],), self.scale_filler)
            self.bias = self.param((x[1],), self.bias_filler)
        return x


@register
class Normalize(Normalization):
    """y = x / sqrt(sum x^2 + eps) scale; the sum is over a whole sample, or over the channels of a place.

    (n, c, ...) -> the same. Parameter: scale, of shape () if shared by the channels, else (c,).
    Source: Normalize of W. Liu's SSD fork of Caffe (norm_param); ParseNet, 2015.

    Example: (2, 8, 5, 5) -> {type: Normalize, across_spatial: false, channel_shared: false} -> (2, 8, 5, 5)
    """

    across_spatial: Annotated[bool, "one length per sample; else one per place"] = True
    scale_filler: Annotated[Filler, "how the scale starts"] = ONE
    channel_shared: Annotated[bool, "one scale for all channels"] = True
    eps: Annotated[float, "added to the sum of squares", AtLeast(0)] = 1e-10

    def setup(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError(f"needs a bottom of at least 2 axes (n, c, ...), got {x}")
        n, c, places = x[0], x[1], math.prod(x[2:])
        rows = Rows(1, 1, n, c * places) if self.across_spatial else Rows(n, c, places, 1)
        features = Rows(1, 1, 1, n * c * places) if self.channel_shared else Rows(1, n, c, places)
        self.plan(x, rows, Norm("length", self.eps), features)
        self.scale = self.param(() if self.channel_shared else (c,), self.scale_filler)
        return x
