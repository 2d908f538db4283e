"""The loops of a kernel's machine code, as nvdisasm writes it: which instructions each holds.

A count of code, not of a run: how often a GPU takes a branch is not known. `longest` says what a turn of a
loop issues at the most.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

LINE = re.compile(
    r"\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<name>[A-Z]\w*)(?P<rest>[^;]*);"
)
LABEL = re.compile(r"^(?P<label>[\w.$]+):")
SECTION = re.compile(r"^\s*\.section\s+\.text\.(?P<symbol>[\w$]+)")
JUMPS = "BRA", "CALL", "JMP"  # a compiler calls what lies far away, too
ENDS = "EXIT", "RET"


@dataclass(frozen=True)
class Instruction:
    """As `@!P0 BRA `(.L_x_0)`: guarded, of the name `BRA`, and the rest of the line."""

    name: str
    rest: str
    guarded: bool

    @property
    def target(self) -> str | None:
        """The label that it may jump to."""
        named = re.search(r"`\(([^)]+)\)", self.rest)
        return named[1] if named and self.name in JUMPS else None

    @property
    def passes(self) -> bool:
        """Whether the next one may follow."""
        if self.guarded or self.name == "CALL":
            return True
        always = self.name in ENDS or (self.name in JUMPS and not re.search(r"\bU?P\w", self.rest))
        return not always


@dataclass
class Block:
    """Instructions that follow each other, and the blocks that one may go on to."""

    instructions: list[Instruction] = field(default_factory=list)
    after: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Loop:
    """A head, which each turn begins with, and all blocks from which it is reached again."""

    head: int
    blocks: frozenset[int]


def functions(text: str) -> dict[str, list[Block]]:
    """The blocks of each kernel, by its name in machine code."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if section := SECTION.match(line):
            lines = parts.setdefault(section["symbol"], [])
        lines.append(line)
    return {symbol: _blocks(lines) for symbol, lines in parts.items()}


def _blocks(lines: list[str]) -> list[Block]:
    blocks, labels = [Block()], {}
    for line in lines:
        if label := LABEL.match(line):
            if blocks[-1].instructions:
                blocks.append(Block())
            labels[label["label"]] = len(blocks) - 1
        if written := LINE.match(line):
            one = Instruction(written["name"], written["rest"], bool(written["guard"]))
            blocks[-1].instructions.append(one)
            if one.name in (*JUMPS, *ENDS):
                blocks.append(Block())
    for i, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        if (last is None or last.passes) and i + 1 < len(blocks):
            block.after.add(i + 1)
        if last and last.target in labels:
            block.after.add(labels[last.target])
    return blocks


def loops(blocks: list[Block]) -> list[Loop]:
    """The natural loops, those with the fewest blocks first; turns of one head are one loop."""
    before: dict[int, set[int]] = {i: set() for i in range(len(blocks))}
    for i, block in enumerate(blocks):
        for j in block.after:
            before[j].add(i)
    through = _dominators(blocks, before)
    bodies: dict[int, set[int]] = {}
    for i, way in through.items():
        for head in blocks[i].after:
            if way >> head & 1:
                body, ahead = bodies.setdefault(head, {head}), [i]
                while ahead:
                    if (one := ahead.pop()) not in body:
                        body.add(one)
                        ahead += before[one] & through.keys()
    every = [Loop(head, frozenset(body)) for head, body in bodies.items()]
    return sorted(every, key=lambda loop: (len(loop.blocks), loop.head))


def _dominators(blocks: list[Block], before: dict[int, set[int]]) -> dict[int, int]:
    """For each block that is reached at all, those that every way to it goes through, a bit each."""
    reached, ahead = {0}, [0]
    while ahead:
        new = blocks[ahead.pop()].after - reached
        reached |= new
        ahead += new
    through = {i: (1 << len(blocks)) - 1 for i in sorted(reached)} | {0: 1}
    changed = True
    while changed:
        changed = False
        for i in through.keys() - {0}:
            now = 1 << i | functools.reduce(int.__and__, (through[j] for j in before[i] & reached))
            changed |= now != through[i]
            through[i] = now
    return through


def within(loop: Loop, of: list[Loop]) -> frozenset[int]:
    """The blocks of the loops inside it."""
    return frozenset(i for one in of if one.blocks < loop.blocks for i in one.blocks)


def counts(blocks: Iterable[Block]) -> Counter:
    """How often each name stands in them."""
    return Counter(one.name for block in blocks for one in block.instructions)


def divisions(blocks: Iterable[Block]) -> int:
    """How many divisions of integers stand in them.

    A quotient is the upper half of a product with the divisor's reciprocal. That is refined by such a product
    too, unless it is computed before the loop. Divisions of 64 bits are called.
    """
    number = 0
    for block in blocks:
        for one in block.instructions:
            number += one.name in ("IMAD", "UIMAD") and ".HI" in one.rest
            number -= one.name == "F2I"
            number += one.name == "CALL" and bool(re.search(r"_(div|rem)_[su]\d", one.rest))
    return number


def longest(
    blocks: list[Block], loop: Loop, without: frozenset[int], turns: dict[int, int]
) -> Counter:
    """How often each name is issued on the way through a turn of a loop that issues the most.

    It goes through no block of `without`; a block that is a loop itself is issued `turns` times, else once.
    """
    ways: dict[int, tuple[int, tuple[int, ...]] | None] = {}

    def onward(i: int) -> tuple[int, tuple[int, ...]] | None:
        if i not in ways:
            ways[i] = None
            nexts = blocks[i].after & loop.blocks - without - {i, loop.head}
            ahead = [way for j in nexts if (way := onward(j))]
            ahead += [(0, ())] if loop.head in blocks[i].after else []
            size = len(blocks[i].instructions) * turns.get(i, 1)
            if ahead:
                most, way = max(ahead)
                ways[i] = most + size, (i, *way)
        return ways[i]

    _, way = (None if loop.head in without else onward(loop.head)) or (0, ())
    issued: Counter = Counter()
    for i in way:
        for name, number in counts([blocks[i]]).items():
            issued[name] += number * turns.get(i, 1)
    return issued
