"""What sums over rows on CUDA: statistics, gradients; and entries, where a block has whole rows."""

from typing import Any

from minicaffe.backends.cuda import launch
from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.device import capability
from minicaffe.backends.cuda.launch import in_sum_type, launch_blocks
from minicaffe.backends.device import TOO_MANY
from minicaffe.errors import ShapeError

KINDS = ("variance", "deviation", "mean", "length")  # as the kernels count them
ALONE = 64  # blocks from which on each has whole rows, so that one kernel does all
MOST = 1024  # threads of a block that has long rows, or long parts of them
HOLDING = 90, 100  # compute capabilities with clusters and enough shared memory: of H100, B200
CLUSTERS = 1, 2, 4, 8  # blocks of one
PACK = 16  # bytes that are read at once
LEAST = 16 << 10  # bytes of a row from which on it is held in shared memory
RESIDENT = 512  # threads of a block of those that hold it
ROOM = 100 << 10  # of that a block's part, so that two blocks fit into a multiprocessor
NOTHING = (None, None, 1, 1, None, None, None, None, 0)  # becomes of entries: as `ends` has it


def cut(rows: Any, work: Any, like: Any) -> tuple[Any, ...]:
    """How blocks share the rows of an array, its sums to be taken in `work`; ShapeError for rows too long.

    Returns room for two numbers a row, and for four of each part of it; the grid, of blocks and parts of rows;
    rows of a block; and threads.
    """
    (blocks, _), wide = spread(rows)
    room = in_sum_type(work, like)
    means, room = room[: 2 * rows.count], room[2 * rows.count :]
    most = min(
        launch.BLOCKS // max(1, blocks), rows.length * wide // (launch.EACH * launch.THREADS)
    )
    parts = 1 if blocks >= ALONE else max(1, min(most, room.size // (4 * max(1, rows.count))))
    threads = MOST if rows.length * wide >= launch.EACH * MOST * parts else launch.THREADS
    return means, room, (blocks, parts), wide, threads


def spread(rows: Any) -> tuple[tuple[int, int], int]:
    """Returns blocks, parts of rows, and rows of a block, for entries alone; ShapeError for rows too long."""
    if rows.length + 2**16 >= 2**31 or rows.count * rows.length + 2**16 >= 2**32:
        raise ShapeError(f"{rows.count} rows of {rows.length} {TOO_MANY}")
    wide = launch.SECTOR if rows.inner == 1 and rows.kept > 1 else 1
    while launch.THREADS // wide > max(1, rows.length):  # more lanes than entries
        wide *= 2
    return (
        -(-rows.count // wide),
        min(launch.GRID, max(1, rows.length * wide // (launch.EACH * launch.THREADS))),
    ), wide


def resident(name: str, rows: Any, copies: int, arrays: tuple[Any, ...], *args: Any) -> bool:
    """Run a kernel of resident.cu, if rows can be held in shared memory, in `copies` arrays: whether they can.

    `arrays` are those that it reads and writes by packs; others may be None.
    """
    x, size = arrays[0], arrays[0].dtype.itemsize
    packs = rows.length * size // PACK
    able = size <= 4 and rows.inner * size % PACK == 0 and packs * PACK >= LEAST
    able = able and all(array is None or array.data.ptr % PACK == 0 for array in arrays)
    able = able and rows.count * rows.length < 2**31
    if not able or capability(x.device.id) not in HOLDING:
        return False
    parts = [(blocks, -(-packs // blocks) * PACK * copies) for blocks in CLUSTERS]
    blocks, room = next((part for part in parts if part[1] <= ROOM), parts[-1])
    if room > launch.SHARED or rows.count * blocks < ALONE:
        return False
    words = {"threads": RESIDENT, "shared": room}
    launch_blocks(name, (rows.count, blocks), (x, blocks), rows.count, *args, **words)
    return True


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
    number = out.mean.dtype.type
    sums: tuple[Any, ...] = number(0), number(0), None, None, None
    if past is not None:
        factors = number(past.fraction), number(past.correction)
        sums = *factors, past.mean, past.variance, past.batches
    into = out.mean, out.spread, out.rate, *sums
    if then is not NOTHING and norm.kind == "variance":
        args = x, *rows.seen, number(norm.eps), *into, *then
        if resident("resident_moments", rows, 1, (x, *then[4:6]), *args):
            return True
    _, parts, grid, wide, threads = cut(rows, work, x)
    whole = grid[1] == 1
    args = rows.count, x, *rows.seen, wide, KINDS.index(norm.kind), number(norm.eps), parts
    args = *args, arrived(), *into, *(then if whole else NOTHING)
    launch_blocks("moments", grid, (x,), *args, threads=threads)
    return whole


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
) -> Any:
    """Sums over rows, and what follows from them: see `gradients` in normalize.cu.

    `of` tells how x is normalised, without a norm by constants. Sums of dy and dy y are added to `learnt`,
    dscale and dbias; g = dy scale; dx is found where blocks have whole rows, else returns the means for it.
    """
    scale, _, features, places = learned(affine)
    rows, norm, statistics = of or (over, None, None)
    seen = (None, None) if statistics is None else (statistics.mean, statistics.rate)
    kind, eps = KINDS.index(norm.kind if norm else "mean"), norm.eps if norm else 0.0
    if of is None or (dx is not None and kind == 0):
        args = x, None, dy, scale, features, places, *seen, *rows.seen, *learnt, g, dx, None, None
        if resident("resident_gradients", over, 2, (x, dy, g, dx), *args):
            return None
    means, parts, grid, wide, threads = cut(over, work, x)
    whole = grid[1] == 1
    args = over.count, x, None, dy, scale, features, places, *seen, *rows.seen, *over.seen, wide
    args = *args, kind, parts.dtype.type(eps), parts, arrived(), *learnt, g
    args = *args, None if dx is None else means, dx if whole else None
    launch_blocks("gradients", grid, (x,), *args, threads=threads)
    return None if whole else means
