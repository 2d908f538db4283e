"""What caffe.proto says: messages, their fields and words. The data is `caffe.schema`, beside this file."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args, get_origin

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import keys_of, option
from minicaffe.core.layers import REGISTRY

PARSERS: dict[str, Any] = {
    "bool": lambda text: text == "true",
    "float": float,
    "double": float,
    "string": str,
    "bytes": str,
    **dict.fromkeys(("int32", "int64", "uint32"), int),
}


@dataclass(frozen=True)
class Field:
    """A field of a message: `default` is what Caffe takes where it is not given, None for nothing."""

    name: str
    number: int
    type: str  # of PARSERS, an enumeration of `words`, or a message
    repeated: bool = False
    default: Any = None
    words: dict[str, int] | None = None
    packed: bool = False  # in binary files, one field for all of its values
    message: Any = None  # the declaration of its values, where caffe.proto has none

    @property
    def is_message(self) -> bool:
        """Whether its values are messages."""
        return self.words is None and self.type not in PARSERS

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of its values, which are messages."""
        return schema().messages[self.type] if self.message is None else declared(self.message)


@dataclass(frozen=True)
class Schema:
    """The fields of each message by name, where the keys of each type of layer stand, and each
    message's enumerations, those above all messages under the name ""."""

    messages: dict[str, dict[str, Field]]
    layers: dict[str, tuple[str, ...]]
    enums: dict[str, dict[str, dict[str, int]]]

    def keys(self, layer_type: str) -> dict[str, tuple[str, Field]]:
        """The keys of a type of layer: the field of LayerParameter each is in, and its own."""
        layer, keys = self.messages["LayerParameter"], dict[str, tuple[str, Field]]()
        for param in self.layers.get(layer_type, ()):
            for name, field in self.messages[layer[param].type].items():
                keys.setdefault(name, (param, field))
        return keys


@functools.cache
def schema() -> Schema:
    """What `caffe.schema` says."""
    path = resources.files("minicaffe.interop.caffe").joinpath("caffe.schema")
    raw: dict[str, list[list[str]]] = {}
    words: dict[str, dict[str, dict[str, int]]] = {"": {}}
    layers: dict[str, tuple[str, ...]] = {}
    message = enum = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        first, *rest = line.partition("#")[0].split() or [""]
        if first == "layer" and line.startswith("layer"):
            layers[rest[0]] = tuple(rest[1:])
        elif first in ("message", "more") and line.startswith(first):
            message = rest[0]
            raw.setdefault(message, [])
            words.setdefault(message, {})
        elif first == "enum" or "=" in first:
            named = words[message if line.startswith(" ") else ""]
            enum, *pairs = rest if first == "enum" else [enum, first, *rest]
            split = (pair.split("=") for pair in pairs)
            named[enum] = named.get(enum, {}) | {word: int(number) for word, number in split}
        elif first:
            raw[message] += [part.split() for part in line.split(";") if part.strip()]
    messages = {
        name: {row[0]: _field(row, {**words[""], **words[name]}) for row in rows}
        for name, rows in raw.items()
    }
    return Schema(messages, layers, words)


def is_declared(layer_type: str) -> bool:
    """Whether a type's block is not caffe.proto's: it has none there, or a class of a user has its name."""
    own = REGISTRY.get(layer_type)
    users = own is not None and not own.__module__.startswith("minicaffe.")
    return users or layer_type not in schema().layers


def own_block(layer_type: str) -> str:
    """The block of a type that caffe.proto does not know, as its authors would call it.

    >>> own_block("CenterLoss"), own_block("PSROIPooling"), own_block("L1Loss")
    ('center_loss_param', 'psroi_pooling_param', 'l1_loss_param')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", layer_type)
    return f"{words.lower()}_param"


@functools.cache
def declared(cls: type) -> dict[str, Field]:
    """The keys of a declaration as the fields of a message; those of its messages by `declared`, too."""
    return {name: _declared(name, key.type) for name, key in keys_of(cls).items()}


def _declared(name: str, kind: Any) -> Field:
    kind = option(kind)
    if get_origin(kind) is tuple:
        return dataclasses.replace(_declared(name, get_args(kind)[0]), repeated=True)
    if get_origin(kind) is Literal:
        return Field(name, 0, name, words=dict.fromkeys(get_args(kind), 0))
    if kind is Filler:
        return Field(name, 0, "FillerParameter")
    if dataclasses.is_dataclass(kind):
        return Field(name, 0, "", message=kind)
    return Field(name, 0, {int: "int32", str: "string", bool: "bool"}.get(kind, "float"))


def _field(row: list[str], words: dict[str, dict[str, int]]) -> Field:
    name, number, kind = row[:3]
    stars, kind = kind.count("*"), kind.rstrip("*")
    default = PARSERS.get(kind, str)(row[3]) if len(row) > 3 else None
    return Field(name, int(number), kind, stars > 0, default, words.get(kind), stars > 1)
