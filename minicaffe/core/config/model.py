"""From a YAML tree to the declarations of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe.core.config import tree
from minicaffe.core.config.declare import LayerSpec, NetSpec, solver_of
from minicaffe.core.config.settings import expanded, replaced
from minicaffe.core.config.tree import Node, shown
from minicaffe.core.config.types import Key, convert, keys_of, meant, values
from minicaffe.errors import SpecError, did_you_mean


def parse_model(
    text: str | Mapping[str, Any],
    layer_types: Mapping[str, type],
    file: str | None = None,
    settings: Sequence[str] = (),
    path: Path | None = None,
) -> NetSpec:
    """The model in a YAML text, of the file `path` if any, or a mapping; errors call it `file`.

    `layer_types` are the known layers. Keys are replaced by `settings`, each `PATH=VALUE`. Raises SpecError.
    """
    if isinstance(text, Mapping):
        root = tree.from_mapping(text, file or "<mapping>")
    else:
        root = tree.parse(text, file or "<text>")
    root = expanded(root)
    for setting in settings:
        root = replaced(root, setting, layer_types)
    return model(root, layer_types, path)


def model(root: Node, layer_types: Mapping[str, type], path: Path | None = None) -> NetSpec:
    """The model that a YAML tree declares, its blocks written out (`blocks.expanded`)."""
    if root.value is None:
        raise SpecError(f"{root.mark}: is empty; expected a mapping with 'name' and 'layers'")
    layers = Key("layers", tuple[Node, ...], dataclasses.MISSING, "the list of layers")
    solver = Key("solver", Node, None, "how the net is trained")
    tests = Key("test_nets", tuple[Node, ...], (), "nets of their own to test with")
    blocks = Key("blocks", Node, None, "layers that `layers` uses by name")
    more = {key.name: key for key in (layers, solver, tests, blocks)}
    given = values(root, {**keys_of(NetSpec), **more}, "")
    if "blocks" in given:  # of a net to test with, or from --set
        where = root.keys["blocks"]
        raise SpecError(f"{where}: blocks: stand beside the layers at the top of a model file")
    if not given["layers"]:
        raise SpecError(f"{root.value['layers'].mark}: layers: expected at least one layer")
    _check_types(given["layers"], layer_types)
    given["layers"] = tuple(
        _layer(node, f"layer {number}", layer_types)
        for number, node in enumerate(given["layers"], 1)
    )
    if "solver" in given:
        given["solver"] = solver_of(given["solver"])
    given["test_nets"] = tuple(
        model(node, layer_types, path) for node in given.get("test_nets", ())
    )
    nets, rule = given["test_nets"], given.get("solver")
    count = 0 if rule is None else len(rule.tests(len(nets)))
    if len(nets) > count:
        told = f"{len(nets)} nets for {count} test_iter of the solver"
        raise SpecError(f"{root.value['test_nets'].mark}: test_nets: {told}")
    if any(net.solver is not None or net.test_nets for net in nets):
        mark = root.value["test_nets"].mark
        raise SpecError(f"{mark}: test_nets: a net to test with has no solver of its own")
    own = {key: node for key, node in root.value.items() if key in keys_of(NetSpec)}
    return NetSpec(**given, path=path, nodes=own)


def _check_types(layers: Sequence[Node], layer_types: Mapping[str, type]) -> None:
    """Raise SpecError for the types of layers that are not known, all in one."""
    unknown: dict[str, Node] = {}
    for node in layers:
        kind = node.value.get("type") if isinstance(node.value, dict) else None
        if kind is not None and isinstance(kind.value, str) and kind.value not in layer_types:
            unknown.setdefault(kind.value, node)
    if unknown:
        kind, *others = unknown
        node = unknown[kind]
        name = node.value.get("name", Node(None, node.mark)).value
        what = f"layer {shown(name)}: " if isinstance(name, str) else ""
        near = meant(kind, layer_types) or did_you_mean(kind, layer_types)
        hint = near or "; see minicaffe layers, or --import FILE"
        also = f"; unknown, too: {', '.join(map(shown, others))}" if others else ""
        raise SpecError(f"{node.value['type'].mark}: {what}unknown type {shown(kind)}{also}{hint}")


def _layer(node: Node, what: str, layer_types: Mapping[str, type]) -> LayerSpec:
    if not isinstance(node.value, dict):
        raise SpecError(f"{node.mark}: {what}: expected a mapping, got {shown(node.value)}")
    name = node.value.get("name", Node(None, node.mark)).value
    what = f"layer {shown(name)}" if isinstance(name, str) else what
    if "type" not in node.value:
        raise SpecError(f"{node.mark}: {what}: missing key 'type' (the layer's class)")
    kind = convert(node.value["type"], str, f"{what}: type")
    layer_type: Any = layer_types[kind]
    what, own = f"{what} ({kind})", keys_of(layer_type)
    given = values(node, {**keys_of(LayerSpec), **own}, what)
    if given["name"].startswith("@"):
        mark = node.value["name"].mark
        raise SpecError(f"{mark}: {what}: name: expected text not led by '@', got {shown(name)}")
    if given.get("include") and given.get("exclude"):
        raise SpecError(f"{node.keys['exclude']}: {what}: give either include or exclude, not both")
    if not layer_type.traits.has_tops:
        given.setdefault("top", ())
    options = {key: given.pop(key) for key in own if key in given}
    return LayerSpec(**given, options=options, mark=node.mark, nodes=node.value)
