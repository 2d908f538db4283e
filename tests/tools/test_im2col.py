"""The public im2col and col2im against loops and against each other; what they refuse, and in which words."""

import itertools
import math

import numpy as np
import pytest
from core.ops.cases import blank, cases, put
from hypothesis import given
from hypothesis import strategies as st
from kit import refusal

import minicaffe
from minicaffe import MinicaffeError, ShapeError, col2im, im2col
from minicaffe.backends.device import device as device_called
from minicaffe.backends.device import on_cuda

LAYOUTS = ("caffe", "columns", "rows")
X = np.arange(2 * 3 * 5 * 6, dtype=float).reshape(2, 3, 5, 6)


@st.composite
def windows(draw):
    """(image, keywords of a window that fits it): each size one number, or one an axis."""
    axes = draw(st.integers(1, 3))
    sizes = {}
    for key, ends in (
        ("kernel_size", (1, 4)),
        ("stride", (1, 3)),
        ("pad", (0, 3)),
        ("dilation", (1, 3)),
    ):
        one = st.integers(*ends)
        sizes[key] = draw(
            one | st.tuples(*[one] * axes) | st.lists(one, min_size=axes, max_size=axes)
        )
    wide = {key: [size] * axes if isinstance(size, int) else size for key, size in sizes.items()}
    least = [
        max(1, d * (k - 1) + 1 - 2 * p)
        for k, p, d in zip(wide["kernel_size"], wide["pad"], wide["dilation"], strict=True)
    ]
    return tuple(size + draw(st.integers(0, 3)) for size in least), sizes


def axis_places(size, k, s, p, d):
    """For each window along an axis, the pixel of each kernel element; None in the padding."""
    starts = range(-p, size + p - d * (k - 1), s)
    return [[i if 0 <= i < size else None for i in range(a, a + d * k, d)] for a in starts]


def by_loops(x, kernel_size, stride=1, pad=0, dilation=1, layout="caffe"):
    """im2col entry by entry, from the definition."""
    image = x.shape[2:]
    parts = [
        [part] * len(image) if isinstance(part, int) else part
        for part in (kernel_size, stride, pad, dilation)
    ]
    along = [axis_places(size, *part) for size, *part in zip(image, *parts, strict=True)]
    # Per window: the pixels of its elements along each axis
    places = list(itertools.product(*along))
    rows = x.shape[1] * math.prod(parts[0])
    shape = {
        "caffe": (x.shape[0], rows, len(places)),
        "columns": (rows, x.shape[0] * len(places)),
        "rows": (x.shape[0] * len(places), rows),
    }[layout]
    col = np.zeros(shape, x.dtype)
    for s, (p, window) in itertools.product(range(x.shape[0]), enumerate(places)):
        for r, (c, *pixel) in enumerate(itertools.product(range(x.shape[1]), *window)):
            one = s * len(places) + p
            at = {"caffe": (s, r, p), "columns": (r, one), "rows": (one, r)}[layout]
            col[at] = 0 if None in pixel else x[(s, c, *pixel)]
    return col


def strided(device, array, how):
    """The same numbers on the device, with other distances between them."""
    if how == "transposed":
        return put(device, array.T).T
    if how == "every other":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return put(device, wide)[..., ::2]
    return put(device, array)


@pytest.fixture(params=["loops as they are", "NumPy"])
def forms(request, monkeypatch):
    """With compiled loops where Numba is there, and without."""
    if request.param == "NumPy":
        monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: False)


how = st.sampled_from(["plain", "transposed", "every other"])
dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.int64])
seeds, layouts = st.integers(0, 2**32 - 1), st.sampled_from(LAYOUTS)


@cases(100)
@given(windows(), st.integers(0, 2), st.integers(1, 2), layouts, dtypes, seeds, how, how)
def test_against_loops_and_adjoint(device, forms, drawn, n, c, layout, dtype, seed, how_x, how_c):
    """Whole numbers, so that every sum is exact: <im2col(x), c> = <x, col2im(c)>."""
    image, sizes = drawn
    dtype = np.float64 if device.is_cuda and dtype is np.int64 else dtype
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, (n, c, *image)).astype(dtype)
    wanted = by_loops(x, **sizes, layout=layout)
    col = device.to_host(im2col(strided(device, x, how_x), **sizes, layout=layout))
    np.testing.assert_array_equal(col, wanted)
    c_hat = rng.integers(-4, 5, col.shape).astype(dtype)
    back = device.to_host(col2im(strided(device, c_hat, how_c), x.shape, **sizes, layout=layout))
    assert col.dtype == back.dtype == dtype
    assert back.shape == x.shape
    assert (col.astype(float) * c_hat).sum() == (x.astype(float) * back).sum()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_is_filled_and_given_back(device, layout):
    out = blank(device, by_loops(X, 3, layout=layout).shape, float)
    assert im2col(put(device, X), 3, layout=layout, out=out) is out
    np.testing.assert_array_equal(device.to_host(out), by_loops(X, 3, layout=layout))
    image = blank(device, X.shape, float)
    assert col2im(out, X.shape, 3, layout=layout, out=image) is image
    wanted = device.to_host(col2im(out, X.shape, 3, layout=layout))
    np.testing.assert_array_equal(device.to_host(image), wanted)


def test_every_form_of_a_kernel_gives_the_same(cuda):
    x = put(cuda, X)
    for layout in LAYOUTS:
        col = cuda.to_host(im2col(x, 3, 2, 1, layout=layout, form="loopfree"))
        np.testing.assert_array_equal(col, by_loops(X, 3, 2, 1, layout=layout))
        there = put(cuda, col)
        gathered, scattered = (
            cuda.to_host(col2im(there, X.shape, 3, 2, 1, layout=layout, form=form))
            for form in ("gather", "scatter")
        )
        np.testing.assert_array_equal(gathered, scattered)


