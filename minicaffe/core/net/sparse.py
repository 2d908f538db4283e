"""Specs as trees again: what a model file would say that leaves defaults out, each value with its mark."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec, SolverSpec, State
from minicaffe.core.config.tree import Mark, Node
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers.base import bottom_counts

STATES = 64  # the most combinations of phase, level and stages that are looked at


def plain(value: Any, mark: Mark) -> Node:
    """A value of a declaration: its keys that are not the default, the word alone where that is all.

    >>> from minicaffe.core.config.declare import Filler
    >>> plain(Filler(type="msra"), Mark("x")).value
    'msra'
    """
    if isinstance(value, Node):  # of a type that is not known
        return value
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        given = {
            name: plain(getattr(value, name), mark)
            for name, key in keys_of(kind).items()
            if key.required or getattr(value, name) != key.default
        }
        word = getattr(value, "word", None)
        if word is not None and list(given) == [word]:
            return given[word]
        return Node(given, mark, dict.fromkeys(given, mark))
    if isinstance(value, tuple):
        items = [plain(item, mark) for item in value]
        return items[0] if len(items) == 1 else Node(items, mark)
    return Node(value, mark)


def layer_options(layer: LayerSpec, layer_types: Mapping[str, type]) -> dict[str, Any]:
    """Every key of a layer's own type and its value, defaults included."""
    declared = keys_of(layer_types[layer.type])
    return {name: layer.options.get(name, key.default) for name, key in declared.items()}


def place(layer: LayerSpec, key: str) -> Mark:
    """Where a key of a layer was given."""
    node = layer.nodes.get(key)
    return layer.mark if node is None else node.mark


def layer_node(layer: LayerSpec, ends: Mapping[str, Any], layer_types: Mapping[str, type]) -> Node:
    """A layer, with the bottom and top of `ends`, in the order in which its keys were given."""
    common = {"name": layer.name, "type": layer.type, **ends}
    for name, key in keys_of(LayerSpec).items():
        if name not in ("name", "type", "bottom", "top") and getattr(layer, name) != key.default:
            common[name] = getattr(layer, name)
    declared = keys_of(layer_types[layer.type])
    own = {
        name: value
        for name, value in layer_options(layer, layer_types).items()
        if declared[name].required or value != declared[name].default
    }
    unsaid = "shuffle" in own and declared["shuffle"].default is None  # the phase decides
    if unsaid and own["shuffle"] == shuffled(layer):
        own.pop("shuffle")
    nodes = {name: plain(value, place(layer, name)) for name, value in {**common, **own}.items()}
    first = ("name", "type", *ends)
    rest = in_order({name: node for name, node in nodes.items() if name not in first}, layer.mark)
    ordered = {name: nodes[name] for name in first} | rest
    return Node(ordered, layer.mark, {name: node.mark for name, node in ordered.items()})


def in_order(nodes: Mapping[str, Node], start: Mark | None = None) -> dict[str, Node]:
    """Nodes by where they stood, if all are of one file that has lines; those at `start` come last."""
    files = {node.mark.file for node in nodes.values()}
    if len(files) != 1 or not all(node.mark.line for node in nodes.values()):
        return dict(nodes)

    def order(one: tuple[str, Node]) -> tuple[bool, int, int]:
        mark = one[1].mark
        return mark == start, mark.line, mark.column

    return dict(sorted(nodes.items(), key=order))


def given_nodes(spec: NetSpec | SolverSpec) -> dict[str, Node]:
    """A net's or a solver's own keys that are not the default."""
    start = spec.layers[0].mark if isinstance(spec, NetSpec) else spec.mark
    kind: Any = type(spec)
    return {
        name: plain(getattr(spec, name), spec.nodes[name].mark if name in spec.nodes else start)
        for name, key in keys_of(kind).items()
        if key.required or getattr(spec, name) != key.default
    }


def first_mark(nodes: Mapping[str, Node], start: Mark) -> Mark:
    """The mark that stands first in a file, of these and another."""
    marks = [node.mark for node in nodes.values() if node.mark.file == start.file]
    return min(marks or [start], key=lambda mark: (mark.line, mark.column))


def shuffled(layer: LayerSpec) -> bool | None:
    """What a layer's `shuffle: null` means: of TRAIN, but not of an LMDB; None if of both phases."""
    if layer.options.get("backend") == "LMDB":
        return False
    phases = {rule.phase for rule in layer.include}
    return None if len(phases) != 1 or None in phases else phases == {"TRAIN"}


def states(net: NetSpec) -> list[State]:
    """The states that a net's rules tell apart, or many of them."""
    rules = [rule for layer in net.layers for rule in (*layer.include, *layer.exclude)]
    levels = {0}
    for rule in rules:
        for level in (rule.min_level, rule.max_level):
            levels |= set() if level is None else {level - 1, level, level + 1}
    stages = sorted({stage for rule in rules for stage in (*rule.stage, *rule.not_stage)})
    chosen = [
        set(some) for n in range(len(stages) + 1) for some in itertools.combinations(stages[:8], n)
    ]
    found = (
        State(phase=phase, level=level, stage=tuple(sorted(some)))
        for some in [*chosen, set(stages)]
        for level in sorted(levels)
        for phase in ("TRAIN", "TEST")
    )
    return list(itertools.islice(found, STATES))


def implied_bottoms(net: NetSpec, layer_types: Mapping[str, type]) -> list[set[tuple[str, ...]]]:
    """For each layer what it reads if it does not say so: what the layer above writes, in each state."""
    takes = {
        kind: bottom_counts(layer_types[kind])[1] > 0 for kind in {one.type for one in net.layers}
    }
    found: list[set[tuple[str, ...]]] = [set() for _ in net.layers]
    for state in states(net):
        above: tuple[str, ...] = ()
        for layer, bottoms in zip(net.layers, found, strict=True):
            if layer.included(state):
                bottoms.add(above[:1] if takes[layer.type] else ())
                above = layer.tops
    return found
