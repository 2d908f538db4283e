"""Fusion of neighbouring compiled loops over the same entries: memory is read and written once.

A BatchNorm is fused with a Scale, and both with a ReLU; so is the sum of two blobs with a ReLU. A ReLU in
place and a pooling that follow a convolution become its epilogue, which runs while the outputs are still in
the cache. The results are equal to the bit. See examples/benchmarks/results/scale_in_training_cpu.json; with
other steps (BatchNorm, sums, other functions) an epilogue is no faster: epilogues_cpu.json there.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, Tail, loops, no_bias
from minicaffe.backends.cpu.command import Command, LoopCommand, arrays, place

Named = tuple[str, Command]  # the name of a command's layer, and the command


def joined(rows: Sequence[Named]) -> list[Named]:
    """The commands, some of them fused; a fused one has the names of its first and last layer."""
    fused: list[tuple[str, str, Command]] = []  # the first layer, the last, and the command
    for what, row in rows:
        fused.append((what, what, row))
        while len(fused) > 1:
            (first, _, one), (*_, then) = fused[-2:]
            join = JOINS.get((one.name, then.name))
            both = join and join(one, then)
            if both is None:
                break
            fused[-2:] = [(first, what, both)]
    return [(_layers(first, last), row) for first, last, row in fused]


def _layers(first: str, last: str) -> str:
    """The name of a command: its layers, then the direction."""
    return last if first == last else f"{first.rpartition(' ')[0]} to {last}"


def _normalised(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """The remembered statistics of a BatchNorm, and the normalisation of each channel by them."""
    *_, mean_out, _, rate = row.args
    x, (outer, features, inner), mean, many, y = then.args
    known = place(mean_out) == place(mean) and place(rate) == place(many)
    if not (known and row.n == then.n == features and _in_place(then, x, y)):
        return None
    compiled: Any = loops("normalize", y.dtype)
    none = no_bias(y.dtype)
    more_args = (outer, features, inner), (False, none, none, False), y
    return LoopCommand(compiled.chain, (*row.args, *more_args), row.n, then.slices)


def _scaled(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """The same, with a scale of the same channels."""
    *past, (outer, features, inner), (scales, *_), y = row.args
    _, factor, term, whole, to, f, p = then.args
    alike = (f, p, then.n) == (features, inner, outer * features)
    if scales or whole or not alike or not _in_place(then, y, to):
        return None
    return replace(row, args=(*past, (outer, features, inner), (True, factor, term, False), y))


def _normalised_and_scaled(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """A normalisation, and a scale of its channels to other memory, as when training."""
    x, (outer, features, inner), *_, z = row.args
    to_scale, factor, term, whole, y, f, p = then.args
    alike = (place(to_scale), f, p, row.n, then.n) == (place(z), features, inner, f, f * outer)
    if whole or not alike or any(map(np.may_share_memory, (x, x, y), (y, z, z))):
        return None
    compiled: Any = loops("normalize", y.dtype)
    more_args = (True, factor, term, False), y
    return LoopCommand(compiled.normalise_and_scale, (*row.args, *more_args), row.n, row.slices)


def _rectified(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    *first_args, (scales, factor, term, rectified), y = row.args
    if rectified or not scales or not _in_place(then, y, then.args[-1]):
        return None
    return replace(row, args=(*first_args, (True, factor, term, True), y))


def _rectified_sum(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    a, *of_a, b, of_b, sizes, y, of_y = row.args
    whole = (*of_a, of_b, of_y, sizes) == ((1,), (1,), (1,), (row.n,))
    apart = place(y) not in (place(a), place(b))
    if not (whole and apart and _in_place(then, y, then.args[-1]) and then.n == row.n):
        return None
    compiled: Any = loops("elementwise", y.dtype)
    return LoopCommand(compiled.rectified_sum, (a, b, y), row.n, row.slices)


def _follows(
    row: LoopCommand, name: str, tail: Tail | None = None, reads: Any = None
) -> LoopCommand | None:
    """A convolution with one more step of `filters` in its epilogue, if that comes behind those in it.

    Its loop must compute neighbouring outputs together. What a step `reads` is known to packed weights only.
    """
    if row.name == "winograd.forward":
        phases, planes = row.args[3][5][1], row.args[3][6][1]
        if (phases[0][0], phases[1][0], *planes[:2]) != (1, 1, 1, 1):
            return None
    step = getattr(loops("filters", row.args[1].dtype), name)
    steps, of_each, _, *rest = row.args[0]
    epilogue = steps | step, of_each, tail or Tail(), *([reads] if reads else rest)
    return None if step <= steps else replace(row, args=(epilogue, *row.args[1:]))


def _convolution_normalised(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """A convolution of packed weights, and a BatchNorm and a Scale of its outputs."""
    *past, (_, features, inner), (scales, factors, terms, rectified), y = then.args
    has_both = scales and not rectified and factors.size and terms.size
    _, of_each, _, (*_, other) = row.args[0]
    if not has_both or not _same(row.args[1], y) or (features, inner) != of_each:
        return None
    return _follows(row, "NORMALISES", reads=(tuple(past), factors, terms, other))


def _convolution_added(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """A convolution of packed weights, and the sum of its outputs, over which that lies, and others."""
    a, *of_a, b, of_b, sizes, y, of_y = then.args
    other = b if _same(a, y) else a
    whole = (*of_a, of_b, of_y, sizes) == ((1,), (1,), (1,), (then.n,)) and then.n == y.size
    apart = _same(row.args[1], y) and not np.may_share_memory(other, y) and other.dtype == y.dtype
    if not (whole and apart and _same(a if other is b else b, y)):
        return None
    return _follows(row, "ADDS", reads=(*row.args[0][3][:3], other))


def _convolution_rectified(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    x, _, y = then.args
    if not (_same(row.args[1], y) and _same(x, y) and then.n == y.size):
        return None
    return _follows(row, "RECTIFIES")


def _convolution_pooled(row: LoopCommand, then: LoopCommand) -> LoopCommand | None:
    """A convolution, and the pooling of its channels, each computed as one and in the cache."""
    x, plane = then.args[0], row.args[0][1][1]
    whole = _same(row.args[1], x) and then.n * plane == x.size and plane <= IN_CACHE
    return _tailed(row, then, plane) if whole and _has_planes(row) else None


def _has_planes(row: LoopCommand) -> bool:
    """True if a convolution finishes whole channels of an image together."""
    if row.name.startswith("packed_gemm."):
        return bool(row.args[2][0] == 1)
    if row.name == "winograd.forward":
        _, (_, lines), _, tiles, *_ = row.args[3]
        return bool(lines >= tiles[0])
    if row.name == "implicit.forward":
        (groups, *_), parts, (channels, plane) = row.args[3], row.args[7], row.args[0][1]
        return row.n * channels * plane == row.args[1].size * groups * parts
    return True


def _tailed(row: LoopCommand, then: LoopCommand, size: int) -> LoopCommand | None:
    """A convolution that calls the loop behind, if that writes nothing it reads; with new scratch for both."""
    y = row.args[1]
    args = tuple([Piece(np.empty_like(a.work)) if isinstance(a, Piece) else a for a in then.args])
    of_row, of_tail = ([a for a in arrays(some) if not _same(a, y)] for some in (row.args, args))
    if any(np.may_share_memory(a, b) for a in of_row for b in of_tail):
        return None
    return _follows(row, "POOLS", Tail(then.loop, args, size))


def _same(a: Any, b: Any) -> bool:
    return bool(place(a) == place(b))


def _in_place(row: LoopCommand, x: Any, y: Any) -> bool:
    """Whether a command's first argument is x, and y has the same memory."""
    return place(row.args[0]) == place(x) == place(y)


