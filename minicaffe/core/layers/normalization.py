"""Normalisations: MVN, LayerNorm, GroupNorm, Normalize, BatchNorm, and LRN, of neighbours."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import ONE, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import lrn
from minicaffe.core.ops import rows as ops
from minicaffe.core.ops.normalize import SyncBatch, gradients, normalise
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics, recall
from minicaffe.errors import ShapeError, SpecError


def check_channels(x: Shape) -> None:
    """Raise ShapeError for a bottom without channels."""
    if len(x) < 2:
        raise ShapeError(f"needs a bottom of at least 2 axes (n, c, ...), got {x}")


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
            self.context.reserve(ops.workspace(self.xp, math.prod(x), rows, count))
        return x

    def allocate(self) -> None:
        self.found = Statistics.empty(self.xp, self.rows, self.sum_dtype)

    def measure(self) -> tuple[Norm | None, Past | None]:
        """How the rows' statistics are computed (None: they are not), and the arrays that remember them."""
        return self.norm, None

    def forward(self, x: Any) -> Any:
        self.x, (self.follows, past) = x, self.measure()
        kernel_args = self.follows, self.context.workspace, past
        return normalise(x, self.rows, self.found, self._affine(), self.out[0], *kernel_args)

    def backward(self, dy: Any) -> Any:
        learnt = self.learnt_diffs()
        kernel_args = self.rows, self.follows, self.found, self._affine(), learnt, self.grad[0]
        return gradients(self.x, dy, *kernel_args, self.context.workspace)

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
        check_channels(x)
        first = 1 if self.across_channels else 2
        norm = Norm("deviation" if self.normalize_variance else "mean", self.eps)
        return self.plan(x, Rows(1, 1, math.prod(x[:first]), math.prod(x[first:])), norm)


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
        check_channels(x)
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
        check_channels(x)
        n, c, places = x[0], x[1], math.prod(x[2:])
        rows = Rows(1, 1, n, c * places) if self.across_spatial else Rows(n, c, places, 1)
        features = Rows(1, 1, 1, n * c * places) if self.channel_shared else Rows(1, n, c, places)
        self.plan(x, rows, Norm("length", self.eps), features)
        self.scale = self.param(() if self.channel_shared else (c,), self.scale_filler)
        return x


@register
class BatchNorm(Normalization):
    """y = (x - mean) / sqrt(variance + eps), channel by channel; the batch's own in TRAIN.

    (n, c, ...) -> the same. Parameters, which the layer updates and a solver must not: the sums
    of mean (c,), of variance (c,), and their count (1,), each sum = moving_average_fraction sum + the
    batch's value; a batch's variance is added times m / (m - 1), m its entries per channel. In TEST
    mean and variance are the sums divided by the count. They are float32 in a net of float16 or bfloat16.
    On several ranks each normalises its own part of the batch, with `sync` the whole batch; the sums are the
    same on all. With scale_bias, or if one of its fillers is set, y = ... scale + bias, two more parameters
    (c,). Raises SpecError for a lr_mult other than 0 of the first three, and for sync in 16 bits.
    Source: Caffe's BatchNorm; scale_bias is NVCaffe's, whose weights have a count of 1; S. Ioffe, C.
    Szegedy, Batch Normalization, 2015.

    Example: (4, 3, 8, 8) -> {type: BatchNorm, moving_average_fraction: 0.99} -> (4, 3, 8, 8)
    """

    use_global_stats: Annotated[
        bool | None, "normalise by the sums so far; default: true in TEST, false in TRAIN"
    ] = None
    moving_average_fraction: Annotated[float, "share of the sums that is kept", AtLeast(0)] = 0.999
    eps: Annotated[float, "added to the variance", AtLeast(0)] = 1e-5
    scale_bias: Annotated[bool, "scale and shift each channel, as a Scale layer after it would"] = (
        False
    )
    sync: Annotated[
        bool, "on several ranks: normalise over the whole batch, not over the rank's part"
    ] = False
    scale_filler: Annotated[Filler | None, "how the scale starts; default 1"] = None
    bias_filler: Annotated[Filler | None, "how the bias starts; default 0"] = None

    @property
    def by_past(self) -> bool:  # type: ignore[override]
        return self.phase == "TEST" if self.use_global_stats is None else self.use_global_stats

    @property
    def learnt(self) -> bool:
        """Whether it has a scale and a bias."""
        return self.scale_bias or self.scale_filler is not None or self.bias_filler is not None

    def setup(self, x: Shape) -> Shape:
        self.shape, rows = x, ops.by_channel(x)
        in_place = self.by_past and not self.learnt  # else backward needs the bottom
        self.traits = replace(self.traits, in_place=in_place)
        self.plan(x, rows, Norm("variance", self.eps), rows if self.learnt else None)
        self.past = [self.param((n,), ZERO, self.sum_dtype) for n in (rows.count, rows.count, 1)]
        for param in self.past:
            param.lr_mult = param.decay_mult = 0.0
        if self.learnt:
            self.scale = self.param((rows.count,), self.scale_filler or ONE)
            self.bias = self.param((rows.count,), self.bias_filler or ZERO)
        return x

    def allocate(self) -> None:
        if any(param.learns for param in self.past):
            remedy = "give the first three of `param` lr_mult 0, or none"
            raise SpecError(f"mean, variance and count are not learnt: {remedy}")
        super().allocate()
        share = self.context.share
        self.whole: SyncBatch | None = None
        if self.sync and share.size > 1 and not self.by_past:
            if self.dtype != self.sum_dtype:
                raise SpecError("sync: on several ranks a net of float32 or float64 is needed")
            share.sums = True
            length = share.of_whole(self.rows.length)
            self.whole = SyncBatch(self.xp, self.shape, self.dtype, self.rows, length, share.sum)

    @property
    def running(self) -> list[Any]:
        return [] if self.by_past else [param.values for param in self.past]

    def measure(self) -> tuple[Norm | None, Past | None]:
        sums = (param.data for param in self.past)
        past = Past(self.moving_average_fraction, self.rows.length, *sums)
        if self.by_past:
            recall(past, self.norm, self.found)
            return None, None
        return self.norm, past

    def forward(self, x: Any) -> Any:
        if self.whole is None:
            return super().forward(x)
        (self.follows, past), self.x = self.measure(), x
        assert past is not None
        past = past._replace(length=self.whole.length)
        self.whole.statistics(x, self.norm, self.found, self.context.workspace, past)
        return normalise(x, self.rows, self.found, self._affine(), self.out[0])

    def backward(self, dy: Any) -> Any:
        if self.whole is None:
            return super().backward(dy)
        kernel_args = self.x, dy, self.found, self._affine(), self.learnt_diffs(), self.grad[0]
        return self.whole.gradients(*kernel_args, self.context.workspace)


