"""What would be done on the device: operation by operation."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

QUEUED = ("kernel", "product", "fill", "copy", "graph")  # what a step consists of
# What a graph may hold: CUDA refuses all that waits
CAPTURED = ("kernel", "product", "fill", "copy")
NEVER = {  # in a step after the first
    "allocation": "takes memory",
    "hidden copy": "CuPy copies an operand that overlaps the result",
    "self copy": "copies an array onto itself",
    "wait": "waits for the device",
    "pageable upload": "copies from memory of the host that is not page-locked: the driver may wait",
}
# The arguments of an operation that may change from step to step: what the step is a function of.
CHANGING = {"uniform": {1, 2}}  # the random key


@dataclass(frozen=True)
class Operation:
    """One call: its kind, the name of what is called, and the arguments, arrays as where they lie."""

    kind: str
    name: str
    given: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.given}"[:300]


@dataclass
class Record:
    """The operations since it was last cleared."""

    operations: list[Operation] = field(default_factory=list)
    before: list[Operation] | None = None  # a capture: what was done before it

    def begin(self) -> None:
        """What follows is captured."""
        assert self.before is None
        self.before, self.operations = self.operations, []

    def end(self) -> list[Operation]:
        """What was captured."""
        assert self.before is not None
        taken, self.operations, self.before = self.operations, self.before, None
        return taken

    def note(self, kind: str, name: str, *given: Any) -> None:
        """Write an operation down; in a capture, refuse what no graph can hold."""
        if self.before is not None and kind not in CAPTURED:
            raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {kind} {name}")
        self.operations.append(Operation(kind, name, tuple(map(lies, given))))

    def take(self) -> list[Operation]:
        """The operations so far; the record is empty then."""
        taken, self.operations = self.operations, []
        return taken


record = Record()


def lies(value: Any) -> Any:
    """An array as where it lies and how; a number with its type; a struct as what it holds."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return ("struct", value.tobytes())
    if hasattr(value, "strides") and not isinstance(value, np.generic):
        address = value.data.ptr if hasattr(value.data, "ptr") else "host"
        return ("array", address, value.shape, value.strides, value.dtype.name)
    if isinstance(value, np.generic):
        return (value.dtype.name, value.item())
    return value


def complaints(step: list[Operation], uploads: int) -> list[str]:
    """What a step does that none may; it copies no more than `uploads` small arrays from the host."""
    found = [f"{NEVER[op.kind]}: {op}" for op in step if op.kind in NEVER]
    sent = [op for op in step if op.kind == "upload"]
    if len(sent) > uploads:
        found.append(f"{len(sent)} uploads, {uploads} at the most: {'; '.join(map(str, sent))}")
    return found


def differences(one: list[Operation], other: list[Operation], slots: tuple[int, int]) -> list[str]:
    """How two steps differ, but for `CHANGING` numbers and where in `slots` (addresses) the loss is put."""
    if len(one) != len(other):
        return [f"a step of {len(one)} operations, then one of {len(other)}"]
    pairs = zip((_fixed(op, slots) for op in one), (_fixed(op, slots) for op in other), strict=True)
    return [f"{a}, then {b}" for a, b in pairs if a != b]


def _fixed(op: Operation, slots: tuple[int, int]) -> Operation:
    def fixed(i: int, value: Any) -> Any:
        if i in CHANGING.get(op.name, ()):
            return "changing"
        if isinstance(value, tuple) and value[:1] == ("array",) and value[1] in range(*slots):
            return ("slot", *value[2:])
        return value

    return Operation(op.kind, op.name, tuple(fixed(i, value) for i, value in enumerate(op.given)))


def counts(step: list[Operation]) -> dict[str, int]:
    """How many operations of each kind a step takes; `in all` those that are queued on the device."""
    found = Counter(op.kind for op in step)
    return {**found, "in all": sum(found[kind] for kind in QUEUED)}
