"""What compilers of chips take as Caffe's files, as far as a public source says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

InputForm = Literal["layer", "input_dim"]
NAME_SIGNS = r"\w./:+-"
ASCII_SIGNS = "-A-Za-z0-9_./"


@dataclass(frozen=True)
class Chip:
    """A compiler that reads a .prototxt and a .caffemodel, or Caffe itself.

    Args:
        name: what `--target` calls it
        title: the vendor's name of the compiler
        layers: the types of layers that it takes, in Caffe's spelling of today (`layer`, not `layers`)
        notes: its limits and rules, a sentence each
        sources: what each of these is from: an address, and the version or date of what was read there
        input_form: how the net's inputs are written: layers of type Input, or `input` and `input_dim` before
            the first layer
        ceil_only: Pooling has no `round_mode`, and rounds the size of its top up
        permutes: the orders that Permute may have; all where it is None
        name_signs: the characters that a name may hold, as between the brackets of a regular expression
        name_length: the most characters of a name; None where no source says it

    A type that is not in `layers` is one that no source names: the compiler may take it all the same.

    >>> from minicaffe.bridges.chips import CHIPS
    >>> sorted(CHIPS["caffe"].layers & {"Pooling", "Permute", "Clip", "Scale"})
    ['Pooling', 'Scale']
    >>> CHIPS["nnie"].permutes
    ((0, 2, 3, 1),)
    """

    name: str
    title: str
    layers: frozenset[str]
    notes: tuple[str, ...]
    sources: tuple[str, ...]
    input_form: InputForm = "layer"
    ceil_only: bool = False
    permutes: tuple[tuple[int, ...], ...] | None = None
    name_signs: str = NAME_SIGNS
    name_length: int | None = None


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
    notes=(
        "Pooling has no round_mode: the size of its top is rounded up.",
        "It has no Clip and no Swish, which Caffe's master has, and no Permute, Normalize, "
        "PriorBox or Upsample.",
        "It reads nets of 2013 and 2014 (`layers`, `input_dim`), and upgrades them.",
    ),
    sources=(
        "https://github.com/BVLC/caffe/tree/1.0/src/caffe/layers (tag 1.0, eeebdab1, 2017-04-15)",
        "https://github.com/BVLC/caffe/blob/1.0/src/caffe/proto/caffe.proto (the same tag)",
    ),
    ceil_only=True,
)

_NNIE = Chip(
    name="nnie",
    title="HiSilicon NNIE: nnie_mapper, RuyiStudio",
    layers=_types(
        """
        BatchNorm CReLU Concat Convolution Custom Deconvolution Dropout Eltwise Flatten InnerProduct LRN LSTM
        MatMul Normalize PSROIPooling PassThrough Permute Pooling Proposal RNN RReLU ROIPooling ReLU Reshape
        Scale Sigmoid Slice Softmax TanH Upsample
        """
    ),
    notes=(
        "The list of HiSilicon's HiSVP guide is not public. The types here are those that public "
        "pages name, and "
        "those of the nets that HiSilicon calls supported: AlexNet, VGG16, GoogLeNet, ResNet, FCN.",
        "Permute takes the order 0, 2, 3, 1 alone.",
        "Reshape has four dims, the first of them 0: it moves channels, height and width, not the batch.",
        "Slice cuts channels, height or width, not the batch.",
        "Pooling has no ceil_mode: the size of its top is rounded up.",
        "Upsample is by nearest neighbours, 2 x 2.",
        "BatchNorm: one source says that it must be folded into the convolution before it.",
        "Each layer is written `layer`, its type in quotes.",
        "The name of a node has 31 characters at most: the SDK's header keeps 32 bytes, with the 0 "
        "that ends a text in C.",
        "A net has 8 segments at most, and a segment 16 inputs and outputs.",
        "A layer in place, such as ReLU, runs in the chip's fast mode.",
        "Other layers are replaced by Custom, and computed by the CPU between two segments.",
        "The suffix _report of a top makes it an output; the suffix _cpu of a layer's name is "
        "also the mapper's.",
        "Not known: the rules of Deconvolution, Crop and grouped convolutions.",
    ),
    sources=(
        "https://github.com/eclipse-oniro-mirrors/device_soc_hisilicon "
        "(hi3516dv300/sdk_linux/sample/taurus/doc, 4.2.2, 4.2.3, 4.2.4 and 4.3; no date)",
        "https://www.mindspore.cn/lite/docs/en/master/use/nnie.html (MindSpore Lite, no date)",
        "https://blog.csdn.net/u011622208/article/details/105676120 (the HiSVP guide in "
        "extracts, no date)",
        "https://github.com/Wulingtian/yolov5_onnx2caffe/issues/8 (the mapper's error for "
        "Permute, 2021-04-28)",
        "https://github.com/MegEngine/mgeconvert/blob/7608a3c1/mgeconvert/backend/ir_to_caffe/"
        "caffe_op.py "
        "(Reshape, Flatten and ReLU for NNIE, 2023-04-26)",
        "https://github.com/widgetii/qemu-hisilicon/blob/bb960a64/docs/nnie-vs-npu.md "
        "(numbers and limits out of the SDK's headers, 2026-03-27)",
        "https://github.com/OpenIPC/openhisilicon/blob/c355ed3e/libraries/nnie_neo/src/nnie_ops.c "
        "(how a loader of .wk files reads names into that header's arrays)",
    ),
    input_form="input_dim",
    ceil_only=True,
    permutes=((0, 2, 3, 1),),
    name_signs=ASCII_SIGNS + ":+",
    name_length=31,
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
    notes=(
        "The operators are those of Caffe's master of 2020-02-13 (9b891540): Pooling has round_mode.",
        "The height and width of every blob are at most 4096.",
        "Permute takes every order.",
        "Reshape takes 0, -1, axis and num_axes as Caffe does.",
        "Pooling is MAX or AVE, its stride 1 to 63 and at most twice the window, its padding "
        "less than the window.",
        "BatchNorm takes use_global_stats: true alone, and normalises channels.",
        "Deconvolution: stride_h times stride_w is less than 256.",
        "Upsample is by nearest neighbours; its stride is greater than 1.",
        "Names of layers hold letters, digits, '-', '.', '_' and '/' (E11018), and no two are the "
        "same (E19009).",
        "Old nets, with `layers`, are refused (E11021).",
        "A net in the form of `input` has input_dim or input_shape, not both.",
        "DetectionOutput needs --op_name_map with the line DetectionOutput:SSDDetectionOutput.",
        "CANN 9.1 reads no Caffe nets for Ascend 950, Atlas A3 and Atlas A2; for Atlas 200I/500 "
        "A2 and the Atlas "
        "inference and training products it does.",
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
    name_signs=ASCII_SIGNS,
)

_RKNN = Chip(
    name="rknn",
    title="Rockchip RKNN-Toolkit 1: load_caffe",
    layers=_types(
        """
        AbsVal Axpy BN BatchNorm Concat Convolution ConvolutionDepthwise Deconvolution Dropout Eltwise Flatten
        InnerProduct Input LRN Lstm Normalize PReLU Permute Pooling Proposal ROIPooling ReLU Reorg Reshape
        Resize Reverse Scale ShuffleChannel Sigmoid Slice Softmax Split TanH Upsample
        """
    ),
    notes=(
        "The list is in small letters; the spelling here is Caffe's, and Resize that of "
        "Rockchip's example.",
        "It lists also l2normalizescale, leakyrelu and poolwithargmax, whose spelling in a file "
        "is not known.",
        "Nets with `layers` are refused, as text and as weights: 'v0 layer or v1 layer'.",
        "The keys are those of Caffe's master at 21d0608, and Rockchip's own; DetectionOutput is "
        "refused.",
        "RKNN-Toolkit 2 (1.6.0) has a list of its own, which adds Power, Crop, BNLL, ReLU6, "
        "Reduction and Tile, and "
        "leaves out AbsVal, Axpy and ShuffleChannel.",
        "Not known: orders of Permute, rules of Reshape, rounding of Pooling, layers in place, names.",
    ),
    sources=(
        "https://github.com/rockchip-linux/rknn-toolkit/blob/master/doc/RKNN_OP_Support_V1.7.5.md "
        "(it says: version 1.7.3)",
        "https://github.com/rockchip-linux/rknn-toolkit/blob/master/examples/caffe/"
        "caffe_upsample/deploy.prototxt",
        "https://github.com/rockchip-linux/rknn-toolkit/issues/431 (2024-01-19, version 1.7.5)",
        "https://github.com/rockchip-linux/rknn-toolkit2/issues/138 (2023-03-20)",
        "https://github.com/rockchip-linux/rknn-toolkit2/blob/master/doc/"
        "RKNN-Toolkit2_OP_Support-1.6.0.md",
    ),
)

_NVDLA = Chip(
    name="nvdla",
    title="NVDLA: nvdla_compiler",
    layers=_types(
        """
        BatchNorm Concat Convolution Deconvolution Dropout Eltwise Flatten InnerProduct Input LRN Pooling Power
        ReLU Scale Sigmoid Softmax SoftmaxWithLoss TanH
        """
    ),
    notes=(
        "Pooling is MAX or AVE; its top is rounded up. round_mode is not in its caffe.proto, and "
        "the file refused.",
        "Power has a scale alone: power 1 and shift 0.",
        "Deconvolution has one group; padding and strides above 32 are not implemented.",
        "Eltwise has two bottoms; coeff is not read. SUM runs in INT8 and FP16, MAX in FP16, "
        "PROD is not listed.",
        "Concat is over channels: axis is not read. Nor is ReLU's negative_slope, nor Softmax's axis.",
        "Scale has one bottom. Leave bias_term out where there is none: `bias_term: false` is "
        "read as true.",
        "The third blob of BatchNorm is not 0.",
        "Of kernel_size, stride and pad written twice, the first is taken for the width: write "
        "kernel_h, kernel_w.",
        "Flatten is skipped, and Dropout.",
        "With several inputs, write layers of type Input: in the form of `input` only the first "
        "name is read.",
        "The .prototxt has `layer`, not `layers`; the weights may have either. Weights are "
        "looked up by name.",
        "INT8: no group convolution, LRN, Sigmoid or TanH.",
    ),
    sources=(
        "https://github.com/nvdla/sw/blob/79538ba1/umd/core/src/compiler/caffe/CaffeParser.cpp "
        "(2019-08-17)",
        "https://github.com/nvdla/sw/blob/79538ba1/CompilerFeatures.md (2019-09-29)",
    ),
    ceil_only=True,
)

_SOPHGO = Chip(
    name="sophgo",
    title="Sophgo TPU-MLIR: model_transform",
    layers=_types(
        """
        AbsVal ArgMax BN BatchNorm Concat ContinuationIndicator Convolution ConvolutionDepthwise Crop
        Deconvolution DetectionOutput Dropout DummyData Eltwise Embed Flatten FrcnDetection ImageData
        InnerProduct Input Interp LRN LSTM Lstm MatMul Mish Normalize PReLU Padding Permute Pooling Power
        PriorBox Proposal ROIPooling ReLU ReLU6 Reduction Reorg Reshape RetinaFaceDetection Reverse Scale
        ShuffleChannel Sigmoid Silence Slice Softmax Split TanH Tile Upsample YoloDetection
        """
    ),
    notes=(
        "It builds the net by Sophgo's pycaffe first: what that Caffe reads, is read.",
        "ArgMax has top_k: 1, and an axis.",
        "Layers whose include has another phase than TEST are left out.",
    ),
    sources=(
        "https://github.com/sophgo/tpu-mlir/blob/03835b54/python/transform/CaffeConverter.py",
    ),
)

_SIGMASTAR = Chip(
    name="sigmastar",
    title="SigmaStar SGS IPU: ConvertTool caffe",
    layers=_types(
        """
        ArgMax BatchNorm CReLU Concat ContinuationIndicator Convolution ConvolutionDepthwise Crop
        Deconvolution Dropout Eltwise Flatten InnerProduct LSTM PReLU Permute Pooling Power PriorBox ROIPooling
        ReLU Reorg Reshape Reverse Scale Sigmoid Slice Softmax Split TanH Threshold Tile Upsample
        """
    ),
    notes=(
        "Convolution and Deconvolution: windows of fewer than 64 entries.",
        "Pooling: windows of at most 19 x 19, or the whole picture.",
        "Concat has at most 256 bottoms. Power has a whole positive power.",
        "Softmax is over the last axis.",
        "Upsample has one factor for height and width; a Deconvolution may be rewritten to it by hand.",
        "Reorg has stride 2. ArgMax has top_k: 1.",
        "Not known: orders of Permute, rounding of Pooling, names, the form of the inputs.",
    ),
    sources=(
        "https://wx.comake.online/doc/doc/Sigmastar_SDK_vQ_0.1.4/module/User_Guide/IPU200M/"
        "DLA_SDK_Support.html "
        "(no date)",
        "https://wx.comake.online/doc/doc/Sigmastar_SDK_v1.2.2/module/User_Guide/IPU100/"
        "DLA_SDK_Support.html "
        "(no date)",
    ),
)

CHIPS = {chip.name: chip for chip in (_CAFFE, _NNIE, _ASCEND, _RKNN, _NVDLA, _SOPHGO, _SIGMASTAR)}
