"""Protobuf's text format: read as a tree of fields that remember where they stand, with its comments; written.

What a field's value may be, the text alone does not say: see `typed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minicaffe.core.config.tree import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Comment, Mark, Node, shown
from minicaffe.core.net import yaml_text
from minicaffe.core.net.yaml_text import ESCAPES, WIDTH, Pen, number
from minicaffe.errors import SpecError

TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f\v]+)
  | (?P<comment>\#[^\n]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*" | '(?:[^'\\\n]|\\[^\n])*')
  | (?P<sign>[-:{}<>\[\],;])
    """,
    re.VERBOSE,
)
ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([^\\]+)",
    re.DOTALL,
)
LETTERS = {"n": 10, "r": 13, "t": 9, "a": 7, "b": 8, "f": 12, "v": 11}
LETTERS |= {letter: ord(letter) for letter in "\\'\"?"}
CLOSING = {"{": "}", "<": ">", "[": "]"}
OPENING = {closing: opening for opening, closing in CLOSING.items()}
END = "the end of the file"


@dataclass(frozen=True)
class Token:
    """A piece of the text; `kind` is a group of TOKEN, or `end`. Of a value, a string is without quotes."""

    kind: str
    text: str
    mark: Mark

    def __str__(self) -> str:
        return self.text if self.kind == "end" else shown(self.text)


@dataclass(frozen=True)
class Field:
    """A name and one value; a list `[a, b]` is as many fields."""

    name: str
    mark: Mark
    value: Token | Message


@dataclass(frozen=True)
class Message:
    """Fields in their order, and those that were given as an empty list."""

    mark: Mark
    fields: list[Field] = field(default_factory=list)
    empty: dict[str, Mark] = field(default_factory=dict)


def parse(text: str, file: str = "<text>") -> tuple[Message, list[Comment]]:
    """The message that a text holds, and the text's comments. Raises SpecError (place and reason).

    >>> root, comments = parse("layer { top: 'x' }  # the data")
    >>> root.fields[0].value.fields[0].value.text, comments[0].text
    ('x', 'the data')
    """
    if not isinstance(text, str):
        raise SpecError(f"expected the text of a prototxt, got {shown(text)}")
    if len(text) > MAX_BYTES:
        raise SpecError(f"{file}: is larger than {MAX_BYTES >> 20} MiB; no prototxt is")
    parser = _Parser(text.removeprefix("\ufeff"), file)
    return parser.fields(Mark(file, 1, 1), "", 0), parser.comments


class _Parser:
    def __init__(self, text: str, file: str):
        self.file, self.comments, self.count = file, list[Comment](), 0
        self.tokens = self.scan(text)
        self.next = next(self.tokens)

    def scan(self, text: str) -> Iterator[Token]:
        at, line, start, last = 0, 1, 0, 0
        while at < len(text):
            mark = Mark(self.file, line, at - start + 1)
            match = TOKEN.match(text, at)
            if match is None:
                quoted = text[at] in "\"'"
                what = "the text in quotes does not end in its line"
                raise SpecError(
                    f"{mark}: {what if quoted else f'{shown(text[at])} is not understood'}"
                )
            kind, piece, at = str(match.lastgroup), match.group(), match.end()
            if kind == "comment":
                words = "".join(c for c in piece[1:].strip() if c.isprintable() or c == "\t")
                self.comments.append(Comment(line, mark.column, words, last != line))
            elif kind != "space":
                last = line
                yield Token(kind, piece, mark)
                glued = TOKEN.match(text, at)
                if kind == "number" and glued and glued.lastgroup in ("word", "number"):
                    raise SpecError(f"{mark}: {shown(piece + glued.group())} is not a number")
            if "\n" in piece:
                line += piece.count("\n")
                start = at - len(piece) + piece.rfind("\n") + 1
        while True:
            yield Token("end", END, Mark(self.file, line, at - start + 1))

    def take(self) -> Token:
        token, self.next = self.next, next(self.tokens)
        return token

    def taken(self, signs: str) -> Token | None:
        """The next token, if it is one of these signs."""
        ahead = self.next
        return self.take() if ahead.kind == "sign" and ahead.text in signs else None

    def fields(self, mark: Mark, closing: str, depth: int) -> Message:
        """The fields up to the sign `closing`, or to the end of the text."""
        if depth > MAX_DEPTH:
            raise SpecError(f"{mark}: nested too deeply")
        message = Message(mark)
        while True:
            if closing and self.taken(closing):
                return message
            if self.next.kind == "end":
                if closing:
                    raise SpecError(f"{mark}: the {OPENING[closing]!r} here has no {closing!r}")
                return message
            name = self.take()
            if name.kind != "word":
                wanted = f"the name of a field or {closing!r}" if closing else "the name of a field"
                raise SpecError(f"{name.mark}: expected {wanted}, got {name}")
            colon = self.taken(":")
            if (opening := self.taken("[")) is not None:
                self.items(message, name, opening, depth)
            else:
                message.fields.append(Field(name.text, name.mark, self.value(name, colon, depth)))
            self.taken(",;")

    def items(self, message: Message, name: Token, opening: Token, depth: int) -> None:
        """The values of a list: as many fields of its name."""
        if self.taken("]"):
            message.empty[name.text] = name.mark
            return
        while True:
            message.fields.append(Field(name.text, name.mark, self.value(name, opening, depth)))
            if self.taken("]"):
                return
            if not self.taken(","):
                raise SpecError(f"{self.next.mark}: expected ',' or ']', got {self.next}")

    def value(self, name: Token, colon: Token | None, depth: int) -> Token | Message:
        self.count += 1
        if self.count > MAX_VALUES:
            raise SpecError(f"{self.next.mark}: more than {MAX_VALUES} values")
        if (opening := self.taken("{<")) is not None:
            return self.fields(opening.mark, CLOSING[opening.text], depth + 1)
        if colon is None:
            expected = f"expected ':' and a value, or '{{', after {name}"
            raise SpecError(f"{self.next.mark}: {expected}, got {self.next}")
        token = self.take()
        if token.kind == "string":
            return self.string(token)
        minus = token.kind == "sign" and token.text == "-"
        value = self.take() if minus else token
        if value.kind not in ("word", "number"):
            raise SpecError(f"{value.mark}: expected a value of {name}, got {value}")
        return Token(value.kind, "-" * minus + value.text, token.mark)

    def string(self, first: Token) -> Token:
        """One text in quotes, or several that follow each other."""
        parts = [_bytes(first)]
        while self.next.kind == "string":
            parts.append(_bytes(self.take()))
        try:
            return Token("string", b"".join(parts).decode("utf-8"), first.mark)
        except UnicodeDecodeError:
            raise SpecError(f"{first.mark}: the text in quotes is not UTF-8") from None


