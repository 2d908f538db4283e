"""What sums over rows on CUDA: statistics, gradients; and entries, where a block has whole rows."""

from __future__ import annotations

from typing import Any

from minicaffe.backends.cuda.capture import arrived
from minicaffe.backends.cuda.launch import launch_blocks
from minicaffe.core.ops.rows import KINDS, Affine, Cut, Norm, Past, Rows, Statistics, cut

FILE = "normalize.cu"
NOTHING = (None, None, 1, 1, None, None, None, None, 0)  # becomes of entries: as `ends` has it


def ends(affine: Affine | None, out: Any) -> tuple[Any, ...]:
    """What becomes of normalised entries, as normalize.cu has it: `out` is they, or what is learnt of them."""
    y, z = (out, None) if affine is None else (None, out)
    return *learned(affine), y, z, None, None, 0


def learned(affine: Affine | None) -> tuple[Any, Any, int, int]:
    """Scale, bias, and how they are found, for a kernel."""
    if affine is None:
        return None, None, 1, 1
    return affine.scale, affine.bias, affine.rows.kept, affine.places


def moments(
    x: Any,
    rows: Rows,
    norm: Norm,
    out: Statistics,
    work: Any,
    past: Past | None,
    then: tuple[Any, ...] = NOTHING,
) -> bool:
    """Find the statistics; where blocks have whole rows, `then` becomes of the entries: whether they do."""
    part, number = cut(rows, work, x), out.mean.dtype.type
    sums: tuple[Any, ...] = number(0), number(0), None, None, None
    if past is not None:
        sums = (
            number(past.fraction),
            number(past.correction),
            past.mean,
            past.variance,
            past.batches,
        )
    launch_blocks(
        FILE,
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
    over: Rows,
    work: Any,
    of: tuple[Rows, Norm, Statistics] | None = None,
    affine: Affine | None = None,
    learnt: tuple[Any, Any] = (None, None),
    g: Any = None,
    dx: Any = None,
) -> Cut:
    """Sums over rows, and what follows from them: see `gradients` in normalize.cu.

    `of` tells how x is normalised. The sums of dy and of dy y are added to `learnt`, dscale and dbias; g = dy
    scale; dx is found where blocks have whole rows, else the means that it takes.
    """
    part = cut(over, work, x)
    scale, _, features, places = learned(affine)
    rows, norm, found = of or (over, None, None)
    number = part.parts.dtype.type
    seen = None if found is None else found.mean, None if found is None else found.rate
    kind, eps = (0, 0.0) if norm is None else (KINDS.index(norm.kind), norm.eps)
    launch_blocks(
        FILE,
        "gradients",
        part.grid,
        (x,),
        *(over.count, x, None, dy, scale, features, places, *seen, *rows.seen, *over.seen),
        *(part.wide, kind, number(eps), part.parts, arrived(), *learnt, g),
        *(None if dx is None else part.means, dx if part.whole else None),
        threads=part.threads,
    )
    return part
