"""How wide a text is, and which characters a picture can show. Sizes are in pixels."""

from __future__ import annotations

import unicodedata

SIZES = (13, 12, 11)  # of a box's name, its type, and the lines below
LINE = (17, 16, 15)  # how high such lines are
LABEL = 10.5
NARROW, WIDE = frozenset("ijl.,:;|!'`If()[]{}t/ -"), frozenset("mwMW@%")
LONGEST = 44  # characters of a line; the title has them all


def width(text: str, size: float) -> float:
    """About how wide a text is in a font such as Helvetica, rather too much than too little.

    >>> round(width("conv1", 12))
    36
    """
    return size * 1.07 * sum(map(_width, text))


def _width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in NARROW:
        return 0.34
    return 0.87 if character in WIDE else 0.7 if character.isupper() else 0.56


def shown(text: str, longest: int = LONGEST) -> str:
    """A text in one line, without what cannot be printed, and its middle left out if it is long.

    >>> shown("a\\x00b" + 40 * "c", 11)
    'a?bcc…ccccc'
    """
    text = "".join(c if c.isprintable() else "?" for c in text)
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[: longest - half - 1]}…{text[-half:]}"


def sizes(count: int) -> list[float]:
    """The size of each of so many lines of a box."""
    return [SIZES[min(i, 2)] for i in range(count)]


def heights(count: int) -> list[float]:
    """How high each of so many lines of a box is."""
    return [LINE[min(i, 2)] for i in range(count)]


def slot(label: str, down: bool) -> float:
    """How far along a box a port with a label is from the next."""
    return 15.0 if not down else width(label, LABEL) + 14 if label else 16.0