# Loops whose first arguments are an epilogue and y
OF_PACKED = "packed_gemm.forward", "packed_gemm.winograd"
OTHERS = "depthwise", "direct", "implicit", "winograd", "winograd_filters"
CONVOLUTIONS = *OF_PACKED, *(f"{file}.forward" for file in OTHERS)
IN_CACHE = 2**12  # outputs of a channel that is pooled where it is computed
POOLINGS = "pool.largest", "pool.max_pool", "pool.max_halve", "pool.ave_pool"
JOINS: dict[tuple[str, str], Callable[[Any, Any], LoopCommand | None]] = {
    ("normalize.recall", "normalize.normalise"): _normalised,
    ("normalize.chain", "normalize.scale"): _scaled,
    ("normalize.chain", "elementwise.ReLU_y"): _rectified,
    ("normalize.normalise", "normalize.scale"): _normalised_and_scaled,
    ("normalize.normalise_and_scale", "elementwise.ReLU_y"): _rectified,
    ("elementwise.add", "elementwise.ReLU_y"): _rectified_sum,
}
for _packed in OF_PACKED:
    JOINS[_packed, "normalize.chain"] = _convolution_normalised
    JOINS[_packed, "elementwise.add"] = _convolution_added
for _convolution in CONVOLUTIONS:
    JOINS[_convolution, "elementwise.ReLU_y"] = _convolution_rectified
    JOINS |= {(_convolution, pooling): _convolution_pooled for pooling in POOLINGS}
