"""YAML text to a tree of values that remember where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from minicaffe.errors import SpecError

MAX_NODES = 100_000


@dataclass(frozen=True)
class Mark:
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Node:
    """A YAML value and its place: a scalar, a list of nodes, or a mapping of names to nodes."""

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's plain words: `1e-4` is a number, `no` and `on` are words."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
]:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def read(path: str | Path) -> Node:
    """The tree of a YAML file. Raises SpecError (place and reason) for what is not plain YAML."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    return parse(text, str(path))


def parse(text: str, file: str = "<text>") -> Node:
    """The tree of a YAML text.

    >>> tree = parse("lr: 1e-4")
    >>> tree.value["lr"].value, str(tree.value["lr"].mark)
    (0.0001, '<text>:1:5')
    """
    try:
        root = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        where = Mark(file, place.line + 1, place.column + 1) if place else file
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(f"{where}: {what}".replace("\n", " ")) from None
    except yaml.YAMLError as error:
        raise SpecError(f"{file}: {error}".replace("\n", " ")) from None
    except RecursionError:
        raise SpecError(f"{file}: nested too deeply") from None
    if root is None:
        raise SpecError(f"{file}: is empty; expected a mapping with 'name' and 'layers'")
    return _Builder(file).build(root, ())


class _Builder:
    def __init__(self, file: str):
        self.file = file
        self.count = 0

    def build(self, node: yaml.Node, above: tuple[int, ...]) -> Node:
        mark = self.mark(node)
        self.count += 1
        if self.count > MAX_NODES:
            raise SpecError(f"{mark}: more than {MAX_NODES} values (aliases included)")
        if id(node) in above:
            raise SpecError(f"{mark}: an alias refers to what contains it")
        if len(above) > 100:
            raise SpecError(f"{mark}: nested too deeply")
        above = (*above, id(node))
        if isinstance(node, yaml.ScalarNode):
            return Node(self.scalar(node, mark), mark)
        if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise SpecError(f"{mark}: unknown tag {node.tag!r}")
        if isinstance(node, yaml.SequenceNode):
            return Node([self.build(item, above) for item in node.value], mark)
        return self.mapping(node, mark, above)

    def mapping(self, node: yaml.MappingNode, mark: Mark, above: tuple[int, ...]) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        for key, value in node.value:
            place = self.mark(key)
            name = self.scalar(key, place) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                raise SpecError(f"{place}: expected a key that is a word, got {shown(name)}")
            if name in keys:
                raise SpecError(f"{place}: duplicate key {name!r}, first given at line {keys[name].line}")
            values[name] = self.build(value, above)
            keys[name] = place
        return Node(values, mark, keys)

    def scalar(self, node: yaml.ScalarNode, mark: Mark) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text = node.value
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return int(text, 16) if text.startswith("0x") else int(text)
            if kind == "float":
                return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
        except ValueError:
            raise SpecError(f"{mark}: {shown(text)} is not a number that can be read") from None
        raise SpecError(f"{mark}: unknown tag {node.tag!r}")

    def mark(self, node: yaml.Node) -> Mark:
        return Mark(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def shown(value: Any) -> str:
    """A value as an error message shows it, in one line and not too long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    try:
        text = repr(value)
    except ValueError:
        return "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."
