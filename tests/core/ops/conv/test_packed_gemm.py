"""What is the packed engine's alone: images in bands of lines, and bits that do not depend on the number of threads."""

import pytest
from core.ops.cases import EDGES, cases, convolutions, dtypes, seeds
from core.ops.conv.test_conv import DIRECTIONS, check, check_threads, on_threads
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu.conv import packed_gemm, space_to_depth
from minicaffe.core.ops.geometry import ConvGeometry, Window

every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
compiled = pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)


@pytest.fixture
def narrow(monkeypatch):
    """Blocks of a line, or of a few, or of few samples; panels of few rows."""

    def forget():
        packed_gemm.room.cache_clear()
        packed_gemm._tables.cache_clear()
        packed_gemm._sums.cache_clear()

    def set_to(
        elements, columns=space_to_depth.MOST, depth=space_to_depth.DEPTH, few=space_to_depth.FEW
    ):
        monkeypatch.setattr(space_to_depth, "IN_CACHE", elements)
        monkeypatch.setattr(space_to_depth, "MOST", columns)
        monkeypatch.setattr(space_to_depth, "DEPTH", depth)
        monkeypatch.setattr(packed_gemm, "TURNED", depth)
        monkeypatch.setattr(space_to_depth, "FEW", few)
        monkeypatch.setattr(space_to_depth, "MANY", 64 * depth)
        monkeypatch.setattr(packed_gemm, "RESULTS", 16 * columns)
        forget()

    yield set_to
    monkeypatch.undo()
    forget()


@on_threads
@compiled
@every_direction
@cases(30)
@given(
    convolutions(),
    st.integers(1, 400),
    st.sampled_from([1, 20, 70, 512]),
    st.sampled_from([1, 3, 128]),
    st.sampled_from([0, 2]),
    dtypes,
    seeds,
)
def test_blocks_against_loops(
    device, narrow, direction, g, elements, columns, depth, few, dtype, seed
):
    narrow(elements, columns, depth, few)
    check(device, "packed", direction, g, dtype=dtype, seed=seed)


@compiled
@every_direction
@pytest.mark.parametrize(
    "image, kernel, stride, pad",
    [
        ((3, 1), 1, 2, 1),
        ((17, 6), 3, 2, 1),
        ((19, 5), 7, 2, 3),
        ((23, 7), 3, 3, 1),
        ((2, 9), 2, 4, 1),
    ],
)
@pytest.mark.parametrize("elements", [1, 60])
def test_a_band_has_all_lines_that_it_sees(
    device, narrow, direction, elements, image, kernel, stride, pad
):
    """Of dx those that see the last line are fewer than others: no band ends before it."""
    narrow(elements)
    g = ConvGeometry(2, 2, image, 3, Window((kernel,) * 2, (stride,) * 2, (pad,) * 2))
    check(device, "packed", direction, g)


@compiled
@every_direction
@pytest.mark.parametrize("name", ["more places than a tile", "three axes", "two groups"])
def test_the_same_bits_by_any_number_of_threads(monkeypatch, device, crew, direction, name):
    check_threads(monkeypatch, crew, device, "packed", direction, EDGES[name])


@compiled
@every_direction
@pytest.mark.parametrize("g", [
    ConvGeometry(2, 1, (4, 8), 3, Window((2, 1), (1, 1), (0, 4))),
    ConvGeometry(1, 4, (4, 4, 2), 6, Window((1, 3, 2), (2, 4, 1), (4, 4, 4), (1, 3, 2)), 2),
    ConvGeometry(3, 2, (5, 16), 4, Window((1, 1), (1, 1), (0, 8))),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lines_that_lie_one_in_the_other(device, direction, g, dtype):
    """Of pads wider than the kernel they do: a panel goes back where a line ends, on where a sample does."""
    check(device, "packed", direction, g, dtype=dtype)


@compiled
@on_threads
@pytest.mark.parametrize("g", [
    ConvGeometry(1, 832, (7, 7), 17, Window((1, 1))),  # a column is left of 49, whose panel is deep
    ConvGeometry(5, 304, (14, 14), 9, Window((1, 1))),
    ConvGeometry(1, 160, (14, 14), 25, Window((3, 3), pad=(1, 1))),  # four columns of 196
    ConvGeometry(3, 48, (8, 8), 33, Window((3, 3), (2, 2), (1, 1)), 3),
    ConvGeometry(1, 32, (29, 9), 70, Window((1, 1))),
    ConvGeometry(1, 65, (8, 22), 3, Window((2, 2))),  # panels of 128 rows, the last of 4: no whole vector
])  # fmt: skip
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_columns_that_are_left_are_summed(device, direction, g, dtype):
    check(device, "packed", direction, g, dtype=dtype)


@compiled
@on_threads
@pytest.mark.parametrize("g", [
    ConvGeometry(1, 20, (8, 8), 70, Window((1, 1))),
    ConvGeometry(6, 24, (4, 8), 1, Window((1, 1))),  # outputs of several samples are one run
    ConvGeometry(6, 24, (7, 7), 2, Window((1, 1)), 2),
    ConvGeometry(2, 300, (4, 12), 18, Window((1, 1)), 2),
    ConvGeometry(1, 32, (56, 56), 16, Window((1, 1))),
    ConvGeometry(2, 16, (4, 4, 3), 8, Window((1, 1, 1))),
])  # fmt: skip
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_images_of_1_x_1_that_are_read_as_they_are(device, direction, g, dtype):
    check(device, "packed", direction, g, dtype=dtype)


def test_planes_are_the_remainders_that_the_kernel_meets():
    g = ConvGeometry(1, 1, (9, 9), 1, Window((1, 3), (2, 2)))
    assert space_to_depth.Planes(g, False).phases.tolist() == [[0, 0, 0], [0, 0, 1]]
    jobs, *_ = packed_gemm.Panels(space_to_depth.Planes(g, True), 16, 4, 4).tables
    assert len(jobs) == 4  # which of them a place of dx is


def test_a_panel_is_read_in_pieces_each_written_over_the_one_before():
    g = ConvGeometry(2, 1, (6, 6), 1, Window((3, 3), pad=(1, 1)))
    given = packed_gemm.Panels(space_to_depth.Planes(g, False), 4, 3, 0)
    *_, blocks, pieces, runs = given.tables
    assert blocks[0].tolist() == [72, 0, 24, 0, 1] and runs[0].tolist() == [0, 72, 0]
    assert pieces[:4].tolist() == [[0, 0], [4, 4], [7, 6], [11, 10]]
    assert pieces[4].tolist() == [14, given.apart] and given.apart == 9 * 12 + 4
