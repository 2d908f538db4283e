"""Specs as trees again, without defaults, and as YAML that one would write by hand, comments kept."""

import bisect
import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from minicaffe.core.config.declare import LayerSpec, NetSpec, SolverSpec, State
from minicaffe.core.config.tree import PLAIN, Comment, Mark, Node
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers.base import bottom_counts

STATES = 64  # the most combinations of phase, level and stages that are looked at


def plain(value: Any, mark: Mark) -> Node:
    """A value of a declaration: its keys that are not the default, the word alone where that is all.

    >>> from minicaffe.core.config.declare import Filler
    >>> plain(Filler(type="msra"), Mark("x")).value
    'msra'
    """
    if isinstance(value, Node):  # of a type that is not known
        return value
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        keys = {name: plain(item, mark) for name, item in _chosen(kind, vars(value)).items()}
        word = getattr(value, "word", None)
        if word is not None and list(keys) == [word]:
            return keys[word]
        return Node(keys, mark, dict.fromkeys(keys, mark))
    if isinstance(value, tuple):
        items = [plain(item, mark) for item in value]
        return items[0] if len(items) == 1 else Node(items, mark)
    return Node(value, mark)


def _chosen(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the keys of a type those whose values are not the default, in the type's order."""
    return {
        name: values[name]
        for name, key in keys_of(kind).items()
        if key.required or values[name] != key.default
    }


def layer_options(layer: LayerSpec, layer_types: Mapping[str, type]) -> dict[str, Any]:
    """Every key of a layer's own type and its value, defaults included."""
    declared = keys_of(layer_types[layer.type])
    return {name: layer.options.get(name, key.default) for name, key in declared.items()}


def place(layer: LayerSpec, key: str) -> Mark:
    """Where a key of a layer was given."""
    node = layer.nodes.get(key)
    return layer.mark if node is None else node.mark


def layer_node(layer: LayerSpec, ends: Mapping[str, Any], layer_types: Mapping[str, type]) -> Node:
    """A layer, with the bottom and top of `ends`, in the order in which its keys were given."""
    common = {"name": layer.name, "type": layer.type, **ends}
    for name, key in keys_of(LayerSpec).items():
        if name not in ("name", "type", "bottom", "top") and getattr(layer, name) != key.default:
            common[name] = getattr(layer, name)
    kind = layer_types[layer.type]
    own = _chosen(kind, layer_options(layer, layer_types))
    unsaid = "shuffle" in own and keys_of(kind)["shuffle"].default is None  # the phase decides
    if unsaid and own["shuffle"] == shuffled(layer):
        own.pop("shuffle")
    nodes = {name: plain(value, place(layer, name)) for name, value in {**common, **own}.items()}
    first = ("name", "type", *ends)
    rest = in_order({name: node for name, node in nodes.items() if name not in first}, layer.mark)
    ordered = {name: nodes[name] for name in first} | rest
    return Node(ordered, layer.mark, {name: node.mark for name, node in ordered.items()})


def in_order(nodes: Mapping[str, Node], start: Mark | None = None) -> dict[str, Node]:
    """Nodes by where they stood, if all are of one file that has lines; those at `start` come last."""
    marks = {name: node.mark for name, node in nodes.items()}
    if len({mark.file for mark in marks.values()}) != 1 or not all(m.line for m in marks.values()):
        return dict(nodes)
    order = {name: (mark == start, mark.line, mark.column) for name, mark in marks.items()}
    return {name: nodes[name] for name in sorted(nodes, key=order.__getitem__)}


def given_nodes(spec: NetSpec | SolverSpec) -> dict[str, Node]:
    """A net's or a solver's own keys that are not the default."""
    start = spec.layers[0].mark if isinstance(spec, NetSpec) else spec.mark
    kind: Any = type(spec)
    return {
        name: plain(value, spec.nodes[name].mark if name in spec.nodes else start)
        for name, value in _chosen(kind, vars(spec)).items()
    }


def first_mark(nodes: Mapping[str, Node], start: Mark) -> Mark:
    """The mark that stands first in a file, of these and another."""
    marks = [node.mark for node in nodes.values() if node.mark.file == start.file]
    return min(marks or [start], key=lambda mark: (mark.line, mark.column))


def shuffled(layer: LayerSpec) -> bool | None:
    """What a layer's `shuffle: null` means: of TRAIN, but not of an LMDB; None if of both phases."""
    if layer.options.get("backend") == "LMDB":
        return False
    phases = {rule.phase for rule in layer.include}
    return None if len(phases) != 1 or None in phases else phases == {"TRAIN"}


def states(net: NetSpec) -> list[State]:
    """The states that a net's rules tell apart, or many of them."""
    rules = [rule for layer in net.layers for rule in (*layer.include, *layer.exclude)]
    levels = {0}
    for rule in rules:
        for level in (rule.min_level, rule.max_level):
            levels |= set() if level is None else {level - 1, level, level + 1}
    stages = sorted({stage for rule in rules for stage in (*rule.stage, *rule.not_stage)})
    chosen = [set(s) for n in range(len(stages) + 1) for s in itertools.combinations(stages[:8], n)]
    combinations = (
        State(phase=phase, level=level, stage=tuple(sorted(some)))
        for some in [*chosen, set(stages)]
        for level in sorted(levels)
        for phase in ("TRAIN", "TEST")
    )
    return list(itertools.islice(combinations, STATES))


def implied_bottoms(net: NetSpec, layer_types: Mapping[str, type]) -> list[set[tuple[str, ...]]]:
    """For each layer what it reads if it does not say so: what the layer above writes, in each state."""
    takes = {k: bottom_counts(layer_types[k])[1] > 0 for k in {one.type for one in net.layers}}
    implied: list[set[tuple[str, ...]]] = [set() for _ in net.layers]
    for state in states(net):
        above: tuple[str, ...] = ()
        for layer, bottoms in zip(net.layers, implied, strict=True):
            if layer.included(state):
                bottoms.add(above[:1] if takes[layer.type] else ())
                above = layer.tops
    return implied


WIDTH = 88


class Pen:
    """Writes lines; before each, the comments that stood before what it says."""

    def __init__(self, comments: Mapping[str, Sequence[Comment]]):
        self.lines: list[str] = []
        self.places = {file: [(c.line, c.column) for c in some] for file, some in comments.items()}
        self.waiting = {file: list(reversed(some)) for file, some in comments.items()}
        self.fresh = False  # whether the last line may take a comment behind it

    def line(self, text: str, mark: Mark, indent: int) -> None:
        """Write a line that says what stood at a mark."""
        self.comments(mark, indent)
        self.lines.append(" " * indent + text)
        self.fresh = True

    def dash(self, start: int, indent: int) -> None:
        """Make the lines from number `start` on an item of a list, whose comments stand before its dash."""
        numbers = range(start, len(self.lines))
        first = next(i for i in numbers if self.lines[i].strip()[:1] not in ("", "#"))
        self.lines[first] = f"{' ' * indent}- {self.lines[first].lstrip()}"

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
    marks = map(last_mark, inside if isinstance(node.value, (dict, list)) else ())
    return max([node.mark.outermost, *marks], key=lambda mark: (mark.line, mark.column))


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
        pen.dash(at, indent + 2)


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
                pen.dash(at, indent)


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
    return str(value) if BARE.fullmatch(value) and not own else quoted(value)


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
        by_code = f"\\U{ord(letter):08x}" if letter > "\uffff" else f"\\u{ord(letter):04x}"
        letters.append(ESCAPES.get(letter, letter if letter.isprintable() else by_code))
    return f'"{"".join(letters)}"'


def comments_of(text: str) -> list[Comment]:
    """The comments of a YAML text that can be read.

    >>> comments_of("a: '#'  # one")[0].text
    'one'
    """
    comments, last, at = list[Comment](), 0, 0
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for token in yaml.scan(text, yaml.SafeLoader):
        for match in re.finditer(r"#([^\r\n\x85\u2028\u2029]*)", text[at : token.start_mark.index]):
            where = at + match.start()
            line = bisect.bisect_right(starts, where)
            words = "".join(c for c in match[1].strip() if c.isprintable())
            comments.append(Comment(line, where - starts[line - 1] + 1, words, last != line))
        at = max(at, token.start_mark.index)
        if token.end_mark.index > token.start_mark.index:
            at, last = token.end_mark.index, token.end_mark.line + 1
            if token.end_mark.column == 0:  # a block of text ends before the next line
                last -= 1
    return comments
