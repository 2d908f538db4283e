"""Sums: of all entries, of columns, of rows. On CUDA always in one order, in memory that is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import THREADS, launch_blocks
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.arrays import GRAIN

SECTOR = 8  # neighbours that are read at once: 32 bytes of float32
BLOCKS = 256  # that are enough to keep a device busy
EACH = 16  # entries at the least that a thread is worth starting for
WORK = 4 * BLOCKS  # elements of work with which `total` is as fast as can be
OF = ("values", "squares", "magnitudes")  # what can be summed, by its number in sums.cu


def total(
    x: Any,
    out: Any,
    work: Any = None,
    *,
    scale: float = 1.0,
    squares: bool = False,
    add: bool = False,
) -> Any:
    """out = scale (sum of x), of the squares with `squares`, plus what it was with `add`.

    out is of shape (), of x's type, or float32 for one of 16 bits, in which it is summed. `work` is flat
    scratch that makes large sums quicker: it is as right, and slower, without.

    >>> total(np.array([3.0, 4.0]), np.array(1.0), scale=2, squares=True, add=True)
    array(51.)
    """
    if on_cuda(x):
        _launch(x, (1, 1, x.size), out, work, scale, int(squares), add)
        return out
    fast: Any = loops("sums", x.dtype)
    if fast is not None and x.flags.c_contiguous:
        given, scaled = (x.reshape(-1), int(squares)), (float(scale), add, out.reshape(1))
        if work is None or work.dtype != x.dtype or not work.size or x.size < 2 * GRAIN:
            run(fast.total, 1, *given, *scaled)
            return out
        slices = run(
            fast.part, x.size, *given, Piece(work), grain=max(GRAIN, -(-x.size // work.size))
        )
        run(fast.together, 1, work, work.size // slices, slices, *scaled)
        return out
    return do(_total, x, scale, squares, add, out=out)


def _total(x: Any, scale: float, squares: bool, add: bool, out: Any) -> Any:
    value = np.vdot(x, x) if squares else np.sum(x, dtype=out.dtype)
    out[...] = scale * value + (out if add else 0)
    return out


def rows(x: Any, out: Any, work: Any, of: str = "values", scale: float = 1.0) -> Any:
    """out[i] = scale (sum of row i of x), of its squares or magnitudes; x (m, k), `work` flat, of x's size.

    >>> rows(np.array([[3.0, -4.0]]), np.empty(1), np.empty(2), of="magnitudes", scale=2.0)
    array([14.])
    """
    if on_cuda(x):
        _launch(x, (1, *x.shape), out, work, scale, OF.index(of))
        return out
    fast: Any = loops("sums", x.dtype)
    if fast is not None and x.flags.c_contiguous:
        m, k = x.shape
        given = x.reshape(-1), k, OF.index(of), float(scale), out
        run(fast.rows, m, *given, grain=1 + GRAIN // max(k, 1))
        return out
    if of != "values":
        work = work[: x.size].reshape(x.shape)
        x = do(np.abs if of == "magnitudes" else np.square, x, out=work)
    do(np.add.reduce, x, axis=1, out=out)
    return do(np.multiply, out, scale, out=out)


def add_rows(rows: Any, out: Any, add: bool = True) -> Any:
    """out += the sum of `rows`, from the first on, or = without `add`; (count, ...) to (...).

    >>> add_rows(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    array([5., 7.])
    """
    if on_cuda(rows):
        _launch(rows, (len(rows), out.size, 1), out, None, add=add)
        return out
    if not add:
        return do(np.add.reduce, rows, axis=0, out=out)
    for row in rows:
        do(np.add, out, row, out=out)
    return out


def add_places(x: Any, out: Any, work: Any = None, add: bool = True) -> Any:
    """out[f] += the sum of x over its samples and places, or = without `add`; x (n, f, p). `work` as in
    `total`.

    >>> add_places(np.arange(12.0).reshape(2, 3, 2), np.zeros(3))
    array([14., 22., 30.])
    """
    if on_cuda(x):
        _launch(x, x.shape, out, work, add=add)
        return out
    return do(_add_places, x, add, out=out)


def _add_places(x: Any, add: bool, out: Any) -> Any:
    sums = np.einsum("nfp->f", x)
    return np.add(out, sums, out=out) if add else np.copyto(out, sums)


def in_sum_type(work: Any, like: Any) -> Any:
    """Flat work on CUDA in the type that sums of `like` are taken in; none where there is no work."""
    if work is None:
        return like.reshape(-1)[:0]
    dtype = np.dtype(np.float64 if like.dtype == np.float64 else np.float32)
    work = work[-work.data.ptr % dtype.itemsize // work.itemsize :]  # it may begin between two
    return work[: work.size - work.size % max(1, dtype.itemsize // work.itemsize)].view(dtype)


def _launch(
    x: Any,
    shape: tuple[int, int, int],
    out: Any,
    work: Any,
    scale: float = 1.0,
    of: int = 0,
    add: bool = False,
) -> None:
    """Sum x (outer, kept, inner) over its outer and inner axis into `out`, in one launch or in two."""
    outer, kept, inner = shape
    entries, wide = outer * inner, SECTOR if inner == 1 and kept > 1 else 1
    while wide < min(kept, THREADS // 8) and THREADS // wide > entries:  # more threads than entries
        wide *= 2
    # Neighbours enough for all blocks: more of them side by side
    while inner == 1 and wide < THREADS and kept >= 2 * wide * 4 * BLOCKS:
        wide *= 2
    blocks, sums = -(-kept // wide), in_sum_type(work, x)
    most = min(BLOCKS // max(1, blocks), entries * wide // (EACH * THREADS))
    parts = max(1, min(most, sums.size // max(1, kept)))
    number = (np.float64 if x.dtype == np.float64 else np.float32)(scale)
    to = out if parts == 1 else sums
    args = entries, kept, max(1, inner), wide, of  # a kernel divides by it
    if parts == 1:
        launch_blocks("sums.cu", "sums", (blocks,), (x, to), x, *args, number, int(add), to)
        return
    one = type(number)(1)
    launch_blocks("sums.cu", "sums", (blocks, parts), (x, to), x, *args, one, 0, to)
    _launch(sums[: parts * kept], (parts, kept, 1), out, None, scale, add=add)
