"""Work that is the same each time: noted down while it is done, and from then on replayed.

What is noted are nodes, in order: a `Segment` of rows, compiled loops that the threads run one after the other
without Python, and a `Call`, Python that lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minicaffe.ops import record
from minicaffe.ops.program import Program
from minicaffe.ops.record import Row


@dataclass(frozen=True)
class Call:
    """Work on the host that a replay does as it is: what it is, and why there are no rows of it."""

    what: str
    why: str
    work: Callable[[], Any] = field(compare=False, repr=False)


class Segment:
    """Rows with no Python between them; `whose` tells of each what it is of."""

    def __init__(self, rows: Sequence[tuple[str, Row]]):
        self.whose = [what for what, _ in rows]
        self.rows = [row for _, row in rows]
        self.work = Program(self.rows).run


Node = Segment | Call


class Tape:
    """What is done, in the order in which it is done."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Row] | Call] = []

    def take(
        self,
        what: str,
        work: Callable[[], Any],
        why: str = "",
        again: Callable[[], Any] | None = None,
    ) -> bool:
        """Do some work, and note its rows; or, for a reason `why`, that `again` is to be called in a replay.

        The reason may show only while it is done. Gives whether there are rows of it.
        """
        if not why:
            with record.recording() as made:
                work()
            if not made.hosts:
                self.notes += [(what, row) for row in made.rows]
                return True
            why = made.hosts[0]
        else:
            work()
        self.notes.append(Call(what, why, again or work))
        return False

    def nodes(self) -> list[Node]:
        """What a replay goes through; nothing if there are no rows, which alone are worth it."""
        nodes: list[Node] = []
        rows: list[tuple[str, Row]] = []
        for note in self.notes:
            if not isinstance(note, Call):
                rows.append(note)
                continue
            if rows:
                nodes.append(Segment(rows))
            rows = []
            nodes.append(note)
        if rows:
            nodes.append(Segment(rows))
        return nodes if any(isinstance(node, Segment) for node in nodes) else []


def take(tape: Tape | None, what: str, work: Callable[[], Any]) -> None:
    """Do some work, and note it if there is a tape."""
    if tape is None:
        work()
    else:
        tape.take(what, work)


class Repeated:
    """Work done as it is the first time, then noted until two tapes in a row agree, then replayed.

    What a replay goes by, such as where arrays lie, is its premise: where that is another than it was, all
    begins anew. The work itself is not kept, for whoever does it may hold this.
    """

    def __init__(self) -> None:
        self.premise: Any = None
        self.tape: Tape | None = None  # the last
        self.nodes: list[Node] | None = None

    def run(self, work: Callable[[Tape | None], None], premise: Callable[[], Any]) -> None:
        """Do it once more; `work` is given the tape, or None. A premise of None says: as it is, this time."""
        now = premise()
        if now is None:
            work(None)
        elif now != self.premise:
            self.premise, self.tape, self.nodes = now, None, None
            work(None)
        elif self.nodes:
            for node in self.nodes:
                node.work()
        elif self.nodes is not None:
            work(None)
        else:
            tape, before = Tape(), self.tape
            work(tape)
            if before is not None and tape.notes == before.notes:
                self.nodes, tape.notes = tape.nodes(), []
            self.tape = tape