@register
class LRN(Layer):
    """y = x (k + alpha / size sum of x^2 over a window around x)^-beta.

    (n, c, h, w) -> the same. The window has local_size channels at one place (ACROSS_CHANNELS; size =
    local_size), or local_size x local_size places of one channel (WITHIN_CHANNEL; size = local_size^2,
    and k is always 1, as in Caffe). Entries outside the image count as 0. Raises SpecError for
    an even local_size. Source: Caffe's LRN; A. Krizhevsky et al., ImageNet Classification, 2012.

    Example: (2, 8, 5, 5) -> {type: LRN, local_size: 5, alpha: 0.0001, beta: 0.75} -> (2, 8, 5, 5)
    """

    local_size: Annotated[int, "the window's size, an odd number", AtLeast(1)] = 5
    alpha: Annotated[float, "weight of the squares' mean"] = 1.0
    beta: Annotated[float, "the exponent"] = 0.75
    norm_region: Annotated[
        Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"], "where the window lies"
    ] = "ACROSS_CHANNELS"
    k: Annotated[float, "ACROSS_CHANNELS: added to the squares' mean"] = 1.0

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if self.local_size % 2 == 0:
            raise SpecError(f"expected an odd local_size, got {self.local_size}")
        (n, c, h, w), reach = x, self.local_size // 2
        if self.norm_region == "ACROSS_CHANNELS":
            alpha, image = self.alpha / self.local_size, (n, c, h * w)
            self.response = lrn.Response(image, reach, 0, self.k, alpha, self.beta)
        else:
            alpha, image = self.alpha / self.local_size**2, (n * c, h, w)
            self.response = lrn.Response(image, reach, reach, 1.0, alpha, self.beta)
        self.shape = x
        wide = self.sum_dtype.itemsize // self.dtype.itemsize if self.context.forward_only else 1
        self.context.reserve(2 * wide * math.prod(x))
        return x

    def allocate(self) -> None:
        self.s = None if self.context.forward_only else self.empty(self.shape, self.sum_dtype)

    def forward(self, x: Any) -> Any:
        self.x, s = x, self.s
        if s is None:
            s = self.context.scratch(self.shape, self.sum_dtype, x.size * self.sum_dtype.itemsize)
        return lrn.lrn(x, self.response, s, self.out[0], self.context.workspace)

    def backward(self, dy: Any) -> Any:
        work = self.context.workspace
        return lrn.lrn_gradient(self.x, dy, self.response, self.s, self.grad[0], work)
