"""A net looked at with some pictures: the range of each blob and weight, and what int8 would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.calibration.images import chosen
from minicaffe.calibration.observed import CalibrationNet
from minicaffe.calibration.ranges import METHODS, PERCENTILE, Histogram, Method, scale_of
from minicaffe.calibration.simulate import Loss, Quantised, channel_maxima, loss_of, quantised
from minicaffe.errors import DataError, SpecError, did_you_mean
from minicaffe.layers.convolution import Convolution, Filtered
from minicaffe.net import Net
from minicaffe.net.step import Step, Value

COUNT = 500  # pictures


@dataclass(frozen=True)
class BlobRange:
    """What a blob held: the layer that wrote it, its extremes, how many numbers, T by each method."""

    writer: str
    low: float
    high: float
    size: int
    zeros: int
    thresholds: Mapping[str, float]


@dataclass(frozen=True)
class WeightRange:
    """A layer with weights: the blobs it reads, and the largest magnitude of each output channel's weights.

    `six_bits`: a 3 x 3 convolution of stride 1 without groups, whose weights ncnn wants in 6 bits.
    """

    type: str
    bottoms: tuple[str, ...]
    maxima: np.ndarray
    group: int
    six_bits: bool

    @property
    def scales(self) -> np.ndarray:
        """What one step is worth in each output channel: its largest magnitude / 127."""
        return np.array([scale_of(float(one)) for one in self.maxima])


@dataclass(frozen=True)
class Calibration:
    """The ranges of a net: of blobs and weighted layers by name, `loss` of int8, `notes` for people."""

    net: str
    images: int
    method: Method
    percentile: float
    blobs: dict[str, BlobRange]
    layers: dict[str, WeightRange]
    loss: Loss
    notes: list[str] = field(default_factory=list)

    def scale(self, blob: str) -> float:
        """What one step of int8 is worth in a blob: the threshold by `method` / 127."""
        return scale_of(self.blobs[blob].thresholds[self.method])


def calibrate(
    model: Any,
    weights: str | Path | Mapping[str, Any] | None = None,
    images: Any = None,
    *,
    count: int = COUNT,
    method: Method = "kl",
    percentile: float = PERCENTILE,
    fold: bool = False,
    device: Any = None,
) -> Calibration:
    """The ranges of a model's blobs and weights over pictures, and what it loses in simulated int8.

    `model` and `weights` are as Classifier takes them, or a CalibrationNet. `images` is a folder of pictures,
    a data set by name or path, a list of pictures, or an array of them; by default the model's test data.
    `count` of them are chosen by a fixed seed, evenly over classes. `method` is that of the thresholds that
    the simulation and other people's tables use. With `fold` BatchNorm, Scale, Bias and Power are first
    multiplied into the layers before them, as compilers do. Raises DataError for numbers that are not finite
    and without pictures, SpecError for a net without weighted layers or another method.

    >>> from minicaffe.net import parse
    >>> model = parse('''
    ... layers:
    ...   - {name: x, type: Input, top: data, shape: {dim: [1, 1, 4, 4]}}
    ...   - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier}
    ... ''')
    >>> pictures = np.random.default_rng(0).integers(0, 256, (8, 1, 4, 4), np.uint8)
    >>> calibration = calibrate(model, images=pictures, device="cpu")
    >>> thresholds = calibration.blobs["data"].thresholds
    >>> sorted(calibration.blobs), thresholds["max"] <= 255, calibration.layers["ip"].maxima.shape
    (['data', 'ip'], True, (3,))
    """
    if method not in METHODS:
        hint = did_you_mean(str(method), METHODS)
        raise SpecError(f"method: expected {', '.join(METHODS)}, got {method!r}{hint}")
    if not 0 < percentile <= 100:
        raise SpecError(f"percentile: expected a number above 0, at most 100, got {percentile:g}")
    net = (
        model
        if isinstance(model, CalibrationNet)
        else CalibrationNet(model, weights, device=device)
    )
    notes = net.fold() if fold else []
    if not quantised(net.net.steps):
        raise SpecError(
            f"net {net.net.name!r} has no Convolution, Deconvolution or InnerProduct to quantise"
        )
    taken = chosen(net, images, count)
    names, histograms = _names(net.net), _histograms(net, taken.prepared)
    blobs = {
        name: BlobRange(writer, one.low, one.high, one.size, one.zeros, one.thresholds(percentile))
        for value, (name, writer) in names.items()
        for one in [histograms[value]]
    }
    layers = {step.spec.name: _weights(step, net.net, names) for step in quantised(net.net.steps)}
    inputs = {
        step: [scale_of(blobs[name].thresholds[method]) for name in layers[step.spec.name].bottoms]
        for step in quantised(net.net.steps)
    }
    loss = loss_of(net, Quantised(net.net, inputs), taken.prepared, taken.labels)
    if zeros := [name for name, one in blobs.items() if not one.thresholds["max"]]:
        notes.append(
            f"always 0 in these pictures, scale 1: {', '.join(zeros)}; are they dead, or black?"
        )
    about = net.net.name, len(taken.prepared), method, percentile
    return Calibration(*about, blobs, layers, loss, [*notes, *taken.notes])


def _source(net: Net) -> dict[Value, Value]:
    """The values that Splits copy, by their copies."""
    source: dict[Value, Value] = {}
    for step in net.steps:
        if step.spec.type == "Split":
            first = source.get(step.bottoms[0], step.bottoms[0])
            source |= dict.fromkeys(step.tops, first)
    return source


def _names(net: Net) -> dict[Value, tuple[str, str]]:
    """The name of each value that has a range, and the layer that wrote it.

    A blob is what its last writer left, as after fusion with layers in place; an earlier value of it, where
    a weighted layer reads that, is called blob/layer, as in an exported net. Splits' copies are not listed.
    """
    source = _source(net)
    read = {source.get(v, v) for step in quantised(net.steps) for v in step.bottoms}
    tops = [
        (value, step.spec.name)
        for step in net.steps
        if step.spec.type != "Split" and not step.layer.traits.sizes_vary
        for value in step.tops
    ]
    last = {value.name: value for value, _ in tops}
    return {
        value: (value.name if last[value.name] is value else f"{value.name}/{writer}", writer)
        for value, writer in tops
        if last[value.name] is value or value in read
    }


def _weights(step: Step, net: Net, names: Mapping[Value, tuple[str, str]]) -> WeightRange:
    source, layer = _source(net), step.layer
    bottoms = tuple(names[source.get(value, value)][0] for value in step.bottoms)
    group, six = 1, False
    if isinstance(layer, Filtered):
        group, window = layer.group, layer.geometry.window
        ones = (1, 1)
        six = isinstance(layer, Convolution) and group == 1
        six &= window.kernel == (3, 3) and window.stride == ones and window.dilation == ones
    return WeightRange(step.spec.type, bottoms, channel_maxima(step), group, six)


def _histograms(net: CalibrationNet, prepared: np.ndarray) -> dict[Value, Histogram]:
    """The histogram of each value with a name, by two passes over the pictures."""
    values = _names(net.net)
    histograms = {value: Histogram() for value in values}

    def take(step: Step, value: Value, numbers: np.ndarray, first: bool) -> None:
        if not first:
            histograms[value].add(numbers)
            return
        bad = int(numbers.size - np.count_nonzero(np.isfinite(numbers)))
        if bad:
            raise DataError(
                f"{step.place}: blob {value.name!r} holds {bad} of {numbers.size} numbers that are not "
                "finite, so that it has no range"
            )
        histograms[value].see(numbers)

    def watch(step: Step, first: bool) -> None:
        for value in step.tops:
            if value in histograms:
                take(step, value, net.net.device.to_host(value.blob.data), first)

    source = next(step for step in net.net.steps if net.data.top[0] in step.spec.tops)
    for first in (True, False):
        watchers = [
            (step, partial(watch, step, first)) for step in net.net.steps if step is not source
        ]
        for step, watcher in watchers:
            step.watchers.setdefault("after_forward", []).append(watcher)
        try:
            for batch in net.passes(prepared):
                if source.tops[0] in histograms:  # an Input does not run, so nobody is told
                    take(source, source.tops[0], prepared[batch], first)
        finally:
            for step, watcher in watchers:
                step.watchers["after_forward"].remove(watcher)
                if not any(step.watchers.values()):
                    step.watchers.clear()
    return histograms
