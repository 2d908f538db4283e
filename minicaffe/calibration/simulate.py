"""A net in simulated int8: fake quantisation of what weighted layers read, of their weights and biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minicaffe.calibration.observed import CalibrationNet
from minicaffe.calibration.ranges import fake, scale_of
from minicaffe.layers.convolution import Deconvolution, Filtered
from minicaffe.layers.inner_product import InnerProduct
from minicaffe.net import Net
from minicaffe.net.step import Step

INT32 = 2**31 - 1


def quantised(steps: Sequence[Step]) -> list[Step]:
    """The steps whose products int8 computes: Convolution, Deconvolution, InnerProduct, and their kinds."""
    return [step for step in steps if isinstance(step.layer, (Filtered, InnerProduct))]


def view(step: Step, weight: np.ndarray) -> np.ndarray:
    """A layer's weight as (groups, inputs, outputs, rest); an output channel is a place of axes 0 and 2."""
    layer = step.layer
    if isinstance(layer, Deconvolution):
        outputs = layer.num_output // layer.group
        return weight.reshape(layer.group, len(weight) // layer.group, outputs, -1)
    if isinstance(layer, InnerProduct) and layer.transpose:
        return weight.reshape(1, *weight.shape, 1)
    return weight.reshape(1, 1, len(weight), -1)


def channel_maxima(step: Step) -> np.ndarray:
    """The largest magnitude of the weights of each output channel (num_output,), float64."""
    weight = view(step, step.layer.params[0].owner.to_host())
    return np.abs(weight).max(axis=(1, 3)).ravel().astype(np.float64)


class Quantised:
    """A net that computes some layers as int8 would; `inputs` are the scales of each layer's bottoms.

    Within `layers(steps)` the weights of these are round(w / s_w) s_w, |.| at most 127 s_w, s_w = max |w| /
    127 of each output channel; their biases round(b / (s_x s_w)) s_x s_w, int32; what they read is
    round(x / s_x) s_x, at most 127 s_x. The net then computes in its own type. Afterwards weights are what
    they were, to the bit. Of a bias that layers share the step is that of the last of them. Source: B. Jacob
    et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference, 2018.
    """

    def __init__(self, net: Net, inputs: Mapping[Step, Sequence[float]]):
        self.net, self.inputs = net, inputs
        self.kept: list[tuple[Any, np.ndarray]] = []
        self.watched: list[tuple[Step, str, Any]] = []
        self.originals: list[tuple[Any, np.ndarray]] = []
        self.steps: Sequence[Step] = ()

    def layers(self, steps: Sequence[Step]) -> Quantised:
        """A context in which these layers are quantised."""
        self.steps = steps
        return self

    def __enter__(self) -> None:
        try:
            for step in self.steps:
                self._quantise(step)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: Any) -> None:
        for step, when, watcher in self.watched:
            step.watchers[when].remove(watcher)
            if not any(step.watchers.values()):
                step.watchers.clear()
        for param, values in reversed(self.originals):
            param.load(values)
        self.watched.clear()
        self.originals.clear()

    def _quantise(self, step: Step) -> None:
        params = [param.owner for param in step.layer.params]
        saved = [param.to_host() for param in params]
        original = {id(param): values for param, values in reversed(self.originals)}
        weight, *bias = [original.get(id(p), v) for p, v in zip(params, saved, strict=True)]
        maxima = np.abs(view(step, weight)).max(axis=(1, 3)).astype(np.float64)
        scales = np.array([scale_of(float(one)) for one in maxima.ravel()])
        self.originals += zip(params, saved, strict=True)
        spread = scales.reshape(maxima.shape)[:, None, :, None]
        params[0].load(fake(view(step, weight), spread).reshape(weight.shape).astype(weight.dtype))
        if bias:
            rounded = fake(bias[0], scales * self.inputs[step][0], INT32)
            params[1].load(rounded.astype(bias[0].dtype))
        for when, work in (("before_forward", self._round), ("after_forward", self._restore)):
            watcher = partial(work, step)
            step.watchers.setdefault(when, []).append(watcher)
            self.watched.append((step, when, watcher))

    def _round(self, step: Step) -> None:
        device = self.net.device
        self.kept = [(v.blob, np.array(device.to_host(v.blob.data))) for v in step.bottoms]
        for (blob, x), scale in zip(self.kept, self.inputs[step], strict=True):
            device.copy_from_host(blob.data, fake(x, scale).astype(x.dtype))

    def _restore(self, step: Step) -> None:
        for blob, x in self.kept:
            self.net.device.copy_from_host(blob.data, x)
        self.kept.clear()


