"""The types a key may have: one declaration gives the conversion, its errors and the JSON schema.

A key is declared as a dataclass field, `name: Annotated[type, "one line of documentation"] = default`.
The types: bool, int, float, str, Literal words, `X | None`, `tuple[X, ...]` (a single value stands
for a list of one) and frozen dataclasses (mappings; one with a class attribute `word` may be given
as that one field's value).
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from minicaffe.errors import SpecError, did_you_mean
from minicaffe.spec.tree import Node, shown


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """A bound for a number: `Annotated[int, "...", AtLeast(1)]`."""

    minimum: float

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        values = value if isinstance(value, tuple) else (value,)
        bad = [v for v in values if v is not None and v < self.minimum]
        return f"expected at least {self.minimum}, got {bad[0]}" if bad else None


@dataclasses.dataclass(frozen=True)
class Below:
    """An exclusive upper bound for a number."""

    limit: float

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        return f"expected below {self.limit}, got {value}" if value is not None and value >= self.limit else None


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a declaration: name, type, default (dataclasses.MISSING if required), documentation."""

    name: str
    type: Any
    default: Any
    doc: str
    checks: tuple[Any, ...] = ()

    @property
    def required(self) -> bool:
        """Whether the key must be given."""
        return self.default is dataclasses.MISSING


def keys_of(cls: type) -> dict[str, Key]:
    """The keys that a dataclass declares, in order, those of its bases first."""
    hints = get_type_hints(cls, include_extras=True)
    keys = {}
    for item in dataclasses.fields(cls):
        kind, doc, checks = hints[item.name], "", ()
        if get_origin(kind) is Annotated:
            kind, *extras = get_args(kind)
            doc = next((extra for extra in extras if isinstance(extra, str)), "")
            checks = tuple(extra for extra in extras if not isinstance(extra, str))
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        if not item.metadata.get("hidden"):
            keys[item.name] = Key(item.name, kind, default, doc, checks)
    return keys


def convert(node: Node, kind: Any, what: str = "") -> Any:
    """The value of `node` as `kind`; SpecError names the place, `what`, expected and got."""
    origin, value = get_origin(kind), node.value
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (kind,) = [arg for arg in get_args(kind) if arg is not type(None)]
        return convert(node, kind, what)
    if kind is Node:
        return node
    if origin is tuple:
        item = get_args(kind)[0]
        if item is Node and not isinstance(value, list):
            raise _mismatch(node, what, "a list")
        items = value if isinstance(value, list) else [node]
        return tuple(convert(one, item, what) for one in items)
    if origin is Literal:
        words = get_args(kind)
        if value in words and isinstance(value, str):
            return value
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        raise _mismatch(node, what, f"one of {', '.join(words)}", hint)
    if dataclasses.is_dataclass(kind):
        if isinstance(value, str) and hasattr(kind, "word"):
            node = Node({kind.word: node}, node.mark, {kind.word: node.mark})
        return build(node, kind, what)
    if kind is float and type(value) in (int, float):
        if math.isfinite(value) and abs(value) < 1e300:
            return float(value)
        raise _mismatch(node, what, "a finite number")
    if kind in (bool, int, str) and type(value) is kind:
        if kind is int and abs(value) >= 2**63:
            raise _mismatch(node, what, "an integer below 2^63")
        return value
    raise _mismatch(node, what, describe(kind))


def build(node: Node, cls: Any, what: str = "", **given: Any) -> Any:
    """A mapping as the dataclass `cls`; `given` are fields that are no keys."""
    return cls(**values(node, keys_of(cls), what), **given)


def values(node: Node, keys: dict[str, Key], what: str) -> dict[str, Any]:
    """The values that a mapping gives to declared keys: none unknown, none missing."""
    if not isinstance(node.value, dict):
        raise _mismatch(node, what, "a mapping")
    for name in node.value:
        if name not in keys:
            hint = did_you_mean(name, keys)
            raise SpecError(f"{node.keys[name]}: {_prefix(what)}unknown key {name!r}{hint}")
    result = {}
    for name, key in keys.items():
        if name in node.value:
            inside = f"{what}: {name}" if what else name
            result[name] = convert(node.value[name], key.type, inside)
            for check in key.checks:
                problem = check.problem(result[name])
                if problem:
                    raise SpecError(f"{node.value[name].mark}: {inside}: {problem}")
        elif key.required:
            raise SpecError(f"{node.mark}: {_prefix(what)}missing key {name!r} ({key.doc or describe(key.type)})")
    return result


def describe(kind: Any) -> str:
    """A type in words, as an error or the catalogue shows it.

    >>> describe(tuple[int, ...])
    'an integer or a list of them'
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return describe(next(arg for arg in get_args(kind) if arg is not type(None)))
    if origin is tuple:
        return f"{describe(get_args(kind)[0])} or a list of them"
    if origin is Literal:
        return "one of " + ", ".join(get_args(kind))
    if dataclasses.is_dataclass(kind):
        return "a word or a mapping" if hasattr(kind, "word") else "a mapping"
    words = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    return words.get(kind, str(kind))


def json_schema(kind: Any, define: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of a type; `define` gives the reference to a dataclass's own schema."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = json_schema(next(a for a in get_args(kind) if a is not type(None)), define)
        return {"anyOf": [inner, {"type": "null"}]}
    if origin is tuple:
        item = json_schema(get_args(kind)[0], define)
        return {"anyOf": [item, {"type": "array", "items": item}]}
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if dataclasses.is_dataclass(kind):
        reference = define(kind)
        if not hasattr(kind, "word"):
            return reference
        word = keys_of(kind)[kind.word]  # type: ignore[arg-type]
        return {"anyOf": [json_schema(word.type, define), reference]}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[kind]}


def json_schema_of_keys(keys: dict[str, Key], define: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no others."""
    properties = {}
    for key in keys.values():
        schema = json_schema(key.type, define)
        schema["description"] = key.doc or describe(key.type)
        for check in key.checks:
            if isinstance(check, AtLeast) and "type" in schema:
                schema["minimum"] = check.minimum
        properties[key.name] = schema
    required = [key.name for key in keys.values() if key.required]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _prefix(what: str) -> str:
    return f"{what}: " if what else ""


def _mismatch(node: Node, what: str, expected: str, hint: str = "") -> SpecError:
    return SpecError(f"{node.mark}: {_prefix(what)}expected {expected}, got {shown(node.value)}{hint}")
