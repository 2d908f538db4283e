"""The targets of an import: Caffe itself, and chips' compilers whose rules a public page or source states.

A target is one Chip in the table CHIPS; no other file names one. docs/onnx-to-caffe.md has the rules in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minicaffe.interop.chips.naming import SIGNS
from minicaffe.interop.onnx.draft import Layer


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

    >>> sorted(CHIPS["caffe"].layers & {"Pooling", "Permute", "Clip", "Scale"})
    ['Pooling', 'Scale']
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


def _ascend(layer: Layer) -> str | None:
    """Why ATC does not take a layer of a type that it has."""
    if layer.type == "Upsample" and len(layer.bottoms) > 1:
        return "that its Upsample takes a mask is not known"
    return None


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
        "operatorlist_00098.html "
        "(the list, CANN 8.0)",
        "https://www.hiascend.com/document/detail/en/canncommercial/800/apiref/aolapi/"
        "operatorlist_00099.html "
        "(general limits, CANN 8.0; Permute is 00133, Pooling 00136, Reshape 00147, Upsample 00167)",
        "https://support.huaweicloud.com/intl/en-us/usermanual-hilens/hilens_02_0059.html "
        "(limits of .om models, 2024-09-30)",
        "https://github.com/Ascend/parser/blob/fc02ad76/parser/caffe/caffe_parser.cc (2021-02-20)",
        "https://github.com/Ascend/parser/blob/22f329ae/parser/common/pre_checker.cc (E19009)",
        "https://www.hiascend.com/document/detail/zh/canncommercial/850/maintenref/troubleshooting/"
        "atlaserrorcode_15_0074.html (E11018, CANN 8.5)",
        "https://www.hiascend.com/document/detail/en/CANNCommunityEdition/910/devaids/atctool/"
        "atlasatcparam_16_0014.html (products, CANN 9.1)",
    ),
    refuses=_ascend,
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
