"""What caffe.proto says: messages, their fields and words. The data is `caffe.schema`, beside this file."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

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

    @property
    def is_message(self) -> bool:
        """Whether its values are messages."""
        return self.words is None and self.type not in PARSERS


@dataclass(frozen=True)
class Schema:
    """The fields of each message by name, where the keys of each type of layer stand, and each
    message's enumerations, those above all messages under the name ""."""

    messages: dict[str, dict[str, Field]]
    layers: dict[str, tuple[str, ...]]
    enums: dict[str, dict[str, dict[str, int]]]

    def keys(self, layer_type: str) -> dict[str, tuple[str, Field]]:
        """The keys of a type of layer: the field of LayerParameter each is in, and its own.

        >>> schema().keys("Concat")["axis"][0]
        'concat_param'
        """
        layer, found = self.messages["LayerParameter"], dict[str, tuple[str, Field]]()
        for param in self.layers.get(layer_type, ()):
            for name, field in self.messages[layer[param].type].items():
                found.setdefault(name, (param, field))
        return found


@functools.cache
def schema() -> Schema:
    """What `caffe.schema` says.

    >>> schema().messages["ConvolutionParameter"]["group"].default
    1
    """
    text = resources.files("minicaffe.caffe").joinpath("caffe.schema").read_text(encoding="utf-8")
    raw: dict[str, list[list[str]]] = {}
    words: dict[str, dict[str, dict[str, int]]] = {"": {}}
    layers: dict[str, tuple[str, ...]] = {}
    message = enum = ""
    for line in text.splitlines():
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


def _field(row: list[str], words: dict[str, dict[str, int]]) -> Field:
    name, number, kind = row[:3]
    stars, kind = kind.count("*"), kind.rstrip("*")
    default = PARSERS.get(kind, str)(row[3]) if len(row) > 3 else None
    return Field(name, int(number), kind, stars > 0, default, words.get(kind), stars > 1)
