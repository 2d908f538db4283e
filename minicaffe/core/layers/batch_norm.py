"""BatchNorm: each channel normalised over a batch, or by the statistics of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import ONE, ZERO
from minicaffe.core.layers.normalization import Normalization
from minicaffe.core.ops.normalize import normalise
from minicaffe.core.ops.rows import Norm, Past, by_channel
from minicaffe.core.ops.statistics import recall
from minicaffe.core.ops.whole_batch import Whole
from minicaffe.errors import SpecError


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
        """Whether it normalises by the sums so far."""
        return self.phase == "TEST" if self.use_global_stats is None else self.use_global_stats

    @property
    def learnt(self) -> bool:
        """Whether it has a scale and a bias."""
        return self.scale_bias or self.scale_filler is not None or self.bias_filler is not None

    def setup(self, x: Shape) -> Shape:
        self.shape, rows = x, by_channel(x)
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
            raise SpecError(
                "mean, variance and count are not learnt: give the first three of `param` lr_mult 0, or none"
            )
        super().allocate()
        share = self.context.share
        self.whole: Whole | None = None
        if self.sync and share.size > 1 and not self.by_past:
            if self.dtype != self.sum_dtype:
                raise SpecError("sync: on several ranks a net of float32 or float64 is needed")
            share.sums = True
            given = self.rows, share.of_whole(self.rows.length), share.sum
            self.whole = Whole(self.xp, self.shape, self.dtype, *given)

    @property
    def running(self) -> list[Any]:
        """The sums and their count."""
        return [] if self.by_past else [param.data for param in self.past]

    def measure(self) -> tuple[Norm | None, Past | None]:
        past = Past(
            self.moving_average_fraction, self.rows.length, *(param.data for param in self.past)
        )
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
        given = self.x, dy, self.found, self._affine(), self.learnt_diffs(), self.grad[0]
        return self.whole.gradients(*given, self.context.workspace)
