"""The memory of a net: which arrays share it, how much it needs, and how it is allocated, also for new shapes.

Arrays that are never in use at the same time share memory. A net that only runs forward shares its data: a
value is in use from the layer that writes it to the last that reads it. Another net shares its diffs: one is
in use from the highest layer that writes it, a reader of the value, down to the layer that wrote the value.

    step        0  1  2  3  4          offset
    conv1       #  #                   0        the largest comes first
    conv2          #  #                640      behind conv1, which it meets in step 1
    pool2             #  #             0        conv1 is over
    ip                   #  #          256      behind pool2; conv2 is over
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.dispatch import compiles
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers import Blob, Context, Layer
from minicaffe.core.layers.blob import Shape
from minicaffe.core.net.graph import infer_shapes
from minicaffe.core.net.step import Graph, Step, Value
from minicaffe.errors import ByName, MinicaffeError, ShapeError, SpecError, did_you_mean

ALIGNED = 64  # bytes: a cache line of the CPU; enough for every load of a GPU
LATER = 2  # steps for which NumPy's threads may still read a diff, because they do not wait,
FEW = 2**24  # if all diffs, kept that long, need no more bytes
Within = dict[Value, tuple[Value, int]]


@dataclass(frozen=True)
class Life:
    """A buffer of `size` bytes, in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are in use in some step."""
        return self.first <= other.last and other.first <= self.last

    def covers(self, step: int) -> bool:
        """Whether it is in use in a step."""
        return self.first <= step <= self.last


def place(lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offset of each buffer, and the bytes of the whole block.

    Buffers that meet do not overlap. The largest is placed first; each lies in the smallest sufficient gap
    among the placed buffers that it meets, else after them. Offsets are multiples of ALIGNED. Source: "greedy
    by size" of Y. Pisarchyk, J. Lee, Efficient Memory Management for Deep Neural Net Inference, 2020.

    >>> place([Life(640, 0, 1), Life(320, 1, 2), Life(256, 2, 3), Life(64, 3, 4)])
    ([0, 640, 0, 256], 960)
    """
    offsets, whole = [0] * len(lives), 0
    placed: list[tuple[int, int, int]] = []
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first, i)):
        size = -(-lives[i].size // ALIGNED) * ALIGNED
        best, smallest, end = None, None, 0
        for start, stop in sorted((a, b) for a, b, j in placed if lives[i].meets(lives[j])):
            gap = start - end
            if gap >= size and (smallest is None or gap < smallest):
                best, smallest = end, gap
            end = max(end, stop)
        offsets[i] = end if best is None else best
        placed.append((offsets[i], offsets[i] + size, i))
        whole = max(whole, offsets[i] + size)
    return offsets, whole


class Sharing:
    """The shared arrays of a net, data or diffs (`which`): the life of each value, its offset in one block.

    Blobs in `keep` have their own memory; so have inputs, outputs and losses, which users fill or read, the
    tops of a layer whose sizes vary, and all blobs after it. Without `keep`, all blobs have. On the CPU a sum
    of two is written over the one computed last, and what is joined lies side by side from the beginning.
    `before` and `after` are the bytes of all data and, if shared, diffs: without sharing, and with it.
    """

    def __init__(self, graph: Graph, keep: Collection[str] | None = None, which: str | None = None):
        forward = graph.context.phase == "TEST" and not graph.forced  # such a net only runs forward
        self.graph, self.which = graph, which or ("data" if forward else "diff")
        lives = _data_lives(graph.steps)
        self.before = sum(life.size for life in lives.values())
        if self.which == "diff":
            self.before += sum(map(_size, {value.root for value in _with_diffs(graph.steps)}))
            lives = _diff_lives(graph.steps)
        own = _unshared(graph, keep or (), self.which)
        self.lives = {v: life for v, life in lives.items() if keep is not None and v not in own}
        can = self.which == "data" and not graph.context.device.is_cuda
        within = _within_others(graph.steps, self.lives) if can else {}
        offsets, self.size = _placed(self.lives, within)
        if self.which == "diff" and not graph.context.device.is_cuda and not compiles():
            lives = {v: replace(of, first=max(0, of.first - LATER)) for v, of in self.lives.items()}
            longer = place(list(lives.values()))
            if longer[1] <= FEW:
                offsets, self.size = longer
        self.offsets = dict(zip(self.lives, offsets, strict=True))
        self.after = self.before - sum(life.size for life in self.lives.values()) + self.size
        end = len(graph.steps) - 1 if self.which == "data" else 0
        self.whole = frozenset(v for v, life in self.lives.items() if life.covers(end))
        self.held: frozenset[Value] = frozenset()  # the values that the block holds now
        self.block: Any = None
        # By the first value of memory in which layers work in place: the value that a whole pass leaves,
        self.last: dict[Value, Value | None] = {
            top.root: top for step in graph.steps for top in step.tops if top.reuses
        }
        self.holds: dict[Value, Value | None] = {}  # and the current one, if a pass has run

    def take(self) -> None:
        """Allocate the block; it holds no values yet."""
        self.block = aligned.zeros(self.graph.context.device.xp, self.size, "uint8")
        self.held, self.holds = frozenset(), {}

    def forget(self) -> None:
        """A pass has failed: the content of the memory is unknown."""
        self.held, self.holds = frozenset(), dict.fromkeys(self.last)

    def lend(self, value: Value) -> None:
        """Place the blob of a value that shares memory in the block."""
        if value in self.lives:
            start = self.offsets[value]
            part = self.block[start : start + _size(value)].view(value.dtype)
            value.blob.lie_in(part.reshape(value.shape), self.which)

    def shown(self, value: Value) -> Blob:
        """The blob of a value as users see it."""
        return SharedBlob(value, self) if value.root in self.lives else value.blob

    @contextmanager
    def over(self, which: str, first: int, last: int, inputs: Collection[Blob]) -> Iterator[None]:
        """A context around a pass through steps `first` to `last`, of data or diffs; updates `held`.

        Raises ShapeError if the pass reads a value that was overwritten, unless its blob is in `inputs`;
        and for a backward pass in a net that shares its data.
        """
        if which == "diff" and self.graph.context.forward_only:
            raise ShapeError(
                "a net of the phase TEST whose blobs share memory has no backward pass: build it with "
                "keep=None, or with force_backward: true in the model"
            )
        shares = which == self.which and bool(self.lives)
        in_place = which == "data" and bool(self.last)
        if not (shares or in_place):
            yield
            return
        whole = last - first + 1 == len(self.graph.steps)
        holds, held = self.holds, self.held
        if in_place:
            holds = self.last if whole else self._holds(first, last, inputs)
        if shares:
            held = self.whole if whole else self._held(first, last, inputs)
        if in_place:  # unknown if the pass fails
            self.holds = dict.fromkeys(self.last)
        if shares:
            self.held = frozenset()
        yield
        self.holds, self.held = holds, held

    def _held(self, first: int, last: int, inputs: Collection[Blob]) -> frozenset[Value]:
        """The values held after a pass through some steps. Raises ShapeError as `over` does."""
        forward, lives = self.which == "data", self.lives
        new = {v for v, of in lives.items() if first <= (of.first if forward else of.last) <= last}
        valid = self.held | {v for v in lives if v.blob in inputs}
        for step in self.graph.steps[first : last + 1]:
            for value in step.bottoms if forward else _with_diffs([step]):
                if value.root in lives and value.root not in new | valid:
                    raise ShapeError(self.gone(value))
        stays = {v for v in valid if lives[v].covers(first) and lives[v].covers(last)}
        return frozenset(stays | {v for v in new if lives[v].covers(last if forward else first)})

    def _holds(self, first: int, last: int, inputs: Collection[Blob]) -> dict[Value, Value | None]:
        """The values that layers in place leave after a pass through some steps. Raises as `over` does."""
        holds = dict(self.holds)
        for step in self.graph.steps[first : last + 1]:
            for value in step.bottoms:
                root = value.root
                if root in holds and holds[root] is not value and value.blob not in inputs:
                    raise ShapeError(
                        f"{step.place}: the data of blob {value.name!r} that it reads was overwritten in "
                        f"place: begin at {root.producer.name!r}, or give it to forward(start=...)"
                    )
            holds |= {top.root: top for top in step.tops if top.root in self.last}
        return holds

    def gone(self, value: Value) -> str:
        """The error message if the memory of a value holds another."""
        way = "forward" if self.which == "data" else "backward"
        return (
            f"the {self.which} of blob {value.name!r} is not there: it shares memory with others; build the "
            f"net with keep=[{value.name!r}], or, to begin behind it, give it to {way}(start=...)"
        )


def _while_valid(which: str) -> Any:
    """A property: the data or the diff of a value's blob, which may be read and set while it is valid."""

    def get(self: SharedBlob) -> Any:
        return getattr(self._valid_blob(which), which)

    def put(self: SharedBlob, values: Any) -> None:
        setattr(self._valid_blob(which), which, values)

    return property(get, put)


class SharedBlob(Blob):
    """A blob whose data or diff shares memory: reading it raises ShapeError unless it is valid."""

    def __init__(self, value: Value, sharing: Sharing):
        super().__init__(value.shape, value.blob.device, value.dtype)
        self.value, self.sharing = value, sharing

    def __repr__(self) -> str:
        shared = f"its {self.sharing.which} in shared memory"
        return f"Blob{self.shape} {self.dtype} on {self.device.name}, {shared}"

    data, diff = _while_valid("data"), _while_valid("diff")

    def share(self, other: Blob, diff: bool = True) -> None:
        """Raises ShapeError: the net decides where its memory is."""
        raise ShapeError(self.sharing.gone(self.value))

    def _valid_blob(self, which: str) -> Blob:
        if which == self.sharing.which and self.value.root not in self.sharing.held:
            raise ShapeError(self.sharing.gone(self.value))
        return self.value.blob


def _within_others(steps: Sequence[Step], lives: dict[Value, Life]) -> Within:
    """In which value others lie, and where: a top in a bottom that ends before, bottoms in what joins them."""
    over: Within = {}
    written = {value.root: i for i, step in reversed([*enumerate(steps)]) for value in step.tops}
    for i, step in enumerate(steps):
        if not step.layer.traits.over_a_bottom or step.tops[0].root not in lives:
            continue
        roots = [value.root for value in step.bottoms]
        last = max(roots, key=written.__getitem__)
        life, top = lives.get(last), step.tops[0].root
        if life is None or roots.count(last) > 1 or top is last or life.last != i:
            continue
        if life.size == lives[top].size and last.dtype == top.dtype:
            over[top], lives[last] = (last, 0), replace(life, last=i - 1)
    apart = {*over, *(value for value, _ in over.values())}
    for i, step in enumerate(steps):
        roots, start = [value.root for value in step.bottoms], 0
        one = len({*roots}) == len(roots) > 1 and not apart & {*roots}
        joins = step.layer.traits.side_by_side and one and step.tops[0].root in lives
        if not (joins and all(root in lives and lives[root].last == i for root in roots)):
            continue
        if any(lives[root].size % ALIGNED for root in roots[:-1]):
            continue
        for root in roots:
            over[root] = step.tops[0].root, start
            start += lives[root].size
        apart |= {*roots, step.tops[0].root}
    return over


def _placed(lives: dict[Value, Life], within: Within) -> tuple[list[int], int]:
    """`place` of the values' lives, those that lie within another as one with it."""
    whole: dict[Value, Life] = {}
    for value, life in lives.items():
        outer, _ = _outermost(value, within)
        before = whole.get(outer, lives[outer])
        ends = min(before.first, life.first), max(before.last, life.last)
        whole[outer] = Life(lives[outer].size, *ends)
    offsets, size = place(list(whole.values()))
    at = dict(zip(whole, offsets, strict=True))
    return [at[outer] + start for outer, start in (_outermost(v, within) for v in lives)], size


def _outermost(value: Value, within: Within) -> tuple[Value, int]:
    """The value that lies within no other and in which this one lies, and how far from its beginning."""
    start = 0
    while value in within:
        value, further = within[value]
        start += further
    return value, start


def _size(value: Value) -> int:
    return int(math.prod(value.shape) * value.dtype.itemsize)


def _with_diffs(steps: Sequence[Step]) -> Iterator[Value]:
    """The values whose diffs these steps read or write in a backward pass."""
    for step in steps:
        yield from (v for v in step.tops if v.loss_weight or step.layer.runs_backward)
        yield from _fed([step])


def _fed(steps: Sequence[Step]) -> Iterator[Value]:
    """The values into whose diffs these steps write a gradient."""
    for step in steps:
        wanted = zip(step.bottoms, step.layer.needs_gradient, strict=True)
        yield from (value for value, needs in wanted if needs)


def _data_lives(steps: Sequence[Step]) -> dict[Value, Life]:
    """From the layer that writes a value to the last that reads it, or a value in place of it."""
    spans: dict[Value, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for value in (*step.tops, *step.bottoms):
            spans[value.root] = spans.get(value.root, (i, i))[0], i
    return {value: Life(_size(value), *span) for value, span in spans.items()}


def _diff_lives(steps: Sequence[Step]) -> dict[Value, Life]:
    """From the highest reader that writes a gradient of a value down to the layer that writes the value."""
    written = {value: i for i, step in enumerate(steps) for value in step.tops}
    last = {value.root: i for i, step in enumerate(steps) for value in _fed([step])}
    return {value: Life(_size(value), written[value], i) for value, i in last.items()}


def _unshared(graph: Graph, keep: Collection[str], which: str) -> set[Value]:
    """Values whose data, or diffs, share no memory: `keep`, what users or a `check` read, unwritten diffs."""
    own: set[Value] = set()
    fed, varies = set(_fed(graph.steps)), False
    for step in graph.steps:
        varies = varies or step.layer.traits.sizes_vary
        for value in step.tops:
            apart = not (value.readers and step.bottoms) or bool(value.loss_weight)
            if varies or value.name in keep or (apart if which == "data" else value not in fed):
                own.add(value.root)
        if type(step.layer).check is not Layer.check:
            looked_at = step.layer.traits.float32_bottoms  # labels, indices, regions
            own |= {value.root for i, value in enumerate(step.bottoms) if i in looked_at}
    return own


NONE: Mapping[Value, Any] = MappingProxyType({})


class Memory:
    """The blobs of a net by name, and its scratch memory. `keep` is as in Net."""

    def __init__(self, graph: Graph, keep: tuple[str, ...] | None):
        self.keep, self.sharing = keep, Sharing(graph, keep)
        self.blobs: dict[str, Blob] = ByName("blob")
        self.first_blobs: dict[str, Blob] = ByName("blob")  # before work in place
        self.scratch: Any = None  # for gradients that are added to others
        self.fits: int | None = None  # how many layers have the current shapes; None: all

    def check_taken(self) -> None:
        """Raise ShapeError if none is allocated: in a net with `shapes_only`."""
        if not self.blobs:
            raise ShapeError("the net has shapes only: it holds no numbers and computes nothing")

    def take(self, graph: Graph, first: int = 0, data: Mapping[Value, Any] = NONE) -> None:
        """Allocate what layers from step `first` on need, but for arrays in `data`. Raises ShapeError."""
        xp, context, scratch = graph.context.device.xp, graph.context, 0
        if not first:
            self.sharing.take()
        for i, step in enumerate(graph.steps[: self.fits]):
            added = 0
            if i >= first:
                self._take(step, context, data)
            for value, needs in zip(step.bottoms, step.layer.needs_gradient, strict=True):
                if needs and (value.readers > 1 or value.loss_weight):  # it may have to be added
                    added += value.blob.size
            scratch = max(scratch, added)
        check(graph, self.sharing)
        if self.scratch is None or self.scratch.size < scratch or not first:
            self.scratch = aligned.empty(xp, scratch, context.dtype)
        self.blobs.clear()
        self.first_blobs.clear()
        for step in graph.steps:
            for value in step.tops:
                self.blobs[value.name] = shown = self.sharing.shown(value)
                self.first_blobs.setdefault(value.name, shown)

    def _take(self, step: Step, context: Context, data: Mapping[Value, Any]) -> None:
        for value in step.tops:
            fresh = Blob(value.shape, context.device, value.dtype)
            if value in data:
                fresh.lie_in(data[value])
            value.blob = fresh if value.reuses is None else value.reuses.blob
            self.sharing.lend(value)
        step.layer.out = [value.blob.data for value in step.tops]
        step.layer.grad = [None] * len(step.bottoms)
        step.ran = False
        with step:
            step.layer.allocate()
            context.taken += 1


def names(spec: NetSpec, keep: Any) -> tuple[str, ...] | None:
    """The names of blobs to keep; some layer, in any phase, writes each. Raises SpecError."""
    if keep is None:
        return None
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise SpecError(f"keep: expected a list of names of blobs, got {keep!r}")
    wanted = tuple(keep)
    known = {name: None for layer in spec.layers for name in layer.tops}
    for name in wanted:
        if not isinstance(name, str) or name not in known:
            raise SpecError(f"keep: there is no blob {name!r}{did_you_mean(str(name), known)}")
    return wanted


def fit(graph: Graph, memory: Memory, step: Step, arrays: Sequence[Any]) -> None:
    """Use the arrays that a layer has just returned as its tops, and reshape the layers after it.

    Allocates those again if a size has changed. If one refuses: ShapeError, and the net in its largest size.
    """
    if [array.shape for array in arrays] == [value.shape for value in step.tops]:
        return
    behind = graph.steps.index(step) + 1
    try:
        for value, array in zip(step.tops, arrays, strict=True):
            value.shape = array.shape
            value.blob = Blob(value.shape, graph.context.device, value.dtype)
            value.blob.lie_in(array)
        infer_shapes(graph.steps[behind:])
        memory.take(graph, behind)
    except (MinicaffeError, MemoryError):
        infer_shapes(graph.steps)
        memory.take(graph)
        raise


def check(graph: Graph, sharing: Sharing) -> None:
    """Raise ShapeError if a net does not fit the device; its convolutions' workspace counts once allocated."""
    context = graph.context
    copies = 1 if context.forward_only else 2
    count = sum(copies * param.size for param in graph.learnable) + context.workspace_size
    size = sharing.after + count * context.dtype.itemsize
    context.device.check_fits(size, f"{graph.file}: the net")


def reshape(
    graph: Graph,
    memory: Memory,
    shapes: Mapping[str, Shape],
    fits: int | None = None,
    data: Mapping[Value, Any] = NONE,
) -> None:
    """Set new shapes of blobs. Raises ShapeError, and leaves the net unchanged, if they do not fit.

    With `fits` only so many layers are reshaped, the others wait for `extend`; `data` are arrays of values.
    """
    values = resizable(graph)
    if graph.context.share.size > 1:
        raise ShapeError("a net of several ranks keeps its shapes: each has its part of them")
    for name, shape in shapes.items():
        if name not in values:
            hint = did_you_mean(name, values)
            raise ShapeError(f"{name!r} is not a top of an Input or Data layer{hint}")
        sizes = shape if isinstance(shape, (tuple, list)) else (None,)
        if any(type(n) is bool or not isinstance(n, (int, np.integer)) or n < 1 for n in sizes):
            raise ShapeError(f"{name}: expected a shape of integers of at least 1, got {shape}")
    before = {name: values[name].shape for name in shapes}
    work, sharing, taken = graph.context.workspace_size, memory.sharing, False
    had, memory.fits = memory.fits, fits
    try:
        _infer(graph, memory, values, shapes)
        check(graph, memory.sharing)
        if taken := bool(memory.blobs):  # not with `shapes_only`
            memory.take(graph, data=data)
    except (MinicaffeError, MemoryError):
        memory.fits = had
        _infer(graph, memory, values, before)
        graph.context.workspace_size = work
        if taken:
            memory.take(graph)
        elif memory.blobs:
            memory.sharing = sharing
            for step in graph.steps[:had]:
                step.layer.allocate()
            graph.context.taken += 1
        raise


def extend(
    graph: Graph, memory: Memory, fits: int | None, data: Mapping[Value, Any] = NONE
) -> None:
    """Reshape more layers, after `reshape` with `fits`. Raises ShapeError if the shapes do not fit."""
    infer_shapes(graph.steps[memory.fits : fits])
    had, memory.fits = memory.fits, fits
    try:
        memory.take(graph, had or 0, data)
    except (MinicaffeError, MemoryError):
        memory.fits = had
        raise


def resizable(graph: Graph) -> dict[str, Value]:
    """The values that can be reshaped, by name: tops of Input and Data layers."""
    return {v.name: v for s in graph.steps for v in s.tops if hasattr(s.layer, "resize")}


def _infer(
    graph: Graph, memory: Memory, values: Mapping[str, Value], shapes: Mapping[str, Shape]
) -> None:
    for name, shape in shapes.items():
        inputs: Any = values[name].producer
        inputs.resize(name, tuple(int(size) for size in shape))
    graph.context.workspace_size = 0
    infer_shapes(graph.steps[: memory.fits])
    memory.sharing = Sharing(graph, memory.keep)
    for name, shape in shapes.items():
        if values[name].shape != tuple(shape):
            raise ShapeError(
                f"{name} cannot have shape {tuple(shape)} while another top of its layer has other samples"
            )
