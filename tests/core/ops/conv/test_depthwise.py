"""What is `direct`'s alone: each channel by a kernel of its own, in tiles of every width."""

import numpy as np
import pytest
from core.ops.cases import cases, dtypes, seeds
from core.ops.conv.test_conv import DIRECTIONS, check, check_threads, on_threads
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cuda import direct as cuda_direct
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
DIRECT = conv.ENGINES["direct"]
compiled = pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
anywhere = pytest.mark.parametrize("device", ["cpu-compiled", "cuda"], indirect=True)


@st.composite
def depthwise(draw):
    """Planes from a pixel to some vectors across, often by 3 x 3; pads beyond the kernel, too."""
    axes = draw(st.integers(1, 2))
    sizes = (st.integers(1, 9), st.integers(1, 45))[-axes:]
    image = tuple(draw(size) for size in sizes)
    kernel = (3,) * axes if draw(st.booleans()) else tuple(draw(st.integers(1, 5)) for _ in image)
    pad, dilation, stride = (
        tuple(draw(st.integers(low, 3)) for _ in image) if draw(st.booleans()) else (1,) * axes
        for low in (0, 1, 1)
    )
    c = draw(st.integers(1, 5))
    sizes = zip(image, kernel, pad, dilation, strict=True)
    fits = all((k - 1) * d < size + 2 * p for size, k, p, d in sizes)
    window = Window(kernel, stride, pad, dilation) if fits else Window((1,) * axes)
    return ConvGeometry(draw(st.integers(0, 3)), c, image, c, window, c)


@on_threads
@anywhere
@every_direction
@cases(60)
@given(depthwise(), st.booleans(), dtypes, seeds)
def test_depthwise_against_loops(device, direction, g, bias_term, dtype, seed):
    assert g.is_depthwise
    check(device, "direct", direction, g, bias_term=bias_term, dtype=dtype, seed=seed)


@anywhere
@every_direction
@pytest.mark.parametrize("width", [3, 4, 7, 8, 14, 16, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_width_of_tiles(device, direction, width, dtype):
    for height, kernel, stride in (
        *((2, 3, 1), (6, 3, 1), (6, 2, 1), (9, 3, 2)),
        *((11, 5, 1), (11, 5, 2), (11, 5, 3)),
    ):
        window = Window((kernel, kernel), (stride, stride), pad=(1, 1))
        g = ConvGeometry(2, 3, (height, width), 3, window, 3)
        check(device, "direct", direction, g, dtype=dtype)


@anywhere
@every_direction
@pytest.mark.parametrize("width", [8, 15, 16, 31, 32, 45, 70])
def test_strides_of_2_of_every_width(device, direction, width):
    """Columns are put apart 4, 8 or 16 at a time, and what is left one by one, from an even place or an odd one."""
    for height, pad in ((4, (0, 0)), (9, (1, 1)), (12, (2, 3)), (10, (0, 1))):
        g = ConvGeometry(2, 3, (height, width), 3, Window((3, 3), (2, 2), pad), 3)
        check(device, "direct", direction, g, dtype=np.float32)


@every_direction
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_columns_of_cuda_are_summed_in_parts(cuda, direction, kernel, stride):
    """As many as there is work for, in their order; and float64 is by the definition."""
    window = Window((kernel, kernel), (stride, stride), (1, 2))
    g = ConvGeometry(4, 3, (48 * stride, 45 * stride), 3, window, 3)
    check(cuda, "direct", direction, g, dtype=np.float32)
    assert DIRECT.cuda_workspace(g, 10**6, 4) == g.weight_shape[0] * kernel**2 * 4
    assert DIRECT.cuda_workspace(g, 50, 4) == 0
    taken = [cuda_direct._depthwise(g, np.empty(0, dtype)) for dtype in ("f2", "f4", "f8")]
    assert taken == [True, True, False]


@compiled
@every_direction
@pytest.mark.parametrize("kernel, dilation", [((3, 21), 1), ((1, 5), 9), ((2, 40), 1)])
def test_strides_of_kernels_wider_than_a_vector(device, direction, kernel, dilation):
    """A place's last element lies further behind its first than a row has room for a vector."""
    g = ConvGeometry(2, 3, (9, 61), 3, Window(kernel, (2, 2), (0, 0), (1, dilation)), 3)
    check(device, "direct", direction, g, dtype=np.float32)


@compiled
def test_where_a_channel_is_constant_all_places_are_the_same(device):
    """But at the edges: a maximum over them is the first."""
    g = ConvGeometry(1, 2, (9, 21), 2, Window((3, 3)), 2)
    x, weight = np.full(g.x_shape, 0.1, np.float32), np.full(g.weight_shape, 0.7, np.float32)
    y, work = np.empty(g.y_shape, np.float32), np.empty(DIRECT.workspace(g, 1), np.float32)
    DIRECT.forward(x, weight, None, g, y, work)
    assert (y == y[0, 0, 0, 0]).all()


@compiled
@every_direction
def test_the_same_bits_by_any_number_of_threads(monkeypatch, device, crew, direction):
    for stride in (1, 2):
        g = ConvGeometry(3, 5, (7, 19), 5, Window((3, 3), (stride, stride), pad=(1, 1)), 5)
        check_threads(monkeypatch, crew, device, "direct", direction, g)


def test_where_nothing_is_measured_depthwise_is_direct(device):
    g = ConvGeometry(2, 3, (6, 9), 3, Window((3, 3), pad=(1, 1)), 3)
    rule = Case(g, np.dtype(np.float32), device, 10**8).by_rule
    assert (rule == "direct") == (not device.is_cuda and DIRECT.is_compiled(np.float32))
