"""What a rank does that test_sums.py starts: sums of many sizes, one behind the other, late here and there."""

import itertools
import random
import sys
import time

import numpy as np
import pytest

pytest.importorskip("mpi4py")
from minicaffe.tools.parallel import mpi, world

SIZES = (0, 1, 7, 8191, 8192, 8193, 40_000, 70_001)
KINDS, TYPES = ("allreduce", "reduce_scatter", "allgather"), ("float32", "float64")
AGAIN = 12  # calls for what was asked for before


def brought(rank: int, call: int, size: int, dtype: str) -> np.ndarray:
    """What a rank brings to a call."""
    return np.random.default_rng([rank, call]).normal(size=size).astype(dtype)


class Late:
    """MPI's window, of a rank that is late, here and there, to read what is lent."""

    def __init__(self, window, late: random.Random):
        self.window, self.late = window, late

    def Fence(self) -> None:  # noqa: N802  (MPI's name)
        self.window.Fence()
        if self.late.random() < 0.1:
            time.sleep(self.late.random() / 500)


def main() -> None:
    """Sum, in memory that is shared if it is worth it, and print what came of it."""
    mpi.LENT, mpi.WORTH = int(sys.argv[1]), int(sys.argv[2])
    ranks, same = world(), random.Random(0)
    late, found = random.Random(ranks.rank), []
    known = {}  # what was asked for before, with its array
    if not mpi.WORTH:
        ranks.window.window = Late(ranks.window.window, random.Random(-ranks.rank - 1))
    calls = [*itertools.product(KINDS, SIZES, TYPES)]
    same.shuffle(calls)
    for call, (kind, size, dtype) in enumerate(calls + calls[:AGAIN]):
        if late.random() < 0.3:
            time.sleep(late.random() / 200)
        key = kind, size, dtype
        if key not in known:
            array = np.empty(size, dtype)
            known[key] = array, getattr(ranks, f"{kind}_init")(array)
        array, work = known[key]
        array[:] = brought(ranks.rank, call, size, dtype)
        all_of_them = [brought(rank, call, size, dtype) for rank in range(ranks.size)]
        first, last = ranks.bounds(size)[ranks.rank : ranks.rank + 2]
        total, wanted = sum(all_of_them), array.copy()
        if kind == "allgather":
            for rank, one in enumerate(all_of_them):
                here = slice(*ranks.bounds(size)[rank : rank + 2])
                wanted[here] = one[here]
        elif kind == "reduce_scatter":
            wanted[first:last] = total[first:last]
        else:
            wanted = total
        work()
        rounding = np.finfo(dtype).eps * (
            1 + sum(np.abs(one).max(initial=0) for one in all_of_them)
        )
        assert np.abs(array - wanted).max(initial=0) <= rounding, (kind, size, dtype)
        if kind != "reduce_scatter":
            found.append(array.tobytes().hex()[:4000])
    assert len(set(ranks.allgather_obj("".join(found)))) == 1, "ranks have other bits"
    assert np.isinf(ranks.allreduce(np.full(20_000, 3e38, np.float32))).all()
    assert (ranks.allreduce(np.full(20_000, 0.5, np.float16)) == 0.5 * ranks.size).all()
    turned = np.full((100, 200), 1.0, np.float32, order="F")
    assert (ranks.allreduce(turned) == ranks.size).all(), "not as it lies in memory"
    taken = "window" in vars(ranks)
    if ranks.rank == 0:
        print("shared" if taken else "messages", "".join(found)[:2000])


if __name__ == "__main__":
    main()
