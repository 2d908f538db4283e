"""A model as YAML that one would write by hand, comments kept; and the comments of a YAML text."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.tree import PLAIN, Comment, Mark, Node
from minicaffe.core.net.sparse import first_mark, given_nodes, implied_bottoms, in_order, layer_node

WIDTH = 88


class Pen:
    """Writes lines; before each, the comments that stood before what it says."""

    def __init__(self, comments: Mapping[str, Sequence[Comment]]):
        self.lines: list[str] = []
        self.places = {
            file: [(one.line, one.column) for one in some] for file, some in comments.items()
        }
        self.waiting = {file: list(reversed(some)) for file, some in comments.items()}
        self.fresh = False  # whether the last line may take a comment behind it

    def line(self, text: str, mark: Mark, indent: int) -> None:
        """Write a line that says what stood at a mark."""
        self.comments(mark, indent)
        self.lines.append(" " * indent + text)
        self.fresh = True

    def blank(self, mark: Mark) -> None:
        """Write an empty line, if none is there, before what says what stood at a mark."""
        mark = mark.outermost
        waiting = self.waiting.get(mark.file, [])
        if self.fresh and waiting and not waiting[-1].alone and waiting[-1].line < mark.line:
            self.comment(waiting.pop(), 0)
        if self.lines and self.lines[-1]:
            self.lines.append("")
            self.fresh = False

    def comments(self, mark: Mark, indent: int) -> None:
        """Write the comments that stood before a mark."""
        mark = mark.outermost
        waiting = self.waiting.get(mark.file, [])
        while waiting and (waiting[-1].line, waiting[-1].column) < (mark.line, mark.column):
            self.comment(waiting.pop(), indent)

    def comment(self, comment: Comment, indent: int) -> None:
        """Write a comment: behind the last line where it stood so, else on one of its own."""
        text = f"# {comment.text}".rstrip()
        if not comment.alone and self.fresh:
            self.lines[-1] += f"  {text}"
        else:
            self.lines.append(" " * indent + text)
        self.fresh = False

    def text(self) -> str:
        """All that was written, and what comments are left."""
        for waiting in self.waiting.values():
            while waiting:
                self.comment(waiting.pop(), 0)
        return "\n".join([*self.lines, ""])

    def has_comments_in(self, node: Node) -> bool:
        """Whether a comment stands among the values of a node."""
        first, last = node.mark.outermost, last_mark(node)
        places = self.places.get(first.file, [])
        at = bisect.bisect_left(places, (first.line, first.column))
        return at < len(places) and places[at] < (last.line, last.column)


def last_mark(node: Node) -> Mark:
    """The mark of the value that stands last."""
    inside = node.value.values() if isinstance(node.value, dict) else node.value
    marks = [node.mark.outermost]
    if isinstance(node.value, (dict, list)):
        marks += [last_mark(one) for one in inside]
    return max(marks, key=lambda mark: (mark.line, mark.column))


BARE = re.compile(r"[A-Za-z_/][\w./+-]*( [A-Za-z_/][\w./+-]*)*", re.ASCII)
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(
    spec: NetSpec, layer_types: Mapping[str, type], comments: Mapping[str, Sequence[Comment]] = {}
) -> str:
    """A model as YAML, what it need not say left out."""
    pen = Pen(comments)
    _net(pen, spec, layer_types, 0)
    return pen.text()


def _net(pen: Pen, spec: NetSpec, layer_types: Mapping[str, type], indent: int) -> None:
    own, start = given_nodes(spec), spec.layers[0].mark.outermost
    for key, node in own.items():
        pen.line(f"{key}: {flow(node)}", node.mark, indent)
    parts = [("layers", start)]
    solver = given_nodes(spec.solver) if spec.solver is not None else {}
    if spec.solver is not None:
        parts.append(("solver", first_mark(solver, spec.solver.mark)))
    if len({mark.file for _, mark in parts}) == 1:
        parts.sort(key=lambda part: part[1].line)
    for part, mark in parts:
        pen.blank(mark)
        if not pen.lines:  # what stands at the head of a file is about all of it
            pen.comments(Mark(mark.file, mark.line, 1), indent)
        pen.line(f"{part}:", Mark(""), indent)
        if part == "solver":
            for key, node in in_order(solver, getattr(spec.solver, "mark", None)).items():
                _entry(pen, key, node, indent + 2)
        else:
            _layers(pen, spec, layer_types, indent + 2)
    for number, net in enumerate(spec.test_nets):
        pen.blank(Mark(""))
        if not number:
            pen.line("test_nets:", Mark(""), indent)
        at = len(pen.lines)
        _net(pen, net, layer_types, indent + 4)
        first = next(
            i for i in range(at, len(pen.lines)) if pen.lines[i].strip()[:1] not in ("", "#")
        )
        pen.lines[first] = f"{' ' * (indent + 2)}- {pen.lines[first].lstrip()}"


def _layers(pen: Pen, spec: NetSpec, layer_types: Mapping[str, type], indent: int) -> None:
    for layer, implied in zip(spec.layers, implied_bottoms(spec, layer_types), strict=True):
        ends: dict[str, Any] = {}
        if layer.bottom is not None and implied != {layer.bottom}:
            ends["bottom"] = layer.bottom
        layer_type: Any = layer_types[layer.type]
        if layer.tops != ((layer.name,) if layer_type.traits.has_tops else ()):
            ends["top"] = layer.tops
        node = layer_node(layer, ends, layer_types)
        text = f"- {flow(node)}"
        if len(text) + indent <= WIDTH and not pen.has_comments_in(node):
            pen.line(text, node.mark, indent)
            continue
        pen.comments(next(iter(node.value.values())).mark, indent)
        for number, (key, value) in enumerate(node.value.items()):
            at = len(pen.lines)
            _entry(pen, key, value, indent + 2)
            if not number:
                first = next(i for i in range(at, len(pen.lines)) if f"{key}:" in pen.lines[i])
                pen.lines[first] = f"{' ' * indent}- {pen.lines[first].lstrip()}"


def _entry(pen: Pen, key: str, node: Node, indent: int) -> None:
    """`key: value`, in one line if that is not too long."""
    text = f"{scalar(key)}: {flow(node)}"
    if len(text) + indent <= WIDTH or not isinstance(node.value, (dict, list)) or not node.value:
        pen.line(text, node.mark, indent)
        return
    pen.line(f"{scalar(key)}:", node.mark, indent)
    if isinstance(node.value, dict):
        for name, item in node.value.items():
            _entry(pen, name, item, indent + 2)
        return
    for item in node.value:
        pen.line(f"- {flow(item)}", item.mark, indent + 2)


def flow(node: Node) -> str:
    """A value in one line.

    >>> flow(Node({"a": Node([Node(1, Mark("")), Node("b c", Mark(""))], Mark(""))}, Mark("")))
    '{a: [1, b c]}'
    """
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{scalar(k)}: {flow(v)}" for k, v in node.value.items()) + "}"
    if isinstance(node.value, list):
        return "[" + ", ".join(flow(item) for item in node.value) + "]"
    return scalar(node.value)


def scalar(value: Any) -> str:
    """A value that is no list or mapping."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value).replace("inf", ".inf").replace("nan", ".nan")
    if isinstance(value, int):
        return str(value)
    own = any(pattern.fullmatch(value) for pattern, _ in PLAIN.values())
    if BARE.fullmatch(value) and not own:
        return str(value)
    return quoted(value)


