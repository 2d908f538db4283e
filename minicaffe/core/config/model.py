"""From a YAML tree to the declarations of a model, and from these to the JSON Schema that editors go by."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe.core.config import tree
from minicaffe.core.config.declare import LayerSpec, NetSpec, SolverSpec, solver_of
from minicaffe.core.config.settings import DEFAULTS, WORD, expanded, replaced
from minicaffe.core.config.tree import Node, shown
from minicaffe.core.config.types import Key, convert, json_schema_of_keys, keys_of, meant, values
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
    keys = values(root, {**keys_of(NetSpec), **more}, "")
    if "blocks" in keys:  # of a net to test with, or from --set
        where = root.keys["blocks"]
        raise SpecError(f"{where}: blocks: stand beside the layers at the top of a model file")
    if not keys["layers"]:
        raise SpecError(f"{root.value['layers'].mark}: layers: expected at least one layer")
    _check_types(keys["layers"], layer_types)
    numbered = enumerate(keys["layers"], 1)
    keys["layers"] = tuple(_layer(node, f"layer {i}", layer_types) for i, node in numbered)
    if "solver" in keys:
        keys["solver"] = solver_of(keys["solver"])
    keys["test_nets"] = tuple(model(node, layer_types, path) for node in keys.get("test_nets", ()))
    nets, rule = keys["test_nets"], keys.get("solver")
    count = 0 if rule is None else len(rule.tests(len(nets)))
    if len(nets) > count:
        problem = f"{len(nets)} nets for {count} test_iter of the solver"
        raise SpecError(f"{root.value['test_nets'].mark}: test_nets: {problem}")
    if any(net.solver is not None or net.test_nets for net in nets):
        mark = root.value["test_nets"].mark
        raise SpecError(f"{mark}: test_nets: a net to test with has no solver of its own")
    own = {key: node for key, node in root.value.items() if key in keys_of(NetSpec)}
    return NetSpec(**keys, path=path, nodes=own)


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
    keys = values(node, {**keys_of(LayerSpec), **own}, what)
    if keys["name"].startswith("@"):
        mark = node.value["name"].mark
        raise SpecError(f"{mark}: {what}: name: expected text not led by '@', got {shown(name)}")
    if keys.get("include") and keys.get("exclude"):
        raise SpecError(f"{node.keys['exclude']}: {what}: give either include or exclude, not both")
    if not layer_type.traits.has_tops:
        keys.setdefault("top", ())
    options = {key: keys.pop(key) for key in own if key in keys}
    return LayerSpec(**keys, options=options, mark=node.mark, nodes=node.value)


IN_BLOCK = "in a block: "  # leads the definitions of what may hold the words `<...>` of a block


def schema(layer_types: Mapping[str, type]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a model file whose layers are of `layer_types`."""
    definitions: dict[str, Any] = {}

    def define(kind: type) -> dict[str, Any]:
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = json_schema_of_keys(keys_of(kind), define)
        return _to(kind.__name__)

    branches = []
    for name, cls in sorted(layer_types.items()):
        one = json_schema_of_keys({**keys_of(LayerSpec), **keys_of(cls)}, define)
        one["description"] = (cls.__doc__ or "").split("\n")[0]
        one["properties"]["type"] = {"const": name}
        definitions[f"layer {name}"] = one
        chosen = {"properties": {"type": {"const": name}}, "required": ["type"]}
        branches.append({"if": chosen, "then": _to(f"layer {name}")})
    of_layers = ["layer", *definitions]  # which those of a net and a solver are no part of
    root = json_schema_of_keys(keys_of(NetSpec), define)
    root["properties"]["layers"] = _layers("layer")
    root["properties"]["solver"] = define(SolverSpec)
    root["properties"]["test_nets"] = {"type": "array", "items": _to("test net")}
    root["required"] = ["layers"]
    definitions["layer"] = {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"type": {"enum": sorted(layer_types), "description": "the layer's class"}},
        "allOf": branches,
    }
    own = {k: v for k, v in root["properties"].items() if k not in ("solver", "test_nets")}
    definitions["test net"] = {**root, "properties": own}
    root["properties"]["blocks"] = {
        "type": "object",
        "description": "layers that `layers` uses by name",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "layers": _layers(f"{IN_BLOCK}layer"),
                "defaults": {"type": "object", "description": DEFAULTS.doc},
            },
            "required": ["layers"],
            "additionalProperties": False,
        },
    }
    definitions |= {IN_BLOCK + name: _with_words(definitions[name]) for name in of_layers}
    definitions["word"] = {"type": "string", "pattern": WORD.pattern}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "minicaffe model",
        **root,
        "$defs": definitions,
    }


def _layers(definition: str) -> dict[str, Any]:
    """A list of layers, of uses of blocks too."""
    use = {"properties": {"block": {"type": "string", "description": "the name of a block"}}}
    either = {"if": {"required": ["block"]}, "then": use, "else": _to(definition)}
    return {"type": "array", "items": {"type": "object", **either}, "minItems": 1}


def _to(definition: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{definition}".replace(" ", "%20")}


def _with_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A definition as it is in a block: each value of a key may be a text with words in it too."""
    result: dict[str, Any] = {}
    for word, one in schema.items():
        if word == "properties":
            result[word] = {key: _or_word(value) for key, value in one.items()}
        elif word == "$ref":
            result |= _to(IN_BLOCK + one.rpartition("/")[2].replace("%20", " "))
        elif word == "items":
            result[word] = _or_word(one)
        elif word == "anyOf":
            result[word] = [_with_words(kind) for kind in one]
        elif word == "allOf":
            result[word] = [{**branch, "then": _with_words(branch["then"])} for branch in one]
        else:
            result[word] = one
    return result


def _or_word(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a key's value, in a block."""
    bare = dict(schema)
    description = {"description": bare.pop("description")} if "description" in bare else {}
    return {"anyOf": [*map(_with_words, bare.get("anyOf", [bare])), _to("word")], **description}
