"""What a picture shows: boxes with lines of text, and arrows between them; how wide a text is, in pixels."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# The colour of a family of layers: of mid lightness, so that it does on light paper and on dark.
COLOURS: Mapping[str, str] = {
    "data": "#64748b",
    "convolution": "#e5484d",
    "pooling": "#f08c1a",
    "product": "#9b59d0",
    "normalization": "#0d9c97",
    "activation": "#3f9b46",
    "loss": "#d6409f",
    "other": "#3b82f6",
}


@dataclass(frozen=True)
class Node:
    """A box. Of its `lines` the first is its name, the second its type; `title` tells all there is to know.

    `family` is its colour, a key of COLOURS; `folded` are the names of layers drawn in the same box.
    """

    lines: tuple[str, ...]
    family: str = "other"
    title: str = ""
    folded: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first line."""
        return self.lines[0]

    @property
    def texts(self) -> list[tuple[str, float, float]]:
        """Its lines as they are shown: each text, its size, and how high the line is."""
        return [(shown(line), *LINES[min(i, 2)]) for i, line in enumerate(self.lines)]


@dataclass(frozen=True)
class Edge:
    """An arrow from one node to a later one, by their numbers, and what is written where it begins.

    Edges of one source and one `port` begin in one point: they carry the same.
    """

    source: int
    target: int
    label: str = ""
    port: int = 0

    @property
    def text(self) -> str:
        """The label as it is shown."""
        return shown(self.label)


@dataclass(frozen=True)
class Graph:
    """Nodes, each after those that it has edges from, and the edges.

    >>> Graph("net", [Node(("data", "Input")), Node(("ip", "InnerProduct"))], [Edge(0, 1, "64x10")]).title
    'net: 2 boxes'
    """

    name: str
    nodes: Sequence[Node]
    edges: Sequence[Edge] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """No edge goes back."""
        count = len(self.nodes)
        assert all(0 <= edge.source < edge.target < count for edge in self.edges)

    @property
    def title(self) -> str:
        """What the picture is of."""
        return f"{self.name or 'net'}: {len(self.nodes)} boxes"


LINES = ((13, 17), (12, 16), (11, 15))  # size and height of a box's name, its type, the lines below
LABEL = 10.5
NARROW, WIDE = frozenset("ijl.,:;|!'`If()[]{}t/ -"), frozenset("mwMW@%")
LONGEST = 44  # characters of a line; the title has them all


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a font such as Helvetica, rather too much than too little."""
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


def slot(label: str, down: bool) -> float:
    """How far along a box a port with a label is from the next."""
    return 15.0 if not down else text_width(label, LABEL) + 14 if label else 16.0
