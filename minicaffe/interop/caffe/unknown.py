"""Layers of types that nobody has registered: a net that has some can be converted, not run."""

from __future__ import annotations

import logging
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Annotated, Any, cast

from minicaffe.core.config.declare import LayerSpec
from minicaffe.core.config.tree import Node, shown
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers.unknown import Unknown
from minicaffe.errors import SpecError

_log = logging.getLogger("minicaffe")
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# Types of forks that are not here, by the fork. Those that are here stand in minicaffe/interop/caffe/forks.
ELSEWHERE = {
    "DeepLab": "DenseCRF DomainTransform ImageSegData MatRead MatWrite UniqueLabel",
    "CRF-RNN": "MultiStageMeanfield",
    "Intel's YOLO": "EvalDetection RegionLoss",
    "MobileNet-YOLO": "YoloDetectionOutput Yolov3",
    "MS-CNN": "DetectionLoss ImageGtData ProposalTarget",
    "OpenPose": "Nms",
    "NVCaffe": "DetectNetTransformation",
    "FlowNet": "CustomData DataAugmentation FlowAugmentation GenerateAugmentationParameters Resample",
}
FORK_OF = {kind: fork for fork, kinds in ELSEWHERE.items() for kind in kinds.split()}


def with_unknown(
    root: Node, layer_types: Mapping[str, type], warn: bool = True
) -> Mapping[str, type]:
    """The types of layers, and those in a model's tree that are not among them; with `warn`, it says so."""
    keys: dict[str, dict[str, Any]] = {}
    for layer in layers_of(root):
        kind = layer.value["type"].value if "type" in layer.value else None
        if isinstance(kind, str) and kind.isprintable() and kind not in layer_types:
            if warn and kind not in keys:
                mark = layer.value["type"].mark
                fork = f" ({FORK_OF[kind]} has it)" if kind in FORK_OF else ""
                _log.warning("%s: the type %s is not known%s: kept as it is", mark, kind, fork)
            own = [key for key in layer.value if key not in keys_of(LayerSpec)]
            for key in own:
                if not NAME.fullmatch(key) or iskeyword(key) or hasattr(Unknown, key):
                    mark = layer.keys.get(key, layer.mark)
                    raise SpecError(f"{mark}: {kind}: {shown(key)} cannot be a key of a layer")
            keys.setdefault(kind, {}).update(dict.fromkeys(own, Annotated[Node | None, "as it is"]))
    made = {kind: _made(kind, own) for kind, own in keys.items()}
    return ChainMap(made, cast("dict[str, type]", layer_types))


def _made(kind: str, keys: Mapping[str, Any]) -> type:
    """The class of an unknown type, of keys that may hold anything."""
    cls = type(kind, (Unknown,), {"__annotations__": dict(keys), **dict.fromkeys(keys)})
    return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)


def layers_of(root: Node) -> Iterator[Node]:
    """The layers of a model's tree, and of its nets to test with."""
    fields = root.value if isinstance(root.value, dict) else {}
    yield from (layer for layer in _items(fields, "layers") if isinstance(layer.value, dict))
    for net in _items(fields, "test_nets"):
        yield from layers_of(net)


def _items(fields: Mapping[str, Node], key: str) -> list[Node]:
    value = fields[key].value if key in fields else []
    return value if isinstance(value, list) else []  # what else it is, `model` refuses