def test_half_precision_is_summed_in_single():
    col = np.full((1, 1024, 1), np.float16(0.1))
    col[0, 0, 0] = 2048
    summed = col2im(np.tile(col[:, :9], (1, 1, 9)), (1, 1, 5, 5), 3)
    assert summed.dtype == np.float16
    exact = col2im(np.tile(col[:, :9], (1, 1, 9)).astype(float), (1, 1, 5, 5), 3)
    np.testing.assert_array_equal(summed, exact.astype(np.float16))


def test_lists_and_other_byte_orders_are_taken():
    assert im2col([[[1.0, 2.0, 3.0]]], 2).tolist() == [[[1, 2], [2, 3]]]
    swapped = im2col(X.astype(X.dtype.newbyteorder()), np.array([2, 3]), np.int64(2))
    np.testing.assert_array_equal(swapped, im2col(X, (2, 3), 2))
    assert swapped.dtype == X.dtype


WORDS = [
    (lambda: im2col(X[0, 0], 3), ShapeError, "expected a batch (n, c, *image), image of 1 to 3 axes, got (5, 6)"),
    (lambda: im2col(X.reshape(1, 1, 2, 3, 5, 6), 3), ShapeError, "image of 1 to 3 axes, got (1, 1, 2, 3, 5, 6)"),
    (lambda: im2col(X, 7), ShapeError, "a kernel of extent 7 does not fit an image of 5 padded by 0"),
    (lambda: im2col(X, 3, dilation=(1, 3)), ShapeError, "a kernel of extent 7 does not fit an image of 6"),
    (lambda: im2col(X, (3, 3, 3)), ShapeError, "kernel_size: expected one number or 2, one an axis, got 3"),
    (lambda: im2col(X, 2.0), ShapeError, "kernel_size: expected an integer or 2 of them, one an axis, got 2.0"),
    (lambda: im2col(X, "33"), ShapeError, "kernel_size: expected an integer or 2 of them"),
    (lambda: im2col(X, None), ShapeError, "kernel_size: expected an integer or 2 of them"),
    (lambda: im2col(X, 0), ShapeError, "kernel_size: expected at least 1, got 0"),
    (lambda: im2col(X, 3, stride=(1, 0)), ShapeError, "stride: expected at least 1, got 0"),
    (lambda: im2col(X, 3, pad=-1), ShapeError, "pad: expected at least 0, got -1"),
    (lambda: im2col(X, 3, dilation=0), ShapeError, "dilation: expected at least 1, got 0"),
    (lambda: im2col(X, 1, pad=10**30), ShapeError, "a result of shape (2, 3, "),
    (lambda: im2col(X, 3, layout="row"), ShapeError, "did you mean 'rows'?"),
    (lambda: im2col(X, 3, form="loop-free"), MinicaffeError, "expected caffe or loopfree, got 'loop-free'; did you"),
    (lambda: im2col(X > 3, 3), MinicaffeError, "x: expected an array of real numbers, got bool"),
    (lambda: im2col(X + 1j, 3), MinicaffeError, "x: expected an array of real numbers, got complex128"),
    (lambda: im2col([["a"]], 3), MinicaffeError, "x: expected an array of real numbers, got <U1"),
    (lambda: im2col(X, 3, out=np.empty((2, 27, 11))), ShapeError, "out: expected shape (2, 27, 12), got (2, 27, 11)"),
    (lambda: im2col(X, 3, out=np.empty((2, 27, 12), "f")), MinicaffeError, "out: expected float64, got float32"),
    (lambda: im2col(X, 3, out=np.empty((12, 27, 2)).T), MinicaffeError, "out: expected a C-contiguous array"),
    (lambda: im2col(X, 3, out=[0]), MinicaffeError, "out: expected a numpy array, got list"),
    (lambda: col2im(np.ones((2, 27, 11)), X.shape, 3), ShapeError,
     "col: 'caffe' columns of (2, 3, 5, 6) are (2, 27, 12), got (2, 27, 11)"),
    (lambda: col2im(np.ones((2, 27, 12)), X.shape, 3, layout="rows"), ShapeError, "are (24, 27), got (2, 27, 12)"),
    (lambda: col2im(np.ones((2, 27, 12)), (5, 6), 3), ShapeError, "expected a batch (n, c, *image)"),
    (lambda: col2im(np.ones((2, 27, 12)), 5, 3), ShapeError, "x_shape: expected integers, got 5"),
    (lambda: col2im(np.ones((2, 27, 12)), X.shape, 3, form="add"), MinicaffeError, "expected gather or scatter"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), WORDS)
def test_what_cannot_be_is_said_in_one_line(call, error, words):
    told = refusal(call, error=error)
    assert words in told and "\n" not in told


def test_arrays_of_two_devices_are_refused(cuda):
    assert not on_cuda(put(device_called("cpu"), X))
    with pytest.raises(MinicaffeError, match="out: expected a cupy array, got ndarray"):
        im2col(put(cuda, X), 3, out=np.empty((2, 27, 12)))


def test_whole_numbers_are_refused_on_cuda(cuda):
    with pytest.raises(MinicaffeError, match="x: expected one of float16, .* on CUDA, got int64"):
        im2col(put(cuda, X.astype(np.int64)), 3)


def test_they_are_public():
    assert {"im2col", "col2im"} <= set(minicaffe.__all__)