def _bytes(token: Token) -> bytes:
    """What a text in quotes stands for."""
    text = bytearray()
    for octal, hexa, four, eight, letter, plain in ESCAPE.findall(token.text[1:-1]):
        try:
            if octal or hexa:
                text.append(int(octal, 8) if octal else int(hexa, 16))
            elif four or eight:
                text += chr(int(four or eight, 16)).encode("utf-8")
            else:
                text += bytes([LETTERS[letter]]) if letter else plain.encode("utf-8")
        except (KeyError, ValueError, OverflowError):
            wrong = f"\\{letter}" if letter else token.text
            raise SpecError(f"{token.mark}: the escape {shown(wrong)} is not understood") from None
    return bytes(text)


class Word(str):
    """A word of an enumeration: it stands without quotes."""


def write(pen: Pen, message: Node, indent: int) -> None:
    """The fields of a message, a line each or, if they are short, several."""
    for name, one in _values(message):
        text = _inline(name, one)
        short = len(text) + indent <= WIDTH and not (name in ("layer", "net_param") or _deep(one))
        if not isinstance(one.value, dict) or (short and not pen.has_comments_in(one)):
            pen.line(text, one.mark, indent)
            continue
        pen.line(f"{name} {{", one.mark, indent)
        write(pen, one, indent + 2)
        pen.line("}", Mark(""), indent)


def _values(message: Node) -> Iterator[tuple[str, Node]]:
    """Each value of a message's fields; an empty list is one."""
    for name, node in message.value.items():
        several = isinstance(node.value, list) and node.value
        yield from ((name, one) for one in (node.value if several else [node]))


def _deep(node: Node) -> bool:
    """Whether a message has messages in it that are not short, or many fields."""
    fields = node.value
    return isinstance(fields, dict) and (len(fields) > 3 or any(map(_deep, fields.values())))


def _inline(name: str, node: Node) -> str:
    if not isinstance(node.value, dict):
        return f"{name}: {'[]' if node.value == [] else scalar(node.value)}"
    words = [_inline(*one) for one in _values(node)]
    return " ".join([name, "{", *words, "}"]) if words else f"{name} {{}}"


def scalar(value: Any) -> str:
    """A value that is no message."""
    if isinstance(value, Word):
        return str.__str__(value)
    if isinstance(value, str):
        letters = []
        for letter in value:
            octal = "".join(f"\\{byte:03o}" for byte in letter.encode())
            letters.append(ESCAPES.get(letter, letter if letter.isprintable() else octal))
        return f'"{"".join(letters)}"'
    return number(value) if isinstance(value, float) else yaml_text.scalar(value)
