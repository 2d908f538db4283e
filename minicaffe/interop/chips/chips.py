"""The targets of an import: Caffe itself, and chips' compilers whose rules a public page or source states.

A target is one Chip in the table CHIPS; no other file names one. docs/onnx-to-caffe.md has the rules in words.
Where a layer that a target does not take has a form in plainer ones, that is taken, and taken again until all
are plain: ReLU6 is two ReLUs, a Power and an Eltwise, and a Power that multiplies and adds is a Scale for a
compiler without Power. What has no exact form is refused.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.ops.geometry import pool_output_size
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import SIGNS, Blob, Blobs, Draft, Layer, living
from minicaffe.interop.onnx.operators.weighted import window_keys
from minicaffe.interop.onnx.table import LOWERS, RefusedError, lowers


@dataclass(frozen=True)
class Chip:
    """A compiler that reads a .prototxt and a .caffemodel, or Caffe itself.

    Args:
        name: what `--target` calls it
        title: the vendor's name of the compiler
        layers: the types of layers that it takes, in Caffe's spelling of today (`layer`, not `layers`)
        sources: what these are from: an address, and the version or date of what was read there
        refuses: why it does not take a layer of a type that it has; None if it does
        ceil_only: Pooling has no `round_mode`, and rounds the size of its top up
        groups: Deconvolution may have groups
        writes_biases: a bias of 0 is written out, since `bias_term: false` is read as true
        signs: the characters that a name may hold, as between the brackets of a regular expression

    A type that is not in `layers` is one that no source names: the compiler may take it all the same.
    """

    name: str
    title: str
    layers: frozenset[str]
    sources: tuple[str, ...]
    refuses: Callable[[Layer], str | None] = lambda layer: None
    ceil_only: bool = False
    groups: bool = True
    writes_biases: bool = False
    signs: str = SIGNS


def _types(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CAFFE = Chip(
    name="caffe",
    title="BVLC Caffe 1.0",
    layers=_types(  # every REGISTER_LAYER_CLASS and REGISTER_LAYER_CREATOR of the tag
        """
        AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Concat ContrastiveLoss Convolution Crop Data
        Deconvolution Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output
        HingeLoss Im2col ImageData InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData
        MultinomialLogisticLoss PReLU Parameter Pooling Power Python RNN ReLU Reduction Reshape SPP Scale
        Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax SoftmaxWithLoss Split TanH Threshold Tile
        WindowData
        """
    ),
    sources=(
        "https://github.com/BVLC/caffe/tree/1.0/src/caffe/layers (tag 1.0, eeebdab1, 2017-04-15)",
        "https://github.com/BVLC/caffe/blob/1.0/src/caffe/proto/caffe.proto (the same tag)",
    ),
    ceil_only=True,
)


_ASCEND = Chip(
    name="ascend",
    title="Huawei Ascend: ATC, --framework=0",
    layers=_types(
        """
        AbsVal ArgMax BNLL BatchNorm Bias Clip Concat Convolution ConvolutionDepthwise Crop Deconvolution ELU
        Eltwise Exp Flatten InnerProduct Input Interp LRN LSTM LeakyReLU Log MVN Normalize PReLU PSROIPooling
        PassThrough Permute Pooling Power PriorBox Proposal RNN ROIAlign ROIPooling RReLU ReLU Reduction
        Reshape Reverse SPP Scale ShuffleChannel Sigmoid Slice Softmax SpatialTransformer Split TanH Threshold
        Tile Upsample
        """
    ),
    sources=(
        "https://www.hiascend.com/doc_center/source/zh/canncommercial/800/apiref/aolapi/"
        "operatorlist_00098.html (the list, CANN 8.0)",
        "https://www.hiascend.com/document/detail/en/canncommercial/800/apiref/aolapi/"
        "operatorlist_00099.html (general limits, CANN 8.0; Permute is 00133, Pooling 00136, Reshape "
        "00147, Upsample 00167)",
        "https://support.huaweicloud.com/intl/en-us/usermanual-hilens/hilens_02_0059.html "
        "(limits of .om models, 2024-09-30)",
        "https://github.com/Ascend/parser/blob/fc02ad76/parser/caffe/caffe_parser.cc (2021-02-20)",
        "https://github.com/Ascend/parser/blob/22f329ae/parser/common/pre_checker.cc (E19009)",
        "https://www.hiascend.com/document/detail/zh/canncommercial/850/maintenref/troubleshooting/"
        "atlaserrorcode_15_0074.html (E11018, CANN 8.5)",
        "https://www.hiascend.com/document/detail/en/CANNCommunityEdition/910/devaids/atctool/"
        "atlasatcparam_16_0014.html (products, CANN 9.1)",
    ),
    refuses=lambda layer: (
        "that its Upsample takes a mask is not known"
        if layer.type == "Upsample" and len(layer.bottoms) > 1
        else None
    ),
    signs="-A-Za-z0-9_./",
)


def _nvdla(layer: Layer) -> str | None:
    """Why NVDLA's parser does not take a layer of a type that it has: it does not read some of its keys."""
    keys = layer.keys
    unread = {
        "Power": keys.get("power", 1.0) != 1 or keys.get("shift", 0.0) != 0,
        "Deconvolution": keys.get("group", 1) != 1,
        "Eltwise": "coeff" in keys or len(layer.bottoms) > 2 or keys.get("operation") == "PROD",
        "Concat": keys.get("axis", 1) != 1,
        "ReLU": "negative_slope" in keys,
        "Softmax": keys.get("axis", 1) != 1,
        "Scale": len(layer.bottoms) > 1 or keys.get("axis", 1) != 1,
        "InnerProduct": keys.get("axis", 1) != 1,
    }
    return f"its keys {sorted(keys)} are not all read" if unread.get(layer.type) else None


