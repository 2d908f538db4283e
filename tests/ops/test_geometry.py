"""Every rule about sizes against counting: windows one by one, positions one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import references as ref
from ops.cases import cases, conv_axis, pool_axis, windows

from minicaffe.errors import ShapeError
from minicaffe.ops.geometry import (
    ConvGeometry,
    Window,
    conv_output_size,
    pool_output_size,
    valid_range,
    window_sizes,
)

sizes = st.integers(1, 12)
pads = st.integers(0, 6)


@cases(300)
@given(sizes, st.integers(1, 6), st.integers(1, 8), pads, st.integers(1, 4))
def test_conv_output_size_counts_the_windows(size, kernel, stride, pad, dilation):
    count = ref.conv_count(size, kernel, stride, pad, dilation)
    if count:
        assert conv_output_size(size, kernel, stride, pad, dilation) == count
    else:
        extent = dilation * (kernel - 1) + 1
        with pytest.raises(ShapeError, match=f"extent {extent} .* image of {size} padded by {pad}"):
            conv_output_size(size, kernel, stride, pad, dilation)


@cases(300)
@given(sizes, st.integers(1, 6), st.integers(1, 8), pads, st.booleans())
def test_pool_output_size_counts_the_windows(size, kernel, stride, pad, ceil):
    if size + 2 * pad < kernel:
        with pytest.raises(ShapeError, match=f"window of {kernel} does not fit an image of {size}"):
            pool_output_size(size, kernel, stride, pad, ceil)
    elif pad >= kernel:
        with pytest.raises(ShapeError, match=f"pad {pad} must be smaller than the window"):
            pool_output_size(size, kernel, stride, pad, ceil)
    else:
        count = ref.pool_count(size, kernel, stride, pad, ceil)
        assert pool_output_size(size, kernel, stride, pad, ceil) == count


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "expected"),
    [
        (224, 3, 2, 0, 112),  # pool1 of GoogLeNet: one column less would be rounding down
        (55, 3, 2, 0, 27),  # pool1 of AlexNet
        (5, 2, 2, 1, 3),
        (4, 2, 3, 1, 2),  # a third window would begin behind the image
        (5, 1, 3, 0, 3),  # without padding Caffe keeps it, though it sees nothing
        (1, 1, 1, 0, 1),
    ],
)
def test_pool_output_sizes_of_caffe(size, kernel, stride, pad, expected):
    assert pool_output_size(size, kernel, stride, pad) == expected


@cases(200)
@given(pool_axis(), st.booleans())
def test_window_sizes_count_the_positions_in_the_padded_image(axis, ceil):
    size, kernel, stride, pad = axis
    count = ref.pool_count(size, kernel, stride, pad, ceil)
    found = window_sizes(size, count, kernel, stride, pad)
    starts = [o * stride - pad for o in range(count)]
    inside = [sum(-pad <= s + k < size + pad for k in range(kernel)) for s in starts]
    assert [max(length, 0) for length in found] == inside


@cases(300)
@given(sizes, sizes, st.integers(-12, 20), st.integers(1, 6))
def test_valid_range_lists_what_falls_inside(size, count, offset, stride):
    outputs, inputs = valid_range(size, count, offset, stride)
    pairs = [(o, o * stride + offset) for o in range(count)]
    pairs = [(o, i) for o, i in pairs if 0 <= i < size]
    assert list(range(count))[outputs] == [o for o, _ in pairs]
    assert list(range(size))[inputs] == [i for _, i in pairs]


@cases(60)
@given(windows(conv_axis()))
def test_elements_list_every_tap_of_every_kernel_element(drawn):
    image, window = drawn
    out = ref.conv_sizes(image, window)
    found = []
    for i, j, (oy, ox), (iy, ix) in window.elements(image, out):
        rows = zip(range(out[0])[oy], range(image[0])[iy], strict=True)
        columns = list(zip(range(out[1])[ox], range(image[1])[ix], strict=True))
        found += [(a, b, i, j, y, x) for a, y in rows for b, x in columns]
    assert sorted(found) == sorted(ref.taps(image, window, out))


def test_a_convolution_knows_its_shapes():
    g = ConvGeometry(3, 4, 9, 8, 6, Window((3, 2), (2, 1), (1, 0), (2, 3)), group=2)
    assert (g.oh, g.ow) == ref.conv_sizes((9, 8), g.window) == (4, 5)
    assert g.weight_shape == (6, 2, 3, 2)
    assert g.column_shape == (4 * 3 * 2, 4 * 5)
    assert g.multiply_adds == 3 * 6 * 4 * 5 * 2 * 3 * 2
