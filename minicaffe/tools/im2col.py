"""The public im2col and col2im: sizes as numbers or one an axis, arrays of any kind, errors with a reason.

Layers call the ops themselves (`minicaffe.core.ops.im2col`), which take a Window and trust their caller.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backends.device import FLOATS, device_of
from minicaffe.core.ops import im2col as op
from minicaffe.core.ops.geometry import AXES, Sizes, Window, column_shape, known_layout
from minicaffe.errors import MinicaffeError, ShapeError, did_you_mean

Size = int | Sequence[int]


def im2col(
    x: Any,
    kernel_size: Size,
    stride: Size = 1,
    pad: Size = 0,
    dilation: Size = 1,
    layout: str = "caffe",
    out: Any = None,
    form: str = "caffe",
) -> Any:
    """The windows of a batch of images as the columns, or rows, of a matrix.

    x is (n, c, *image) with an image of 1 to 3 axes: real numbers in NumPy, floating-point ones in CuPy.
    kernel_size, stride, pad and dilation are one number, or one an axis. A window (oy, ox) holds

        x[s, c, oy stride - pad + i dilation, ox stride - pad + j dilation]        0 in the padding

    as row r = (c kh + i) kw + j of its column, p = oy ow + ox. With R = c kernel rows, P = oh ow windows:

        caffe    (n, R, P)    col[s, r, p]      a matrix a sample
        columns  (R, n P)     col[r, s P + p]   a column a window
        rows     (n P, R)     col[s P + p, r]   a row a window

    `out` takes the result: C-contiguous, of that shape and of x's type, and no part of x. On CUDA, `form`
    is the kernel: `caffe` (a thread a window and channel) or `loopfree` (a thread an entry).
    Raises ShapeError if sizes do not fit, MinicaffeError for other arguments that cannot be.

    >>> import numpy as np
    >>> im2col(np.arange(9).reshape(1, 1, 3, 3), kernel_size=2)[0]
    array([[0, 1, 3, 4],
           [1, 2, 4, 5],
           [3, 4, 6, 7],
           [4, 5, 7, 8]])
    >>> im2col(np.ones((8, 3, 32, 32)), 5, stride=2, pad=(2, 0), layout="columns").shape
    (75, 1792)
    """
    _choice("form", form, ("caffe", "loopfree"))
    with device_of(x).current():
        x = _numbers(x, "x")
        window = _window(x.shape, kernel_size, stride, pad, dilation)
        shape = column_shape(x.shape, window, known_layout(layout))
        return op.im2col(x, window, _out(out, shape, x), layout, form)  # type: ignore[arg-type]


def col2im(
    col: Any,
    x_shape: Sequence[int],
    kernel_size: Size,
    stride: Size = 1,
    pad: Size = 0,
    dilation: Size = 1,
    layout: str = "caffe",
    out: Any = None,
    form: str = "gather",
) -> Any:
    """The adjoint of `im2col`: every pixel is the sum of the entries that im2col would read from it.

        <im2col(x), col> = <x, col2im(col)>     for all x and col

    It is how a gradient flows back through im2col; and col2im(im2col(x)) is x times the number of windows
    that see each pixel. col has the shape that im2col returns for x_shape = (n, c, *image); the result has
    x_shape. float16 is summed in float32, integers wrap around as NumPy's do. On CUDA, `form` is the kernel:
    `gather` (a thread a pixel, always in one order) or `scatter` (atomic additions). All else as in `im2col`.

    >>> import numpy as np
    >>> col2im(np.ones((1, 4, 4)), (1, 1, 3, 3), kernel_size=2)[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    _choice("form", form, ("gather", "scatter"))
    with device_of(col).current():
        col = _numbers(col, "col")
        shape = _sizes("x_shape", x_shape, 0)
        window = _window(shape, kernel_size, stride, pad, dilation)
        wanted = column_shape(shape, window, known_layout(layout))
        if col.shape != wanted:
            raise ShapeError(f"col: {layout!r} columns of {shape} are {wanted}, got {col.shape}")
        out = _out(out, shape, col)
        if col.dtype == np.float16 and not device_of(col).is_cuda:
            wide = np.empty(shape, np.float32)
            out[...] = op.col2im(col.astype(np.float32), window, wide, layout)  # type: ignore[arg-type]
            return out
        return op.col2im(col, window, out, layout, form)  # type: ignore[arg-type]


def _numbers(array: Any, name: str) -> Any:
    """Real numbers as a C-contiguous array in the machine's byte order, copied only if it is not."""
    device = device_of(array)
    array = device.xp.asarray(array)
    if device.is_cuda and array.dtype.name not in FLOATS:
        problem = f"expected one of {', '.join(FLOATS)} on CUDA, got {array.dtype}"
        raise MinicaffeError(f"{name}: {problem}")
    if not device.is_cuda and array.dtype.kind not in "fiu":
        raise MinicaffeError(f"{name}: expected an array of real numbers, got {array.dtype}")
    return device.xp.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _window(x_shape: Sizes, *parts: Size) -> Window:
    axes = len(x_shape) - 2
    if not 1 <= axes <= AXES:
        raise ShapeError(
            f"expected a batch (n, c, *image), image of 1 to {AXES} axes, got {x_shape}"
        )
    rows = zip(parts, (("kernel_size", 1), ("stride", 1), ("pad", 0), ("dilation", 1)), strict=True)
    return Window(*(_sizes(name, part, least, axes) for part, (name, least) in rows))


def _sizes(name: str, value: Any, least: int, axes: int | None = None) -> Sizes:
    """Integers of at least `least`; with `axes`, one of them stands for so many."""
    try:
        one = axes is not None and not isinstance(value, Sequence) and np.ndim(value) == 0
        sizes = tuple(map(operator.index, [value] if one else value))
    except TypeError:
        what = "integers" if axes is None else f"an integer or {axes} of them, one an axis"
        raise ShapeError(f"{name}: expected {what}, got {value!r}") from None
    if one:
        sizes *= axes or 1
    if axes not in (None, len(sizes)):
        raise ShapeError(f"{name}: expected one number or {axes}, one an axis, got {len(sizes)}")
    if sizes and min(sizes) < least:
        raise ShapeError(f"{name}: expected at least {least}, got {min(sizes)}")
    return sizes


def _out(out: Any, shape: Sizes, like: Any) -> Any:
    """`out` if it can take a result of this shape, of the type and on the device of `like`; else a new one."""
    device = device_of(like)
    xp = device.xp
    if out is None:
        device.check_fits(math.prod(shape) * like.dtype.itemsize, f"a result of shape {shape}")
        return xp.empty(shape, like.dtype)
    if not isinstance(out, xp.ndarray):
        raise MinicaffeError(f"out: expected a {xp.__name__} array, got {type(out).__name__}")
    if out.shape != shape:
        raise ShapeError(f"out: expected shape {shape}, got {out.shape}")
    if out.dtype != like.dtype:
        raise MinicaffeError(f"out: expected {like.dtype}, got {out.dtype}")
    if device_of(out).name != device.name:
        raise MinicaffeError(f"out: expected an array on {device.name}, got one on {out.device}")
    if not (out.flags.c_contiguous and getattr(out.flags, "writeable", True)):
        raise MinicaffeError("out: expected a C-contiguous array that can be written")
    return out


def _choice(name: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        hint = did_you_mean(str(word), known)
        raise MinicaffeError(f"{name}: expected {' or '.join(known)}, got {word!r}{hint}")