_NVDLA = Chip(
    name="nvdla",
    title="NVDLA: nvdla_compiler",
    layers=_types(
        """
        BatchNorm Concat Convolution Deconvolution Dropout Eltwise Flatten InnerProduct Input LRN Pooling Power
        ReLU Scale Sigmoid Softmax SoftmaxWithLoss TanH
        """
    ),
    sources=(
        "https://github.com/nvdla/sw/blob/79538ba1/umd/core/src/compiler/caffe/CaffeParser.cpp "
        "(2019-08-17)",
        "https://github.com/nvdla/sw/blob/79538ba1/CompilerFeatures.md (2019-09-29)",
    ),
    refuses=_nvdla,
    ceil_only=True,
    groups=False,
    writes_biases=True,
)

CHIPS = {chip.name: chip for chip in (_CAFFE, _ASCEND, _NVDLA)}


INSTEAD = {
    "Permute": "axes of 1 move by a Reshape; put the others where they are wanted before the export",
    "ArgMax": "leave it out, and take the largest score on the host",
    "Parameter": "a constant blob is none of its layers; leave it to the host",
    "Reshape": "keep axes of 1, as keepdim=True does; leave other shapes to the host",
    "Slice": "leave the parts whole, and cut them on the host",
}


def lower(draft: Draft, outputs: Blobs, chip: Chip, path: Path) -> list[str]:
    """Replace layers by what the target takes; returns notes. Raises SpecError if there is no exact form."""
    draft.groups = chip.groups
    replaced, waiting = Counter[str](), living(outputs)
    while waiting:
        layer = waiting.pop(0)
        reason = refused(chip, layer)
        if reason is None:
            continue
        function, before = LOWERS.get(layer.type), len(draft.layers)
        draft.origin = layer.origin
        try:
            if function is None:
                raise RefusedError(INSTEAD.get(layer.type, ""))
            blob = function(draft, layer)
        except RefusedError as error:
            why = f"; {error}" if str(error) else ""
            raise SpecError(
                f"{path}: node {layer.origin!r}: {chip.title} does not take its layer {layer.type}: "
                f"{reason}{why}; nothing was written"
            ) from None
        last = blob.layer
        assert last is not None
        last.tops[last.tops.index(blob)] = layer.tops[0]
        layer.tops[0].layer = last
        replaced[layer.type] += 1
        waiting += draft.layers[before:]
    for layer in living(outputs) if chip.writes_biases else []:
        if layer.keys.get("bias_term") is False:
            del layer.keys["bias_term"]
            layer.arrays.append(np.zeros(layer.keys["num_output"], np.float32))
    return [
        f"{count} {kind} said in layers of {chip.title}" for kind, count in sorted(replaced.items())
    ]


def refused(chip: Chip, layer: Layer) -> str | None:
    """Why a target does not take a layer; None if it does."""
    if layer.type not in chip.layers:
        return "it is not among its layers"
    if layer.type == "Pooling" and chip.ceil_only and layer.keys.get("round_mode") == "FLOOR":
        return "its sizes are rounded up"
    return chip.refuses(layer)


@lowers("Upsample")
def upsample(draft: Draft, layer: Layer) -> Blob:
    """Deconvolution by ones, channel by channel; where it has one group, by a matrix of channels."""
    if len(layer.bottoms) > 1:
        raise RefusedError("where a pixel goes depends on the mask")
    x, keys = layer.bottoms[0], layer.keys
    scales = [keys.get("scale_h", keys.get("scale", 2)), keys.get("scale_w", keys.get("scale", 2))]
    channels = x.shape[1]
    if draft.groups:
        weight, group = np.ones((channels, 1, *scales)), channels
    else:
        weight, group = np.zeros((channels, channels, *scales)), 1
        weight[np.arange(channels), np.arange(channels)] = 1
    sizes = window_keys(kernel_size=scales, stride=scales)
    return draft.weighted("Deconvolution", x, weight, layer.tops[0].shape, group=group, **sizes)