@dataclass(frozen=True)
class Score:
    """A net in int8, all of it or one `layer`, beside the net in floating point.

    `accuracy` is None without labels, `agreement`, the share of answers (of most probable classes) that stay
    the same, for nets without a softmax; `sqnr` = 10 log10(sum y^2 / sum (y - y8)^2) of the output y in dB,
    inf where nothing changes.
    """

    layer: str | None
    sqnr: float
    agreement: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Loss:
    """What int8 costs: the `accuracy` of the net in floating point, `whole` in int8, each layer alone.

    `layers` are sorted, the costliest first: that of the lowest sqnr.
    """

    accuracy: float | None
    whole: Score
    layers: tuple[Score, ...]


class _Sums:
    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.same = self.answers = self.right = 0


def loss_of(
    net: CalibrationNet, simulated: Quantised, prepared: np.ndarray, labels: np.ndarray | None
) -> Loss:
    """Run the net as it is, in int8, and with each layer alone in int8, over the pictures.

    The output is what the last Softmax or Sigmoid reads, the offsets and scores that a DetectionOutput
    reads, or else the top of the last layer.
    """
    steps = quantised(net.net.steps)
    cases = [steps, *([step] for step in steps)]
    sums, right = [_Sums() for _ in cases], 0
    for batch in net.passes(prepared):
        y = outputs(net)
        mine = None if labels is None else labels[batch]
        right += 0 if mine is None else int((y[0].argmax(axis=1).ravel() == mine).sum())
        for case, total in zip(cases, sums, strict=True):
            with simulated.layers(case):
                net.run(prepared[batch])
                y8 = outputs(net)
            for one, other in zip(y, y8, strict=True):
                total.signal += float((one * one).sum())
                total.noise += float(((one - other) ** 2).sum())
            if net.ended == "Softmax":
                answers, answers8 = y[0].argmax(axis=1), y8[0].argmax(axis=1)
                total.same += int((answers == answers8).sum())
                total.answers += answers.size
                total.right += 0 if mine is None else int((answers8.ravel() == mine).sum())
    count = len(prepared)
    scores = [
        Score(
            step.spec.name if step is not None else None,
            decibels(total.signal, total.noise),
            total.same / total.answers if total.answers else None,
            None if labels is None else total.right / count,
        )
        for step, total in zip([None, *steps], sums, strict=True)
    ]
    accuracy = None if labels is None else right / count
    return Loss(accuracy, scores[0], tuple(sorted(scores[1:], key=lambda one: one.sqnr)))


def outputs(net: CalibrationNet) -> list[np.ndarray]:
    """The output of the last pass, float64."""
    step = next(s for s in reversed(net.net.steps) if net.output in s.spec.tops)
    if step.spec.type == "DetectionOutput":
        values = step.bottoms[:2]
    else:
        values = step.bottoms[:1] if step.spec.type in ("Softmax", "Sigmoid") else step.tops[:1]
    return [np.array(net.net.device.to_host(one.blob.data), np.float64) for one in values]


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise); inf without noise, -inf without signal.

    >>> decibels(100.0, 1.0), decibels(1.0, 0.0)
    (20.0, inf)
    """
    if not noise:
        return np.inf
    return float(10 * np.log10(signal / noise)) if signal else -np.inf
