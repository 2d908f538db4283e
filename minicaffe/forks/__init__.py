"""Layers of Caffe's forks, a fork a file, which is imported when one of its types is named."""

from __future__ import annotations

from typing import NamedTuple


class Fork(NamedTuple):
    """A fork of Caffe: what it is called, and the types of layers that its file has."""

    name: str
    types: tuple[str, ...]


FORKS = {  # by file
    "annotated": Fork("SSD", ("AnnotatedData",)),
    "deeplab": Fork("DeepLab, PSPNet and SegNet", ("Interp", "Upsample")),
    "evaluate": Fork("SSD", ("DetectionEvaluate",)),
    "fast_rcnn": Fork("Fast R-CNN", ("ROIPooling",)),
    "multibox": Fork("SSD", ("MultiBoxLoss",)),
    "ssd": Fork("SSD", ("DetectionOutput", "PriorBox")),
}