@lowers("Pooling")
def pooling(draft: Draft, layer: Layer) -> Blob:
    """The Pooling whose size is rounded up, less the row and column that it has more."""
    x, shape = layer.bottoms[0], layer.tops[0].shape
    keys = {key: value for key, value in layer.keys.items() if key != "round_mode"}
    words = ("kernel", "kernel_size", 1), ("stride", "stride", 1), ("pad", "pad", 0)
    kernel, stride, pad = (
        [keys.get(f"{key}_{side}", keys.get(whole, usual)) for side in "hw"]
        for key, whole, usual in words
    )
    sizes = [
        pool_output_size(size, k, s, p, True, any(pad))
        for size, k, s, p in zip(x.shape[2:], kernel, stride, pad, strict=True)
    ]
    y = draft.layer("Pooling", x, shape=(*shape[:2], *sizes), **keys)
    if not draft.lacks("Silence"):
        for axis in (2, 3):
            y = draft.part(y, axis, 0, shape[axis])
        return y
    kernel = [size - wanted + 1 for size, wanted in zip(sizes, shape[2:], strict=True)]
    pick = np.zeros((shape[1], 1, *kernel))
    pick[:, :, 0, 0] = 1
    return draft.weighted(
        "Convolution", y, pick, shape, group=shape[1], **window_keys(kernel_size=kernel)
    )


@lowers("Power")
def power(draft: Draft, layer: Layer) -> Blob:
    """A Scale of equal numbers, where it multiplies and adds."""
    x, keys = layer.bottoms[0], layer.keys
    if keys.get("power", 1.0) != 1 or len(x.shape) < 2:
        raise RefusedError("only a Power that multiplies and adds is a Scale")
    scale, shift = (
        np.full(x.shape[1], keys.get(key, usual)) for key, usual in (("scale", 1.0), ("shift", 0.0))
    )
    return draft.layer("Scale", x, arrays=[scale, shift], bias_term=True)


@lowers("AbsVal")
def absolute(draft: Draft, layer: Layer) -> Blob:
    """max(x, -x)."""
    x = layer.bottoms[0]
    return draft.layer("Eltwise", x, draft.linear(x, -1.0), operation="MAX")


@lowers("Bias")
def bias(draft: Draft, layer: Layer) -> Blob:
    """A Scale by 1 with a bias."""
    if len(layer.bottoms) > 1:
        raise RefusedError("a sum of a blob and another that is broadcast has no other form")
    numbers = layer.arrays[0]
    keys = {key: value for key, value in layer.keys.items() if key in ("axis", "num_axes")}
    arrays = [np.ones_like(numbers), numbers]
    return draft.layer("Scale", layer.bottoms[0], arrays=arrays, bias_term=True, **keys)


@lowers("ReLU")
def relu(draft: Draft, layer: Layer) -> Blob:
    """max(x, 0) - slope max(-x, 0), where negative_slope is not read."""
    x, slope = layer.bottoms[0], layer.keys["negative_slope"]
    above = draft.layer("ReLU", x)
    below = draft.layer("ReLU", draft.linear(x, -1.0))
    return draft.layer("Eltwise", above, draft.linear(below, -slope))


@lowers("Eltwise")
def eltwise(draft: Draft, layer: Layer) -> Blob:
    """Coefficients as Powers, and two bottoms at a time."""
    keys, bottoms = dict(layer.keys), layer.bottoms
    if keys.get("operation") == "PROD":
        raise RefusedError("a product of two blobs is not listed")
    coeff = keys.pop("coeff", [1.0] * len(bottoms))
    parts = [draft.linear(x, factor) for x, factor in zip(bottoms, coeff, strict=True)]
    y = parts[0]
    for part in parts[1:]:
        y = draft.layer("Eltwise", y, part, **keys)
    return y


@lowers("ContinuationIndicator")
def continuation(draft: Draft, layer: Layer) -> Blob:
    """A row of zeros and rows of ones, each a DummyData."""
    steps, batch = layer.keys["time_step"], layer.keys["batch_size"]
    if draft.lacks("DummyData"):
        raise RefusedError("a sequence's start has no layer there")
    rows = []
    for count, value in ((1, 0.0), (steps - 1, 1.0)):
        filler: dict[str, Any] = {"type": "constant", "value": value}
        if count:
            shapes = [{"dim": [count, batch]}]
            rows += draft.add("DummyData", [], [(count, batch)], shape=shapes, data_filler=[filler])
    return draft.concat(rows, 0)
