"""A model as Caffe's text: each key where caffe.proto has it, what Caffe takes anyway left out."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.config.tree import Comment, Mark, Node
from minicaffe.core.config.types import convert, keys_of
from minicaffe.core.layers.registry import Unknown
from minicaffe.core.net import yaml_text
from minicaffe.core.net.yaml_text import Pen, given_nodes, in_order, place, plain
from minicaffe.errors import SpecError
from minicaffe.interop.caffe.layer import (
    DROPPED,
    FIRST,
    FREE,
    OTHER_NAMES,
    TRANSFORM,
    UNORDERED,
    assumed,
)
from minicaffe.interop.caffe.model import EVALUATED, YAML
from minicaffe.interop.caffe.schema import Field, is_declared, own_block, schema
from minicaffe.interop.caffe.schema import declared as schema_of
from minicaffe.interop.caffe.text import Word, write
from minicaffe.interop.caffe.unknown import NAME, LayerTypes
from minicaffe.interop.caffe.upgrade import as_written

# What stands for itself where a word is expected, and for nothing else
WORD = re.compile(r"(?!(true|false|null|inf|infinity|nan)$)[A-Za-z_]\w*", re.IGNORECASE | re.ASCII)
CAPITALS = "[A-Z][A-Z0-9_]*"


def prototxt(
    spec: NetSpec, layer_types: LayerTypes, comments: Mapping[str, Sequence[Comment]] = {}
) -> str:
    """A model as a net's text or, if it has a solver, as a solver's with the nets in it. Raises SpecError."""
    pen = Pen(comments)
    if spec.solver is None:
        write(pen, _net(pen, spec, layer_types), 0)
        return pen.text()
    own = _solver(spec)
    nets = {"net_param": _net(pen, spec, layer_types)}
    tests = [_net(pen, net, layer_types) for net in spec.test_nets]
    _move_evaluation([nets["net_param"], *tests], own)
    first = len(tests) == len(spec.solver.tests(len(tests)))
    if first and tests:  # no test is of the net that is trained
        nets = {"train_net_param": nets["net_param"]}
    if tests:
        nets["test_net_param"] = Node(tests, tests[0].mark)
    start, net = yaml_text.first_mark(own, spec.solver.mark), spec.layers[0].mark.outermost
    parts = [own, nets] if start.file != net.file or start.line <= net.line else [nets, own]
    write(pen, Node({**parts[0], **parts[1]}, start), 0)
    return pen.text()


def _move_evaluation(nets: list[Node], solver: dict[str, Node]) -> None:
    """Move what SSD's solver has of DetectionEvaluate out of the layers, if all say the same."""
    layers = [
        layer.value
        for net in nets
        for layer in net.value["layer"].value
        if layer.value["type"].value == "DetectionEvaluate"
    ]
    if not layers:
        return
    frees = [layer[FREE].value if FREE in layer else {} for layer in layers]
    moved = [{key: free[key] for key in EVALUATED if key in free} for free in frees]
    values = [{key: node.value for key, node in one.items()} for one in moved]
    if all(one == values[0] for one in values):
        for layer, free in zip(layers, frees, strict=True):
            for key in moved[0]:
                del free[key]
            if FREE in layer and not free:
                del layer[FREE]
        solver |= moved[0]
    solver["eval_type"] = Node("detection", next(iter(solver.values())).mark)


def _solver(spec: NetSpec) -> dict[str, Node]:
    """The fields of a SolverParameter that are not its nets."""
    solver = spec.solver
    assert solver is not None
    nodes = in_order(given_nodes(solver), solver.mark)
    whole = nodes.pop("test_interval", None) if solver.test_iter is None else None
    nodes.setdefault("lr_policy", Node(solver.lr_policy, solver.mark))  # Caffe has no default
    nodes.setdefault("snapshot_format", Node(solver.snapshot_format, solver.mark))  # or another
    if solver.snapshot_format == "BINARYPROTO":
        del nodes["snapshot_format"]
    if (device := nodes.pop("device", None)) is not None:
        number = device.value[5:] if device.value[:5] == "cuda:" else ""
        if device.value == "cpu":
            nodes["solver_mode"] = Node(Word("CPU"), device.mark)
        elif number.strip("0").isdigit():
            nodes["device_id"] = Node(int(number), device.mark)
        else:
            nodes["device"] = device
    fields = _placed(nodes, "SolverParameter", solver.mark)
    if whole is not None:  # of Caffe there is no test without test_iter
        free = fields.get(FREE, Node({}, solver.mark))
        fields[FREE] = Node({**free.value, "test_interval": whole}, free.mark)
    return fields


def _placed(nodes: Mapping[str, Node], kind: str, mark: Mark) -> dict[str, Node]:
    """Keys as fields of a message, those that it has no place for in minicaffe_param."""
    fields = schema().messages[kind]
    fitting = {key: _fitting(node, fields[key]) for key, node in nodes.items() if key in fields}
    placed = {key: node for key, node in fitting.items() if node is not None}
    if free := {key: node for key, node in nodes.items() if key not in placed}:
        placed[FREE] = Node(free, mark)
    return placed


