"""Ranges for int8: how large a net's blobs and weights are, and the tables in which compilers read it.

A compiler rounds a number x to round(x / s), clipped to -127..127, with s = T / 127. The threshold T of a blob
is chosen from a histogram of its magnitudes, BINS bins of equal width from 0 to the largest: by the KL
divergence, or the largest itself. That of weights is the largest magnitude in each output channel.
"""

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.convolution import Convolution, Filtered
from minicaffe.core.layers.deconvolution import Deconvolution
from minicaffe.core.layers.inner_product import InnerProduct
from minicaffe.core.net import Net, read
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import DataError, SpecError, did_you_mean
from minicaffe.tools.data import readers
from minicaffe.tools.data.reader.base import Reader, Subset
from minicaffe.tools.data.reader.picture_set import PictureSet, holds_pictures, pictures_below
from minicaffe.tools.deploy import TOGETHER, Deployed
from minicaffe.tools.inference import for_test, inference

Method = Literal["kl", "max"]
Take = Callable[[Step, Value, np.ndarray], None]
METHODS: tuple[Method, ...] = ("kl", "max")
COUNT = 500  # pictures
SEED = 0  # of the choice of pictures
BINS = 2048
LEVELS = 128  # magnitudes that int8 tells apart: 0 to 127
LARGEST = 127  # the largest integer
EPSILON = 1e-4  # what each bin of the two distributions has more, so that no logarithm is of 0
TENSORRT = "TRT-8601-EntropyCalibration2"


@dataclass
class Histogram:
    """The numbers of a blob: `see` takes them in a first time, `add` a second time.

    `counts` are those of magnitudes other than 0, in bins of `width`.

    >>> histogram = Histogram()
    >>> values = np.array([0.0, -2.0, 1.0])
    >>> histogram.see(values)
    >>> histogram.add(values)
    >>> histogram.low, histogram.high, np.flatnonzero(histogram.counts).tolist()
    (-2.0, 1.0, [1024, 2047])
    """

    low: float = np.inf
    high: float = -np.inf
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    @property
    def most(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high)) if self.low <= self.high else 0.0

    @property
    def width(self) -> float:
        """The width of a bin."""
        return self.most / BINS

    def see(self, values: np.ndarray) -> None:
        """Widen the range to hold these finite numbers."""
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))

    def add(self, values: np.ndarray) -> None:
        """Count numbers that were seen before."""
        magnitudes = np.abs(values[values != 0].astype(np.float64))
        if magnitudes.size:
            places = np.minimum((magnitudes / self.most * BINS).astype(np.int64), BINS - 1)
            self.counts += np.bincount(places, minlength=BINS)


def by_divergence(histogram: Histogram) -> float:
    """The T that loses least information: KL(P, Q) = sum of (p + e) log((p + e) / (q + e)) is least.

    For t from LEVELS to BINS - 1: P is the histogram's first t bins, as parts of 1, what lies above added to
    the last; Q is the same bins, without what lies above, put into LEVELS equal parts (a bin across a border
    is divided in proportion), each spread evenly over its bins. e = EPSILON. T = (t + 1/2) width. Sources: S.
    Migacz, 8-bit Inference with TensorRT, GTC 2017; the details are those of ncnn's
    tools/quantize/ncnn2table.cpp (quantize_KL).
    """
    parts = histogram.counts / histogram.counts.sum()
    below = np.concatenate([[0.0], np.cumsum(parts)])
    edges = np.arange(BINS + 1, dtype=np.float64)
    best, least = LEVELS, np.inf
    for t in range(LEVELS, BINS):
        p = parts[:t] + EPSILON
        p[-1] += 1 - below[t]
        borders = np.arange(LEVELS + 1) * (t / LEVELS)
        spread = np.interp(edges[: t + 1], borders, np.interp(borders, edges, below))
        divergence = float(p @ np.log(p / (np.diff(spread) + EPSILON)))
        if divergence < least:
            best, least = t, divergence
    return (best + 0.5) * histogram.width


