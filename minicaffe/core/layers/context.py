"""What the layers of a net share: numerics, state, workspace; each batch's entries, and this rank's share."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device, device_of
from minicaffe.backends.dispatch import on_the_host
from minicaffe.backends.step_constants import Slots
from minicaffe.core.config.declare import TRAIN, Phase, State
from minicaffe.core.ops.conv import CAP, check_name
from minicaffe.core.ops.random import random_stream
from minicaffe.errors import ShapeError, note


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """How a net computes its numbers: an argument of Net, Solver and Classifier, as one or field by field.

    `dtype`, by default the model's, is float32, float64, on CUDA float16 or bfloat16; `precision` likewise
    high, highest or tf32 (docs/concepts.md). `engine` is the engine of convolutions whose own `engine` is
    auto, with at most `workspace_cap` bytes of workspace; with `deterministic`, auto follows a fixed rule and
    measures nothing. Raises SpecError for an unknown engine.

    >>> from minicaffe import Net
    >>> Net("lenet", "TEST", device="cpu", shapes_only=True, numerics=Numerics(dtype="float64")).context.dtype
    dtype('float64')
    >>> Net("lenet", "TEST", device="cpu", shapes_only=True, dtype="float64").context.dtype
    dtype('float64')
    """

    dtype: Any = None
    precision: str | None = None
    engine: str = "auto"
    workspace_cap: int = CAP
    deterministic: bool = False

    def __post_init__(self) -> None:
        check_name(self.engine)


@dataclass
class Share:
    """The samples start, ..., start + count - 1 of a batch of `whole`, set by layers that read data.

    Of a batch of n samples rank r of `size` has those from n r / size, rounded down, to n (r + 1) / size; with
    `per_rank` each rank has n, and the whole is size n. `communicator` computes sums over the ranks.

    >>> [Share(rank, 3).of(64) for rank in range(3)]
    [(0, 21), (21, 21), (42, 22)]
    >>> Share(1, 3, per_rank=True).of(64)
    (64, 64)
    """

    rank: int = 0
    size: int = 1
    per_rank: bool = False
    communicator: Any = None
    start: int = 0
    count: int = 1
    whole: int = 1
    told: bool = False  # whether a layer has set the size of a batch
    sums: bool = False  # whether layers compute sums over the ranks

    def of(self, batch: int) -> tuple[int, int]:
        """The first of a batch's samples on this rank, and how many. Raises ShapeError for no such share."""
        start, end, whole = 0, batch, batch
        if self.size > 1 and self.per_rank:
            start, end, whole = batch * self.rank, batch * (self.rank + 1), batch * self.size
        elif self.size > 1:
            start, end = (batch * rank // self.size for rank in (self.rank, self.rank + 1))
            if batch < self.size:
                raise ShapeError(f"{batch} samples in a batch are too few for {self.size} ranks")
        count, other = end - start, self.whole
        if not self.told:
            self.start, self.count, self.whole, self.told = start, count, whole, True
        elif (start * other, count * other) != (self.start * whole, self.count * whole):
            raise ShapeError(
                f"batches of {whole} and, in another layer, of {other} samples have parts of one size only"
                f" where {self.size} ranks divide both"
            )
        return start, count

    def of_shape(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], slice]:
        """The shape of a blob for the whole batch and on this rank, and the slice of this rank's entries.

        >>> Share(1, 2).of_shape((5, 3))
        ((5, 3), (3, 3), slice(2, 5, None))
        """
        if not shape:
            return shape, shape, slice(0)
        start, count = self.of(shape[0])
        return (self.of_whole(count), *shape[1:]), (count, *shape[1:]), slice(start, start + count)

    def of_whole(self, n: int) -> int:
        """Scale a number n of this rank's part to the whole batch. Raises ShapeError.

        >>> share = Share(1, 4)
        >>> share.of(8), share.of_whole(6), share.before(6)
        ((2, 2), 24, 6)
        """
        return n if self.size == 1 else self._scaled(n, self.whole)

    def before(self, n: int) -> int:
        """Scale a number n of this rank's part to the part before it. Raises ShapeError."""
        return 0 if self.size == 1 else self._scaled(n, self.start)

    def _scaled(self, n: int, by: int) -> int:
        if n % self.count:
            raise ShapeError(
                f"{n} of the {self.count} samples of rank {self.rank} are no whole number a sample: on several"
                " ranks the first axis is the batch's"
            )
        return n // self.count * by

    def sum(self, array: Any) -> Any:
        """Sum the array over all ranks, in place."""
        self.sums = True
        if not device_of(array).is_cuda:
            on_the_host("a sum over ranks")
        return self.communicator.allreduce(array)


