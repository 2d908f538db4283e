"""A layer as Caffe's text has it, and as a model file of ours: the keys of its `..._param` beside its name."""

import logging
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin

from minicaffe.core.config.declare import FILLER_KEYS, Filler, LayerSpec
from minicaffe.core.config.tree import Mark, Node, shown
from minicaffe.core.config.types import Key, keys_of, option
from minicaffe.errors import SpecError, did_you_mean
from minicaffe.interop.caffe.schema import Field, is_declared, own_block, schema
from minicaffe.interop.caffe.unknown import LayerTypes, Problems

DROPPED = ("engine", "stable_prod_grad", "share_in_parallel")  # how, not what, is computed
TRANSFORM, LOSS = "transform_param", "loss_param"
FREE = "minicaffe_param"  # what caffe.proto has no place for
# Caffe's defaults that are in its code, not in caffe.proto, and so those of the layer here.
IN_CODE = {("SigmoidCrossEntropyLoss", "normalization"), ("Data", "backend")}
UNORDERED = ("Data",)  # layers that Caffe does not shuffle, for want of a key
OTHER_NAMES = {"type": "margin_type"}  # of keys that here each layer has for something else
# Intel's blocks of a transform_param that make pictures one size, and the key here
SIZED = {"random_resize_param": "resize", "random_aspect_ratio_param": "random_resized_crop"}
ZERO = Filler(type="constant")
BOOLS = {"1": True, "t": True, "True": True, "0": False, "f": False, "False": False}

_log = logging.getLogger("minicaffe")


def warn(mark: Mark, text: str) -> None:
    """Tell of something in a file that has no effect."""
    _log.warning("%s: %s", mark, text)


def flat(layer: Node, layer_types: LayerTypes, taken: Mapping[str, Any], unknown: Problems) -> Node:
    """A LayerParameter as a layer of a model file. Raises SpecError.

    `taken` are the names of blobs: a loss without a top, to which Caffe gives one, gets one that is free.
    Unknown keys of a declaration's block are left out and appended to `unknown`.
    """
    kind = layer.value["type"].value if "type" in layer.value else ""
    name = layer.value["name"].value if "name" in layer.value else ""
    what = f"layer {shown(name)} ({kind})" if kind else f"layer {shown(name)}"
    values: dict[str, Node] = {}
    keys: dict[str, Mark] = {}

    def put(key: str, node: Node, mark: Mark) -> None:
        if key in values and values[key].value != node.value:
            raise SpecError(f"{mark}: {what}: {key} is given twice, first at {keys[key].within}")
        values[key], keys[key] = node, mark

    known, homes = kind in layer_types, _homes(kind, layer_types)
    declared = keys_of(layer_types[kind]) if known else {}
    for key, node in layer.value.items():
        mark = layer.keys.get(key, node.mark)
        if key == FREE:
            for own, value in node.value.items():
                if own in FIRST and (own, value.value) != ("top", []):
                    raise SpecError(f"{node.keys[own]}: {what}: {own} stands in the layer itself")
                put(own, value, node.keys[own])
        elif key in keys_of(LayerSpec):
            put(key, _params(node) if key == "param" else node, mark)
        elif key == "phase":  # the net's own, as Caffe prints it: see phases
            continue
        elif key == "blobs":
            problem = f"{what}: blobs: a text does not hold weights; give a .caffemodel"
            raise SpecError(f"{mark}: {problem}")
        elif kind and is_declared(kind):  # of a declaration; of an unknown type as it is
            if not known:
                put(key, node, mark)
            elif key == TRANSFORM and "transform" in declared:
                inside = f"{what}: transform"
                put("transform", _known(node, declared["transform"].type, inside, unknown), mark)
            else:
                _put_own(node, key, what, layer_types[kind], put, unknown)
        elif key == TRANSFORM and known and "transform" not in declared:
            raise SpecError(f"{mark}: {what}: {key}: rows are taken as they are, as in Caffe")
        elif key == TRANSFORM:
            put("transform", _transform(node, declared), mark)
        else:
            if key == LOSS and known:
                node = _loss(node, declared, kind)
            fields = schema().messages[schema().messages["LayerParameter"][key].type]
            for own, (value, where) in fitted(node, fields, declared).items():
                if known and own not in declared:
                    wrong = f"{where}: {what}: {key}: this type does not take {own!r}"
                    if own in schema().messages["TransformationParameter"] and TRANSFORM in homes:
                        wrong += f"; it belongs into {TRANSFORM}"
                    raise SpecError(wrong)
                put(own, value, where)
    for own, value in assumed(kind, declared).items():
        values.setdefault(own, Node(value, layer.mark))
        keys.setdefault(own, layer.mark)
    _ends(values, kind, layer.mark, taken)
    order = sorted(values, key=lambda key: FIRST.index(key) if key in FIRST else len(FIRST))
    keys = {**dict.fromkeys(order, layer.mark), **keys}
    return Node({key: values[key] for key in order}, layer.mark, keys)


