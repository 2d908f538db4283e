"""What is not known here: keys and types of layers of a text, told in one line; nets with such types."""

import difflib
import logging
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Annotated, Any, cast

from minicaffe.core.config.declare import LayerSpec
from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.core.config.types import keys_of, meant
from minicaffe.core.layers.registry import Unknown
from minicaffe.errors import SpecError

LayerTypes = Mapping[str, type]
Problems = list[tuple[Mark, str]]  # where each is, and what is to be said
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


def with_unknown(root: Node, layer_types: LayerTypes, warn: bool = True) -> LayerTypes:
    """The types of layers, and those in a model's tree that are not among them; with `warn`, it says so."""
    keys: dict[str, dict[str, Any]] = {}
    for layer, kind, mark in _of_unknown_types(root, layer_types):
        if not kind.isprintable():
            continue
        if warn and kind not in keys:
            fork = f" ({FORK_OF[kind]} has it)" if kind in FORK_OF else ""
            _log.warning("%s: the type %s is not known%s: kept as it is", mark, kind, fork)
        own = [key for key in layer.value if key not in keys_of(LayerSpec)]
        for key in own:
            if not NAME.fullmatch(key) or iskeyword(key) or hasattr(Unknown, key):
                mark = layer.keys.get(key, layer.mark)
                raise SpecError(f"{mark}: {kind}: {shown(key)} cannot be a key of a layer")
        keys.setdefault(kind, {}).update(dict.fromkeys(own, Annotated[Node | None, "as it is"]))
    make = dataclass(kw_only=True, eq=False, repr=False, match_args=False)
    classes: dict[str, type] = {
        kind: make(type(kind, (Unknown,), {"__annotations__": own, **dict.fromkeys(own)}))
        for kind, own in keys.items()
    }
    return ChainMap(classes, cast("dict[str, type]", layer_types))


def layers_of(root: Node) -> Iterator[Node]:
    """The layers of a model's tree, and of its nets to test with."""
    fields = root.value if isinstance(root.value, dict) else {}
    yield from (layer for layer in _items(fields, "layers") if isinstance(layer.value, dict))
    for net in _items(fields, "test_nets"):
        yield from layers_of(net)


def _of_unknown_types(root: Node, layer_types: LayerTypes) -> Iterator[tuple[Node, str, Mark]]:
    """Each layer of a type that is not known, the type, and where that stands."""
    for layer in layers_of(root):
        kind = layer.value.get("type")
        if kind is not None and isinstance(kind.value, str) and kind.value not in layer_types:
            yield layer, kind.value, kind.mark


def _items(fields: Mapping[str, Node], key: str) -> list[Node]:
    value = fields[key].value if key in fields else []
    return value if isinstance(value, list) else []  # what else it is, `model` refuses


NEAR = 0.8  # how like another a name is that may be a slip of it


def refuse(keys: Problems, lenient: bool, root: Node | None, layer_types: LayerTypes) -> None:
    """Raise SpecError for unknown keys (and tell unknown types), or warn of each and forget them."""
    problems = _in_order(keys)
    keys.clear()
    if problems and not lenient:
        raise _error(problems, [] if root is None else _types(root, layer_types))
    for _, problem in problems:
        _log.warning("%s: left out", problem)


def refuse_types(root: Node, layer_types: LayerTypes) -> None:
    """Raise SpecError if a model's tree has layers of unknown types."""
    if types := _types(root, layer_types):
        raise _error([], types)


def _types(root: Node, layer_types: LayerTypes) -> list[tuple[Mark, str, bool]]:
    """For each unknown type, where it is first, what is to be said, and whether that names a known one."""
    types: dict[str, tuple[Mark, str, bool]] = {}
    for layer, kind, mark in _of_unknown_types(root, layer_types):
        if kind in types:
            continue
        name = layer.value["name"].value if "name" in layer.value else None
        what = f"layer {shown(name)}: " if isinstance(name, str) else ""
        near = "" if kind in FORK_OF else meant(kind, layer_types) or _near(kind, layer_types)
        hint = f"; {FORK_OF[kind]} has it" if kind in FORK_OF else near
        types[kind] = mark, f"{mark}: {what}unknown type {shown(kind)}{hint}", near != ""
    return list(types.values())


def _near(kind: str, layer_types: LayerTypes) -> str:
    """A hint that names the known type of which another is a slip."""
    lowered = {name.lower(): name for name in layer_types}
    near = difflib.get_close_matches(kind.lower(), lowered, n=1, cutoff=NEAR)
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


def _error(keys: Problems, types: list[tuple[Mark, str, bool]]) -> SpecError:
    """The error that tells all, in the order of the text, and what can be done about it."""
    problems = _in_order([*keys, *((mark, problem) for mark, problem, _ in types)])
    first, *rest = [problem for _, problem in problems]
    line = f"{first}; and {len(rest)} more: {'; '.join(rest)}" if rest else first
    if keys:
        them = "the keys" if types else "them" if rest else "it"
        line += f"; --lenient reads on without {them}"
    if not all(near for *_, near in types):
        them = "the types" if keys else "them" if rest else "it"
        line += f"; --import FILE registers {them}; minicaffe layers lists what is known"
    return SpecError(line)


def _in_order(problems: Problems) -> Problems:
    """Problems in the order of their text, each once: a file may be read for two nets."""
    files = list(dict.fromkeys(mark.file for mark, _ in problems))
    once = dict.fromkeys(problems)
    return sorted(once, key=lambda one: (files.index(one[0].file), one[0].line, one[0].column))
