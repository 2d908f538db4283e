"""What the declarations say of a layer, as text and as a page: docs/layers.md is made here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minicaffe.spec.declare import Filler, LayerSpec
from minicaffe.spec.types import Key, describe, keys_of

HEAD = """\
# The layers

Made by `minicaffe layers --markdown` from the declarations; `minicaffe layers NAME` shows one of them.
Shapes are written `(n, c, h, w)`, those of several bottoms or tops with commas between them; an example is
`bottoms -> layer -> tops`. Beside its own keys a layer has those that [every layer](#keys-of-every-layer) has.
"""


class Example(NamedTuple):
    """A layer at work: shapes of its bottoms, itself as YAML, shapes of its tops."""

    bottoms: list[tuple[int, ...]]
    layer: str
    tops: list[tuple[int, ...]]


def documentation(cls: type) -> str:
    """What a layer's docstring says, without its example."""
    return re.sub(
        r"\n+Example: .*", "", inspect.cleandoc(cls.__doc__ or "no documentation"), flags=re.S
    )


def example(cls: type) -> Example | None:
    """The example in a layer's docstring, `Example: (2, 3) -> {type: ReLU} -> (2, 3)`."""
    found = re.search(r"Example: (.*?)-> *(\{.*\}) *->(.*)", cls.__doc__ or "", re.S)
    if found is None:
        return None
    bottoms, layer, tops = (" ".join(part.split()) for part in found.groups())
    return Example(_shapes(bottoms), layer, _shapes(tops))


def text(name: str, cls: Any) -> str:
    """All of a layer, as `minicaffe layers NAME` prints it."""
    shown_example = example(cls)
    parts = [name, documentation(cls)]
    if shown_example:
        parts.append(f"example:\n  {_arrows(shown_example)}")
    own = "\n".join(map(key_line, keys_of(cls).values())) or "  none of its own"
    parts += [f"keys:\n{own}"]
    parts += ["keys of every layer:\n" + "\n".join(map(key_line, keys_of(LayerSpec).values()))]
    return "\n\n".join(parts)


def page(layers: Mapping[str, Any]) -> str:
    """The page of all layers, in Markdown."""
    names = sorted(layers, key=str.lower)
    index = [
        f"- [{name}](#{name.lower()}): {documentation(layers[name]).splitlines()[0]}"
        for name in names
    ]
    sections = [HEAD, "\n".join(map(_escaped, index))]
    for name in names:
        cls = layers[name]
        paragraphs = [_paragraph(part) for part in documentation(cls).split("\n\n")]
        sections += [f"## {name}", *paragraphs]
        if shown_example := example(cls):
            sections.append(f"Example:\n\n    {_arrows(shown_example)}")
        if own := keys_of(cls):
            sections.append(_table(own))
    sections += ["## Keys of every layer", _table(keys_of(LayerSpec))]
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def key_line(key: Key) -> str:
    """A key in one line: name, type, default, documentation."""
    return f"  {key.name}: {describe(key.type)} ({_default(key)}). {key.doc}"


def shown(value: Any) -> str:
    """A default as YAML shows it."""
    if value is None or value == ():
        return "not given"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Filler):
        constant = value.type == "constant" and value.value
        return f"{value.type} {value.value:g}" if constant else value.type
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    return str(value) if isinstance(value, (int, float, str)) else "{}"


def _default(key: Key) -> str:
    return "required" if key.required else f"default {shown(key.default)}"


def _table(keys: Mapping[str, Key]) -> str:
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    for key in keys.values():
        default = "required" if key.required else shown(key.default)
        rows.append(_escaped(f"| `{key.name}` | {describe(key.type)} | {default} | {key.doc} |"))
    return "\n".join(rows)


def _paragraph(part: str) -> str:
    """A paragraph of a docstring; what is drawn in columns, or indented, stays as it stands."""
    if any(line.startswith("  ") or re.search(r"\S {3,}\S", line) for line in part.splitlines()):
        return "\n".join(f"    {line}".rstrip() for line in part.splitlines())
    return _escaped(part)


def _escaped(line: str) -> str:
    """Letters that Markdown would take for its own, outside of `code`."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<>])", r"\\\1", part) for part in parts
    )


def _arrows(shown_example: Example) -> str:
    bottoms, tops = (
        ", ".join(map(str, part)) for part in (shown_example.bottoms, shown_example.tops)
    )
    return " -> ".join(part for part in (bottoms, shown_example.layer, tops or "nothing") if part)


def _shapes(words: str) -> list[tuple[int, ...]]:
    """`(2, 3), (2,), ()` as tuples."""
    found = re.findall(r"\(([0-9, ]*)\)", words)
    return [tuple(int(n) for n in part.replace(",", " ").split()) for part in found]
