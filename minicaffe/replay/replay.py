"""Work that is the same each time: noted down while it is done, and from then on replayed.

What is noted are nodes, in order: on the CPU a `Segment` of rows, compiled loops that the threads run one
after the other without Python, or calls of NumPy's; on CUDA a `Graph` of all that the device is given; and a
`Call`, Python between.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

from minicaffe.backend import Device
from minicaffe.cuda import cublas, fusion
from minicaffe.cuda.capture import captured
from minicaffe.replay import trace
from minicaffe.replay.command import Calls, Row
from minicaffe.replay.command_buffer import Program
from minicaffe.replay.fusion_cpu import joined


class Assumed(NamedTuple):
    """What a trace assumes: objects, which it keeps alive and compares by `is`, and settings by value.

    Since the objects stay alive, no other can be born at their addresses and be taken for one of them.

    >>> import numpy as np
    >>> x = np.zeros(2)
    >>> Assumed([x], 1).holds(Assumed([x], 1)), Assumed([x], 1).holds(Assumed([x[:]], 1))
    (True, False)
    """

    objects: Sequence[Any]
    settings: Any

    def holds(self, now: Assumed) -> bool:
        """Whether it is still so; not with an array among the settings: `==` compares its entries."""
        try:
            alike = len(self.objects) == len(now.objects) and self.settings == now.settings
        except ValueError:
            return False
        return alike and all(map(operator.is_, self.objects, now.objects))


@dataclass(frozen=True)
class Call:
    """Work on the host that a replay does as it is: what it is, and why there are no rows of it.

    `sets` says that it only sets what a replay, or Python, goes by, which is nothing to tell; `late`, that
    what follows on CUDA does not wait for it; `twice`, that doing it twice does no more than doing it once.
    """

    what: str
    why: str
    work: Callable[[], Any] = field(compare=False, repr=False)
    sets: bool = False
    late: bool = False
    twice: bool = False


class Segment:
    """Rows with no Python between them; `whose` tells of each what it is of."""

    def __init__(self, rows: Sequence[tuple[str, Row | Calls]]):
        rows = joined(rows)
        self.whose = [what for what, _ in rows]
        self.rows = [row for _, row in rows]
        self.work = Program(self.rows).run


@dataclass(frozen=True)
class Issued:
    """What some work has CUDA do: the same where it launches the same kernels with the same arguments.

    `whole` says that it has CUDA do nothing else, but where none of them may be one with another: cuda.fusion.
    """

    what: str
    launches: tuple[Any, ...] = field(repr=False)
    again: Callable[[], Any] = field(compare=False, repr=False)
    whole: bool = False


class Graph:
    """Work on CUDA with no other Python between it, captured when it is first done, then launched as one."""

    def __init__(self, parts: Sequence[Issued], device: Device):
        self.parts, self.device = parts, device
        self.why = ""  # it could not be captured; then it is done as it is
        self._launch: Callable[[], Any] | None = None

    def work(self) -> None:
        """Do it once more."""
        if self._launch is None:
            try:
                launches = [one for part in self.parts for one in part.launches]
                self._launch = captured(self.device, self._all, cublas.needs(launches))
            except Exception as error:  # whatever CuPy, CUDA or a layer refuse: it may do as it is
                self.why = " ".join(str(error).split()) or type(error).__name__
                self._launch = self._all
        self._launch()

    def _all(self) -> None:
        """All parts; what two of them ask for one after the other may be done in one."""
        with fusion.joined() as made:
            for part, then in zip(self.parts, [*self.parts[1:], None], strict=True):
                made.holds = part.whole
                part.again()
                if then is None or not then.whole or not fusion.may_begin(then.launches):
                    made.end()


Node = Segment | Graph | Call


class Tape:
    """What is done, in the order in which it is done."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.notes: list[tuple[str, Row | Calls] | Issued | Call] = []

    def take(
        self,
        what: str,
        work: Callable[[], Any],
        why: str = "",
        again: Callable[[], Any] | None = None,
        twice: bool = False,
    ) -> bool:
        """Do some work, and note its rows; or, for a reason `why`, that `again` is to be called in a replay.

        May find out only while it runs that it cannot be traced. Returns whether it was. `twice` is Call's.
        """
        if not why:
            with trace.recording() as made:
                work()
            if not made.hosts and self.device.is_cuda:
                self.notes.append(Issued(what, tuple(made.launches), again or work, twice))
                return True
            if not made.hosts:
                self.notes += [(what, row) for row in made.rows]
                return True
            why = made.hosts[0]
        else:
            work()
        self.notes.append(Call(what, why, again or work, twice=twice))
        return False

    def nodes(self) -> list[Node]:
        """What a replay goes through; nothing if all of it is calls."""
        nodes: list[Node] = []
        notes: list[Any] = [*self.notes]
        late = [note for note in notes if isinstance(note, Call) and note.late]
        if self.device.is_cuda:  # done while a graph is captured, and behind each launch
            notes = [Issued(one.what, (), one.work) if one in late else one for one in notes]
            notes += late
        elif late and not any(isinstance(note, Call) for note in notes[notes.index(late[0]) + 1 :]):
            notes = [note for note in notes if note not in late] + late  # rows need not wait for it
        for called, group in groupby(notes, lambda note: isinstance(note, Call)):
            given: Any = list(group)
            if called:
                nodes += given
            else:
                nodes.append(Graph(given, self.device) if self.device.is_cuda else Segment(given))
        return nodes if any(not isinstance(node, Call) for node in nodes) else []


