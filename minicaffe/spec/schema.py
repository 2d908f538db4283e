"""The JSON Schema of model files, from the declarations: editors complete and check with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minicaffe.spec.declare import LayerSpec, NetSpec
from minicaffe.spec.solver import SolverSpec
from minicaffe.spec.types import json_schema_of_keys, keys_of


def schema(layer_types: Mapping[str, type]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a model file whose layers are of `layer_types`."""
    definitions: dict[str, Any] = {}

    def define(kind: type) -> dict[str, Any]:
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = json_schema_of_keys(keys_of(kind), define)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    branches = []
    for name, cls in sorted(layer_types.items()):
        one = json_schema_of_keys({**keys_of(LayerSpec), **keys_of(cls)}, define)
        one["description"] = (cls.__doc__ or "").split("\n")[0]
        one["properties"]["type"] = {"const": name}
        definitions[f"layer {name}"] = one
        branches.append(
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": {"$ref": f"#/$defs/layer {name}".replace(" ", "%20")},
            }
        )
    layer = {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"type": {"enum": sorted(layer_types), "description": "the layer's class"}},
        "allOf": branches,
    }
    root = json_schema_of_keys(keys_of(NetSpec), define)
    root["properties"]["layers"] = {
        "type": "array",
        "items": {"$ref": "#/$defs/layer"},
        "minItems": 1,
    }
    root["properties"]["solver"] = define(SolverSpec)
    root["properties"]["test_nets"] = {"type": "array", "items": {"$ref": "#/$defs/test%20net"}}
    root["required"] = ["layers"]
    definitions["layer"] = layer
    own = {k: v for k, v in root["properties"].items() if k not in ("solver", "test_nets")}
    definitions["test net"] = {**root, "properties": own}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "minicaffe model",
        **root,
        "$defs": definitions,
    }
