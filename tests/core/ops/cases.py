"""What the tests of the ops share: shapes to draw, poisoned buffers, how close is close enough."""

import itertools

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from minicaffe.backends import cpu
from minicaffe.core.ops.geometry import ConvGeometry, Window

LONG = FULL = False  # --long, --full, by conftest.py
GRAIN = 0.0  # what `numbers` are multiples of, but for 0: a test may ask for ones that 16 bits hold
LOOPS = cpu.available()  # before any test hides them
TOLERANCE = {"e": 2e-3, "E": 8e-3, "f": 1e-5, "d": 1e-12}  # E is bfloat16

dtypes = st.sampled_from([np.float32, np.float64])
seeds = st.integers(0, 2**32 - 1)
batches = st.sampled_from([1, 2, 1, 2, 1, 2, 1, 2, 0])


def cases(count):
    """Hypothesis settings: half of `count` examples, and 20 times `count` with --long."""
    return settings(max_examples=count * 20 if LONG else -(-count // 2))


def pairs(*axes, when=lambda *row: True):
    """Rows of the axes' product in which any two values of two axes meet; with --long, all rows."""
    rows = [row for row in itertools.product(*axes) if when(*row)]
    if LONG:
        return rows
    met = {i: set(itertools.combinations(enumerate(row), 2)) for i, row in enumerate(rows)}
    left, chosen = set().union(*met.values()), []
    while left:
        chosen.append(max(met, key=lambda i: len(met[i] & left)))
        left -= met[chosen[-1]]
    return [rows[i] for i in sorted(chosen)]


def need_loops():
    """Skip a test of compiled loops where there are none: no Numba, or MINICAFFE_NUMBA=0."""
    if not LOOPS:
        pytest.skip("no loops are compiled here")


def put(device, array, dtype=None):
    """A copy of a host array on the device."""
    return device.asarray(np.array(array, dtype))


def blank(device, shape, dtype):
    """A buffer full of what no op may leave or read: NaN, -7 or True."""
    dtype = np.dtype(dtype)
    return device.asarray(
        np.full(shape, {"f": np.nan, "V": np.nan, "i": -7, "b": True}[dtype.kind], dtype)
    )


def same(device, got, expected):
    """Equal, entry by entry."""
    np.testing.assert_array_equal(device.to_host(got), expected)


def close(device, got, expected, tolerances=TOLERANCE):
    """Equal up to the rounding of a sum in the type of `got`, relative to the largest that is expected."""
    host = device.to_host(got)
    tolerance = tolerances.get(host.dtype.char, 0)
    scale = max(1.0, float(np.abs(expected)[np.isfinite(expected)].max(initial=0)))
    np.testing.assert_allclose(host, expected, rtol=tolerance, atol=tolerance * scale)


def numbers(seed, *shapes, dtype):
    """Arrays of numbers in [-1, 1), or of multiples of GRAIN in [-1, 1]."""
    rng = np.random.default_rng(seed)
    drawn = (rng.uniform(-1, 1, shape) for shape in shapes)
    return [(np.round(a / GRAIN) * GRAIN if GRAIN else a).astype(dtype) for a in drawn]


@st.composite
def conv_axis(draw, axes=2, crop=0):
    """(size, kernel, stride, pad, dilation) of one axis, with room for a window at least.

    Small where there are three of them; with `crop`, the pad may be as low as minus that.
    """
    most = 4 if axes < 3 else 2
    kernel, stride = draw(st.integers(1, most)), draw(st.integers(1, 5))
    pad, dilation = draw(st.integers(-crop, most)), draw(st.integers(1, 3))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * pad)
    return draw(st.integers(least, least + most)), kernel, stride, pad, dilation


@st.composite
def pool_axis(draw):
    """(size, kernel, stride, pad) of one axis; the pad is smaller than the kernel."""
    kernel, stride = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    pad = draw(st.integers(0, kernel - 1))
    least = max(1, kernel - 2 * pad)
    return draw(st.integers(least, least + 5)), kernel, stride, pad


@st.composite
def windows(draw, *axes):
    """(image, window): one of `axes` draws each axis's numbers, rows and columns apart."""
    sizes, *parts = zip(*(draw(axis) for axis in axes), strict=True)
    return sizes, Window(*parts)


def conv_windows(crop=0):
    """(image, window) of a convolution with 1, 2 (mostly) or 3 axes."""
    axes = st.sampled_from([2, 1, 2, 3])
    return axes.flatmap(lambda many: windows(*[conv_axis(many, crop)] * many))


pool_windows = windows(pool_axis(), pool_axis())


@st.composite
def convolutions(draw):
    """All the integers of a convolution; a third each of any kind, 3x3 in steps of 1, and 1x1."""
    kind = draw(st.sampled_from(["any", "3x3", "1x1"]))
    image, window = draw(conv_windows())
    if kind == "3x3":
        image = draw(st.tuples(*[st.integers(3, 11)] * 2))
        window = Window((3, 3), pad=draw(st.tuples(*[st.integers(0, 2)] * 2)))
    elif kind == "1x1":
        window = Window((1,) * len(image), draw(st.sampled_from([(), window.stride])))
    group = draw(st.integers(1, 3))
    n, c, f = draw(st.integers(0, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return ConvGeometry(n, c * group, image, f * group, window, group)


def edge(n, c, image, f, *window, group=1):
    return ConvGeometry(n, c, image, f, Window(*window), group)


EDGES = {
    "one pixel": edge(1, 1, (1, 1), 1, (1, 1)),
    "one pixel seen through padding": edge(2, 2, (1, 1), 2, (3, 3), (1, 1), (1, 1)),
    "the kernel is the image": edge(1, 1, (5, 4), 2, (5, 4)),
    "3x3 is the image": edge(3, 2, (3, 3), 2, (3, 3)),
    "pixels that no window sees": edge(1, 2, (7, 6), 1, (1, 2), (3, 4)),
    "windows that see no pixel": edge(1, 1, (2, 3), 1, (2, 2), (1, 1), (3, 4)),
    "3x3 windows that see no pixel": edge(2, 2, (2, 3), 3, (3, 3), (1, 1), (4, 5)),
    "a stride larger than the kernel": edge(4, 2, (9, 8), 3, (2, 1), (3, 5), (1, 0)),
    "two groups": edge(2, 4, (5, 7), 6, (2, 3), (1, 2), (1, 0), (2, 1), group=2),
    "depthwise": edge(1, 3, (4, 5), 3, (3, 2), (2, 1), (0, 1), (1, 3), group=3),
    "depthwise 3x3, two filters a channel": edge(3, 3, (6, 5), 6, (3, 3), (1, 1), (1, 1), group=3),
    "depthwise 1x1": edge(3, 3, (2, 3), 3, (1, 1), group=3),
    "images of one place 1x1": edge(5, 7, (1, 1), 4, (1, 1)),
    "no sample": edge(0, 2, (4, 4), 2, (3, 3)),
    "no sample 1x1": edge(0, 2, (4, 4), 2, (1, 1)),
    "1x1 in steps": edge(2, 3, (5, 6), 2, (1, 1), (2, 3)),
    "1x1 with padding": edge(2, 3, (3, 2), 2, (1, 1), (1, 1), (1, 2)),
    "dilated past the image": edge(2, 2, (3, 4), 2, (3, 3), (1, 1), (3, 2), (3, 3)),
    "one axis": edge(3, 2, (9,), 3, (4,), (2,), (1,), (2,)),
    "one axis, one wide": edge(2, 3, (7,), 2, (1,)),
    "three axes": edge(2, 2, (3, 4, 5), 3, (2, 3, 2), (1, 2, 1), (1, 0, 2), (2, 1, 1)),
    "three axes in groups": edge(3, 4, (3, 3, 2), 2, (3, 3, 3), (1, 1, 1), (1, 1, 1), group=2),
    "three axes, one wide": edge(2, 3, (2, 3, 2), 4, (1, 1, 1)),
    "more channels than a tile": edge(3, 35, (7, 5), 37, (3, 3), (1, 1), (1, 1)),
    "more channels than a tile 1x1": edge(2, 70, (5, 7), 33, (1, 1)),
    "more places than a tile": edge(2, 3, (30, 35), 5, (3, 3), (1, 1), (1, 1)),
    "more columns than a tile": edge(2, 24, (15, 20), 3, (5, 5), (1, 2), (2, 1)),
    "LeNet's first": edge(2, 1, (28, 28), 20, (5, 5)),
    "LeNet's second": edge(2, 20, (12, 12), 50, (5, 5)),
}


def as_strided(x, shape, strides):
    """A view of a contiguous array with other strides (bytes), on either device."""
    if type(x) is not np.ndarray:
        from cupy.lib import stride_tricks

        return stride_tricks.as_strided(x, shape, strides)
    return np.ndarray(shape, x.dtype, x, 0, strides)