def take(tape: Tape | None, what: str, work: Callable[[], Any]) -> None:
    """Do some work, and note it if there is a tape."""
    if tape is None:
        work()
    else:
        tape.take(what, work)


CHECKED = 2  # replays: the second would show a number that changes, and was captured as it was in the first
Check = Callable[[Callable[[], None], Callable[[], None]], str]


class Repeated:
    """Work done as it is the first time, then noted until two tapes in a row agree, then replayed.

    Once what the traces assume no longer holds, all begins anew. Work that raises is not compared. The work
    itself is not kept, for whoever does it may hold this. A first replay may be left to a `check`, called with
    what replays the work and what does it as it is: it returns why replays are not to be trusted, or nothing.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.begin()

    def begin(self) -> None:
        """Nothing is known yet."""
        self.assumed: Assumed | None = None
        self.tape: Tape | None = None  # the last
        self.nodes: list[Node] | None = None
        self.checked = 0
        self.unlike = 0  # tapes that were not as the one before,
        self.why = ""  # and where they differ, or what the check says

    @property
    def reasons(self) -> list[str]:
        """What a replay does as it is, and why; or why there is none, once tapes have differed twice."""
        if self.nodes is None:
            return [f"{self.why} is not the same in each"] if self.unlike > 1 else []
        found = [self.why] if self.why else []
        for node in self.nodes:
            if isinstance(node, Call) and not node.sets:
                found.append(f"{node.what}: {node.why}")
            elif isinstance(node, Graph) and node.why:
                found.append(f"{node.parts[0].what} to {node.parts[-1].what}: {node.why}")
        return found

    def run(
        self,
        work: Callable[[Tape | None], None],
        assumes: Callable[[], Assumed | None],
        check: Check | None = None,
    ) -> None:
        """Do it once more; `work` takes the tape, or None. To assume None is to do it as it is, this time."""
        now = assumes()
        if now is None:
            work(None)
        elif self.assumed is None or not self.assumed.holds(now):
            self.begin()
            work(None)
            self.assumed = now
        elif self.nodes and check is not None and self.checked < CHECKED:
            self.why = check(self._replay, partial(work, None))
            self.checked += 1
            self.nodes = [] if self.why else self.nodes
        elif self.nodes:
            self._replay()
        elif self.nodes is not None:
            work(None)
        else:
            tape, before = Tape(self.device), self.tape
            work(tape)
            if before is not None and tape.notes == before.notes:
                self.nodes, tape.notes, self.why = tape.nodes(), [], ""
            elif before is not None:
                self.unlike += 1
                pairs = zip_longest(before.notes, tape.notes)
                self.why = next(_what(a or b) for a, b in pairs if a != b)
            self.tape = tape

    def _replay(self) -> None:
        for node in self.nodes or []:
            node.work()


def _what(note: Any) -> str:
    """What a note is of."""
    return note[0] if isinstance(note, tuple) else note.what
