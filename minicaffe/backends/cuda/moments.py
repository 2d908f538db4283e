"""What sums over rows on CUDA: statistics, gradients; and entries, where a block has whole rows."""

from typing import Any, NamedTuple

from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.launch import (
    BLOCKS,
    EACH,
    GRID,
    SECTOR,
    THREADS,
    in_sum_type,
    launch_blocks,
)
from minicaffe.backends.device import TOO_MANY
from minicaffe.errors import ShapeError

KINDS = ("variance", "deviation", "mean", "length")  # as the kernels count them
ALONE = 64  # blocks from which on each has whole rows, so that one kernel does all
MOST = 1024  # threads of a block that has long rows, or long parts of them
NOTHING = (None, None, 1, 1, None, None, None, None, 0)  # becomes of entries: as `ends` has it


class Cut(NamedTuple):
    """How rows are shared by blocks."""

    means: Any  # room for two numbers a row
    parts: Any  # room for four numbers of each part of a row
    grid: tuple[int, int]  # blocks, and parts of rows
    wide: int  # rows of a block
    threads: int

    @property
    def whole(self) -> bool:
        """Whether a block has whole rows."""
        return self.grid[1] == 1


def cut(rows: Any, work: Any, like: Any) -> Cut:
    """How the rows of an array are cut, its sums to be taken in `work`; ShapeError for rows too long."""
    (blocks, _), wide = spread(rows)
    room = in_sum_type(work, like)
    means, room = room[: 2 * rows.count], room[2 * rows.count :]
    most = min(BLOCKS // max(1, blocks), rows.length * wide // (EACH * THREADS))
    parts = 1 if blocks >= ALONE else max(1, min(most, room.size // (4 * max(1, rows.count))))
    threads = MOST if rows.length * wide >= EACH * MOST * parts else THREADS
    return Cut(means, room, (blocks, parts), wide, threads)


def spread(rows: Any) -> tuple[tuple[int, int], int]:
    """Returns blocks, parts of rows, and rows of a block, for entries alone; ShapeError for rows too long."""
    if rows.length + 2**16 >= 2**31 or rows.count * rows.length + 2**16 >= 2**32:
        raise ShapeError(f"{rows.count} rows of {rows.length} {TOO_MANY}")
    wide = SECTOR if rows.inner == 1 and rows.kept > 1 else 1
    while THREADS // wide > max(1, rows.length):  # more lanes than entries
        wide *= 2
    return (-(-rows.count // wide), min(GRID, max(1, rows.length * wide // (EACH * THREADS)))), wide


def ends(affine: Any, out: Any) -> tuple[Any, ...]:
    """What becomes of normalised entries, as normalize.cu has it: `out` is they, or what is learnt of them."""
    y, z = (out, None) if affine is None else (None, out)
    return *learned(affine), y, z, None, None, 0


def learned(affine: Any) -> tuple[Any, Any, int, int]:
    """Scale, bias, and how they are found, for a kernel."""
    if affine is None:
        return None, None, 1, 1
    return affine.scale, affine.bias, affine.rows.kept, affine.rows.inner


def moments(
    x: Any, rows: Any, norm: Any, out: Any, work: Any, past: Any, then: Any = NOTHING
) -> bool:
    """Find the statistics; where blocks have whole rows, `then` becomes of the entries: whether they do."""
    part, number = cut(rows, work, x), out.mean.dtype.type
    sums: tuple[Any, ...] = number(0), number(0), None, None, None
    if past is not None:
        factors = number(past.fraction), number(past.correction)
        sums = *factors, past.mean, past.variance, past.batches
    launch_blocks(
        "moments",
        part.grid,
        (x,),
        *(rows.count, x, *rows.seen, part.wide, KINDS.index(norm.kind), number(norm.eps)),
        *(part.parts, arrived(), out.mean, out.spread, out.rate, *sums),
        *(then if part.whole else NOTHING),
        threads=part.threads,
    )
    return part.whole


def gradients(
    x: Any,
    dy: Any,
    over: Any,
    work: Any,
    of: tuple[Any, Any, Any] | None = None,
    affine: Any = None,
    learnt: tuple[Any, Any] = (None, None),
    g: Any = None,
    dx: Any = None,
) -> Cut:
    """Sums over rows, and what follows from them: see `gradients` in normalize.cu.

    `of` tells how x is normalised, without a norm by constants. Sums of dy and dy y are added to `learnt`,
    dscale and dbias; g = dy scale; dx is found where blocks have whole rows, else the means that it takes.
    """
    part = cut(over, work, x)
    scale, _, features, places = learned(affine)
    rows, norm, statistics = of or (over, None, None)
    number = part.parts.dtype.type
    seen = (None, None) if statistics is None else (statistics.mean, statistics.rate)
    kind, eps = 0, 0.0
    if of is not None:
        kind, eps = KINDS.index(norm.kind if norm else "mean"), norm.eps if norm else 0.0
    launch_blocks(
        "gradients",
        part.grid,
        (x,),
        *(over.count, x, None, dy, scale, features, places, *seen, *rows.seen, *over.seen),
        *(part.wide, kind, number(eps), part.parts, arrived(), *learnt, g),
        *(None if dx is None else part.means, dx if part.whole else None),
        threads=part.threads,
    )
    return part