def number(value: float) -> str:
    """A number as short as it can be told apart.

    >>> number(1.0), number(0.00390625), number(1e-05)
    ('1', '0.00390625', '1e-05')
    """
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def quoted(text: str) -> str:
    """A text in double quotes, as YAML reads them."""
    letters = []
    for letter in text:
        if letter in ESCAPES:
            letters.append(ESCAPES[letter])
        elif letter.isprintable():
            letters.append(letter)
        else:
            code = ord(letter)
            letters.append(f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}")
    return f'"{"".join(letters)}"'


def comments_of(text: str) -> list[Comment]:
    """The comments of a YAML text that can be read.

    >>> comments_of("a: '#'  # one")[0].text
    'one'
    """
    found, last, at = [], 0, 0
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for token in yaml.scan(text, yaml.SafeLoader):
        gap = text[at : token.start_mark.index]
        for match in re.finditer(r"#([^\r\n\x85\u2028\u2029]*)", gap):
            where = at + match.start()
            line = bisect.bisect_right(starts, where)
            words = "".join(c for c in match[1].strip() if c.isprintable())
            found.append(Comment(line, where - starts[line - 1] + 1, words, last != line))
        at = max(at, token.start_mark.index)
        if token.end_mark.index > token.start_mark.index:
            at, last = token.end_mark.index, token.end_mark.line + 1
            if token.end_mark.column == 0:  # a block of text ends before the next line
                last -= 1
    return found
