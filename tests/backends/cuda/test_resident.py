"""Which of BatchNorm's rows clusters of blocks hold in shared memory; what is computed of them: test_launch.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from core.ops.launch_rows import held_in_memory
from core.solver.twins import SMALL, Twins
from kit import few_digits

from minicaffe import Solver, parse
from minicaffe.backends.cuda import moments
from minicaffe.core.ops.rows import Rows
from minicaffe.core.solver.report import Mute

ROWS = {  # at batch 32: blocks there and back, 0 where rows are not held, and the bytes of each
    "64 channels of 112 x 112": (Rows(1, 32, 64, 12544), (8, 200704), (0, 0)),
    "256 of 56 x 56": (Rows(1, 32, 256, 3136), (4, 100352), (8, 100352)),
    "512 of 28 x 28": (Rows(1, 32, 512, 784), (1, 100352), (2, 100352)),
    "1,024 of 14 x 14": (Rows(1, 32, 1024, 196), (1, 25088), (1, 50176)),
    "2,048 of 7 x 7, by no packs": (Rows(1, 32, 2048, 49), (0, 0), (0, 0)),
    "3 of 224 x 224, too few": (Rows(1, 1, 3, 50176), (0, 0), (0, 0)),
    "short ones": (Rows(1, 5, 512, 784), (0, 0), (0, 0)),
    "more than are counted": (Rows(1, 32, 2**17, 784), (0, 0), (0, 0)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_held(monkeypatch, name):
    """Where a pack of 16 bytes is of one row; of an H100."""
    rows, *wanted = ROWS[name]
    monkeypatch.setattr(moments, "capability", lambda number: 90)
    launches = []
    monkeypatch.setattr(moments, "launch_blocks", lambda *_, **words: launches.append((_, words)))

    def held(copies, dtype=np.float32, at=0, other=0):
        arrays = [SimpleNamespace(data=SimpleNamespace(ptr=start)) for start in (at, other)]
        arrays[0].dtype, arrays[0].device = np.dtype(dtype), SimpleNamespace(id=0)
        if not moments.resident("f", rows, copies, (*arrays, None)):
            return 0, 0
        (_, grid, types, count), words = launches.pop()
        assert grid == (rows.count, types[1]) and count == rows.count and words["threads"] == 512
        return types[1], words["shared"]

    assert [held(1), held(2)] == wanted
    assert held(1, np.float64) == held(1, at=4) == held(1, other=8) == (0, 0)
    monkeypatch.setattr(moments, "capability", lambda number: 120)
    assert held(1) == (0, 0)


def test_a_net_replays_them_to_the_bit(cuda, monkeypatch):
    real, names = moments.launch_blocks, set()
    few_digits(monkeypatch, 60, 20)
    monkeypatch.setattr(moments, "launch_blocks", lambda *a, **b: names.add(a[0]) or real(*a, **b))
    with held_in_memory(cuda):
        twins = Twins(lambda: Solver(parse(SMALL.format(more="")), device=cuda, report=Mute()))
        twins.step(6)
    assert twins.replays and names >= {"resident_moments", "resident_gradients"}