def own_blocks(layers: list[Node], layer_types: LayerTypes) -> list[Node]:
    """The layers less blocks of another type's keys, which Caffe ignores; a line tells of each once."""
    own_layers, warned = [], set()
    for layer in layers:
        kind = layer.value["type"].value if "type" in layer.value else ""
        homes = (*_homes(kind, layer_types), FREE)
        others = [k for k in layer.value if k.endswith("_param") and k not in homes]
        for block in others if kind in layer_types else []:
            fields = {k: node for k, node in layer.value.items() if k != block}
            layer = Node(fields, layer.mark, layer.keys)
            if (kind, block) not in warned:
                warned.add((kind, block))
                own = f"; its own keys stand in {' and '.join(homes[:-1])}" if homes[1:] else ""
                warn(layer.keys[block], f"{kind}: {block} has no effect, as in Caffe{own}")
        own_layers.append(layer)
    return own_layers


FIRST = ("name", "type", "bottom", "top")


def phases(layers: list[Node], state: Node | None) -> None:
    """Warn of each layer whose `phase`, which Caffe prints, is not its net's: it has no effect."""
    own = state.value["phase"].value if state is not None and "phase" in state.value else None
    for layer in (one for one in layers if "phase" in one.value):
        phase = layer.value["phase"].value
        own = phase if own is None else own
        if phase != own:
            name = layer.value["name"].value if "name" in layer.value else ""
            text = f"layer {shown(name)}: phase: {phase} has no effect: others are of {own}; "
            warn(layer.keys["phase"], text + "include { phase: ... } builds a layer for one phase")


def _put_own(node: Node, block: str, what: str, cls: type, put: Any, unknown: Problems) -> None:
    """The keys in the block of a type that caffe.proto does not have, as its declaration has them."""
    keys = keys_of(cls)
    if not isinstance(node.value, dict):
        raise SpecError(f"{node.mark}: {what}: {block}: expected {{ fields of {cls.__name__} }}")
    for own, value in _known(node, cls, f"{what}: {block}", unknown).value.items():
        type_ = option(keys[own].type)
        if type_ is Filler and isinstance(value.value, dict):
            value = filler(value)
        elif type_ == tuple[Filler, ...]:
            items = value.value if isinstance(value.value, list) else [value]
            items = [filler(item) if isinstance(item.value, dict) else item for item in items]
            value = Node(items, value.mark)
        elif type_ is bool and str(value.value) in BOOLS:
            value = Node(BOOLS[str(value.value)], value.mark)
        put(own, value, node.keys[own])


def _known(node: Node, type_: Any, what: str, unknown: Problems) -> Node:
    """What a text has for a declaration, or a tuple of them, less the keys that it does not have."""
    type_ = option(type_)
    if get_origin(type_) is tuple:
        type_ = get_args(type_)[0]
    if is_dataclass(type_) and isinstance(node.value, list):
        items = [_known(item, type_, what, unknown) for item in node.value]
        return Node(items, node.mark, node.keys)
    if not is_dataclass(type_) or not isinstance(node.value, dict):
        return node
    keys, values = keys_of(cast(type, type_)), {}
    for own, value in node.value.items():
        if own in keys:
            values[own] = _known(value, keys[own].type, f"{what}: {own}", unknown)
            continue
        where = node.keys[own]
        problem = f"{where}: {what}: unknown key {shown(own)}{did_you_mean(own, keys)}"
        unknown.append((where, problem))
    return Node(values, node.mark, node.keys)


def _homes(kind: str, layer_types: LayerTypes) -> tuple[str, ...]:
    """The blocks in which the keys of a type stand."""
    if not kind or not is_declared(kind):
        return schema().layers.get(kind, ())
    keys = keys_of(layer_types[kind]) if kind in layer_types else {}
    return (*((own_block(kind),) if keys else ()), *((TRANSFORM,) if "transform" in keys else ()))


def _ends(values: dict[str, Node], kind: str, mark: Mark, taken: Mapping[str, Any]) -> None:
    """The bottoms and tops as they are: none where none is given, but for a loss's top."""
    if "type" in values:
        values.setdefault("name", Node(f"{kind}_{mark.within}".replace(" ", "_"), mark))
    values.setdefault("bottom", Node([], mark))
    if kind.endswith("Loss") and "top" not in values:
        name = str(values["name"].value)
        while name in taken:
            name += "_loss"
        values["top"] = Node([Node(name, mark)], mark)
    values.setdefault("top", Node([], mark))