@dataclass(frozen=True)
class BlobRange:
    """The extremes of a blob, and its threshold T."""

    low: float
    high: float
    threshold: float

    @property
    def scale(self) -> float:
        """The step of int8, T / 127; 1 for a blob of zeros."""
        return self.threshold / LARGEST or 1.0


@dataclass(frozen=True)
class WeightRange:
    """A layer with weights: the blob it reads, and the largest magnitude of each output channel's weights.

    `six_bits`: a 3 x 3 convolution of stride 1 without groups, whose weights ncnn wants in 6 bits.
    """

    type: str
    bottom: str
    maxima: np.ndarray
    group: int
    six_bits: bool


@dataclass(frozen=True)
class Calibration:
    """The ranges of a net over so many pictures: of blobs and weighted layers by name; notes for people."""

    net: str
    images: int
    blobs: dict[str, BlobRange]
    layers: dict[str, WeightRange]
    notes: list[str]


class CalibrationNet(Deployed):
    """A model as it infers, with every blob in memory of its own; any layer may be its last."""

    def __init__(self, model: Any, weights: Any = None, **more: Any):
        spec = model if isinstance(model, NetSpec) else read(model)
        last = inference(for_test(spec))[0].layers[-1].type
        self.ends = ("DetectionOutput", "Softmax", "Sigmoid", last)
        super().__init__(model, weights, keep=None, **more)
        self.stretches = self.ended == "DetectionOutput"
        self.names = _names(self.net)
        for step in self.net.steps:
            step.watchers["after_forward"] = [partial(self._watch, step)]

    def passes(self, prepared: np.ndarray, take: Take) -> None:
        """Run the net on prepared pictures; `take` is called with each value after its layer has run."""
        self.take = take
        for first in range(0, len(prepared), TOGETHER):
            batch = prepared[first : first + TOGETHER]
            if self.net.first_blobs[self._input].shape != batch.shape:
                self.net.reshape(**{self._input: batch.shape})
            source = next(step for step in self.net.steps if self._input in step.spec.tops)
            if source.tops[0] in self.names:  # an Input does not run, so no watcher is called
                take(source, source.tops[0], batch)
            inputs: dict[str, Any] = {self._input: batch}
            with np.errstate(all="ignore"):  # numbers that are not finite are refused by name
                self.net.forward(**inputs)

    def _watch(self, step: Step) -> None:
        for value in step.tops:
            if value in self.names:
                self.take(step, value, self.net.device.to_host(value.blob.data))

    def pictures(self, source: Any, count: int) -> tuple[np.ndarray, list[str]]:
        """Returns `count` pictures of a source, or all of fewer, as the net takes them; notes."""
        notes = []
        if isinstance(source, (str, Path)) and os.path.isdir(source) and _is_flat(Path(source)):
            source = pictures_below(Path(source))
        elif isinstance(source, (str, Path)):
            source = readers.open(os.fspath(source), "test")
        elif source is None:
            source = getattr(self.data, "reader", None)
        if source is None:
            remedy = "say which pictures"
            raise DataError(f"net {self.net.name!r} has no test data of its own; {remedy}")
        if not len(source):
            raise DataError("there are no pictures to calibrate with")
        if len(source) < count:
            notes.append(f"{len(source)} pictures, not {count}: there are no more")
        places = sorted(np.random.default_rng(SEED).permutation(len(source))[:count].tolist())
        if isinstance(source, Reader):
            notes += [source.warning] if source.warning else []
            whole = source.reader if isinstance(source, Subset) else source
            by_path = isinstance(whole, PictureSet)
            some = [source.place(i) if by_path else self._own(source, i) for i in places]
        else:
            some = [source[i] for i in places]
        ready = [self._prepared([one] if isinstance(one, (str, Path)) else one)[0] for one in some]
        return np.concatenate(ready).astype(np.float32), notes

    def _own(self, reader: Reader, i: int) -> np.ndarray:
        """A picture (c, h, w) of a data set, in the net's order of channels; of another size (h, w, c)."""
        picture: np.ndarray = reader[i][0]
        if picture.shape == self.image_shape:
            swapped = len(picture) == 3 and reader.blue_first != self.data.blue_first
            return picture[::-1] if swapped else picture
        rows = picture[::-1] if len(picture) == 3 and reader.blue_first else picture
        return rows.transpose(1, 2, 0)