FLOAT32 = np.dtype("float32")
SINGLE = Numerics(dtype=FLOAT32)


@dataclass
class Context:
    """What the layers of one net share: device, numerics, state, seed, folder of the model, workspace.

    Its numerics name a NumPy type. With `forward_only` no layer runs backward. `share` is this rank's share
    of a batch. `passes` counts the forward passes so far: data and dropout are functions of (seed, layer,
    passes). A backward pass is of `loss_scale` times the loss. `tell` receives messages about the data for
    the user. `taken` counts how often layers allocated buffers. `slots` hold the step constants. `refused`
    has an int32 for each layer that may refuse labels, indices or regions: see Layer.refused.
    """

    device: Device
    numerics: Numerics = SINGLE
    state: State = TRAIN
    seed: int = 1
    folder: Any = None
    forward_only: bool = False
    share: Share = field(default_factory=Share)
    passes: int = 0
    loss_scale: float = 1.0
    tell: Callable[[str], None] = note
    workspace_size: int = 0
    taken: int = 0

    def __post_init__(self) -> None:
        self.dtype = self.numerics.dtype
        self.slots = Slots(self.device)
        self.refused = np.zeros(0, np.int32)
        self.refusals: memoryview = self.refused.data  # the same, read without NumPy

    @property
    def phase(self) -> Phase:
        return self.state.phase or "TRAIN"

    def reserve(self, elements: int) -> None:
        """Ask for a workspace of at least this many elements."""
        self.workspace_size = max(self.workspace_size, elements)
        if "workspace" in vars(self) and self.workspace.size < elements:
            del self.workspace

    @property
    def sum_dtype(self) -> Any:
        """The type of labels, sums and losses, which need more than 16 bits: float32, or the net's."""
        return FLOAT32 if self.dtype.itemsize == 2 else self.dtype

    def scratch(self, shape: tuple[int, ...], dtype: Any = None, start: int = 0) -> Any:
        """An array in the workspace, from byte `start` on; of the net's type by default."""
        kind = np.dtype(self.dtype if dtype is None else dtype)
        part = self.workspace.view(np.uint8)[start : start + math.prod(shape) * kind.itemsize]
        return part.view(kind).reshape(shape)

    @functools.cached_property
    def workspace(self) -> Any:
        """One flat buffer, shared by all layers; its content lasts for one call of a layer."""
        return aligned.empty(self.device.xp, self.workspace_size, self.dtype)


ALL = Share()


class Order:
    """Which entries each batch holds: all, repeated without end, `shuffle`d by (seed, epoch) or in order."""

    def __init__(
        self, name: str, count: int, shuffle: Callable[..., Any] | None, rand_skip: int = 0
    ):
        self.name, self.shuffle, self.rand_skip = name, shuffle, rand_skip
        self.order = np.arange(count)
        self.begin = 0  # entries before the first pass
        self.shuffled: tuple[int, int] | None = None  # the (seed, epoch) of `order`

    def first(self, seed: int, passes: int, n: int) -> int:
        """How many entries are visited before a pass whose batches have n entries."""
        skip = self.rand_skip and random_stream(seed, "skip", self.name).integers(self.rand_skip)
        return self.begin + passes * n + int(skip)

    def take(
        self, seed: int, passes: int, index: np.ndarray, epochs: np.ndarray, share: Share = ALL
    ) -> None:
        """Write a batch's entries (this rank's, with a `share`) into `index`, their epochs into `epochs`."""
        n, filled = len(index), 0
        first = self.first(seed, passes, share.of_whole(n)) + share.before(n)
        while filled < n:
            epoch, entry = divmod(first + filled, len(self.order))
            if self.shuffle is not None and (seed, epoch) != self.shuffled:
                self.shuffled = None  # if an interrupt comes here, the next call starts again
                self.order.sort()
                self.shuffle(random_stream(seed, "order", self.name, epoch), self.order)
                self.shuffled = (seed, epoch)
            part = self.order[entry : entry + n - filled]
            index[filled : filled + len(part)] = part
            epochs[filled : filled + len(part)] = epoch
            filled += len(part)
