"""Messages in protobuf's text format, as Caffe's own files are written."""

from __future__ import annotations

from typing import Any

from minicaffe.core.config.tree import Mark, Node
from minicaffe.core.net.comments import WIDTH, Pen
from minicaffe.core.net.yaml_text import number

LETTERS = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class Word(str):
    """A word of an enumeration: it stands without quotes."""


def write(pen: Pen, message: Node, indent: int) -> None:
    """The fields of a message, a line each or, if they are short, several."""
    for name, node in message.value.items():
        if node.value == []:
            pen.line(f"{name}: []", node.mark, indent)
            continue
        for one in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(one.value, dict):
                pen.line(f"{name}: {scalar(one.value)}", one.mark, indent)
                continue
            text = f"{name} {_inline(one)}"
            short = len(text) + indent <= WIDTH and name not in ("layer", "net_param")
            if short and not _deep(one) and not pen.has_comments_in(one):
                pen.line(text, one.mark, indent)
                continue
            pen.line(f"{name} {{", one.mark, indent)
            write(pen, one, indent + 2)
            pen.line("}", Mark(""), indent)


def _deep(node: Node) -> bool:
    """Whether a message has messages in it that are not short, or many fields."""
    inside = [one for one in node.value.values() if isinstance(one.value, dict)]
    return len(node.value) > 3 or any(_deep(one) for one in inside)


def _inline(node: Node) -> str:
    words = []
    for name, value in node.value.items():
        if value.value == []:
            words.append(f"{name}: []")
        for one in value.value if isinstance(value.value, list) else [value]:
            inner = f" {_inline(one)}" if isinstance(one.value, dict) else f": {scalar(one.value)}"
            words.append(name + inner)
    return "{ " + " ".join(words) + " }" if words else "{}"


def scalar(value: Any) -> str:
    """A value that is no message.

    >>> scalar("a"), scalar(Word("MAX")), scalar(0.5), scalar(True)
    ('"a"', 'MAX', '0.5', 'true')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Word):
        return str.__str__(value)
    if isinstance(value, str):
        return f'"{"".join(_letter(letter) for letter in value)}"'
    return number(value) if isinstance(value, float) else str(value)


def _letter(letter: str) -> str:
    if letter in LETTERS:
        return LETTERS[letter]
    return letter if letter.isprintable() else "".join(f"\\{byte:03o}" for byte in letter.encode())
