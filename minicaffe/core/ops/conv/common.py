"""What the engines share: the bias, and partial sums of the weight gradient, one for each thread."""

import math
from collections.abc import Callable
from typing import Any

from minicaffe.backends.aligned import ENTRIES
from minicaffe.backends.dispatch import in_slices, op
from minicaffe.core.ops import arrays
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.core.ops.sums import add_places

COPIED = 3 * 2**19  # entries of columns and outputs from which NumPy is faster with threads,
EACH = 2**18  # and the least that each of them has


def by_samples(part: Callable[..., None], g: ConvGeometry, work: Any) -> list[Any]:
    """Runs part(first, last, work) over slices of the samples, and returns their pieces of `work`."""
    each = 1 + g.column_elements + g.f * g.places
    return in_slices(part, g.n, work, 1 + EACH // each, 1 + COPIED // each)


def partial_sums(work: Any, g: ConvGeometry) -> Any:
    """Returns a thread's partial sums of dweight, zeroed: (group, f / group, k), at the end of its work."""
    sums = work[work.size - math.prod(g.weight_shape) :]
    arrays.fill(sums, 0)
    return sums.reshape(g.group, g.f // g.group, -1)


def add_partial_sums(pieces: list[Any], out: Any) -> None:
    """Adds the partial sums of all threads to `out`, in the order of the threads."""
    for piece in pieces:
        arrays.add(piece[piece.size - out.size :].reshape(out.shape), out)


@op(array="out", traced=False)
def add_bias(bias: Any | None, out: Any) -> None:
    """Adds bias (f,) to out (n, f, *out)."""
    if bias is not None:
        n, f, *sizes = out.shape
        arrays.add(bias.reshape(-1, 1), out.reshape(n, f, math.prod(sizes)))


def bias_workspace(g: ConvGeometry, cuda: bool = False) -> int:
    """Returns the elements of workspace for one thread of `bias_gradient`; on CUDA they are optional."""
    return max(g.places, g.n) + (g.n + 1) * g.f if cuda else -(-g.f // ENTRIES) * ENTRIES


@op(traced=False)
def bias_gradient(dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """Adds dbias[f] = sum over samples and places of dy to `out` (f,), and returns it."""
    dy = dy.reshape(g.n, g.f, g.places)

    def part(first: int, last: int, work: Any) -> None:
        add_places(dy[first:last], work[-g.f :], add=False)

    for piece in by_samples(part, g, work):
        arrays.add(piece[-g.f :], out)