def _net(pen: Pen, spec: NetSpec, layer_types: LayerTypes) -> Node:
    start, bottoms = spec.layers[0].mark, yaml_text.implied_bottoms(spec, layer_types)
    layers = []
    for layer, implied in zip(spec.layers, bottoms, strict=True):
        bottom = layer.bottom
        if bottom is None:
            if len(implied) > 1:
                ways = " or ".join(sorted(", ".join(one) or "nothing" for one in implied))
                problem = f"reads {ways}, by the phase; in a prototxt it reads one: give a bottom"
                raise SpecError(f"{layer.place()}: {problem}")
            bottom = next(iter(implied), ())
        layers.append(_layer(layer, bottom, layer_types, pen.has_comments_in))
    fields = _placed(given_nodes(spec), "NetParameter", start)
    return Node({**fields, "layer": Node(layers, start)}, start)


def _layer(
    layer: LayerSpec,
    bottom: tuple[str, ...],
    layer_types: LayerTypes,
    commented: Callable[[Node], bool],
) -> Node:
    common: dict[str, Any] = {key: getattr(layer, key) for key in keys_of(LayerSpec)}
    common |= {"bottom": bottom, "top": layer.tops}
    common = {key: value for key, value in common.items() if value != ()}
    nodes = {key: plain(value, place(layer, key)) for key, value in common.items()}
    fields = _placed(nodes, "LayerParameter", layer.mark)
    ahead = {key: fields.pop(key) for key in FIRST if key in fields}
    declared = keys_of(layer_types[layer.type])
    taken = assumed(layer.type, declared)
    if layer.type.endswith("Loss") and not layer.tops:  # else it would be given one
        fields[FREE] = Node({"top": Node([], layer.mark)}, layer.mark)
    options, homes = yaml_text.layer_options(layer, layer_types), schema().keys(layer.type)
    if is_declared(layer.type):
        own = schema_of(layer_types[layer.type])
        homes = {name: (own_block(layer.type), field) for name, field in own.items()}
    if layer.type in UNORDERED and options.get("shuffle", True) is None:
        options["shuffle"] = yaml_text.shuffled(layer)
    for key, value in options.items():
        node = plain(value, place(layer, key))
        default = declared[key].default
        if key in taken:
            default = convert(Node(taken[key], layer.mark), declared[key].type)
        if value == default and not declared[key].required:
            continue
        if issubclass(layer_types[layer.type], Unknown) and key.endswith("_param"):
            fields[key] = _as_it_is(node, not layer.mark.file.lower().endswith(YAML))
            continue
        key = next((one for one, own in OTHER_NAMES.items() if own == key and one in homes), key)
        home, field = homes.get(key, (FREE, None))
        dropped = key in DROPPED and not is_declared(layer.type)
        fitting = _fitting(node, field) if field is not None and not dropped else None
        if (
            key == "transform"
            and isinstance(node.value, dict)
            and (is_declared(layer.type) or TRANSFORM in schema().layers[layer.type])
            and node.value.keys() <= schema().messages["TransformationParameter"].keys()
        ):
            inner = _placed(node.value, "TransformationParameter", node.mark)
            fields[TRANSFORM] = Node(inner, node.mark)
            continue
        if fitting is None:
            home, fitting = FREE, node
        block = fields.get(home, Node({}, node.mark))
        fields[home] = Node({**block.value, key: fitting}, block.mark)
    for name, node in fields.items():  # a message stands where the first of its fields does
        if isinstance(node.value, dict) and node.value:
            inside = in_order(node.value, layer.mark)
            fields[name] = Node(inside, next(iter(inside.values())).mark)
    ordered = in_order(fields) if commented(Node(fields, layer.mark)) else fields
    return as_written(Node(ahead | ordered, layer.mark))


def _as_it_is(node: Node, of_text: bool) -> Node:
    """A message without declared fields as in a prototxt, capitals being words. Raises SpecError."""
    if isinstance(node.value, dict):
        for key in node.value:
            if not NAME.fullmatch(key):
                problem = f"{key!r} cannot be a field of a prototxt"
                raise SpecError(f"{node.keys.get(key, node.mark)}: {problem}")
        fields = {key: _as_it_is(value, of_text) for key, value in node.value.items()}
        return Node(fields, node.mark, node.keys)
    if isinstance(node.value, list):
        if any(isinstance(item.value, list) for item in node.value):
            raise SpecError(f"{node.mark}: a list in a list cannot stand in a prototxt")
        return Node([_as_it_is(item, of_text) for item in node.value], node.mark)
    if of_text or not isinstance(node.value, str) or not re.fullmatch(CAPITALS, node.value):
        return node
    return Node(Word(node.value), node.mark) if WORD.fullmatch(node.value) else node


def _fitting(node: Node, field: Field) -> Node | None:
    """A value as a field takes it; None if the field cannot hold it."""
    if isinstance(node.value, list) and not field.repeated:
        return None
    if isinstance(node.value, list):
        items = [_fitting(item, dataclasses.replace(field, repeated=False)) for item in node.value]
        return None if None in items or not items else Node(items, node.mark)
    if field.is_message:
        if field.type == "FillerParameter" and isinstance(node.value, str):
            node = Node({"type": node}, node.mark)
        if field.type in ("NetStateRule", "NetState") and isinstance(node.value, str):
            node = Node({"phase": node}, node.mark)
        if not isinstance(node.value, dict):
            return None
        known = field.fields
        fitting = {k: _fitting(v, known[k]) if k in known else None for k, v in node.value.items()}
        return None if None in fitting.values() else Node(fitting, node.mark)
    if isinstance(node.value, dict) or node.value is None:
        return None
    if field.words is None:
        return node
    if node.value not in field.words:
        return None
    return Node(Word(node.value), node.mark) if WORD.fullmatch(node.value) else node