def _is_flat(folder: Path) -> bool:
    """True if a folder holds pictures, but no data set."""
    try:
        return not holds_pictures(folder) and bool(pictures_below(folder))
    except DataError:
        return False


def calibrate(
    model: Any,
    weights: str | Path | Mapping[str, Any] | None = None,
    images: Any = None,
    *,
    count: int = COUNT,
    method: Method = "kl",
    device: Any = None,
) -> Calibration:
    """Returns the ranges of a model's blobs over pictures, and of its weights.

    `model` and `weights` are as Classifier takes them, or a CalibrationNet. `images` is a folder of pictures,
    a data set by name or path, a list of pictures, or an array of them; by default the model's test data.
    `count` of them are chosen by a fixed seed, and prepared as `minicaffe predict` does. Raises DataError for
    numbers that are not finite and without pictures, SpecError for a net without weighted layers.

    >>> pictures = np.random.default_rng(0).integers(0, 256, (8, 1, 28, 28), np.uint8)
    >>> calibration = calibrate("digits", images=pictures, method="max", device="cpu")
    >>> calibration.blobs["data"].threshold <= 1, calibration.layers["ip2"].maxima.shape
    (True, (10,))
    """
    if method not in METHODS:
        hint = did_you_mean(str(method), METHODS)
        raise SpecError(f"method: expected {' or '.join(METHODS)}, got {method!r}{hint}")
    own = isinstance(model, CalibrationNet)
    net = model if own else CalibrationNet(model, weights, device=device)
    layers = {
        step.spec.name: _weight_range(step, net.names[_source(net.net, step.bottoms[0])])
        for step in _weighted(net.net)
    }
    if not layers:
        raise SpecError(
            f"net {net.net.name!r} has no Convolution, Deconvolution or InnerProduct to quantise"
        )
    prepared, notes = net.pictures(images, count)
    histograms = {value: Histogram() for value in net.names}

    def see(step: Step, value: Value, numbers: np.ndarray) -> None:
        bad = int(numbers.size - np.count_nonzero(np.isfinite(numbers)))
        if bad:
            raise DataError(
                f"{step.place}: blob {value.name!r} holds {bad} of {numbers.size} numbers that are not "
                "finite, so that it has no range"
            )
        histograms[value].see(numbers)

    net.passes(prepared, see)
    net.passes(prepared, lambda _, value, numbers: histograms[value].add(numbers))
    blobs = {}
    for value, histogram in histograms.items():
        by_kl = method == "kl" and histogram.most
        threshold = by_divergence(histogram) if by_kl else histogram.most
        blobs[net.names[value]] = BlobRange(histogram.low, histogram.high, threshold)
    if zeros := [name for name, one in blobs.items() if not one.threshold]:
        notes.append(
            f"always 0 in these pictures, scale 1: {', '.join(zeros)}; are they dead, or black?"
        )
    return Calibration(net.net.name, len(prepared), blobs, layers, notes)


def _weighted(net: Net) -> list[Step]:
    """Returns the steps whose products int8 computes."""
    return [step for step in net.steps if isinstance(step.layer, (Filtered, InnerProduct))]


def _source(net: Net, value: Value) -> Value:
    """Returns the value that a Split copied, for its copy; any other as it is."""
    for step in net.steps:
        if step.spec.type == "Split" and value in step.tops:
            return _source(net, step.bottoms[0])
    return value


def _names(net: Net) -> dict[Value, str]:
    """Returns the name of each value that has a range.

    A blob is what its last writer left, as after fusion with layers in place; an earlier value of it, where
    a weighted layer reads that, is called blob/layer, as in an exported net. Splits' copies are not listed.
    """
    read_by_weights = {_source(net, value) for step in _weighted(net) for value in step.bottoms}
    tops = [
        (value, step.spec.name)
        for step in net.steps
        if step.spec.type != "Split" and not step.layer.traits.sizes_vary
        for value in step.tops
    ]
    last = {value.name: value for value, _ in tops}
    return {
        value: value.name if last[value.name] is value else f"{value.name}/{writer}"
        for value, writer in tops
        if last[value.name] is value or value in read_by_weights
    }


