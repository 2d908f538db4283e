"""Layers of types that nobody has registered: a net that has some can be converted, not run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from minicaffe.errors import ShapeError, did_you_mean
from minicaffe.layers.base import Layer
from minicaffe.layers.blob import Shape
from minicaffe.spec.declare import LayerSpec
from minicaffe.spec.tree import Node
from minicaffe.spec.types import keys_of

_log = logging.getLogger("minicaffe")


class Unknown(Layer):
    """A layer of an unknown type: its keys are what the file has, as they are."""

    def setup(self, *bottoms: Shape) -> list[Shape]:
        """Raise ShapeError: what it writes is not known."""
        raise ShapeError(f"the type {type(self).__name__} is not known: --import FILE registers it")


def with_unknown(root: Node, layer_types: Mapping[str, type]) -> dict[str, type]:
    """The types of layers, and one of those in a model's tree that are not among them; a warning of each."""
    keys: dict[str, dict[str, Any]] = {}
    for layer in _layers(root):
        kind = layer.value["type"].value if "type" in layer.value else None
        if isinstance(kind, str) and kind.isidentifier() and kind not in layer_types:
            if kind not in keys:
                mark, hint = layer.value["type"].mark, did_you_mean(kind, layer_types)
                _log.warning("%s: the type %s is not known: kept as it is%s", mark, kind, hint)
            own = layer.value.keys() - keys_of(LayerSpec).keys()
            keys.setdefault(kind, {}).update(dict.fromkeys(own, Annotated[Node | None, "as it is"]))
    return {**layer_types, **{kind: _made(kind, own) for kind, own in keys.items()}}


def _made(kind: str, keys: Mapping[str, Any]) -> type:
    """The class of an unknown type, of keys that may hold anything."""
    cls = type(kind, (Unknown,), {"__annotations__": dict(keys), **dict.fromkeys(keys)})
    return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)


def _layers(root: Node) -> Iterator[Node]:
    """The layers of a model's tree, and of its nets to test with."""
    fields = root.value if isinstance(root.value, dict) else {}
    layers = fields["layers"].value if "layers" in fields else []
    yield from (layer for layer in layers if isinstance(layer.value, dict))
    for net in fields["test_nets"].value if "test_nets" in fields else []:
        yield from _layers(net)
