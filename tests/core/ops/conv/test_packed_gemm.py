"""What is the packed engine's alone: images in bands of lines, and bits that do not depend on the number of threads."""

import pytest
from core.ops.cases import EDGES, cases, convolutions, dtypes, seeds
from core.ops.conv.test_conv import DIRECTIONS, check, check_threads, on_threads
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu.conv import packed_gemm
from minicaffe.core.ops.geometry import ConvGeometry, Window

every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
compiled = pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)


@pytest.fixture
def narrow(monkeypatch):
    """Blocks of a line, or of a few, or of few samples; chunks of few tiles."""
    tables = [one for one in vars(packed_gemm).values() if hasattr(one, "cache_clear")]

    def set_to(places, deep):
        for name, size in (("BLOCK", places), ("LINE", places), ("TILES", deep), ("TURNED", deep)):
            monkeypatch.setattr(packed_gemm, name, size)
        for table in tables:
            table.cache_clear()

    yield set_to
    monkeypatch.undo()
    for table in tables:
        table.cache_clear()


@on_threads
@compiled
@every_direction
@cases(30)
@given(
    convolutions(), st.sampled_from([1, 20, 70, 512]), st.sampled_from([1, 3, 128]), dtypes, seeds
)
def test_blocks_against_loops(device, narrow, direction, g, places, deep, dtype, seed):
    narrow(places, deep)
    check(device, "packed", direction, g, dtype=dtype, seed=seed)


@compiled
@pytest.mark.parametrize("direction", DIRECTIONS[:2])
@pytest.mark.parametrize("name", ["more places than a tile", "three axes", "two groups"])
def test_the_same_bits_by_any_number_of_threads(monkeypatch, device, crew, direction, name):
    check_threads(monkeypatch, crew, device, "packed", direction, EDGES[name])


@compiled
@pytest.mark.parametrize("threads", [1, 2, 3, 8], indirect=True)
@pytest.mark.parametrize("g", [
    ConvGeometry(1, 832, (7, 7), 17, Window((1, 1))),  # more elements than are summed at a time
    ConvGeometry(5, 304, (14, 14), 9, Window((1, 1))),
    ConvGeometry(6, 24, (4, 8), 1, Window((1, 1))),  # of several samples together
    ConvGeometry(6, 24, (7, 7), 2, Window((1, 1)), 2),
    ConvGeometry(1, 32, (29, 9), 70, Window((1, 1))),
    ConvGeometry(3, 40, (17, 19), 48, Window((1, 1), (2, 2))),
    ConvGeometry(1, 3, (31, 37), 33, Window((7, 5), (2, 4), (3, 2))),
    ConvGeometry(1, 65, (8, 22), 3, Window((2, 2))),
    ConvGeometry(2, 1, (4, 8), 3, Window((2, 1), (1, 1), (0, 4))),
    ConvGeometry(2, 7, (5, 6), 40, Window((3, 3), (), (1, 1))),  # lines of fewer places than a tile
    ConvGeometry(1, 160, (14, 14), 25, Window((3, 3), pad=(1, 1))),  # F(4x4) from here on
    ConvGeometry(3, 48, (8, 9), 33, Window((3, 3), pad=(1, 1)), 3),
    ConvGeometry(2, 17, (31, 58), 64, Window((3, 3), pad=(0, 2))),
    ConvGeometry(9, 20, (3, 5), 18, Window((3, 3), pad=(1, 1))),
    ConvGeometry(1, 500, (7, 9), 512, Window((3, 3), pad=(1, 1))),  # F(2x2)
])  # fmt: skip
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_shapes_that_nothing_divides(device, threads, direction, g, dtype):
    check(device, "packed", direction, g, dtype=dtype)
