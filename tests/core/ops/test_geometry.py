"""Every rule about sizes against counting: windows one by one, positions one by one."""

import itertools

import pytest
from core.ops import references as ref
from core.ops.cases import cases, conv_axis, conv_windows, pool_axis, windows
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops.geometry import (
    Window,
    conv_output_size,
    deconv_output_size,
    lift,
    pool_output_size,
    valid_range,
    window_sizes,
)
from minicaffe.errors import ShapeError

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
@given(sizes, st.integers(1, 6), st.integers(1, 8), pads, st.integers(1, 4))
def test_deconv_output_size_is_the_least_that_gives_so_many_windows(
    count, kernel, stride, pad, dilation
):
    fitting = (
        size
        for size in range(1, 200)
        if ref.conv_count(size, kernel, stride, pad, dilation) == count
    )
    if stride * (count - 1) + dilation * (kernel - 1) + 1 - 2 * pad < 1:
        with pytest.raises(ShapeError, match=f"pad {pad} leaves nothing"):
            deconv_output_size(count, kernel, stride, pad, dilation)
    else:
        assert deconv_output_size(count, kernel, stride, pad, dilation) == next(fitting)


@cases(300)
@given(sizes, st.integers(1, 6), st.integers(1, 8), pads, st.booleans())
def test_pool_output_size_counts_the_windows(size, kernel, stride, pad, ceil):
    count = ref.pool_count(size, kernel, stride, pad, ceil)
    if pad >= kernel:
        with pytest.raises(ShapeError, match=f"pad {pad} must be smaller than the window"):
            pool_output_size(size, kernel, stride, pad, ceil)
    elif not count:
        with pytest.raises(ShapeError, match=f"window of {kernel} does not fit an image of {size}"):
            pool_output_size(size, kernel, stride, pad, ceil)
    else:
        assert pool_output_size(size, kernel, stride, pad, ceil) == count


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


@cases(120)
@given(st.integers(1, 3).flatmap(lambda axes: windows(*[conv_axis(axes, crop=1)] * axes)))
def test_elements_list_every_tap_of_every_kernel_element(drawn):
    image, window = drawn
    out = ref.conv_sizes(image, window)
    assert window.outputs(image) == out
    found = []
    for element, outputs, pixels in window.elements(image, out):
        along = [
            zip(range(many)[places], range(size)[seen], strict=True)
            for many, places, size, seen in zip(out, outputs, image, pixels, strict=True)
        ]
        for pairs in itertools.product(*along):
            o, i = zip(*pairs, strict=True)
            found.append((o, element, i))
    assert sorted(found) == sorted(ref.taps(image, window, out))


@cases(120)
@given(conv_windows())
def test_a_window_that_lacks_parts_moves_by_one_without_padding(drawn):
    _, window = drawn
    ones, zeros = (1,) * len(window.kernel), (0,) * len(window.kernel)
    assert Window(window.kernel) == Window(window.kernel, ones, zeros, ones)
    assert Window(window.kernel, pad=window.pad) == Window(window.kernel, ones, window.pad, ones)
    # One tap has no dilation
    assert window.is_point == (set(window.kernel + window.stride) == {1} and not any(window.pad))


@cases(120)
@given(conv_windows())
def test_three_axes_of_which_some_are_of_size_1_have_the_same_taps(drawn):
    image, window = drawn
    lifted, out = Window(*window.lifted()), ref.conv_sizes(image, window)
    more = 3 - len(image)
    assert ref.conv_sizes(lift(image), lifted) == lift(out) == (1,) * more + out
    found = ref.taps(lift(image), lifted, lift(out))
    assert {(o[:more], k[:more], i[:more]) for o, k, i in found} <= {((0,) * more,) * 3}
    assert [(o[more:], k[more:], i[more:]) for o, k, i in found] == ref.taps(image, window, out)