def fitted(
    message: Node, fields: Mapping[str, Field], declared: Mapping[str, Key]
) -> dict[str, tuple[Node, Mark]]:
    """The keys of a message as a declaration names them, less those that change nothing."""
    fitting: dict[str, tuple[Node, Mark]] = {}
    for name, node in message.value.items():
        field, mark = fields[name], message.keys[name]
        own = OTHER_NAMES.get(name, name)
        own = own if own in declared else name
        key = declared.get(own)
        if name == "engine" or (name in DROPPED and key is None):
            continue
        if not field.repeated and node.value == field.default:
            refused = key is not None and any(check.problem(node.value) for check in key.checks)
            if key is None or (key.default is None and refused):
                continue  # nothing, or 0, which is none
        if name == "ceil_mode" and key is None:
            own, node = "round_mode", Node("CEIL" if node.value else "FLOOR", node.mark)
        if field.type == "FillerParameter":
            items = [filler(item) for item in node.value] if field.repeated else []
            node = Node(items, node.mark) if field.repeated else filler(node)
        if own in fitting:
            raise SpecError(f"{mark}: {name} is another name of {own!r}, which is given too")
        fitting[own] = node, mark
    return fitting


def assumed(kind: str, declared: Mapping[str, Key]) -> dict[str, Any]:
    """What Caffe takes for the keys of a type that are not given, where the type's own default differs."""
    defaults: dict[str, Any] = {}
    for name, (_, field) in schema().keys(kind).items():
        if name not in declared or declared[name].required or field.repeated or name == "engine":
            continue
        if (kind, name) in IN_CODE:
            continue
        own, default = declared[name].default, field.default
        if name in ("weight_filler", "bias_filler") and own not in (ZERO, None):
            defaults[name] = "constant"
        elif default is not None and own not in (None, ()) and own != default:
            defaults[name] = default
    if kind in UNORDERED and "shuffle" in declared:
        defaults["shuffle"] = False
    return defaults


def filler(node: Node) -> Node:
    """A FillerParameter: of the type constant unless it says so, less the keys of other types."""
    values, keys = dict(node.value), dict(node.keys)
    values.setdefault("type", Node("constant", node.mark))
    keys.setdefault("type", node.mark)
    kind = values["type"].value
    for key in [key for key in values if kind not in FILLER_KEYS.get(key, (kind,))]:
        if values[key].value != getattr(Filler, key):
            types = " and ".join(FILLER_KEYS[key])
            warn(keys[key], f"{key} has no effect: it goes with {types}, not with {kind}")
        del values[key], keys[key]
    return Node(values, node.mark, keys)


def _transform(node: Node, declared: Mapping[str, Key]) -> Node:
    kind = declared["transform"].type if "transform" in declared else None
    keys = keys_of(kind) if kind is not None else {}
    sized = {key: _sized(key, node.value[key]) for key in SIZED if key in node.value}
    rest = {key: one for key, one in node.value.items() if key not in SIZED}
    plain = Node(rest, node.mark, node.keys)
    parts = fitted(plain, schema().messages["TransformationParameter"], keys)
    parts |= {SIZED[key]: (one, node.keys[key]) for key, one in sized.items()}
    values = {key: value for key, (value, _) in parts.items()}
    return Node(values, node.mark, {key: mark for key, (_, mark) in parts.items()})


def _sized(key: str, block: Node) -> Node:
    """What a block of Intel's says of how pictures are made one size, as the key of SIZED says it here.

    There a part's height and width are both changed by a factor between c, aspect_ratio_change, and 1 / c,
    so that width / height is between c^2 and 1 / c^2. Source: Intel's DataTransformer. Raises SpecError.
    """
    mark, values = block.mark, {name: one.value for name, one in block.value.items()}
    how = values["resize_param"].get("interp_mode") if "resize_param" in values else None
    if how is not None and {one.value for one in how.value} - {"LINEAR"}:
        warn(how.mark, "interp_mode has no effect: pictures are scaled linearly")
    if SIZED[key] == "resize":
        least, most = values.get("min_size", 0), values.get("max_size", 0)
        if least != most or not least:
            problem = f"min_size {least} and max_size {most}: expected one size, the shorter side's"
            raise SpecError(f"{mark}: {key}: {problem}")
        return Node(least, mark)
    change = float(values.get("aspect_ratio_change", 1)) ** 2
    if not 0 < change <= 1:
        raise SpecError(f"{mark}: {key}: aspect_ratio_change: expected above 0 and at most 1")
    share = (values.get("min_area_ratio", 0.5), values.get("max_area_ratio", 1.0))
    bounds = {"scale": share, "ratio": (change, 1 / change)}
    inside = {k: Node([Node(float(v), mark) for v in pair], mark) for k, pair in bounds.items()}
    return Node(inside, mark, dict.fromkeys(inside, mark))


def _loss(node: Node, declared: Mapping[str, Key], kind: str) -> Node:
    """A LossParameter less the keys that a type of loss does not look at, in Caffe as here."""
    fields = schema().messages["LossParameter"]
    for key in node.value.keys() - declared.keys():
        if node.value[key].value != fields[key].default:
            warn(node.keys[key], f"{key} has no effect: {kind} does not look at it")
    return Node({k: v for k, v in node.value.items() if k in declared}, node.mark, node.keys)


def _params(node: Node) -> Node:
    """The ParamSpecs; an empty name is none."""
    items = []
    for item in node.value:
        fields = {key: one for key, one in item.value.items() if (key, one.value) != ("name", "")}
        items.append(Node(fields, item.mark, item.keys))
    return Node(items, node.mark)
