"""The JSON Schema of model files, from the declarations: editors complete and check with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec, SolverSpec
from minicaffe.core.config.settings import DEFAULTS, WORD
from minicaffe.core.config.types import json_schema_of_keys, keys_of

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
    layer = {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"type": {"enum": sorted(layer_types), "description": "the layer's class"}},
        "allOf": branches,
    }
    root = json_schema_of_keys(keys_of(NetSpec), define)
    root["properties"]["layers"] = _layers("layer")
    root["properties"]["solver"] = define(SolverSpec)
    root["properties"]["test_nets"] = {"type": "array", "items": _to("test net")}
    root["required"] = ["layers"]
    definitions["layer"] = layer
    own = {k: v for k, v in root["properties"].items() if k not in ("solver", "test_nets")}
    definitions["test net"] = {**root, "properties": own}
    of_layers = _reached(definitions, "layer")
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


def _reached(definitions: Mapping[str, Any], first: str) -> list[str]:
    """The definitions that one refers to, itself first."""
    found = [first]
    for name in found:
        for other in re.findall(r"#/\$defs/([^'\"]+)", str(definitions[name])):
            if (other := other.replace("%20", " ")) not in found:
                found.append(other)
    return found


def _with_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A definition as it is in a block: each value of a key may be a text with words in it too."""
    found: dict[str, Any] = {}
    for word, one in schema.items():
        if word == "properties":
            found[word] = {key: _or_word(value) for key, value in one.items()}
        elif word == "$ref":
            name = one.rpartition("/")[2].replace("%20", " ")
            found |= _to(f"{IN_BLOCK}{name}")
        elif word == "items":
            found[word] = _or_word(one)
        elif word == "anyOf":
            found[word] = [_with_words(kind) for kind in one]
        elif word == "allOf":
            found[word] = [{**branch, "then": _with_words(branch["then"])} for branch in one]
        else:
            found[word] = one
    return found


def _or_word(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a key's value, in a block."""
    bare = dict(schema)
    told = {"description": bare.pop("description")} if "description" in bare else {}
    return {"anyOf": [*map(_with_words, bare.get("anyOf", [bare])), _to("word")], **told}
