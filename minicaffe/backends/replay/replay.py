"""Work that is the same each time: recorded while it runs, and from then on replayed.

A replay runs nodes, in order: on the CPU a `Segment` of commands, compiled loops that threads run without
Python, or NumPy calls; on CUDA a `CudaGraph` of all that the device runs; and a `Call`, Python between them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

from minicaffe.backends.cpu.command import Command, LoopCommand
from minicaffe.backends.cuda import ahead, cublas, fusion
from minicaffe.backends.cuda.capture import captured
from minicaffe.backends.device import Device
from minicaffe.backends.replay.command_buffer import Program, Recording, recording
from minicaffe.backends.replay.fusion_cpu import joined
from minicaffe.errors import reason


class Assumed(NamedTuple):
    """What a trace assumes: objects, kept alive so that `is` can compare them, and settings by value.

    >>> import numpy as np
    >>> x = np.zeros(2)
    >>> Assumed([x], 1).holds(Assumed([x], 1)), Assumed([x], 1).holds(Assumed([x[:]], 1))
    (True, False)
    """

    objects: Sequence[Any]
    settings: Any

    def holds(self, now: Assumed) -> bool:
        """Whether `now` is the same. Settings must not contain arrays: `==` compares their entries."""
        if now is self:
            return True
        try:
            alike = len(self.objects) == len(now.objects) and self.settings == now.settings
        except ValueError:
            return False
        return alike and all(map(operator.is_, self.objects, now.objects))


@dataclass(frozen=True)
class Call:
    """Python work that a replay calls: its name, and the reason why it could not be recorded as commands."""

    what: str
    why: str
    work: Callable[[], Any] = field(compare=False, repr=False)
    sets: bool = False  # it only sets values that the replay or Python reads, and is not reported
    late: bool = False  # work that follows on CUDA does not wait for it
    twice: bool = False  # it is idempotent


class Weights:
    """Whether parameters may have been written since the pass before: then what was packed is packed again."""

    def __init__(self, params: Sequence[Any] = ()):
        self.params, self.changed, self.used = params, True, False  # used: something is packed
        self.seen: list[int] = []

    def look(self) -> None:
        """Look at them, before a pass."""
        now = [param.memory.changes for param in self.params] if self.used else []
        self.seen, self.changed = now, now != self.seen


class Segment:
    """Commands without Python between them; `whose` names the layer of each.

    Given `weights`, it runs the commands that pack them first, and only if these have changed.
    """

    def __init__(self, rows: Sequence[tuple[str, Command]], weights: Weights | None = None):
        rows = joined(rows)
        self.whose = [what for what, _ in rows]
        self.rows = [row for _, row in rows]
        packs = [row for row in self.rows if weights is not None and _lasts(row)]
        self.work = Program([row for row in self.rows if weights is None or not _lasts(row)]).run
        if weights is not None and packs:
            weights.used, weights.changed = True, True
            self.work = partial(_packed, weights, Program(packs).run, self.work)


def _lasts(row: Command) -> bool:
    """Whether it packs weights to where they stay: not to work, which all layers use."""
    return isinstance(row, LoopCommand) and row.name == PACKS and row.args[1] == KEPT


def _packed(weights: Weights, pack: Callable[[], None], work: Callable[[], None]) -> None:
    if weights.changed:
        pack()
    work()


@dataclass(frozen=True)
class Issued:
    """Work that CUDA runs: two are equal if they launch the same kernels with the same arguments."""

    what: str
    launches: tuple[Any, ...] = field(repr=False)
    again: Callable[[], Any] = field(compare=False, repr=False)
    whole: bool = False  # nothing else runs, but where no kernel may be fused with another


class CudaGraph:
    """Work on CUDA without other Python between, captured when it first runs, then launched as one graph."""

    def __init__(self, parts: Sequence[Issued], device: Device):
        self.parts, self.device = parts, device
        self.why = ""  # why it could not be captured; then it runs uncaptured
        self._launch: Callable[[], Any] | None = None

    def work(self) -> None:
        """Run it again."""
        if self._launch is None:
            try:
                launches = [one for part in self.parts for one in part.launches]
                self._launch = captured(self.device, self._all, cublas.needs(launches))
            except Exception as error:  # if CuPy, CUDA or a layer refuses, run uncaptured
                self.why = reason(error)
                self._launch = self._all
        self._launch()

    def _all(self) -> None:
        """Run all parts; kernels of neighbouring parts may be fused."""
        with fusion.joined() as fused:
            for part, then in zip(self.parts, [*self.parts[1:], None], strict=True):
                fused.holds = part.whole
                part.again()
                if then is None or not then.whole or not fusion.may_begin(then.launches):
                    fused.end()


PACKS, KEPT = "packed_gemm.pack", 2  # the loop that does, and its argument for weights that stay
Node = Segment | CudaGraph | Call


class Tape:
    """The trace: what was done, in order."""

    def __init__(self, device: Device, weights: Weights | None = None) -> None:
        self.device, self.weights = device, weights
        self.notes: list[tuple[str, Command] | Issued | Call] = []

    def take(
        self,
        what: str,
        work: Callable[[], Any],
        why: str = "",
        again: Callable[[], Any] | None = None,
        twice: bool = False,
    ) -> bool:
        """Run work and record its commands, or for a reason `why` a call of `again`; returns if it could."""
        with nullcontext(Recording()) if why else recording() as recorded:
            work()
        why = why or "".join(recorded.hosts[:1])
        if why:
            self.notes.append(Call(what, why, again or work, twice=twice))
        elif self.device.is_cuda:
            self.notes.append(Issued(what, tuple(recorded.launches), again or work, twice))
        else:
            self.notes += [(what, row) for row in recorded.rows]
        return not why

    def nodes(self) -> list[Node]:
        """The nodes of a replay; none if all of them are calls."""
        nodes: list[Node] = []
        notes: list[Any] = [*self.notes]
        late = [note for note in notes if isinstance(note, Call) and note.late]
        if self.device.is_cuda:  # run during capture, and after each launch
            notes = [Issued(one.what, (), one.work) if one in late else one for one in notes]
            notes += late
        elif late and not any(isinstance(note, Call) for note in notes[notes.index(late[0]) + 1 :]):
            notes = [note for note in notes if note not in late] + late  # commands need not wait
        for called, group in groupby(notes, lambda note: isinstance(note, Call)):
            part: Any = list(group)
            if called:
                nodes += part
            elif self.device.is_cuda:
                nodes.append(CudaGraph(part, self.device))
            else:
                nodes.append(Segment(part, self.weights))
        return nodes if any(not isinstance(node, Call) for node in nodes) else []


CHECKED = 2  # replays: the second shows if a number that changes was captured as a constant
Check = Callable[[Callable[[], None], Callable[[], None]], str]


class Repeated:
    """Work that runs unrecorded once, then is recorded until two successive traces are equal, then replayed.

    When the guard no longer holds, this starts again. Work that raises is not compared. The work
    itself is not kept, because its owner may hold this. A `check` can compare the first replays: it is called
    with a function that replays the work and one that runs it, and returns why replays are wrong, or "".
    """

    def __init__(self, device: Device, weights: Weights | None = None) -> None:
        self.device, self.weights = device, weights
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        self.assumed: Assumed | None = None
        self.tape: Tape | None = None  # the last
        self.nodes: list[Node] | None = None
        self.checked = 0
        self.unlike = 0  # traces that differed from the one before
        self.why = ""  # where they differ, or the result of the check

    @property
    def reasons(self) -> list[str]:
        """The calls of a replay, and why; or why there is no replay, once traces have differed twice."""
        if self.nodes is None:
            return [f"{self.why} is not the same in each"] if self.unlike > 1 else []
        reasons = [self.why] if self.why else []
        for node in self.nodes:
            if isinstance(node, Call) and not node.sets:
                reasons.append(f"{node.what}: {node.why}")
            elif isinstance(node, CudaGraph) and node.why:
                reasons.append(f"{node.parts[0].what} to {node.parts[-1].what}: {node.why}")
        return reasons

    def run(
        self,
        work: Callable[[Tape | None], None],
        assumes: Callable[[], Assumed | None],
        check: Check | None = None,
    ) -> None:
        """Run or replay it; `work` takes the tape, or None. If `assumes` returns None, it runs unrecorded."""
        now = assumes()
        if now is None:
            work(None)
            return
        if self.assumed is None or not self.assumed.holds(now):
            self.begin()
            with ahead.waiting(self.device) if self.device.is_cuda else nullcontext():
                work(None)
            self.assumed = now
            return
        self.assumed = now  # it is compared sooner, if it is the same next time
        if self.nodes and check is not None and self.checked < CHECKED:
            self.why = check(self._replay, partial(work, None))
            self.checked += 1
            self.nodes = [] if self.why else self.nodes
        elif self.nodes:
            self._replay()
        elif self.nodes is not None:
            work(None)
        else:
            tape, before = Tape(self.device, self.weights), self.tape
            work(tape)
            if before is not None and tape.notes == before.notes:
                self.nodes, tape.notes, self.why = tape.nodes(), [], ""
            elif before is not None:
                self.unlike += 1
                other = next(a or b for a, b in zip_longest(before.notes, tape.notes) if a != b)
                self.why = other[0] if isinstance(other, tuple) else other.what
            self.tape = tape

    def _replay(self) -> None:
        for node in self.nodes or []:
            node.work()
