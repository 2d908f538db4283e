"""YAML text, or what Python holds, to a tree of values that remember where they stand."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from minicaffe.errors import SpecError, printable
from minicaffe.storage.file_kinds import foreign, reading, recognised

MISTAKES = (  # what PyYAML says, and what that means; {begin} is where the part that it was reading begins
    (
        r"mapping values are not allowed here",
        "a ':' is not expected here; put a space behind that of each key, indent the keys of one mapping"
        " alike, and quote text that holds ': '",
    ),
    (
        r"sequence entries are not allowed here",
        "a '-' is not expected here; begin each entry of a list on a line of its own, indented alike",
    ),
    (r"could not find expected ':'", "expected 'key: value' in the line at {begin}"),
    (r"expected <block end>, but found '([]}])'", "'{0}' closes no bracket that is open"),
    (
        r"expected <block end>, but found (.+)",
        "expected a key or entry indented as the one at {begin}, found {0}",
    ),
    (
        r"expected ',' or '(.)', but got (.+)",
        "expected ',' or '{0}' in what the bracket at {begin} opens, found {1}",
    ),
    (r"expected the node content, but found (.+)", "expected a value, found {0}"),
    (r"found character '\\t' that .*", "a tab is not allowed here; indent with spaces"),
    (r"found character '(.+)' that .*", "text that begins with {0} needs quotes"),
    (
        r"expected alphabetic or numeric character, but found .*",
        "expected a name behind '*' or '&'; text that begins so needs quotes",
    ),
    (
        r"expected chomping or indentation indicators, but found .*",
        "expected a new line behind '|' or '>'; text that begins so needs quotes",
    ),
    (r"found unexpected end of stream", "the quote at {begin} is not closed"),
    (
        r"found unknown escape character '(.+)'",
        "{0} behind a backslash means nothing in double quotes; use single quotes",
    ),
    (r"found undefined alias '?([^']+)'?", "*{0} refers to an anchor &{0}, which is not above it"),
    (r"second occurrence", "two anchors have one name; the first is at {begin}"),
    (
        r"but found another document",
        "expected one model in a file, found a second one behind '---'",
    ),
    (
        r"found incompatible YAML document.*",
        "expected YAML 1.x, found a directive of another version",
    ),
)
FOUND = {
    "'<stream end>'": "the end of the text",
    "'<document start>'": "'---'",
    "'<block end>'": "the end of the block",
    "'<block sequence start>'": "an entry of a list that is indented in another way",
    "'<block mapping start>'": "a key that is indented in another way",
    "'<block entry>'": "an entry of a list",
    "'<scalar>'": "text",
    "'?'": "a key",
}


def in_words(error: yaml.MarkedYAMLError) -> str:
    """What a mistake is, without its place."""
    problem, begin = str(error.problem or "").strip(), error.context_mark or error.problem_mark
    for pattern, meaning in MISTAKES:
        if match := re.fullmatch(pattern, problem):
            where = f"{begin.line + 1}:{begin.column + 1}" if begin is not None else "?"
            return meaning.format(*[FOUND.get(word, word) for word in match.groups()], begin=where)
    return ", ".join(part.lstrip(", ") for part in (error.context, error.problem) if part)


@dataclass(frozen=True)
class Mark:
    """A place in a file, by line and column from 1; in what has no lines, by the path of keys to it.

    What stands in a block has a second place, `used`: where the block, or its argument, is given.

    >>> str(Mark("net.yaml", 7, 5)), str(Mark("<mapping>", path="layers[2].name"))
    ('net.yaml:7:5', '<mapping>:layers[2].name')
    >>> str(Mark("net.yaml", 7, 5, used=Mark("net.yaml", 40, 3)))
    'net.yaml:7:5: in a block used at net.yaml:40:3'
    """

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    used: Mark | None = None

    @property
    def within(self) -> str:
        """The place as a message says it that has named the file before."""
        place = f"line {self.line}" if self.line else self.path or self.file
        return f"{place}, in a block used at {self.used.within}" if self.used else place

    @property
    def outermost(self) -> Mark:
        """The place that stands in no block: of what does, where that is used."""
        return self.used.outermost if self.used else self

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}" if self.line else self.path
        place = f"{self.file}:{place}" if place else self.file
        return f"{place}: in a block used at {self.used}" if self.used else place


@dataclass(frozen=True)
class Comment:
    """A comment without its `#`, and where it stood: alone on its line or behind something."""

    line: int
    column: int
    text: str
    alone: bool


@dataclass(frozen=True)
class Node:
    """A YAML value and its place: a scalar, a list of nodes, or a mapping of names to nodes."""

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)


MAX_NODES = 100_000  # that aliases repeat
MAX_VALUES = 1_000_000  # some 700 MiB
MAX_BYTES = 4 << 20
MAX_DEPTH = 100


# YAML 1.2's plain words: `1e-4` is a number, `010` is ten, `no` and `on` are text. The second of
# each pair are the letters it may begin with.
PLAIN = {
    "null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    "int": (re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+"), list("-+0123456789")),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        list("-+.0123456789"),
    ),
    "merge": (re.compile("<<"), ["<"]),
}
TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """SafeLoader that knows the plain words of PLAIN and no others."""


_Loader.yaml_implicit_resolvers = {}
for _kind, (_pattern, _first) in PLAIN.items():
    _Loader.add_implicit_resolver(TAG + _kind, re.compile(f"(?:{_pattern.pattern})$"), _first)


def load(path: str | Path, kind: str = "model file", own: bool = False) -> tuple[str, str]:
    """A file's name, and its text. SpecError if unreadable, too large, not UTF-8 or, unless `own`, foreign."""
    file = printable(path)
    with reading(path, kind, SpecError), open(path, "rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    refusal = foreign(file, "models in .yaml and .prototxt")
    if refusal and not own:
        raise SpecError(refusal)
    if len(data) > MAX_BYTES:
        raise SpecError(f"{file}: is larger than {MAX_BYTES >> 20} MiB; no {kind} is")
    if wrong := recognised(data, "text"):
        raise SpecError(f"{file}: is no {kind}: it is {wrong}")
    try:
        return file, data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if refusal and not file.lower().endswith(".prototxt"):
            raise SpecError(refusal) from None
        before = data[: error.start].decode("utf-8-sig")
        where = _at_index(file, before, len(before))
        raise SpecError(f"{where}: is not UTF-8 text (byte {error.start})") from None


def parse(text: str, file: str = "<text>") -> Node:
    """The tree of a YAML text, of nothing for an empty one.

    >>> tree = parse("lr: 1e-4")
    >>> tree.value["lr"].value, str(tree.value["lr"].mark)
    (0.0001, '<text>:1:5')
    """
    if not isinstance(text, str):
        remedy = "`read` takes a path"
        raise SpecError(f"expected a YAML text or a mapping, got {shown(text)}; {remedy}")
    text = text.removeprefix("\ufeff")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        where = _at_index(file, text, error.position)
        raise SpecError(f"{where}: the character U+{error.character:04X} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SpecError(f"{_mark(file, mark)}: {in_words(error)}") from None
    except RecursionError:
        raise SpecError(f"{_mark(file, loader.get_mark())}: nested too deeply") from None
    except (ValueError, OverflowError):  # PyYAML lets these out for "\UFFFFFFFF" and %YAML 1.999...
        raise SpecError(f"{_mark(file, loader.get_mark())}: the number is too large") from None
    return Node(None, Mark(file, 1, 1)) if root is None else _Builder(file).build(root, ())


def _mark(file: str, mark: Any) -> Mark:
    return Mark(file, mark.line + 1, mark.column + 1)


def _at_index(file: str, text: str, index: int) -> Mark:
    return Mark(file, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


class _Builder:
    def __init__(self, file: str):
        self.file = file
        self.count, self.seen = 0, set[int]()

    def build(self, node: yaml.Node, above: tuple[int, ...]) -> Node:
        mark = _mark(self.file, node.start_mark)
        self.count += id(node) in self.seen
        self.seen.add(id(node))
        if self.count > MAX_NODES:
            raise SpecError(f"{mark}: aliases repeat more than {MAX_NODES} values")
        if id(node) in above:
            raise SpecError(f"{mark}: an alias refers to what contains it")
        if len(above) > MAX_DEPTH:
            raise SpecError(f"{mark}: nested too deeply")
        above = (*above, id(node))
        if isinstance(node, yaml.ScalarNode):
            return Node(self.scalar(node, mark), mark)
        if node.tag != TAG + ("seq" if isinstance(node, yaml.SequenceNode) else "map"):
            raise SpecError(f"{mark}: the tag {shown(node.tag)} is not allowed here")
        if isinstance(node, yaml.SequenceNode):
            return Node([self.build(item, above) for item in node.value], mark)
        return self.mapping(node, mark, above)

    def mapping(self, node: yaml.Node, mark: Mark, above: tuple[int, ...]) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        merged: list[Node] = []
        for key, value in node.value:
            place = _mark(self.file, key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(f"{place}: expected a key that is a word, got a {key.id}")
            name = self.scalar(key, place)
            if not isinstance(name, str):
                raise SpecError(f"{place}: expected a key that is a word, got {shown(name)}")
            if name in keys:
                first = keys[name].within
                raise SpecError(f"{place}: duplicate key {shown(name)}, first given at {first}")
            keys[name] = place
            if key.tag == f"{TAG}merge":
                merged = self.merged(value, above)
            else:
                values[name] = self.build(value, above)
        for other in merged:
            for name in other.value:  # what is there already holds
                values.setdefault(name, other.value[name])
                keys.setdefault(name, other.keys[name])
        return Node(values, mark, {name: keys[name] for name in values})

    def merged(self, node: yaml.Node, above: tuple[int, ...]) -> list[Node]:
        """The mappings after a merge key `<<`: the keys of the first that has them fill gaps."""
        value = self.build(node, above)
        mappings = value.value if isinstance(value.value, list) else [value]
        for one in mappings:
            if not isinstance(one.value, dict):
                got = shown(one.value)
                raise SpecError(f"{one.mark}: <<: expected a mapping or a list of them, got {got}")
        return mappings

    def scalar(self, node: yaml.ScalarNode, mark: Mark) -> Any:
        kind, text = node.tag.removeprefix(TAG), node.value
        if kind == "str":
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise SpecError(f"{mark}: {shown(text)} holds half a character (a surrogate)")
            return text
        if kind not in PLAIN:
            raise SpecError(f"{mark}: the tag {shown(node.tag)} is not allowed here")
        if not PLAIN[kind][0].fullmatch(text):
            raise SpecError(f"{mark}: {shown(text)} is not of the type that its tag names")
        try:
            if kind == "int":
                return int(text, 16) if text.startswith("0x") else int(text)
        except ValueError:  # Python refuses to convert thousands of digits
            raise SpecError(f"{mark}: {shown(text)} is too long a number") from None
        if kind == "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))
        if kind == "merge":
            return text
        return text.lower() == "true" if kind == "bool" else None


def shown(value: Any) -> str:
    """A value as an error message shows it, in one line and not too long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a very long number"
    text = repr(value if not isinstance(value, str) else value[:60])
    return text if len(text) <= 60 else text[:57] + "..."


def from_mapping(value: Any, file: str = "<mapping>") -> Node:
    """The tree of mappings, lists, texts and numbers, NumPy's too. Raises SpecError for all else.

    >>> found = from_mapping({"layers": [{"name": "x"}]})
    >>> str(found.value["layers"].value[0].keys["name"])
    '<mapping>:layers[0].name'
    """
    count = itertools.count(1)

    def build(value: Any, path: str, depth: int) -> Node:
        mark = Mark(file, path=path)
        if next(count) > MAX_VALUES:
            raise SpecError(f"{mark}: more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise SpecError(f"{mark}: nested too deeply")
        if isinstance(value, Mapping):
            nodes = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise SpecError(f"{mark}: expected a key that is a word, got {shown(key)}")
                word = key if key.isprintable() else shown(key)
                nodes[str(key)] = build(item, f"{path}.{word}" if path else word, depth + 1)
            return Node(nodes, mark, {key: node.mark for key, node in nodes.items()})
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, (list, tuple)):
            items = enumerate(value)
            return Node([build(item, f"{path}[{i}]", depth + 1) for i, item in items], mark)
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if value is not None and type(value) not in (bool, int, float, str):
            problem = f"expected text, a number, a list or a mapping, got {shown(value)}"
            raise SpecError(f"{mark}: {problem}")
        return Node(value, mark)

    return build(value, "", 0)