def _weight_range(step: Step, bottom: str) -> WeightRange:
    """Returns the range of a layer's weights, an output channel a place of axes 0 and 2."""
    layer = step.layer
    weight = layer.params[0].owner.to_host()
    group, six_bits = 1, False
    if isinstance(layer, Filtered):
        group, window = layer.group, layer.geometry.window
        six_bits = isinstance(layer, Convolution) and group == 1 and window.kernel == (3, 3)
        six_bits = six_bits and window.stride == window.dilation == (1, 1)
    if isinstance(layer, Deconvolution):
        weight = weight.reshape(group, len(weight) // group, layer.num_output // group, -1)
    elif isinstance(layer, InnerProduct) and layer.transpose:
        weight = weight.reshape(1, *weight.shape, 1)
    else:
        weight = weight.reshape(1, 1, len(weight), -1)
    maxima = np.abs(weight).max(axis=(1, 3)).ravel().astype(np.float64)
    return WeightRange(step.spec.type, bottom, maxima, group, six_bits)


def as_tensorrt(calibration: Calibration, header: str = TENSORRT) -> str:
    """TensorRT's calibration cache: a header, then a line a blob, name: scale as the hex of a float32.

    The header names the version and the calibrator that TensorRT expects: one of another version it does not
    read. Source: the README of TensorRT's sampleINT8, "Calibration file".
    """
    for name in calibration.blobs:
        if ":" in name or any(letter.isspace() for letter in name):
            problem = "TensorRT's cache cannot hold a name with ':' or blanks"
            raise SpecError(f"blob {name!r}: {problem}")
    lines = [f"{k}: {struct.pack('>f', one.scale).hex()}" for k, one in calibration.blobs.items()]
    return "\n".join([header, *lines, ""])


def as_nvdla(calibration: Calibration) -> str:
    """NVDLA's JSON: each blob's scale, the rest 0 as in nvdla/sw, umd/utils/calibdata/calib_txt_to_json.py."""
    rows = {
        name: {"scale": one.scale, "min": 0, "max": 0, "offset": 0}
        for name, one in calibration.blobs.items()
    }
    return json.dumps(rows, indent=4) + "\n"


def as_ncnn(calibration: Calibration) -> str:
    """ncnn's table: `layer_param_0` and a factor an output channel, then `layer` and that of its bottom.

    Factors are 127 / max |w| and 127 / T: ncnn multiplies by them. As ncnn2table has it, a convolution with
    groups has one a group, and one of 3 x 3 with stride 1 has 31 / max |w|, since ncnn's Winograd needs
    weights of 6 bits. A Deconvolution stays in floating point there, and has no line. Source: ncnn's
    tools/quantize/ncnn2table.cpp. Raises SpecError for a net without lines, or a name with blanks.
    """
    layers = {name: one for name, one in calibration.layers.items() if one.type != "Deconvolution"}
    if not layers:
        raise SpecError(f"net {calibration.net!r}: ncnn computes none of its layers in int8")
    weights, blobs = [], []
    for name, one in layers.items():
        if any(letter.isspace() for letter in name):
            raise SpecError(f"layer {name!r}: ncnn's table cannot hold a name with blanks")
        maxima = one.maxima.reshape(one.group, -1).max(axis=1) if one.group > 1 else one.maxima
        most = 31 if one.six_bits else LARGEST
        factors = [most / float(w) if w else 1.0 for w in maxima]
        weights.append(" ".join([f"{name}_param_0", *(f"{factor:f}" for factor in factors)]))
        blobs.append(f"{name} {1 / calibration.blobs[one.bottom].scale:f}")
    return "\n".join([*weights, *blobs, ""])
