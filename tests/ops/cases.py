"""What the tests of the ops share: shapes to draw, poisoned buffers, how close is close enough."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from minicaffe.ops.geometry import ConvGeometry, Window

LONG = False  # --long, by conftest.py
TOLERANCE = {"f": 1e-5, "d": 1e-12}

dtypes = st.sampled_from([np.float32, np.float64])
seeds = st.integers(0, 2**32 - 1)
batches = st.sampled_from([1, 2, 1, 2, 1, 2, 1, 2, 0])


def cases(count):
    """Hypothesis settings for `count` examples, 20 times as many with --long."""
    health = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    many = count * 20 if LONG else count
    return settings(deadline=None, max_examples=many, suppress_health_check=health)


def put(device, array, dtype=None):
    """A copy of a host array on the device."""
    return device.asarray(np.array(array, dtype))


def blank(device, shape, dtype):
    """A buffer full of what no op may leave or read: NaN, -7 or True."""
    dtype = np.dtype(dtype)
    return device.asarray(np.full(shape, {"f": np.nan, "i": -7, "b": True}[dtype.kind], dtype))


def same(device, got, expected):
    """Equal, entry by entry."""
    np.testing.assert_array_equal(device.to_host(got), expected)


def close(device, got, expected):
    """Equal up to the rounding of a sum in the type of `got`."""
    host = device.to_host(got)
    tolerance = TOLERANCE.get(host.dtype.char, 0)
    finite = np.abs(expected)[np.isfinite(expected)]
    scale = max(1.0, float(finite.max(initial=0)))
    np.testing.assert_allclose(host, expected, rtol=tolerance, atol=tolerance * scale)


def numbers(seed, *shapes, dtype):
    """Arrays of numbers in [-1, 1)."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


@st.composite
def conv_axis(draw):
    """(size, kernel, stride, pad, dilation) of one axis, with room for a window at least."""
    kernel, stride, pad = (draw(st.integers(*ends)) for ends in ((1, 4), (1, 5), (0, 4)))
    dilation = draw(st.integers(1, 3))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * pad)
    return draw(st.integers(least, least + 4)), kernel, stride, pad, dilation


@st.composite
def pool_axis(draw):
    """(size, kernel, stride, pad) of one axis; the pad is smaller than the kernel."""
    kernel, stride = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    pad = draw(st.integers(0, kernel - 1))
    least = max(1, kernel - 2 * pad)
    return draw(st.integers(least, least + 5)), kernel, stride, pad


@st.composite
def windows(draw, axis):
    """(image, window): what `axis` draws, for rows and columns apart."""
    (h, *rows), (w, *columns) = draw(axis), draw(axis)
    return (h, w), Window(*zip(rows, columns, strict=True))


@st.composite
def convolutions(draw):
    """All the integers of a convolution."""
    (h, w), window = draw(windows(conv_axis()))
    group = draw(st.integers(1, 3))
    n, c, f = draw(batches), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    return ConvGeometry(n, c * group, h, w, f * group, window, group)


def rectangle(n, c, h, w, f, *window, group=1):
    """A convolution whose sizes along rows and columns all differ."""
    return ConvGeometry(n, c, h, w, f, Window(*window), group)


EDGES = [
    rectangle(1, 1, 1, 1, 1, (1, 1)),  # one pixel
    rectangle(2, 2, 1, 1, 2, (3, 3), (1, 1), (1, 1)),  # one pixel, seen through padding
    rectangle(1, 1, 5, 4, 2, (5, 4)),  # the kernel is the image
    rectangle(1, 2, 7, 6, 1, (1, 2), (3, 4)),  # pixels that no window sees
    rectangle(1, 1, 2, 3, 1, (2, 2), (1, 1), (3, 4)),  # windows that see no pixel
    rectangle(2, 4, 5, 7, 6, (2, 3), (1, 2), (1, 0), (2, 1), group=2),
    rectangle(1, 3, 4, 5, 3, (3, 2), (2, 1), (0, 1), (1, 3), group=3),  # depthwise
    rectangle(0, 2, 4, 4, 2, (3, 3)),  # no sample
]
